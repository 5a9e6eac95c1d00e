#include "daemon/fitness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/selftest.h"

#define TO(state) (1U << (unsigned)(state))

/* The drawing in fitness.h as a table; a device that fails twice is UNFIT twice. */
static const unsigned legal[] = {
    [FITNESS_FIT] = TO(FITNESS_UNFIT),
    [FITNESS_UNFIT] = TO(FITNESS_TESTING) | TO(FITNESS_UNFIT),
    [FITNESS_TESTING] = TO(FITNESS_FIT) | TO(FITNESS_UNFIT),
};

struct test {
    uv_work_t work;
    struct daemon *daemon;
    struct session_settings settings;
    struct session_binding binding;
    char sentence[256];
    struct err err;
};

static void set_state(struct daemon *daemon, enum fitness_state next)
{
    struct fitness *fitness = &daemon->fitness;
    ASSERT((legal[fitness->state] & TO(next)) != 0);
    fitness->state = next;
    members_heartbeat(daemon, true);
    daemon_soon(daemon);
}

uint64_t fitness_wait_ms(unsigned failures)
{
    ASSERT(failures >= 1);
    uint64_t wait_ms = FITNESS_WAIT_MS;
    for (unsigned i = 1; i < failures && wait_ms < FITNESS_WAIT_MS_MAX; i++) {
        wait_ms *= 2;
    }
    return wait_ms < FITNESS_WAIT_MS_MAX ? wait_ms : FITNESS_WAIT_MS_MAX;
}

static void unfit(struct daemon *daemon, const struct err *err)
{
    struct fitness *fitness = &daemon->fitness;
    struct member *self = members_self(daemon);
    fitness->failures++;
    uint64_t wait_ms = fitness_wait_ms(fitness->failures);
    fitness->test_ms = clock_now_ms() + wait_ms;
    daemon->selftest = *err;
    (void)snprintf(self->unfit, sizeof(self->unfit), "its device failed: %.400s", err->text);
    log_error("device.failed",
              "node=%s failures=%u error=\"%s\" next=\"no work here before its self-test has "
              "passed, in %llu s at the earliest\"",
              daemon->name, fitness->failures, err->text, (unsigned long long)(wait_ms / 1000));
    daemon_record(daemon, "unfit", "%s", err->text);
    set_state(daemon, FITNESS_UNFIT);
}

void fitness_fail(struct daemon *daemon, const struct err *err)
{
    if (daemon->fitness.state != FITNESS_TESTING) { /* It has no device then. */
        unfit(daemon, err);
    }
}

void fitness_prove(struct daemon *daemon)
{
    daemon->fitness.failures = 0;
}

static void run_test(uv_work_t *work)
{
    struct test *test = OWNER_OF(work, struct test, work);
    (void)selftest_run(&test->settings, /* backend= */ NULL, test->sentence, sizeof(test->sentence),
                       &test->binding, &test->err);
}

void fitness_conclude(struct daemon *daemon, const struct session_binding *binding,
                      const char *sentence, const struct err *err)
{
    if (err->code != 0) {
        struct err told = *err;
        (void)err_prefix(&told, "self-test: ");
        unfit(daemon, &told);
        return;
    }
    members_self(daemon)->unfit[0] = '\0';
    set_state(daemon, FITNESS_FIT);
    daemon_set_selftest(daemon, binding, NULL);
    daemon_event(daemon, "node %s can work again: %s", daemon->name, sentence);
    daemon_record(daemon, "fit", "%s", sentence);
}

void fitness_take_over(struct daemon *daemon, unsigned failures)
{
    daemon->fitness = (struct fitness){.state = FITNESS_TESTING, .failures = failures};
    (void)snprintf(members_self(daemon)->unfit, sizeof(members_self(daemon)->unfit),
                   "its device failed: the self-test of a new process is under way");
}

static void on_tested(uv_work_t *work, int status)
{
    struct test *test = OWNER_OF(work, struct test, work);
    struct daemon *daemon = test->daemon;
    (void)status;
    fitness_conclude(daemon, &test->binding, test->sentence, &test->err);
    free(test);
    daemon_work_ended(daemon);
}

void fitness_turn(struct daemon *daemon)
{
    struct fitness *fitness = &daemon->fitness;
    if (fitness->state != FITNESS_UNFIT || clock_now_ms() < fitness->test_ms ||
        daemon->run != NULL || daemon->closing != NULL || daemon->stopping) {
        return;
    }
    if (session_device_lost()) {
        daemon->hooks.on_device_lost(daemon->hooks.context, fitness->failures);
        return;
    }
    struct test *test = calloc(1, sizeof(*test));
    ASSERT(test != NULL);
    test->daemon = daemon;
    test->settings = (struct session_settings){.device = daemon->device,
                                               .threads = daemon->threads,
                                               .memory_bytes = daemon->memory_bytes,
                                               .share = daemon->device_share};
    set_state(daemon, FITNESS_TESTING);
    daemon_work_begun(daemon);
    ASSERT(uv_queue_work(daemon->loop, &test->work, run_test, on_tested) == 0);
}

bool fitness_testing(const struct daemon *daemon)
{
    return daemon->fitness.state == FITNESS_TESTING;
}

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/notify.h"
#include "tests/lib/unit.h"
#include "tests/unit/daemon/facts_fixture.h"

static uv_loop_t loop;
static struct notify notify;
static int manager; /* the service manager's end */
static char heard[65536];

/* As systemd does it: a datagram socket named by the environment (abstract, nothing to clean up).
 */
static void start(const char *watchdog_us)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int size = snprintf(name, sizeof(name), "@coppeliusd-test-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)size - 1);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)size)),
                     0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
    if (watchdog_us != NULL) {
        char pid[32];
        (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
        ck_assert_int_eq(setenv("WATCHDOG_USEC", watchdog_us, 1), 0);
        ck_assert_int_eq(setenv("WATCHDOG_PID", pid, 1), 0);
    }
    heard[0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    notify_open(&notify, &loop, fixture_facts());
}

static void stop(void)
{
    notify_close(&notify, NULL);
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0) {
    }
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    (void)close(manager);
}

/* One turn of the loop; appends what was said to `heard`. Whether that fed the dog. */
static bool turn(void)
{
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    char text[1024];
    ssize_t got = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (got <= 0) {
        (void)usleep(500);
        return false;
    }
    text[got] = '\0';
    (void)strncat(heard, text, sizeof(heard) - strlen(heard) - 1);
    (void)strncat(heard, "\n", sizeof(heard) - strlen(heard) - 1);
    return strcmp(text, "WATCHDOG=1") == 0;
}

/* At least so long, and so many turns: on a busy machine a turn may take long. How many fed the
 * dog. */
static unsigned turn_for(uint64_t ms)
{
    uint64_t end = clock_now_ms() + ms;
    unsigned fed = 0;
    for (uint64_t turns = 0; clock_now_ms() < end || turns < ms; turns++) {
        fed += turn() ? 1 : 0;
    }
    return fed;
}

/* Until it was fed so often, or for a minute. */
static void turn_until_fed(unsigned wanted)
{
    uint64_t end = clock_now_ms() + 60000;
    while (wanted > 0 && clock_now_ms() < end) {
        wanted -= turn() ? 1 : 0;
    }
    ck_assert_uint_eq(wanted, 0);
}

static void turn_until_heard(const char *what)
{
    uint64_t end = clock_now_ms() + 60000;
    while (strstr(heard, what) == NULL && clock_now_ms() < end) {
        (void)turn();
    }
}

#define HEARD(what)     ck_assert_msg(strstr(heard, (what)) != NULL, "not %s in: %s", (what), heard)
#define HEARD_NOT(what) ck_assert_msg(strstr(heard, (what)) == NULL, "%s in: %s", (what), heard)

START_TEST(ready_comes_when_said_and_status_follows)
{
    start(NULL);
    (void)turn_for(50);
    HEARD_NOT("READY");
    HEARD_NOT("STATUS");
    fixture.step = 30;
    notify_ready(&notify);
    turn_until_heard("STATUS=Follower");
    HEARD("READY=1");
    HEARD(
        "STATUS=Follower, 2 of 3 voters alive; job 1 california running, step 30 of 400, loss 0.1; "
        "last checkpoint ");
    HEARD_NOT("WATCHDOG");
    notify_reloading(&notify);
    notify_reloaded(&notify);
    notify_stopping(&notify, "stopping: SIGTERM");
    turn_until_heard("STOPPING=1");
    HEARD("RELOADING=1\nMONOTONIC_USEC=");
    HEARD("STOPPING=1\nSTATUS=stopping: SIGTERM");
    stop();
}
END_TEST

START_TEST(the_dog_is_fed_while_idle_or_advancing)
{
    start("300000");
    turn_until_fed(5);
    fixture.pulse.busy = true;
    for (unsigned i = 0; i < 8; i++) {
        fixture.pulse.ticks++;
        turn_until_fed(1);
    }
    stop();
}
END_TEST

START_TEST(the_dog_starves_when_compute_stands_still)
{
    start("300000");
    fixture.pulse.busy = true;
    (void)turn_for(400);
    ck_assert_uint_eq(turn_for(600), 0);
    fixture.pulse.ticks++;
    turn_until_fed(1);
    stop();
}
END_TEST

START_TEST(nobody_listening_is_fine)
{
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    notify_open(&notify, &loop, fixture_facts());
    notify_ready(&notify);
    (void)turn_for(20);
    stop();
}
END_TEST

START_TEST(a_name_with_a_line_feed_gives_no_further_command)
{
    char text[256];
    const struct facts *facts = fixture_facts();
    FIXTURE_TEXT(fixture.job_name, "x\nWATCHDOG=trigger");
    notify_status_text(facts, text, sizeof(text));
    ck_assert_ptr_null(strchr(text, '\n'));
    fixture.alone = true;
    notify_status_text(facts, text, sizeof(text));
    ck_assert_str_eq(text, "Leader, 1 of 1 voters alive; no job");
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("notify");
    TCase *tcase = tcase_create("systemd");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, ready_comes_when_said_and_status_follows);
    tcase_add_test(tcase, the_dog_is_fed_while_idle_or_advancing);
    tcase_add_test(tcase, the_dog_starves_when_compute_stands_still);
    tcase_add_test(tcase, nobody_listening_is_fine);
    tcase_add_test(tcase, a_name_with_a_line_feed_gives_no_further_command);
    suite_add_tcase(suite, tcase);
    return suite;
}

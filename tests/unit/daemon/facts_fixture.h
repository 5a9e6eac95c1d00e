/* A daemon that tells what a test wants it to: three nodes, one job with epochs, settable verbs. */
#ifndef COPPELIUS_TESTS_FACTS_FIXTURE_H
#define COPPELIUS_TESTS_FACTS_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "daemon/facts.h"

struct fixture {
    bool alone;     /* one node, no job */
    bool not_ready; /* one check fails */
    char job_name[FACTS_NAME_SIZE];
    char job_state[16];
    uint64_t step;
    uint64_t version;
    bool one_epoch; /* epoch 2 is not there yet */
    struct facts_pulse pulse;
    char folder[FACTS_PATH_SIZE]; /* of epoch 2 */
    /* A verb waits here until the test answers it. */
    facts_done_fn *done;
    void *done_context;
    facts_predicted_fn *predicted;
    void *predicted_context;
    char submitted[256];
    uint64_t verb_job;
    const char *verb;
    struct facts facts;
};

static struct fixture fixture;

#define FIXTURE_TEXT(field, ...) (void)snprintf((field), sizeof(field), __VA_ARGS__)

static void fixture_cluster(void *daemon, struct facts_cluster *ret)
{
    struct fixture *f = daemon;
    *ret = (struct facts_cluster){.node_id = 1,
                                  .leader_id = f->alone ? 1 : 2,
                                  .role = f->alone ? FACTS_LEADER : FACTS_FOLLOWER,
                                  .voters = f->alone ? 1 : 3,
                                  .voters_alive = f->alone ? 1 : 2,
                                  .incarnation = 0x1234,
                                  .term = 7,
                                  .last_index = 90,
                                  .commit_index = 89,
                                  .applied_index = 88,
                                  .wal_fsync = HISTOGRAM_LATENCY,
                                  .commit = HISTOGRAM_LATENCY};
    histogram_observe(&ret->wal_fsync, 0.004);
    FIXTURE_TEXT(ret->cluster, "home");
    FIXTURE_TEXT(ret->node, "a");
    FIXTURE_TEXT(ret->leader, "%s", f->alone ? "a" : "b");
}

static size_t fixture_nodes(void *daemon, struct facts_node *ret, size_t max)
{
    struct fixture *f = daemon;
    size_t count = f->alone ? 1 : 3;
    ASSERT(max >= count);
    for (size_t i = 0; i < count; i++) {
        ret[i] = (struct facts_node){
            .id = (uint32_t)i + 1,
            .self = i == 0,
            .connected = i != 2,
            .known = true,
            .state = i == 2 ? FACTS_DOWN : FACTS_ALIVE,
            .round_trip_s = i == 1 ? 0.0002 : -1,
            .heard_ms_ago = i == 2 ? UINT64_MAX : 12,
            .match_index = UINT64_MAX,
            .storage_free_bytes = UINT64_MAX,
            .traffic = {.gradient = {1000 * i, 2000 * i}, .data = {0, 300 * i}}};
        FIXTURE_TEXT(ret[i].name, "%c", (char)('a' + (int)i));
        FIXTURE_TEXT(ret[i].address, "127.0.0.1:%u", 7620U + (unsigned)i);
        FIXTURE_TEXT(ret[i].role, "trainer");
        FIXTURE_TEXT(ret[i].backend, "cpu");
    }
    return count;
}

static size_t fixture_job_ids(void *daemon, uint64_t *ret, size_t max)
{
    struct fixture *f = daemon;
    if (f->alone || max == 0) {
        return 0;
    }
    ret[0] = 1;
    return 1;
}

static bool fixture_job(void *daemon, uint64_t id, struct facts_job *ret)
{
    struct fixture *f = daemon;
    if (f->alone || id != 1) {
        return false;
    }
    memset(ret, 0, sizeof(*ret));
    ret->id = 1;
    FIXTURE_TEXT(ret->name, "%s", f->job_name[0] != '\0' ? f->job_name : "california");
    FIXTURE_TEXT(ret->kind, "regression");
    FIXTURE_TEXT(ret->backend, "cpu");
    FIXTURE_TEXT(ret->state, "%s", f->job_state[0] != '\0' ? f->job_state : "running");
    ret->ended = strcmp(ret->state, "succeeded") == 0;
    FIXTURE_TEXT(ret->policy, "f32-products-f64-accumulation-v1");
    ret->step = f->step;
    ret->steps = 400;
    ret->has_loss = true;
    ret->loss = 0.1;
    ret->nodes = 3;
    ret->generation = 2;
    ret->eta_s = -1;
    ret->steps_done = f->step;
    ret->submitted_ms = 1700000000000;
    ret->progress_ms = 1700000001000;
    ret->has_epoch = true;
    ret->epoch = f->one_epoch ? 1 : 2;
    ret->epoch_step = 20;
    ret->epoch_ms = 1700000002000;
    FIXTURE_TEXT(ret->checkpoint, "%s", f->folder);
    for (unsigned i = 0; i < FACTS_PHASES; i++) {
        ret->phases[i] = (struct histogram)HISTOGRAM_STEP;
        histogram_observe(&ret->phases[i], 0.05);
    }
    ret->parts_count = 2;
    ret->parts[0] = (struct facts_part){.node_id = 1, .first = 0, .end = 4, .weight = 3};
    ret->parts[1] = (struct facts_part){.node_id = 2, .first = 4, .end = 9, .weight = 5};
    FIXTURE_TEXT(ret->parts[0].node, "a");
    FIXTURE_TEXT(ret->parts[1].node, "b");
    return true;
}

static const char *fixture_job_text(void *daemon, uint64_t id)
{
    (void)daemon;
    return id == 1 ? "name: california\n" : NULL;
}

static size_t fixture_losses(void *daemon, uint64_t id, uint64_t after, struct facts_point *ret,
                             size_t max)
{
    struct fixture *f = daemon;
    size_t count = 0;
    for (uint64_t step = after + 1; id == 1 && step <= f->step && count < max; step++) {
        ret[count++] = (struct facts_point){.step = step, .loss = 1.0 / (double)step};
    }
    return count;
}

static uint64_t fixture_job_version(void *daemon, uint64_t id)
{
    struct fixture *f = daemon;
    (void)id;
    return f->version;
}

static size_t fixture_epoch_ids(void *daemon, uint64_t job, uint64_t *ret, size_t max)
{
    struct fixture *f = daemon;
    if (f->alone || job != 1 || max < 2) {
        return 0;
    }
    ret[0] = 1;
    ret[1] = 2;
    return 2;
}

static bool fixture_epoch(void *daemon, uint64_t job, uint64_t epoch, struct facts_epoch *ret)
{
    struct fixture *f = daemon;
    if (f->alone || job != 1 || epoch < 1 || epoch > 2) {
        return false;
    }
    memset(ret, 0, sizeof(*ret));
    ret->epoch = epoch;
    ret->step = 10 * epoch;
    ret->generation = 1;
    FIXTURE_TEXT(ret->state, "%s", epoch == 2 ? "published" : "collected");
    ret->current = epoch == 2;
    if (epoch == 2) {
        FIXTURE_TEXT(ret->folder, "%s", f->folder);
    }
    ret->shards_count = 1;
    FIXTURE_TEXT(ret->shards[0].name, "shard-1.safetensors");
    FIXTURE_TEXT(ret->shards[0].node, "a");
    return true;
}

static void fixture_publication(void *daemon, struct facts_publication *ret)
{
    (void)daemon;
    *ret = (struct facts_publication){.committed = 2,
                                      .capture = HISTOGRAM_STEP,
                                      .write = HISTOGRAM_STEP,
                                      .prepare = HISTOGRAM_STEP,
                                      .commit = HISTOGRAM_STEP};
}

static void fixture_session(void *daemon, struct facts_session *ret)
{
    (void)daemon;
    *ret = (struct facts_session){.open = true, .threads = 2, .arena_bytes = 4096, .issues = 12};
    FIXTURE_TEXT(ret->backend, "cpu");
    FIXTURE_TEXT(ret->state, "seeded");
    ret->regions_count = 1;
    ret->regions[0] = (struct facts_region){.offset = 0, .bytes = 72, .alignment = 256};
    FIXTURE_TEXT(ret->regions[0].name, "parameter");
}

static size_t fixture_checks(void *daemon, struct facts_check *ret, size_t max)
{
    struct fixture *f = daemon;
    ASSERT(max >= 2);
    ret[0] = (struct facts_check){.ok = true};
    FIXTURE_TEXT(ret[0].name, "selftest");
    FIXTURE_TEXT(ret[0].sentence, "the golden step gave its bits");
    ret[1] = (struct facts_check){.ok = !f->not_ready};
    FIXTURE_TEXT(ret[1].name, "raft");
    if (f->not_ready) {
        FIXTURE_TEXT(ret[1].sentence, "no leader is known");
        FIXTURE_TEXT(ret[1].hint, "start the other nodes");
    } else {
        FIXTURE_TEXT(ret[1].sentence, "b leads");
    }
    return 2;
}

static void fixture_pulse(void *daemon, struct facts_pulse *ret)
{
    *ret = ((struct fixture *)daemon)->pulse;
}

static int fixture_submit(void *daemon, const struct facts_submit *job, facts_done_fn *done,
                          void *context, struct err *err)
{
    struct fixture *f = daemon;
    if (job->text_size == 0) {
        return err_set(err, ERR_JOB, "job.yaml: empty");
    }
    FIXTURE_TEXT(f->submitted, "%.*s", (int)job->text_size, job->text);
    f->done = done;
    f->done_context = context;
    return 0;
}

static int fixture_verb(struct fixture *f, const char *verb, uint64_t job, facts_done_fn *done,
                        void *context)
{
    f->verb = verb;
    f->verb_job = job;
    f->done = done;
    f->done_context = context;
    return 0;
}

static int fixture_cancel(void *daemon, uint64_t job, facts_done_fn *done, void *context,
                          struct err *err)
{
    (void)err;
    return fixture_verb(daemon, "cancel", job, done, context);
}

static int fixture_pause(void *daemon, uint64_t job, facts_done_fn *done, void *context,
                         struct err *err)
{
    (void)err;
    return fixture_verb(daemon, "pause", job, done, context);
}

static int fixture_verify(void *daemon, uint64_t job, facts_done_fn *done, void *context,
                          struct err *err)
{
    (void)err;
    return fixture_verb(daemon, "verify", job, done, context);
}

static int fixture_prune(void *daemon, uint64_t job, uint32_t keep, facts_done_fn *done,
                         void *context, struct err *err)
{
    (void)keep;
    (void)err;
    return fixture_verb(daemon, "prune", job, done, context);
}

static int fixture_resume(void *daemon, uint64_t job, facts_done_fn *done, void *context,
                          struct err *err)
{
    (void)err;
    return fixture_verb(daemon, "resume", job, done, context);
}

static int fixture_predict(void *daemon, const struct facts_predict *question,
                           facts_predicted_fn *done, void *context, struct err *err)
{
    struct fixture *f = daemon;
    if (strcmp(question->data_path, "/absent") == 0) {
        return err_set(err, ERR_DATA, "/absent: no such file");
    }
    f->predicted = done;
    f->predicted_context = context;
    return 0;
}

static const struct facts *fixture_facts(void)
{
    memset(&fixture, 0, sizeof(fixture));
    fixture.facts = (struct facts){
        .daemon = &fixture,
        .cluster = fixture_cluster,
        .nodes = fixture_nodes,
        .job_ids = fixture_job_ids,
        .job = fixture_job,
        .job_text = fixture_job_text,
        .losses = fixture_losses,
        .job_version = fixture_job_version,
        .epoch_ids = fixture_epoch_ids,
        .epoch = fixture_epoch,
        .publication = fixture_publication,
        .session = fixture_session,
        .checks = fixture_checks,
        .pulse = fixture_pulse,
        .submit = fixture_submit,
        .cancel = fixture_cancel,
        .pause = fixture_pause,
        .resume = fixture_resume,
        .verify = fixture_verify,
        .prune = fixture_prune,
        .predict = fixture_predict,
    };
    return &fixture.facts;
}

#endif

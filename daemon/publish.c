/* Agents that turn agreed publications into files: one for each job that has a partition. The file
 * work runs on the libuv pool, one action a job at a time; the captures are held here until their
 * epoch is decided. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/capture.h"
#include "daemon/core.h"
#include "daemon/publish_room.h"

#define RETRY_MS   1000
#define PROPOSE_MS 500

struct publication *publication_find(const struct daemon *daemon, uint64_t job)
{
    for (struct publication *p = daemon->publications; p != NULL; p = p->next) {
        if (p->job == job) {
            return p;
        }
    }
    return NULL;
}

struct publication *publication_of(struct daemon *daemon, uint64_t job)
{
    struct publication *p = publication_find(daemon, job);
    if (p != NULL) {
        return p;
    }
    p = calloc(1, sizeof(*p));
    ASSERT(p != NULL);
    p->daemon = daemon;
    p->job = job;
    agent_init(&p->agent, job, member_id(daemon->node_id, daemon->life), daemon->incarnation);
    p->next = daemon->publications;
    daemon->publications = p;
    return p;
}

/* ---- captures ---- */

static void let_go(struct publication *p)
{
    struct agent_capture none = {0};
    capture_drop(p->capture);
    p->capture = NULL;
    agent_capture(&p->agent, &none);
}

struct digest_work {
    uv_work_t work;
    struct daemon *daemon;
    uint64_t job, generation, step;
    struct capture *capture; /* held: the vectors are its own; NULL: they are this work's */
    double *parameter, *accumulator;
    size_t count;
    uint8_t parameter_sha256[SHA256_SIZE], accumulator_sha256[SHA256_SIZE];
};

_Static_assert(sizeof(double) == 8, "binary64");

static void digest_run(uv_work_t *work)
{
    struct digest_work *digest = OWNER_OF(work, struct digest_work, work);
    /* Little endian is the machine's own order wherever this is built (x86-64, arm64). */
    sha256_of(digest->parameter, digest->count * sizeof(double), digest->parameter_sha256);
    sha256_of(digest->accumulator, digest->count * sizeof(double), digest->accumulator_sha256);
}

static void digest_done(uv_work_t *work, int status)
{
    struct digest_work *digest = OWNER_OF(work, struct digest_work, work);
    struct daemon *daemon = digest->daemon;
    struct publication *p = publication_find(daemon, digest->job);
    (void)status;
    if (p != NULL && p->capture != NULL && p->capture->generation == digest->generation &&
        p->capture->step == digest->step) {
        struct agent_capture said = p->agent.capture;
        said.vectors_ready = true;
        memcpy(said.parameter_sha256, digest->parameter_sha256, SHA256_SIZE);
        memcpy(said.accumulator_sha256, digest->accumulator_sha256, SHA256_SIZE);
        agent_capture(&p->agent, &said);
        p->idle = false;
    }
    if (digest->capture != NULL) {
        capture_drop(digest->capture);
    } else {
        free(digest->parameter);
        free(digest->accumulator);
    }
    free(digest);
    daemon_work_ended(daemon);
}

static struct digest_work *digest_new(struct daemon *daemon, uint64_t job, uint64_t generation,
                                      uint64_t step)
{
    struct digest_work *digest = calloc(1, sizeof(*digest));
    ASSERT(digest != NULL);
    digest->daemon = daemon;
    digest->job = job;
    digest->generation = generation;
    digest->step = step;
    return digest;
}

static void digest_start(struct digest_work *digest)
{
    daemon_work_begun(digest->daemon);
    ASSERT(uv_queue_work(digest->daemon->loop, &digest->work, digest_run, digest_done) == 0);
}

void publish_vectors(struct daemon *daemon, uint64_t job, uint64_t generation, uint64_t step,
                     double *parameter, double *accumulator, size_t count)
{
    struct digest_work *digest = digest_new(daemon, job, generation, step);
    digest->parameter = parameter;
    digest->accumulator = accumulator;
    digest->count = count;
    digest_start(digest);
}

void publish_capture(struct daemon *daemon, struct capture *capture)
{
    struct publication *p = publication_of(daemon, capture->job);
    if (p->capture != NULL) {
        let_go(p); /* An older one; it is decided, or nothing can come of it any more. */
    }
    p->capture = capture;
    p->idle = false;
    struct agent_capture said = {
        .generation = capture->generation,
        .step = capture->step,
        .ends = capture->ends,
        .content_ready = true,
        .vectors_ready = false,
        .loss_bits = command_bits_of(capture->loss),
    };
    agent_capture(&p->agent, &said);
    if (capture->whole) { /* The slices are the vectors. */
        struct digest_work *digest =
            digest_new(daemon, capture->job, capture->generation, capture->step);
        digest->capture = capture;
        capture_hold(capture);
        digest->parameter = capture->parameter;
        digest->accumulator = capture->accumulator;
        digest->count = capture->count;
        digest_start(digest);
    }
    daemon_soon(daemon);
}

uint64_t publish_current(const struct daemon *daemon, uint64_t job)
{
    const struct publication *p = publication_find(daemon, job);
    return p != NULL && p->agent.scanned ? p->agent.view.current : 0;
}

bool publish_holds_capture(const struct daemon *daemon, uint64_t job, uint64_t step)
{
    const struct publication *p = publication_find(daemon, job);
    return p != NULL && p->capture != NULL && p->capture->step == step;
}

void publish_report(const struct daemon *daemon, struct coordinator_report *ret_report)
{
    memset(ret_report, 0, sizeof(*ret_report));
    for (const struct publication *p = daemon->publications; p != NULL; p = p->next) {
        if (p->capture != NULL) {
            ret_report->job = p->job;
            ret_report->generation = p->capture->generation;
            ret_report->step = p->capture->step;
            ret_report->ends = p->capture->ends;
            return; /* One job runs at a time. */
        }
    }
}

bool publish_busy(const struct daemon *daemon)
{
    for (const struct publication *p = daemon->publications; p != NULL; p = p->next) {
        const struct state_job *job = state_job(&daemon->state, p->job);
        if (p->agent.busy || (p->capture != NULL && job != NULL && !state_job_ended(job))) {
            return true;
        }
        const struct state_epoch *newest = job != NULL ? state_newest_epoch(job) : NULL;
        if (newest != NULL && newest->generation == job->generation &&
            state_shard(newest, daemon->node_id) != NULL && !state_epoch_published(newest)) {
            return true;
        }
    }
    return false;
}

/* ---- actions ---- */

/* The convenience link: a failure is told and goes no further. */
static void link_latest(const struct publication *p)
{
    char name[MANIFEST_TEXT_SIZE];
    char fresh[DAEMON_PATH_SIZE + FOLDER_PATH_SIZE + 16];
    char link[DAEMON_PATH_SIZE + FOLDER_PATH_SIZE + 16];
    checkpoint_epoch_name(p->action.epoch, name);
    (void)snprintf(fresh, sizeof(fresh), "%s/%s/latest.new", p->daemon->state_dir,
                   p->action.folder);
    (void)snprintf(link, sizeof(link), "%s/%s/latest", p->daemon->state_dir, p->action.folder);
    if ((unlink(fresh) != 0 && errno != ENOENT) || symlink(name, fresh) != 0 ||
        rename(fresh, link) != 0) {
        log_warning("publish.latest", "link=\"%s\" error=\"%s\" next=ignored", link,
                    err_errno(errno));
    }
}

static void action_run(uv_work_t *work)
{
    struct publication *p = OWNER_OF(work, struct publication, work);
    if (p->action.kind == AGENT_COPY) {
        copies_run(p);
        return;
    }
    agent_execute(p->daemon->fs, &p->action, p->working != NULL ? &p->working->content : NULL,
                  &p->result);
    if (p->action.kind == AGENT_PUBLISH && p->result.code == 0 &&
        p->result.view.current == p->action.epoch) {
        link_latest(p);
    }
}

static void count_action(struct publication *p)
{
    struct facts_publication *stats = &p->daemon->publication_stats;
    double seconds = (double)(clock_now_ns() - p->started_ns) * 1e-9;
    if (p->action.kind == AGENT_STAGE && p->result.code == 0) {
        stats->bytes_written += p->result.size;
        histogram_observe(&stats->write, seconds);
    }
    if (p->action.kind == AGENT_PUBLISH && p->result.code == 0) {
        stats->committed++;
        histogram_observe(&stats->commit, seconds);
    }
}

static void action_done(uv_work_t *work, int status)
{
    struct publication *p = OWNER_OF(work, struct publication, work);
    struct daemon *daemon = p->daemon;
    (void)status;
    count_action(p);
    daemon->publications_sweep = true;
    capture_drop(p->working);
    p->working = NULL;
    if (p->result.fatal) { /* A folder's fsync failed: only a new process knows what is there. */
        (void)err_prefix(&p->result.err, "job %llu: publication: ", (unsigned long long)p->job);
        daemon->hooks.on_failed(daemon->hooks.context, &p->result.err);
        daemon_work_ended(daemon);
        return; /* The agent stays busy: nothing more is done to its files. */
    }
    if (p->result.repaired) {
        log_warning("publish.repaired",
                    "job=%llu epoch=%llu reason=\"'%s/CURRENT' named no epoch that is there; it "
                    "names the newest one again\"",
                    (unsigned long long)p->job, (unsigned long long)p->result.view.current,
                    p->action.folder);
    }
    copies_done(p);
    if (agent_done(&p->agent, &p->action, &p->result) != 0) {
        struct progress *progress = &members_self(daemon)->progress;
        if (progress->job == p->job) {
            (void)snprintf(progress->trouble, sizeof(progress->trouble),
                           "its checkpoints in '%s' get no further: %s", p->action.folder,
                           p->result.err.text);
            p->troubled = true;
        }
        p->retry_ms = clock_now_ms() + RETRY_MS;
        log_error("publish.failed", "job=%llu epoch=%llu error=\"%s\" next=\"tried again\"",
                  (unsigned long long)p->job, (unsigned long long)p->action.epoch,
                  p->result.err.text);
    } else if (p->troubled) {
        p->troubled = false;
        if (members_self(daemon)->progress.job == p->job) {
            members_self(daemon)->progress.trouble[0] = '\0';
        }
    }
    if (p->result.code == 0 && p->action.kind == AGENT_COPY) {
        recall_repaired(p);
    }
    if (p->result.code == 0 && p->action.kind == AGENT_PUBLISH) {
        daemon_record(daemon, "publish", "epoch %llu of job %llu is published here",
                      (unsigned long long)p->action.epoch, (unsigned long long)p->job);
        log_notice("publish.done", "job=%llu epoch=%llu step=%llu folder=\"%s\"",
                   (unsigned long long)p->job, (unsigned long long)p->action.epoch,
                   (unsigned long long)p->action.manifest.step, p->action.folder);
    }
    daemon_work_ended(daemon);
}

static void start_action(struct publication *p)
{
    p->started_ns = clock_now_ns();
    if (p->action.kind == AGENT_COPY && !copies_begin(p)) {
        p->agent.busy = false; /* A node that is no member here yet, or any more. */
        p->agent.tries++;
        p->retry_ms = clock_now_ms() + RETRY_MS;
        return;
    }
    if (p->action.kind == AGENT_STAGE) {
        ASSERT(p->capture != NULL);
        p->working = p->capture;
        p->working->content.about.epoch = p->action.epoch;
        capture_hold(p->working);
    }
    daemon_work_begun(p->daemon);
    ASSERT(uv_queue_work(p->daemon->loop, &p->work, action_run, action_done) == 0);
}

static void publication_turn(struct publication *p, bool caught_up)
{
    struct daemon *daemon = p->daemon;
    uint64_t now = clock_now_ms();
    if (p->capture != NULL && p->working == NULL &&
        !agent_holds_capture(&p->agent, &daemon->state)) {
        let_go(p);
        p->idle = false;
    }
    copies_turn(p);
    recall_turn(p);
    if (p->agent.busy || now < p->retry_ms) {
        return;
    }
    if (p->idle && p->seen == daemon->state.changes && p->caught_up == caught_up) {
        return;
    }
    p->seen = daemon->state.changes;
    p->caught_up = caught_up;
    p->idle = false;
    switch (agent_next(&p->agent, &daemon->state, caught_up, &p->action)) {
    case AGENT_IDLE:
        p->idle = true;
        return;
    case AGENT_PROPOSE:
        if (p->proposed_kind != (uint8_t)p->action.command.kind ||
            p->proposed_epoch != p->action.epoch || p->proposed_rank != p->action.rank ||
            now - p->proposed_ms >= PROPOSE_MS) {
            p->proposed_kind = (uint8_t)p->action.command.kind;
            p->proposed_epoch = p->action.epoch;
            p->proposed_rank = p->action.rank;
            p->proposed_ms = now;
            daemon_propose(daemon, &p->action.command);
        }
        return;
    case AGENT_SCAN:
    case AGENT_STAGE:
    case AGENT_PUBLISH:
    case AGENT_DISCARD:
    case AGENT_DELETE:
    case AGENT_VERIFY:
    case AGENT_TRIM:
    case AGENT_RETRACT:
    case AGENT_COPY:
        start_action(p);
        return;
    }
}

/* Jobs that the state machine has forgotten: their agents go when nothing is under way. */
static void forget(struct daemon *daemon)
{
    for (struct publication **at = &daemon->publications; *at != NULL;) {
        struct publication *p = *at;
        if (state_job(&daemon->state, p->job) == NULL && !p->agent.busy && p->working == NULL &&
            !p->recalling) {
            *at = p->next;
            capture_drop(p->capture);
            free(p);
        } else {
            at = &p->next;
        }
    }
}

void publish_turn(struct daemon *daemon)
{
    bool caught_up = control_caught_up(daemon->control);
    if (daemon->publications_seen != daemon->state.changes || daemon->publications_sweep) {
        daemon->publications_seen = daemon->state.changes;
        daemon->publications_sweep = false;
        for (uint32_t i = 0; i < daemon->state.jobs_count; i++) {
            if (daemon->state.jobs[i]->partitioned) {
                (void)publication_of(daemon, daemon->state.jobs[i]->id);
            }
        }
        forget(daemon);
    }
    for (struct publication *p = daemon->publications; p != NULL; p = p->next) {
        publication_turn(p, caught_up);
    }
}

void publish_free(struct daemon *daemon)
{
    while (daemon->publications != NULL) {
        struct publication *p = daemon->publications;
        daemon->publications = p->next;
        ASSERT(p->working == NULL);
        capture_drop(p->capture);
        free(p);
    }
}

/* The losses of a job's steps come back from a checkpoint here, where this process has not seen
 * them: after a start, and on a node that holds copies only. The shards of an epoch have the same
 * ones; the first that is right is taken. A damaged one is named and all that lies here is compared
 * at once, so that it is fetched from another node; then they are read again. Nothing waits for
 * them but who asks for the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/publish_room.h"

struct recall {
    uv_work_t work;
    struct daemon *daemon;
    uint64_t job;
    uint64_t epoch;
    uint32_t files_count;
    char files[STATE_NODES_MAX][FOLDER_PATH_SIZE];
    struct losses *losses; /* NULL: none was found */
    struct err err;        /* of the first that could not be read; code 0: none */
};

static void recall_run(uv_work_t *work)
{
    struct recall *recall = OWNER_OF(work, struct recall, work);
    for (uint32_t i = 0; i < recall->files_count && recall->losses == NULL; i++) {
        struct err err = {0};
        int code = shard_read_losses(recall->daemon->fs, recall->files[i], &recall->losses, &err);
        if (code == 0 && recall->losses == NULL) {
            return; /* Of an earlier version: so are the others. */
        }
        if (code != 0 && recall->err.code == 0) {
            recall->err = err;
        }
    }
}

/* What this process has seen of the job is newer, or it is about to. */
static bool outdated(const struct daemon *daemon, const struct recall *recall)
{
    const struct history *history = history_find(daemon, recall->job);
    return history != NULL && losses_newest(&history->losses) >= losses_newest(recall->losses);
}

static void recall_done(uv_work_t *work, int status)
{
    struct recall *recall = OWNER_OF(work, struct recall, work);
    struct daemon *daemon = recall->daemon;
    struct publication *p = publication_find(daemon, recall->job);
    (void)status;
    ASSERT(p != NULL); /* publish.c forgets none that recalls. */
    p->recalling = false;
    p->recalled_epoch = recall->epoch;
    if (recall->losses != NULL && !outdated(daemon, recall)) {
        history_take(history_of(daemon, recall->job), recall->losses);
    }
    if (recall->err.code != 0) {
        log_warning("history.unread", "job=%llu epoch=%llu error=\"%s\" next=\"%s\"",
                    (unsigned long long)recall->job, (unsigned long long)recall->epoch,
                    recall->err.text,
                    recall->losses != NULL
                        ? "the losses come from another shard; all shards here are compared"
                        : "all shards here are compared; what is damaged comes from another node, "
                          "and the loss curve with it");
        p->recall_again = recall->losses == NULL;
        p->idle = false;
        agent_scrub(&p->agent);
    }
    daemon->publications_sweep = true;
    free(recall->losses);
    free(recall);
    daemon_work_ended(daemon);
    daemon_soon(daemon);
}

/* Older jobs' have no place. */
static bool has_place(const struct daemon *daemon, uint64_t job)
{
    uint32_t newer = 0;
    for (uint32_t i = 0; i < daemon->state.jobs_count; i++) {
        newer += daemon->state.jobs[i]->id > job ? 1 : 0;
    }
    return newer < HISTORIES_MAX;
}

static bool seen(const struct daemon *daemon, const struct publication *p)
{
    const struct history *history = history_find(daemon, p->job);
    const struct state_job *job = state_job(&daemon->state, p->job);
    const struct state_epoch *epoch = state_epoch(job, p->agent.view.current);
    return history != NULL && history->losses.count > 0 &&
           (epoch == NULL || losses_newest(&history->losses) >= epoch->step);
}

static void start(struct publication *p, uint64_t ranks)
{
    struct daemon *daemon = p->daemon;
    const struct state_epoch *epoch =
        state_epoch(state_job(&daemon->state, p->job), p->agent.view.current);
    struct recall *recall = calloc(1, sizeof(*recall));
    char job_folder[FOLDER_PATH_SIZE];
    char folder[FOLDER_PATH_SIZE];
    ASSERT(recall != NULL);
    recall->daemon = daemon;
    recall->job = p->job;
    recall->epoch = epoch->epoch;
    checkpoint_job_folder(state_job(&daemon->state, p->job), job_folder);
    checkpoint_epoch_folder(job_folder, epoch->epoch, folder);
    for (uint32_t r = 0; r < epoch->shards_count; r++) {
        if ((ranks >> r & 1) != 0) {
            char name[MANIFEST_TEXT_SIZE];
            checkpoint_shard_name(r, epoch->shards_count, name);
            int size = snprintf(recall->files[recall->files_count++], FOLDER_PATH_SIZE, "%s/%s",
                                folder, name);
            ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
        }
    }
    p->recalling = true;
    daemon_work_begun(daemon);
    ASSERT(uv_queue_work(daemon->loop, &recall->work, recall_run, recall_done) == 0);
}

/* Shards of the epoch that CURRENT names here. */
static uint64_t current_ranks(const struct publication *p)
{
    const struct folder_view *view = &p->agent.view;
    for (uint32_t i = 0; i < view->published_count; i++) {
        if (view->published[i] == view->current) {
            return view->published_shards[i];
        }
    }
    return 0;
}

/* Whether the losses are to be read from what CURRENT names. */
static bool due(const struct daemon *daemon, const struct publication *p)
{
    uint64_t current = p->agent.view.current;
    const struct state_job *job = state_job(&daemon->state, p->job);
    return current != 0 && current != p->recalled_epoch && job != NULL &&
           state_epoch(job, current) != NULL && has_place(daemon, p->job) && !seen(daemon, p);
}

void recall_turn(struct publication *p)
{
    if (p->recalling || !p->agent.scanned || !due(p->daemon, p)) {
        return;
    }
    uint64_t ranks = current_ranks(p);
    if (ranks == 0) {
        p->recalled_epoch = p->agent.view.current;
        return;
    }
    start(p, ranks);
}

void recall_repaired(struct publication *p)
{
    if (p->recall_again) {
        p->recall_again = false;
        p->recalled_epoch = 0;
    }
}

bool recall_pending(const struct daemon *daemon, uint64_t id)
{
    const struct state_job *job = state_job(&daemon->state, id);
    const struct publication *p = publication_find(daemon, id);
    const struct history *history = history_find(daemon, id);
    if (job == NULL || !job->partitioned || (history != NULL && history->losses.count > 0)) {
        return false;
    }
    if (p == NULL) {
        return has_place(daemon, id); /* It has a publication at the next turn. */
    }
    if (p->retry_ms != 0) {
        return false; /* Its folder cannot be read, or written: nobody waits for that. */
    }
    return !p->agent.scanned || p->recalling || due(daemon, p);
}

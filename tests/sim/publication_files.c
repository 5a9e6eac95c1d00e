/* Agents of a node, their file work through a watched file system, and what mutants do to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/publication_core.h"

#define PROPOSE_MS 200U
#define RETRY_MS   300U

/* ---- the watched file system ---- */

static struct fs_ops watched;         /* the real table with some functions exchanged */
static const struct fs_ops *real_ops; /* one simulated disk is as the other */
static struct fs_file *unsynced;      /* whose sync a mutant leaves out */
static struct fs_file *full;          /* that finds no space */
static bool full_early;               /* and that is found before it is begun */

static struct pub_fs *of(struct fs *fs)
{
    return OWNER_OF(fs, struct pub_fs, fs);
}

static void look(struct pub_fs *w)
{
    struct pub_node *node = w->owner;
    for (uint32_t job = 1; job <= node->all->jobs_made; job++) {
        pub_look(node, job, false);
    }
}

static bool ends_with(const char *path, const char *end)
{
    size_t size = strlen(path);
    size_t tail = strlen(end);
    return size >= tail && strcmp(path + size - tail, end) == 0;
}

static int watched_open(struct fs *fs, const char *path, enum fs_mode mode,
                        struct fs_file **ret_file, struct err *err)
{
    struct pub_fs *w = of(fs);
    enum publication_mutant mutant = w->owner->all->options.mutant;
    int code = real_ops->open(w->real, path, mode, ret_file, err);
    bool current = ends_with(path, "/CURRENT.new");
    w->current_made = w->current_made || (current && mode == FS_CREATE);
    if (code == 0 && mode == FS_CREATE &&
        ((mutant == MUTANT_CURRENT_SYNC && current) ||
         (mutant == MUTANT_SHARD_SYNC && w->doing == AGENT_STAGE && ends_with(path, ".part")) ||
         (mutant == MUTANT_MANIFEST_SYNC && ends_with(path, "/manifest.json.new")))) {
        unsynced = *ret_file;
    }
    if (code == 0 && mutant == MUTANT_COPY_SYNC && w->doing == AGENT_COPY && mode == FS_APPEND) {
        unsynced = *ret_file;
    }
    if (code == 0 && w->owner->all->full[w->owner->node] && ends_with(path, ".part")) {
        const char *epoch = strstr(path, "/epoch-"); /* File systems of both kinds, in turn. */
        full = *ret_file;
        full_early = epoch != NULL && strtoul(epoch + strlen("/epoch-"), NULL, 10) % 2 == 1;
    }
    if (mode != FS_READ) {
        look(w);
    }
    return code;
}

static int watched_reserve(struct fs_file *file, uint64_t size, struct err *err)
{
    if (file == full) {
        return full_early ? err_set(err, ERR_DISK, "reserve: No space left on device") : 0;
    }
    return real_ops->reserve(file, size, err);
}

static int watched_write(struct fs_file *file, const void *bytes, size_t size, struct err *err)
{
    if (file == full) {
        (void)real_ops->write(file, bytes, size / 2, NULL);
        return err_set(err, ERR_DISK, "write: No space left on device");
    }
    return real_ops->write(file, bytes, size, err);
}

static int watched_sync(struct fs_file *file, struct err *err)
{
    if (file == unsynced) {
        unsynced = NULL;
        return 0;
    }
    return real_ops->sync(file, err);
}

static int watched_close(struct fs_file *file, struct err *err)
{
    unsynced = file == unsynced ? NULL : unsynced;
    full = file == full ? NULL : full;
    return real_ops->close(file, err);
}

static int watched_rename(struct fs *fs, const char *from, const char *to, struct err *err)
{
    struct pub_fs *w = of(fs);
    if (w->owner->all->options.mutant == MUTANT_IN_PLACE && ends_with(to, "/CURRENT")) {
        (void)real_ops->unlink(w->real, to, NULL);
        look(w);
    }
    int code = real_ops->rename(w->real, from, to, err);
    look(w);
    return code;
}

static int watched_unlink(struct fs *fs, const char *path, struct err *err)
{
    int code = real_ops->unlink(of(fs)->real, path, err);
    look(of(fs));
    return code;
}

static int watched_mkdir(struct fs *fs, const char *path, struct err *err)
{
    return real_ops->mkdir(of(fs)->real, path, err);
}

static int watched_rmdir(struct fs *fs, const char *path, struct err *err)
{
    int code = real_ops->rmdir(of(fs)->real, path, err);
    look(of(fs));
    return code;
}

static int watched_sync_folder(struct fs *fs, const char *path, struct err *err)
{
    struct pub_fs *w = of(fs);
    enum publication_mutant mutant = w->owner->all->options.mutant;
    if ((mutant == MUTANT_STAGING_SYNC && w->doing == AGENT_STAGE &&
         strstr(path, "/staging/epoch-") != NULL) ||
        (mutant == MUTANT_COPY_NAME_SYNC && w->doing == AGENT_COPY &&
         strstr(path, "/staging/epoch-") != NULL) ||
        (mutant == MUTANT_PARENT_SYNC && w->doing == AGENT_PUBLISH && !w->current_made &&
         strcmp(path, w->job_folder) == 0)) {
        return 0;
    }
    int code = real_ops->sync_folder(w->real, path, err);
    look(w);
    return code;
}

static int watched_list(struct fs *fs, const char *path, fs_list_fn *on_entry, void *context,
                        struct err *err)
{
    return real_ops->list(of(fs)->real, path, on_entry, context, err);
}

static int watched_exists(struct fs *fs, const char *path, bool *ret_exists, struct err *err)
{
    return real_ops->exists(of(fs)->real, path, ret_exists, err);
}

void pub_fs_init(struct pub_node *node, struct fs *real)
{
    real_ops = real->ops;
    watched = *real_ops;
    watched.open = watched_open;
    watched.reserve = watched_reserve;
    watched.write = watched_write;
    watched.sync = watched_sync;
    watched.close = watched_close;
    watched.rename = watched_rename;
    watched.unlink = watched_unlink;
    watched.mkdir = watched_mkdir;
    watched.rmdir = watched_rmdir;
    watched.sync_folder = watched_sync_folder;
    watched.list = watched_list;
    watched.exists = watched_exists;
    node->fs = (struct pub_fs){.fs = {.ops = &watched}, .real = real, .owner = node};
}

/* ---- captures ---- */

static void whole_digest(uint64_t job, uint64_t step, uint64_t coordinates, double sign,
                         uint8_t digest[SHA256_SIZE])
{
    double *vector = calloc(coordinates, sizeof(*vector));
    ASSERT(vector != NULL);
    for (uint64_t i = 0; i < coordinates; i++) {
        vector[i] = sign * pub_value(job, i, step);
    }
    sha256_of(vector, coordinates * sizeof(*vector), digest);
    free(vector);
}

void pub_capture(struct pub_node *node, uint64_t job, uint64_t step, bool ends)
{
    struct pub_agent *a = &node->agents[job - 1];
    struct agent_capture capture = {.generation = node->run.generation,
                                    .step = step,
                                    .ends = ends,
                                    .content_ready = true,
                                    .loss_bits = command_bits_of((double)step)};
    uint64_t coordinates = node->all->options.coordinates;
    whole_digest(job, step, coordinates, 1.0, capture.parameter_sha256);
    whole_digest(job, step, coordinates, -1.0, capture.accumulator_sha256);
    a->vectors_ms = pub_now_ms(node) + rand_below(world_rand(node->world), 60);
    agent_capture(&a->agent, &capture);
}

/* ---- file work ---- */

static void execute(struct pub_node *node, struct pub_agent *a, struct agent_result *result)
{
    const struct agent_action *action = &a->action;
    struct shard_content content = {.about = a->about};
    uint64_t count = a->about.end - a->about.first;
    double *vectors = calloc(2 * count + 1, sizeof(*vectors));
    ASSERT(vectors != NULL);
    for (uint64_t i = 0; i < count; i++) {
        vectors[i] = pub_value(action->job, a->about.first + i, a->about.step);
        vectors[count + i] = -vectors[i];
    }
    content.parameter = vectors;
    content.accumulator = vectors + count;
    node->fs.doing = action->kind;
    node->fs.current_made = false;
    node->fs.job_folder = action->folder;
    struct agent_action scan = *action;
    scan.kind = AGENT_SCAN;
    if (action->kind == AGENT_VERIFY && node->all->options.mutant == MUTANT_QUIET_DAMAGE) {
        agent_execute(&node->fs.fs, &scan, NULL, result);
        result->good = action->ranks;
    } else if (action->kind == AGENT_COPY) {
        pub_copy(node, action, result);
    } else {
        agent_execute(&node->fs.fs, action, action->kind == AGENT_STAGE ? &content : NULL, result);
    }
    node->fs.doing = AGENT_IDLE;
    free(vectors);
}

static void on_work(void *self, void *argument)
{
    struct pub_node *node = self;
    struct pub_agent *a = &node->agents[(uintptr_t)argument - 1];
    struct agent_result result;
    struct publication_counts *counts = &node->all->counts;
    execute(node, a, &result);
    if (sim_disk_dead(world_disk(node->world, node->node))) {
        return; /* The crash point has struck. */
    }
    if (result.fatal) {
        world_die(node->world, node->node, result.err.text);
        return;
    }
    struct agent_word word;
    if (agent_word_of_failure(&a->action, &result, &word)) {
        pub_say(node, &word);
    }
    if (agent_done(&a->agent, &a->action, &result) != 0) {
        a->retry_ms = pub_now_ms(node) + RETRY_MS;
        counts->refused_stages += a->action.kind == AGENT_STAGE ? 1 : 0;
        bool hurt = node->all->hurt != 0;
        if (a->action.kind != AGENT_COPY && !hurt &&
            (result.code == ERR_DAMAGED || result.code == ERR_NOT_FOUND)) {
            world_violation(node->world, "node %u: %s", node->node, result.err.text);
        }
        return;
    }
    bool held_bad = false;
    counts->copies += a->action.kind == AGENT_COPY ? 1 : 0;
    const struct state_job *job = state_job(node->state, a->action.job);
    const struct state_epoch *epoch = job == NULL ? NULL : state_epoch(job, a->action.epoch);
    for (uint32_t i = 0; epoch != NULL && i < epoch->shards_count; i++) {
        held_bad |= (result.bad >> i & 1) != 0 && state_shard_held(&epoch->shards[i], pub_id(node));
    }
    if (held_bad && node->all->hurt != node->node + 1) {
        world_violation(node->world, "node %u: %s", node->node, result.bad_text);
    }
    if (a->action.kind == AGENT_PUBLISH) {
        counts->published++;
        pub_published(node, a->action.job, a->action.epoch);
    }
    counts->collected += a->action.kind == AGENT_DELETE ? 1 : 0;
}

static void start_work(struct pub_node *node, struct pub_agent *a, const struct state_job *job)
{
    if (a->action.kind == AGENT_STAGE) {
        const struct state_shard *shard = state_shard(job->open, pub_id(node));
        a->about = (struct shard_about){.epoch = job->open->epoch,
                                        .step = job->open->step,
                                        .generation = job->open->generation,
                                        .rank = (uint32_t)(shard - job->open->shards),
                                        .ranks = job->open->shards_count,
                                        .first = shard->first,
                                        .end = shard->end,
                                        .coordinates = node->all->options.coordinates};
        memcpy(a->about.identity, job->identity, SHA256_SIZE);
    }
    uint64_t delay = rand_below(world_rand(node->world), 1000U * node->all->options.file_ms_max);
    world_after(node->world, node->node, delay, on_work, (void *)(uintptr_t)job->id);
}

/* ---- mutants that act for the agent ---- */

static void publish_own_vote(struct pub_node *node, struct pub_agent *a,
                             const struct state_job *job)
{
    if (job->open == NULL || a->agent.busy || a->agent.staged_epoch != job->open->epoch ||
        a->agent.view.current >= job->open->epoch) {
        return;
    }
    struct state_epoch early = *job->open;
    struct agent_result result;
    const struct state_shard *shard = state_shard(&early, pub_id(node));
    early.decided_index = 1;
    a->action = (struct agent_action){.kind = AGENT_PUBLISH, .job = job->id, .epoch = early.epoch};
    checkpoint_job_folder(job, a->action.folder);
    checkpoint_shard_name((uint32_t)(shard - job->open->shards), early.shards_count,
                          a->action.shard);
    manifest_of_state(node->state, job, &early, &a->action.manifest);
    a->action.ranks = agent_shard_here(&a->agent, &early, (uint32_t)(shard - job->open->shards))
                          ? UINT64_C(1) << (shard - job->open->shards)
                          : 0;
    a->action.trusted = a->action.ranks;
    a->agent.busy = true;
    execute(node, a, &result);
    if (!sim_disk_dead(world_disk(node->world, node->node)) && !result.fatal) {
        (void)agent_done(&a->agent, &a->action, &result);
    }
}

static void remove_staged(struct pub_node *node, const struct state_job *job, uint64_t epoch)
{
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    checkpoint_job_folder(job, folder);
    checkpoint_staging_folder(folder, epoch, path);
    (void)fs_remove_tree(&node->fs.fs, path, NULL);
}

/* The files of others' shards, as if nobody needed them. */
static bool remove_copies(struct pub_node *node, const struct state_job *job,
                          const struct state_epoch *epoch)
{
    bool any = false;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        char folder[FOLDER_PATH_SIZE];
        char path[FOLDER_PATH_SIZE];
        char name[MANIFEST_TEXT_SIZE];
        if (epoch->shards[i].node == pub_id(node) ||
            !state_shard_held(&epoch->shards[i], pub_id(node))) {
            continue;
        }
        checkpoint_job_folder(job, folder);
        checkpoint_epoch_folder(folder, epoch->epoch, path);
        checkpoint_shard_name(i, epoch->shards_count, name);
        (void)strcat(path, "/");
        (void)strcat(path, name);
        (void)sim_disk_fs(world_disk(node->world, node->node))
            ->ops->unlink(sim_disk_fs(world_disk(node->world, node->node)), path, NULL);
        any = true;
    }
    return any;
}

static void mutate(struct pub_node *node, struct pub_agent *a, const struct state_job *job)
{
    const struct folder_view *view = &a->agent.view;
    const struct state_epoch *newest = state_newest_epoch(job);
    switch (node->all->options.mutant) {
    case MUTANT_OWN_VOTE:
        publish_own_vote(node, a, job);
        break;
    case MUTANT_COLLECT:
        if (newest != NULL && view->current != 0 && view->current < newest->epoch) {
            char folder[FOLDER_PATH_SIZE];
            char path[FOLDER_PATH_SIZE];
            checkpoint_job_folder(job, folder);
            checkpoint_epoch_folder(folder, view->current, path);
            (void)fs_remove_tree(&node->fs.fs, path, NULL);
        }
        break;
    case MUTANT_UNILATERAL:
        if (job->open != NULL && !a->spoilt && !a->agent.busy) {
            const struct state_shard *shard = state_shard(job->open, pub_id(node));
            if (shard != NULL && shard->prepared &&
                world_now_us(node->world) / 1000 > job->open->begun_ms + 500) {
                a->spoilt = true;
                remove_staged(node, job, job->open->epoch);
            }
        }
        break;
    case MUTANT_NOT_CAUGHT_UP: /* Presumes the abort of what its log does not know. */
        for (uint32_t i = 0; a->agent.scanned && !a->agent.busy && i < view->staged_count &&
                             !control_caught_up(world_control(node->world, node->node));
             i++) {
            const struct state_epoch *epoch = state_epoch(job, view->staged[i]);
            if (epoch == NULL) {
                remove_staged(node, job, view->staged[i]);
            }
        }
        break;
    case MUTANT_EARLY_REPORT:
        if (newest != NULL && view->current < newest->epoch && state_rank(job, pub_id(node)) >= 0) {
            struct command c = {.kind = COMMAND_PUBLISHED};
            c.published.job = job->id;
            c.published.epoch = newest->epoch;
            c.published.node = pub_id(node);
            pub_propose(node, &c);
        }
        break;
    case MUTANT_OTHER_DIGEST:
        a->agent.staged_sha256[5] ^= a->agent.staged_epoch != 0 && !a->spoilt ? 1 : 0;
        a->spoilt = a->spoilt || a->agent.staged_epoch != 0;
        break;
    case MUTANT_VOTE_ALONE:
        a->agent.stored_by = UINT64_MAX;
        break;
    case MUTANT_LAST_COPY:
        if (newest != NULL && !a->spoilt && view->current == newest->epoch && !a->agent.busy) {
            a->spoilt = remove_copies(node, job, newest);
        }
        break;
    case MUTANT_COPY_SYNC:
    case MUTANT_COPY_NAME_SYNC:
    case MUTANT_COPY_DIGEST:
    case MUTANT_REPAIR_DAMAGED:
    case MUTANT_WRONG_EPOCH:
    case MUTANT_STORED_ANY:
    case MUTANT_QUIET_LOSS:
    case MUTANT_QUIET_DAMAGE:
    case MUTANT_OLD_COPIES:
    case MUTANT_UNKNOWN_OUT:
    case MUTANT_NONE:
    case MUTANT_CURRENT_SYNC:
    case MUTANT_SNAPSHOT_VOTES:
    case MUTANT_SHARD_SYNC:
    case MUTANT_STAGING_SYNC:
    case MUTANT_PARENT_SYNC:
    case MUTANT_MANIFEST_SYNC:
    case MUTANT_IN_PLACE:
    case PUBLICATION_MUTANTS_COUNT:
    default:
        break;
    }
}

/* ---- the agents' turn ---- */

static void agent_tick(struct pub_node *node, const struct state_job *job)
{
    struct pub_agent *a = &node->agents[job->id - 1];
    uint64_t now = pub_now_ms(node);
    mutate(node, a, job);
    if (sim_disk_dead(world_disk(node->world, node->node))) {
        return;
    }
    pub_words_tick(node, a);
    if (now - a->scrub_ms > (node->all->healed ? 2000U : 700U)) {
        a->scrub_ms = now;
        agent_scrub(&a->agent);
    }
    if (now < a->retry_ms || a->agent.busy) {
        return;
    }
    if (a->agent.capture.generation != 0 && !a->agent.capture.vectors_ready &&
        now >= a->vectors_ms) {
        a->agent.capture.vectors_ready = true;
    }
    bool caught_up = control_caught_up(world_control(node->world, node->node)) &&
                     !node->all->hold_publish[node->node];
    enum agent_kind kind = agent_next(&a->agent, node->state, caught_up, &a->action);
    if (kind == AGENT_IDLE) {
        return;
    }
    if (kind != AGENT_PROPOSE) {
        start_work(node, a, job);
        return;
    }
    if (a->action.command.kind == COMMAND_DROPPED &&
        node->all->options.mutant == MUTANT_QUIET_LOSS) {
        return;
    }
    bool held = a->action.command.kind == COMMAND_PREPARED && node->all->hold_votes[node->node];
    if (!held && now - a->proposed_ms >= PROPOSE_MS) {
        a->proposed_ms = now;
        pub_propose(node, &a->action.command);
    }
}

void pub_files_tick(struct pub_node *node)
{
    for (uint32_t i = 0; i < node->state->jobs_count; i++) {
        ASSERT(node->state->jobs[i]->id <= JOBS_MAX);
        agent_tick(node, node->state->jobs[i]);
    }
}

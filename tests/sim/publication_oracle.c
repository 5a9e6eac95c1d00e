/* What must hold of publication, at every moment and on every disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/files.h"
#include "tests/sim/publication_core.h"

void pub_folder_of(uint64_t job, char path[FOLDER_PATH_SIZE])
{
    (void)snprintf(path, FOLDER_PATH_SIZE, "jobs/%llu-fake", (unsigned long long)job);
}

static void join(char path[FOLDER_PATH_SIZE], const char *folder, const char *name)
{
    int size = snprintf(path, FOLDER_PATH_SIZE, "%s/%s", folder, name);
    ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
}

static void manifest_digest(const struct state *state, const struct state_job *job,
                            const struct state_epoch *epoch, uint8_t digest[SHA256_SIZE])
{
    struct manifest *m = calloc(1, sizeof(*m));
    struct buf bytes = BUF_NONE;
    ASSERT(m != NULL);
    manifest_of_state(state, job, epoch, m);
    manifest_write(m, &bytes);
    sha256_of(bytes.bytes, bytes.size, digest);
    buf_done(&bytes);
    free(m);
}

/* ---- decisions ---- */

static void on_commit(struct pub_node *node, const struct state_job *job,
                      const struct state_epoch *epoch)
{
    struct pub_job *known = &node->all->jobs[job->id - 1];
    struct pub_truth *truth = &known->truths[epoch->epoch];
    known->last = epoch->epoch > known->last ? epoch->epoch : known->last;
    ASSERT(epoch->shards_count <= SHARDS_MAX);
    uint8_t digest[SHA256_SIZE];
    manifest_digest(node->state, job, epoch, digest);
    if (truth->decision == UNDECIDED) {
        truth->decision = DECIDED_COMMIT;
        memcpy(truth->digest, digest, SHA256_SIZE);
        truth->step = epoch->step;
        truth->shards_count = epoch->shards_count;
        for (uint32_t i = 0; i < epoch->shards_count; i++) {
            truth->shards[i].copies = epoch->shards[i].copies;
            truth->shards[i].due = epoch->shards[i].copies;
            truth->shards[i].size = epoch->shards[i].size;
            memcpy(truth->shards[i].sha256, epoch->shards[i].sha256, SHA256_SIZE);
        }
        node->all->counts.committed++;
        pub_check_copies(node->world);
    } else if (truth->decision != DECIDED_COMMIT ||
               memcmp(truth->digest, digest, SHA256_SIZE) != 0) {
        world_violation(node->world, "two decisions on epoch %llu of job %llu",
                        (unsigned long long)epoch->epoch, (unsigned long long)job->id);
    }
}

/* After a removal fewer copies are asked for, also while those who know it are down or read their
 * logs again. */
static void note_due(struct pub_node *node, const struct state_job *job,
                     const struct state_epoch *epoch)
{
    struct pub_truth *truth = &node->all->jobs[job->id - 1].truths[epoch->epoch];
    for (uint32_t i = 0; i < truth->shards_count; i++) {
        uint32_t copies = epoch->shards[i].copies;
        truth->shards[i].due = copies < truth->shards[i].due ? copies : truth->shards[i].due;
    }
}

/* The shard's participant in that state is who has the machine now; not one that had the place
 * before, which is gone with its disk: a node that reads its log again still speaks of that one. */
static bool is_of_now(const struct pub_node *node, unsigned machine, uint32_t place)
{
    const struct state_node *known = state_node(node->state, place);
    return machine != WORLD_NODES_MAX && known != NULL &&
           member_id(known->id, known->life) == world_id(node->world, machine);
}

/* Who says that it has published has. */
static void check_reports(struct pub_node *node, const struct state_job *job)
{
    for (uint32_t k = 0; k < job->epochs_count; k++) {
        const struct state_epoch *epoch = job->epochs[k];
        for (uint32_t i = 0; i < epoch->shards_count; i++) {
            unsigned peer = pub_peer_of(node->world, epoch->shards[i].node);
            if (epoch->shards[i].published && is_of_now(node, peer, epoch->shards[i].node) &&
                !pub_is_out(node->all, peer) && node->all->lost != peer + 1 &&
                state_shard_held(&epoch->shards[i], epoch->shards[i].node) &&
                node->all->ever_current[peer][job->id - 1] < epoch->epoch) {
                world_violation(node->world, "node %u said that it has published epoch %llu", peer,
                                (unsigned long long)epoch->epoch);
            }
        }
    }
}

/* It was decided while its node was alone, and then that one was removed. */
static bool may_be_lost(struct publication *all, const struct state_job *job)
{
    struct pub_truth *truth = &all->jobs[job->id - 1].truths[job->lost_epoch];
    bool alone = false;
    for (uint32_t i = 0; i < truth->shards_count; i++) {
        alone = alone || truth->shards[i].copies == 0;
    }
    truth->collected = alone && all->removed != 0;
    return truth->collected;
}

void pub_watch_state(struct pub_node *node)
{
    struct publication *all = node->all;
    const struct state *state = node->state;
    all->applied = state->applied_index > all->applied ? state->applied_index : all->applied;
    if (state->generation > all->generation) {
        all->counts.generations += state->generation - all->generation;
        all->generation = state->generation;
    }
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        const struct state_job *job = state->jobs[i];
        ASSERT(job->id <= JOBS_MAX);
        ASSERT(job->epoch_next < EPOCHS_MAX);
        struct pub_agent *a = &node->agents[job->id - 1];
        if (job->aborted_epoch != 0) {
            struct pub_truth *truth = &all->jobs[job->id - 1].truths[job->aborted_epoch];
            all->counts.aborted += truth->decision == UNDECIDED ? 1 : 0;
            if (truth->decision == DECIDED_COMMIT) {
                world_violation(node->world, "epoch %llu of job %llu was committed and is aborted",
                                (unsigned long long)job->aborted_epoch,
                                (unsigned long long)job->id);
            }
            truth->decision = DECIDED_ABORT;
        }
        if (job->lost_epoch != 0 && !may_be_lost(all, job)) {
            world_violation(node->world, "epoch %llu of job %llu is lost, one disk at most was",
                            (unsigned long long)job->lost_epoch, (unsigned long long)job->id);
        }
        uint64_t *collected = &all->jobs[job->id - 1].collected;
        for (; job->epochs_count > 0 && *collected + 1 < job->epochs[0]->epoch; (*collected)++) {
            all->jobs[job->id - 1].truths[*collected + 1].collected = true;
        }
        check_reports(node, job);
        for (uint32_t k = 0; k < job->epochs_count; k++) {
            if (job->epochs[k]->epoch > a->checked) {
                a->checked = job->epochs[k]->epoch;
                on_commit(node, job, job->epochs[k]);
            }
            note_due(node, job, job->epochs[k]);
        }
    }
}

/* ---- the independent reader ---- */

static void look_wholly(struct pub_node *node, uint64_t job, uint64_t epoch, const char *path)
{
    struct sim_disk *disk = world_disk(node->world, node->node);
    struct manifest *m = calloc(1, sizeof(*m));
    struct checkpoint_verdict verdict = {0};
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    char file[FOLDER_PATH_SIZE];
    uint8_t digest[SHA256_SIZE];
    ASSERT(m != NULL);
    if (checkpoint_verify(sim_disk_fs(disk), path, m, &verdict, &err) != 0) {
        if (node->all->hurt == node->node + 1) { /* Its copies are elsewhere: pub_check_copies. */
            node->all->verified[node->node][job - 1] = 0;
            free(m);
            return;
        }
        world_violation(node->world, "node %u: what CURRENT names is not right: %s", node->node,
                        err.text);
        free(m);
        return;
    }
    manifest_write(m, &bytes);
    sha256_of(bytes.bytes, bytes.size, digest);
    if (memcmp(digest, node->all->jobs[job - 1].truths[epoch].digest, SHA256_SIZE) != 0 ||
        verdict.files < 1) {
        world_violation(node->world, "node %u: '%s' is not what was decided", node->node, path);
    }
    const char *names[2 + WORLD_NODES_MAX] = {"manifest.json", "SHA256SUMS"};
    uint32_t count = 2;
    for (uint32_t i = 0; i < m->shards_count; i++) {
        bool there = false;
        join(file, path, m->shards[i].file);
        ASSERT(sim_disk_fs(disk)->ops->exists(sim_disk_fs(disk), file, &there, NULL) == 0);
        if (there) {
            names[count++] = m->shards[i].file;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        join(file, path, names[i]);
        if (!sim_disk_is_durable(disk, file)) {
            world_violation(node->world, "node %u: CURRENT names it and '%s' is not durable",
                            node->node, file);
        }
    }
    buf_done(&bytes);
    free(m);
}

void pub_look(struct pub_node *node, uint64_t job, bool wholly)
{
    struct publication *all = node->all;
    unsigned n = node->node;
    struct sim_disk *disk = world_disk(node->world, n);
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    char file[FOLDER_PATH_SIZE];
    uint64_t current = 0;
    struct err err = {0};
    if (sim_disk_dead(disk)) {
        return;
    }
    if (all->seen_in[n] != node->incarnation) {
        all->seen_in[n] = node->incarnation;
        memset(all->seen_current[n], 0, sizeof(all->seen_current[n]));
        memset(all->verified[n], 0, sizeof(all->verified[n]));
    }
    all->counts.looks++;
    pub_folder_of(job, folder);
    if (current_read(sim_disk_fs(disk), folder, &current, &err) != 0) {
        world_violation(node->world, "node %u: %s", n, err.text);
        return;
    }
    uint64_t before = all->seen_current[n][job - 1];
    if (current == 0 && before != 0 && all->jobs[job - 1].truths[before].collected) {
        all->seen_current[n][job - 1] = 0; /* Nothing newer lies there: it is collected. */
        all->durable_current[n][job - 1] = 0;
    }
    if (current < all->seen_current[n][job - 1] || current < all->durable_current[n][job - 1]) {
        world_violation(node->world,
                        "node %u: CURRENT of job %llu goes back to %llu from %llu (published: "
                        "%llu)",
                        n, (unsigned long long)job, (unsigned long long)current,
                        (unsigned long long)all->seen_current[n][job - 1],
                        (unsigned long long)all->durable_current[n][job - 1]);
        return;
    }
    all->seen_current[n][job - 1] = current;
    if (current == 0) {
        return;
    }
    if (current >= EPOCHS_MAX || all->jobs[job - 1].truths[current].decision != DECIDED_COMMIT) {
        world_violation(node->world, "node %u: CURRENT names epoch %llu, which is not committed", n,
                        (unsigned long long)current);
        return;
    }
    checkpoint_epoch_folder(folder, current, path);
    enum agent_kind doing = node->fs.doing;
    if (doing == AGENT_VERIFY || doing == AGENT_TRIM || doing == AGENT_COPY) {
        return; /* Its files are being put right: old or new after a crash, one of them now. */
    }
    if (wholly || all->verified[n][job - 1] != current) {
        all->verified[n][job - 1] = current;
        look_wholly(node, job, current, path);
        return;
    }
    static const char *const names[2] = {"manifest.json", "SHA256SUMS"};
    for (int i = 0; i < 2; i++) {
        bool there = false;
        join(file, path, names[i]);
        if (disk == NULL ||
            sim_disk_fs(disk)->ops->exists(sim_disk_fs(disk), file, &there, NULL) != 0 || !there) {
            world_violation(node->world, "node %u: CURRENT names it and '%s' is gone", n, file);
        }
    }
}

void pub_note_current(struct publication *all, unsigned node, uint64_t job, uint64_t epoch)
{
    uint64_t *durable = &all->durable_current[node][job - 1];
    uint64_t *ever = &all->ever_current[node][job - 1];
    *durable = epoch > *durable ? epoch : *durable; /* An older one's copies may come later. */
    *ever = epoch > *ever ? epoch : *ever;
}

void pub_published(struct pub_node *node, uint64_t job, uint64_t epoch)
{
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    pub_folder_of(job, folder);
    join(path, folder, "CURRENT");
    if (!sim_disk_is_durable(world_disk(node->world, node->node), path)) {
        world_violation(node->world, "node %u: '%s' is published and not durable", node->node,
                        path);
    }
    pub_note_current(node->all, node->node, job, epoch);
    pub_look(node, job, true);
}

uint64_t publication_current(struct world *world, unsigned node, uint64_t job)
{
    char folder[FOLDER_PATH_SIZE];
    uint64_t current = 0;
    pub_folder_of(job, folder);
    (void)current_read(sim_disk_fs(world_disk(world, node)), folder, &current, NULL);
    return current;
}

/* ---- at rest ---- */

static bool job_at_rest(const struct state_job *job)
{
    if (!state_job_ended(job) || job->open != NULL || job->epochs_count > job->keep) {
        return false;
    }
    for (uint32_t i = 0; i < job->epochs_count; i++) {
        if (!state_epoch_safe(job->epochs[i])) {
            return false;
        }
    }
    return true;
}

static bool agent_wanted_here(const struct agent *agent, const struct state_epoch *epoch)
{
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        if (state_shard_held(&epoch->shards[i], agent->node)) {
            return true;
        }
    }
    return false;
}

static bool files_at_rest(const struct pub_node *node, const struct state_job *job)
{
    const struct agent *agent = &node->agents[job->id - 1].agent;
    const struct folder_view *view = &agent->view;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < job->epochs_count; i++) {
        bool there = false;
        for (uint32_t k = 0; k < view->published_count; k++) {
            there = there || view->published[k] == job->epochs[i]->epoch;
        }
        if (agent_wanted_here(agent, job->epochs[i]) && !there) {
            return false;
        }
        newest = there ? job->epochs[i]->epoch : newest;
    }
    for (uint32_t k = 0; k < view->published_count; k++) {
        if (state_epoch(job, view->published[k]) == NULL) {
            return false; /* A leftover. */
        }
    }
    return agent->scanned && !agent->busy && agent->scrub_next == 0 && view->staged_count == 0 &&
           view->current == newest;
}

static bool all_are_in(const struct world *world, const struct pub_node *node)
{
    for (unsigned i = 0; i < world_options(world)->nodes; i++) {
        if (world_is_wanted(world, i) && !pub_is_member(node, i)) {
            return false;
        }
    }
    return node->all->lost == 0 && !pub_lost_is_in(node);
}

bool pub_settled(struct world *world, void *const *selves, unsigned nodes)
{
    const struct publication *all = world_context(world);
    if (all->jobs_made < all->options.jobs) {
        return false;
    }
    for (uint32_t i = 0; i < all->jobs_made; i++) {
        if (!all->jobs[i].acknowledged) {
            return false;
        }
    }
    if (all->hurt != 0 && !pub_copies_whole(world)) {
        return false;
    }
    for (unsigned n = 0; n < nodes; n++) {
        const struct pub_node *node = selves[n];
        if (!world_is_wanted(world, n)) {
            node = world_self(world, n);
            bool knows = node != NULL && (node->out || state_is_removed(node->state, pub_id(node),
                                                                        world_id(world, n) >> 8U));
            if (pub_is_out(all, n) && !knows) {
                return false; /* It waits for a leader that never comes. */
            }
            continue;
        }
        if (node == NULL || node->state->jobs_count != all->jobs_made || !all_are_in(world, node)) {
            return false;
        }
        for (uint32_t i = 0; i < node->state->jobs_count; i++) {
            if (!job_at_rest(node->state->jobs[i]) || !files_at_rest(node, node->state->jobs[i])) {
                return false;
            }
        }
    }
    return true;
}

/* All shards together are what the undisturbed training would have given. */
static void check_result(struct world *world, unsigned nodes, const struct state_job *job)
{
    struct checkpoint_source sources[WORLD_NODES_MAX];
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    char whole_path[FOLDER_PATH_SIZE];
    size_t count = 0;
    struct err err = {0};
    const struct state_epoch *newest = state_newest_epoch(job);
    pub_folder_of(job->id, folder);
    checkpoint_epoch_folder(folder, newest->epoch, path);
    for (unsigned n = 0; n < nodes; n++) {
        bool there = false;
        struct fs *of = sim_disk_fs(world_disk(world, n));
        join(whole_path, path, "manifest.json");
        if (of->ops->exists(of, whole_path, &there, &err) == 0 && there) {
            sources[count++] = (struct checkpoint_source){sim_disk_fs(world_disk(world, n)), path};
        }
    }
    struct checkpoint_whole *whole = calloc(1, sizeof(*whole));
    ASSERT(whole != NULL);
    struct fs *fs = sim_disk_fs(world_disk(world, 0));
    (void)snprintf(whole_path, sizeof(whole_path), "whole-%llu", (unsigned long long)job->id);
    if (checkpoint_assemble(sources, count, fs, whole_path, &err) != 0 ||
        checkpoint_read_whole(fs, whole_path, whole, &err) != 0) {
        world_violation(world, "job %llu: its result is not whole: %s", (unsigned long long)job->id,
                        err.text);
    } else {
        for (uint64_t i = 0; i < whole->manifest.coordinates; i++) {
            if (whole->parameter[i] != pub_value(job->id, i, job->steps)) {
                world_violation(world, "job %llu: its result has other bits",
                                (unsigned long long)job->id);
            }
        }
    }
    checkpoint_whole_done(whole);
    free(whole);
}

void pub_finish(struct world *world, void *const *selves, unsigned nodes)
{
    struct publication *all = world_context(world);
    struct buf first = BUF_NONE;
    struct buf other = BUF_NONE;
    const struct pub_node *one = NULL;
    for (unsigned n = 0; n < nodes; n++) {
        sim_disk_fail_sync(world_disk(world, n), 0); /* What has not struck by now does not. */
        sim_disk_crash_at(world_disk(world, n), 0, false);
        struct pub_node *node = selves[n];
        if (node == NULL) {
            continue; /* no member */
        }
        buf_clear(&other);
        state_write(node->state, one == NULL ? &first : &other);
        one = one == NULL ? node : one;
        if (one != node &&
            (first.size != other.size || memcmp(first.bytes, other.bytes, first.size) != 0)) {
            world_violation(world, "the states of nodes %u and %u differ at rest", one->node, n);
        }
        for (uint64_t job = 1; job <= all->jobs_made; job++) {
            pub_look(node, job, true);
        }
    }
    buf_done(&first);
    buf_done(&other);
    pub_check_copies(world);
    ASSERT(one != NULL);
    const struct state *state = one->state;
    for (uint32_t i = 0; i < state->jobs_count && !world_violated(world); i++) {
        const struct state_job *job = state->jobs[i];
        if (job->state == JOB_SUCCEEDED) {
            all->counts.succeeded++;
            check_result(world, nodes, job);
        } else if (job->state != JOB_CANCELLED && (all->removed == 0 || job->lost_epoch == 0)) {
            world_violation(world, "job %llu is %s: %s", (unsigned long long)job->id,
                            state_job_label(job->state), job->reason);
        }
    }
}

static void print_job(const struct pub_node *node, const struct state_job *job)
{
    const struct pub_agent *a = &node->agents[job->id - 1];
    const struct state_epoch *newest = state_newest_epoch(job);
    printf(
        "    job %llu %s '%s' generation %llu of %u, %u attempts, stopping %d hold %d, epochs %u "
        "newest %llu at step %llu, open %llu with %u votes; agent: current %llu, %u staged, %u "
        "published, busy %d, captured step %llu of generation %llu, staged %llu\n",
        (unsigned long long)job->id, state_job_label(job->state), job->reason,
        (unsigned long long)job->generation, job->participants_count, job->attempts, job->stopping,
        (int)job->hold, job->epochs_count, (unsigned long long)(newest == NULL ? 0 : newest->epoch),
        (unsigned long long)(newest == NULL ? 0 : newest->step),
        (unsigned long long)(job->open == NULL ? 0 : job->open->epoch),
        job->open == NULL ? 0 : state_votes(job->open), (unsigned long long)a->agent.view.current,
        a->agent.view.staged_count, a->agent.view.published_count, a->agent.busy,
        (unsigned long long)a->agent.capture.step, (unsigned long long)a->agent.capture.generation,
        (unsigned long long)a->agent.staged_epoch);
}

void publication_print(struct world *world)
{
    const struct publication *all = world_context(world);
    printf("  machine of a loss: %d (lost for good: %d, which was %u.%u); removed: %d\n",
           (int)all->hurt - 1, (int)all->lost - 1, member_place(all->lost_id), all->lost_id >> 8,
           (int)all->removed - 1);
    for (unsigned n = 0; n < world_options(world)->nodes; n++) {
        const struct pub_node *node = world_self(world, n);
        if (node == NULL) {
            printf("  node %u is down\n", n);
            continue;
        }
        printf("  node %u%s, incarnation %llu, applied %llu, run of generation %llu in phase %d at "
               "step %llu (asked %llu)\n",
               n, (int)n == world_leader(world) ? " leads" : "",
               (unsigned long long)node->incarnation,
               (unsigned long long)node->state->applied_index,
               (unsigned long long)node->run.generation, (int)node->run.phase,
               (unsigned long long)node->run.step, (unsigned long long)node->run.asked_step);
        for (uint32_t i = 0; i < node->state->nodes_count; i++) {
            const struct state_node *known = &node->state->nodes[i];
            printf("    %u.%u '%s' standing %d%s\n", known->id, known->life, known->name,
                   (int)known->standing, known->drained ? " drained" : "");
        }
        for (uint32_t i = 0; i < node->state->jobs_count; i++) {
            print_job(node, node->state->jobs[i]);
        }
    }
}

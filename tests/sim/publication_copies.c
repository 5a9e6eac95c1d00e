/* Copies of shards in the simulated world: the words about them, fetching them from another node's
 * disk, disks that lose their checkpoints or rot, and the oracle that one such loss loses nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/files.h"
#include "tests/sim/publication_core.h"

#define WORDS_MS 150U
#define CHECK_MS 700U

/* ---- words ---- */

void pub_say(struct pub_node *node, const struct agent_word *word)
{
    struct buf bytes = BUF_NONE;
    buf_put_u8(&bytes, MAIL_WORD);
    buf_put_u8(&bytes, (uint8_t)word->kind);
    buf_put_u32(&bytes, world_id(node->world, node->node));
    buf_put_u32(&bytes, word->node);
    buf_put_u64(&bytes, word->job);
    buf_put_u64(&bytes, word->epoch);
    buf_put_u32(&bytes, word->rank);
    buf_put_u64(&bytes, word->size);
    buf_put(&bytes, word->sha256, SHA256_SIZE);
    unsigned to = pub_peer_of(node->world, word->node);
    if (to != WORLD_NODES_MAX) {
        world_send(node->world, node->node, to, bytes.bytes, bytes.size);
    }
    buf_done(&bytes);
}

void pub_words_tick(struct pub_node *node, struct pub_agent *a)
{
    struct agent_word words[AGENT_WORDS_MAX];
    uint64_t now = pub_now_ms(node);
    if (a->old.job != 0 && rand_below(world_rand(node->world), 10) == 0) {
        pub_say(node, &a->old); /* Late and doubled, as a network may. */
    }
    if (now - a->words_ms < WORDS_MS) {
        return;
    }
    size_t count = agent_words(&a->agent, node->state, words);
    a->words_ms = count > 0 ? now : a->words_ms;
    for (size_t i = 0; i < count; i++) {
        pub_say(node, &words[i]);
        a->old = words[i].kind == AGENT_STORED ? words[i] : a->old;
    }
}

void pub_on_word(struct pub_node *node, unsigned from, struct reader *in)
{
    struct agent_word word = {.kind = (enum agent_word_kind)read_u8(in)};
    uint32_t id = read_u32(in);
    uint32_t to = read_u32(in);
    word.node = member_place(id);
    word.job = read_u64(in);
    word.epoch = read_u64(in);
    word.rank = read_u32(in);
    word.size = read_u64(in);
    read_bytes(in, word.sha256, SHA256_SIZE);
    ASSERT(!in->failed);
    if (id != world_id(node->world, from) || to != pub_id(node)) {
        return; /* Of an identity before, or for one: its connection is gone. */
    }
    struct agent *agent = &node->agents[word.job - 1].agent;
    if (word.kind == AGENT_STORED && node->all->options.mutant == MUTANT_STORED_ANY) {
        agent->stored_by |= UINT64_C(1) << from;
    }
    (void)agent_hear(agent, node->state, &word);
}

/* ---- files of any node ---- */

/* The shard's file where the node has it: published, or in staging. */
static bool find_file(struct sim_disk *disk, uint64_t job, uint64_t epoch, const char *name,
                      char path[FOLDER_PATH_SIZE])
{
    char folder[FOLDER_PATH_SIZE];
    char at[FOLDER_PATH_SIZE];
    struct fs *fs = sim_disk_fs(disk);
    pub_folder_of(job, folder);
    for (int staged = 0; staged < 2; staged++) {
        bool there = false;
        if (staged == 0) {
            checkpoint_epoch_folder(folder, epoch, at);
        } else {
            checkpoint_staging_folder(folder, epoch, at);
        }
        int size = snprintf(path, FOLDER_PATH_SIZE, "%.300s/%s", at, name);
        ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
        if (fs->ops->exists(fs, path, &there, NULL) == 0 && there) {
            return true;
        }
    }
    return false;
}

static bool has_right_copy(struct world *world, unsigned node, uint64_t job, uint64_t epoch,
                           uint32_t rank)
{
    const struct publication *all = world_context(world);
    const struct pub_truth *truth = &all->jobs[job - 1].truths[epoch];
    struct sim_disk *disk = node == WORLD_NODES_MAX ? NULL : world_disk(world, node);
    char name[MANIFEST_TEXT_SIZE];
    char path[FOLDER_PATH_SIZE];
    struct err err = {0};
    if (disk == NULL) {
        return false; /* of an identity that was lost */
    }
    checkpoint_shard_name(rank, truth->shards_count, name);
    return find_file(disk, job, epoch, name, path) && sim_disk_is_durable(disk, path) &&
           files_check(sim_disk_fs(disk), path, truth->shards[rank].sha256,
                       truth->shards[rank].size, &err) == 0;
}

/* ---- fetching ---- */

struct pulling {
    struct pub_node *node;
    struct fs_file *file;
    struct fs *fs;
    unsigned from;
    bool of_another; /* that node did not make the shard: it holds a copy itself */
    bool spoil;      /* a bit of what comes is wrong */
};

static int on_read(void *context, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    struct pulling *pull = context;
    const uint8_t mail[2] = {MAIL_COPY, pull->of_another ? 1 : 0};
    if (rand_below(world_rand(pull->node->world), 30) == 0 ||
        !world_serve(pull->node->world, pull->from, mail, sizeof(mail))) {
        return err_set(err, ERR_PEER, "the connection is gone");
    }
    int code = pull->fs->ops->read(pull->file, offset, bytes, size, err);
    if (code == 0 && pull->spoil) {
        ((uint8_t *)bytes)[size / 2] ^= 4;
    }
    return code;
}

/* What a mutant takes for the copy: the source's bytes, whatever they are. */
static void accept_any(struct pub_node *node, const struct agent_action *action,
                       const struct pulling *pull, struct agent_result *result)
{
    struct agent_action other = *action;
    struct pulling again = *pull;
    struct agent_source source = {&again, on_read};
    uint64_t size = 0;
    ASSERT(pull->fs->ops->size(pull->file, &size, NULL) == 0);
    uint8_t *all = malloc(size + 1);
    ASSERT(all != NULL);
    ASSERT(pull->fs->ops->read(pull->file, 0, all, size, NULL) == 0);
    if (pull->spoil && size > 0) {
        all[(size < (1U << 20) ? size : (1U << 20)) / 2] ^= 4;
    }
    sha256_of(all, size, other.sha256);
    other.size = size;
    free(all);
    agent_execute_copy(&node->fs.fs, &other, &source, result);
}

void pub_copy(struct pub_node *node, const struct agent_action *action, struct agent_result *result)
{
    unsigned from = pub_peer_of(node->world, action->from);
    bool gone = from == WORLD_NODES_MAX;
    struct sim_disk *disk = gone ? NULL : world_disk(node->world, from);
    enum publication_mutant mutant = node->all->options.mutant;
    struct pulling pull = {.node = node, .from = from, .fs = gone ? NULL : sim_disk_fs(disk)};
    struct agent_source source = {&pull, on_read};
    char path[FOLDER_PATH_SIZE];
    uint64_t epoch = action->epoch;
    bool open = action->manifest.decided_index == 0;
    pull.of_another = !open && action->manifest.shards[action->rank].node_id != action->from;
    struct err err = {0};
    if (!gone && mutant == MUTANT_WRONG_EPOCH && epoch > 1 && open &&
        find_file(disk, action->job, epoch - 1, action->shard, path)) {
        epoch--;
    }
    bool up = !gone && world_self(node->world, from) != NULL && !sim_disk_dead(disk);
    if (!up || !find_file(disk, action->job, epoch, action->shard, path) ||
        fs_open(pull.fs, path, FS_READ, &pull.file, &err) != 0) {
        struct agent_action scan = *action;
        scan.kind = AGENT_SCAN;
        agent_execute(&node->fs.fs, &scan, NULL, result);
        result->code = result->fatal ? result->code : err_set(&result->err, ERR_REACH, "not there");
        return;
    }
    pull.spoil = rand_below(world_rand(node->world), 8) == 0;
    bool any = (mutant == MUTANT_COPY_DIGEST && open) ||
               (mutant == MUTANT_REPAIR_DAMAGED && !open) || epoch != action->epoch;
    if (any) {
        accept_any(node, action, &pull, result);
    } else {
        agent_execute_copy(&node->fs.fs, action, &source, result);
    }
    (void)pull.fs->ops->close(pull.file, NULL);
}

/* ---- what must hold ---- */

/* The state with the most entries. */
static const struct pub_node *ahead(struct world *world)
{
    const struct pub_node *best = NULL;
    for (unsigned n = 0; n < world_options(world)->nodes; n++) {
        const struct pub_node *node = world_self(world, n);
        if (node != NULL &&
            (best == NULL || node->state->applied_index > best->state->applied_index)) {
            best = node;
        }
    }
    return best;
}

const struct pub_node *pub_informed(struct world *world)
{
    const struct publication *all = world_context(world);
    const struct pub_node *best = ahead(world);
    return best != NULL && best->state->applied_index >= all->applied ? best : NULL;
}

/* Nobody asks the node any more: it was removed, and that is agreed on. */
static bool is_gone(struct world *world, unsigned node)
{
    const struct pub_node *best = ahead(world);
    return pub_is_out(world_context(world), node) && best != NULL && !pub_is_member(best, node);
}

/* How many disks have the shard, whole and durable. */
static uint32_t copies_of(struct world *world, uint64_t job, uint64_t epoch, uint32_t rank)
{
    uint32_t count = 0;
    for (unsigned n = 0; n < world_options(world)->nodes; n++) {
        count += !is_gone(world, n) && has_right_copy(world, n, job, epoch, rank) ? 1 : 0;
    }
    return count;
}

static bool any_dead(struct world *world)
{
    for (unsigned n = 0; n < world_options(world)->nodes; n++) {
        if (sim_disk_dead(world_disk(world, n)) && !is_gone(world, n)) {
            return true;
        }
    }
    return false;
}

/* Whether every shard of what is kept has at least its copies (least_one = false) or one; else
 * which one has not. */
static bool kept_have(struct world *world, bool least_one, char *text, size_t capacity)
{
    const struct publication *all = world_context(world);
    for (uint64_t job = 1; job <= all->jobs_made; job++) {
        for (uint64_t e = 1; e <= all->jobs[job - 1].last; e++) {
            const struct pub_truth *truth = &all->jobs[job - 1].truths[e];
            if (truth->decision != DECIDED_COMMIT || truth->collected) {
                continue;
            }
            for (uint32_t r = 0; r < truth->shards_count; r++) {
                uint32_t due = least_one ? 1 : 1 + truth->shards[r].due;
                uint32_t have = copies_of(world, job, e, r);
                if (have < due) {
                    (void)snprintf(text, capacity,
                                   "epoch %llu of job %llu: shard %u is on %u disks, not on %u",
                                   (unsigned long long)e, (unsigned long long)job, r, have, due);
                    return false;
                }
            }
        }
    }
    return true;
}

void pub_check_copies(struct world *world)
{
    const struct publication *all = world_context(world);
    char text[160];
    if (any_dead(world)) {
        return; /* What its crash leaves is not decided yet. */
    }
    if (!kept_have(world, all->hurt != 0, text, sizeof(text))) {
        world_violation(world, "%s", text);
    }
}

/* A shard's file lies on the disk, and is not right: held by the node in its log or not. */
static bool has_damage(struct world *world, unsigned node)
{
    const struct publication *all = world_context(world);
    for (uint64_t job = 1; job <= all->jobs_made; job++) {
        for (uint64_t e = 1; e <= all->jobs[job - 1].last; e++) {
            const struct pub_truth *truth = &all->jobs[job - 1].truths[e];
            for (uint32_t r = 0; truth->decision == DECIDED_COMMIT && r < truth->shards_count;
                 r++) {
                char name[MANIFEST_TEXT_SIZE];
                char path[FOLDER_PATH_SIZE];
                struct err err = {0};
                struct sim_disk *disk = world_disk(world, node);
                checkpoint_shard_name(r, truth->shards_count, name);
                if (find_file(disk, job, e, name, path) &&
                    files_check(sim_disk_fs(disk), path, truth->shards[r].sha256,
                                truth->shards[r].size, &err) != 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

bool pub_copies_whole(struct world *world)
{
    struct publication *all = world_context(world);
    const struct pub_node *best = pub_informed(world);
    char text[160];
    if (best == NULL || any_dead(world)) {
        return false;
    }
    /* Gone is a removed node when that is agreed on; a damaged file when it was seen, or has gone
     * with its epoch: a node that is drained keeps CURRENT on an old one for a while. */
    if (pub_lost_is_in(best)) {
        return false;
    }
    if (all->hurt != 0 && (pub_is_out(all, all->hurt - 1) ? !is_gone(world, all->hurt - 1)
                                                          : has_damage(world, all->hurt - 1))) {
        return false;
    }
    for (uint32_t i = 0; i < best->state->jobs_count; i++) {
        const struct state_job *job = best->state->jobs[i];
        if (job->open != NULL && job->open->epoch < all->hurt_epoch[job->id - 1]) {
            return false; /* A word of before may count in it. */
        }
        for (uint32_t k = 0; k < job->epochs_count; k++) {
            const struct state_epoch *epoch = job->epochs[k];
            for (uint32_t r = 0; r < epoch->shards_count; r++) {
                if (epoch->shards[r].holders_count < 1 + epoch->shards[r].copies) {
                    return false;
                }
                for (uint32_t h = 0; h < epoch->shards[r].holders_count; h++) {
                    if (!has_right_copy(world, pub_peer_of(world, epoch->shards[r].holders[h]),
                                        job->id, epoch->epoch, r)) {
                        return false;
                    }
                }
            }
        }
    }
    if (!kept_have(world, false, text, sizeof(text))) {
        return false;
    }
    all->counts.repairs += all->hurt != 0 ? 1 : 0;
    all->hurt = 0;
    return true;
}

/* ---- disks that are hurt ---- */

void pub_note_hurt(struct world *world, unsigned node)
{
    struct publication *all = world_context(world);
    const struct pub_node *best = ahead(world);
    all->hurt = node + 1;
    all->counts.hurts++;
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        all->hurt_epoch[i] = EPOCHS_MAX;
    }
    for (uint32_t i = 0; best != NULL && i < best->state->jobs_count; i++) {
        all->hurt_epoch[best->state->jobs[i]->id - 1] = best->state->jobs[i]->epoch_next + 1;
    }
}

void publication_wipe(struct world *world, unsigned node)
{
    struct publication *all = world_context(world);
    pub_note_hurt(world, node);
    world_crash(world, node);
    sim_disk_wipe_folder(world_disk(world, node), "jobs");
    memset(all->durable_current[node], 0, sizeof(all->durable_current[node]));
    memset(all->seen_current[node], 0, sizeof(all->seen_current[node]));
}

bool publication_lose(struct world *world, unsigned node)
{
    struct publication *all = world_context(world);
    if (all->lost != 0 || !world_is_wanted(world, node) || !world_may_wipe(world) ||
        !pub_may_lose(world, node)) {
        return false;
    }
    const struct pub_node *best = ahead(world);
    if (best == NULL || !state_node_in(state_node(best->state, world_place(world, node)))) {
        return false; /* It has not even come yet. */
    }
    bool voter =
        group_is_voter(control_group(world_control(world, node), NULL), world_id(world, node));
    pub_note_hurt(world, node);
    all->lost = node + 1;
    all->lost_id = world_id(world, node);
    all->lost_voter = voter;
    all->lost_replaced = rand_below(world_rand(world), 2) == 0;
    all->lost_count++;
    world_lose(world, node);
    memset(all->durable_current[node], 0, sizeof(all->durable_current[node]));
    memset(all->ever_current[node], 0, sizeof(all->ever_current[node]));
    memset(all->seen_current[node], 0, sizeof(all->seen_current[node]));
    return true;
}

/* Nothing that is kept is agreed to be on that node alone. A file that lies elsewhere and that
 * nobody has spoken for (fetched to start from, or on its way) is no copy: it goes when it is not
 * needed any more, and the epoch with its last holder. */
static bool held_elsewhere(struct world *world, unsigned node)
{
    const struct publication *all = world_context(world);
    const struct pub_node *best = pub_informed(world);
    for (uint64_t job = 1; job <= all->jobs_made; job++) {
        const struct state_job *known = best == NULL ? NULL : state_job(best->state, job);
        for (uint64_t e = 1; e <= all->jobs[job - 1].last; e++) {
            const struct pub_truth *truth = &all->jobs[job - 1].truths[e];
            if (truth->decision != DECIDED_COMMIT || truth->collected) {
                continue;
            }
            const struct state_epoch *epoch = known == NULL ? NULL : state_epoch(known, e);
            if (epoch == NULL) {
                return false;
            }
            for (uint32_t r = 0; r < epoch->shards_count; r++) {
                bool held = false;
                for (uint32_t h = 0; h < epoch->shards[r].holders_count; h++) {
                    unsigned holder = pub_peer_of(world, epoch->shards[r].holders[h]);
                    held = held || (holder != node && has_right_copy(world, holder, job, e, r));
                }
                if (!held) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* A publication that is open has no copies: only one node was there when it began. */
static bool open_alone(struct world *world)
{
    for (unsigned n = 0; n < world_options(world)->nodes; n++) {
        const struct pub_node *node = world_self(world, n);
        for (uint32_t i = 0; node != NULL && i < node->state->jobs_count; i++) {
            const struct state_epoch *open = node->state->jobs[i]->open;
            for (uint32_t r = 0; open != NULL && r < open->shards_count; r++) {
                if (open->shards[r].copies == 0) {
                    return true;
                }
            }
        }
        if (node == NULL && world_is_wanted(world, n)) {
            return true; /* It may know more than those that are up. */
        }
    }
    return false;
}

/* Nobody can tell what a disk has alone where all who knew of an open publication are down, or read
 * their logs again: its last vote may be in one of them. */
bool pub_may_lose(struct world *world, unsigned node)
{
    const struct publication *all = world_context(world);
    return all->hurt == 0 && pub_informed(world) != NULL && !any_dead(world) &&
           !open_alone(world) && held_elsewhere(world, node);
}

/* One bit of one shard of what is kept. */
static bool flip_some(struct pub_node *node)
{
    struct publication *all = node->all;
    struct rand *rand = world_rand(node->world);
    struct sim_disk *disk = world_disk(node->world, node->node);
    for (uint64_t job = 1; job <= all->jobs_made; job++) {
        for (uint64_t e = 1; e <= all->jobs[job - 1].last; e++) {
            const struct pub_truth *truth = &all->jobs[job - 1].truths[e];
            char name[MANIFEST_TEXT_SIZE];
            char path[FOLDER_PATH_SIZE];
            if (truth->decision != DECIDED_COMMIT || truth->collected) {
                continue;
            }
            uint32_t rank = (uint32_t)rand_below(rand, truth->shards_count);
            checkpoint_shard_name(rank, truth->shards_count, name);
            if (find_file(disk, job, e, name, path) &&
                sim_disk_flip(disk, path, rand_below(rand, truth->shards[rank].size),
                              (unsigned)rand_below(rand, 8), NULL) == 0) {
                return true;
            }
        }
    }
    return false;
}

bool publication_rot(struct world *world, unsigned node)
{
    struct pub_node *self = world_self(world, node);
    if (self == NULL || !flip_some(self)) {
        return false;
    }
    pub_note_hurt(world, node);
    return true;
}

void pub_hurt_tick(struct pub_node *node)
{
    struct publication *all = node->all;
    struct rand *rand = world_rand(node->world);
    uint64_t now = world_now_us(node->world) / 1000;
    if (now - all->checked_ms >= CHECK_MS) {
        all->checked_ms = now;
        if (all->hurt == 0 || !pub_copies_whole(node->world)) {
            pub_check_copies(node->world);
        }
    }
    if (all->options.hurt_ms == 0 || all->healed || !world_is_wanted(node->world, node->node) ||
        rand_below(rand, all->options.hurt_ms) >= 20 || !pub_may_lose(node->world, node->node)) {
        return;
    }
    if (rand_below(rand, 2) == 0) {
        pub_note_hurt(node->world, node->node);
        if (!flip_some(node)) {
            all->hurt = 0;
        }
    } else {
        struct sim_disk *disk = world_disk(node->world, node->node);
        pub_note_hurt(node->world, node->node);
        sim_disk_crash_at(disk, 0, false); /* Faults that wait are not for the wiping. */
        sim_disk_fail_sync(disk, 0);
        sim_disk_wipe_folder(disk, "jobs");
        memset(all->durable_current[node->node], 0, sizeof(all->durable_current[node->node]));
        memset(all->seen_current[node->node], 0, sizeof(all->seen_current[node->node]));
        world_die(node->world, node->node, "its disk is lost");
    }
}

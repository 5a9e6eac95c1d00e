/* crash_points [--seeds A..B] [--schedules N] [--list] [--mutant N]: a crash at every numbered
 * point. --mutant N plants one of publication.h's mistakes: then it must fail.
 *
 * A point is an operation at a place: what an agent, the log or a snapshot does to a file or folder
 * (create, write, truncate, fsync, rename, unlink, mkdir, rmdir, fsync of a folder), or a kind of
 * message that is sent. Numbers in paths do not count: "fsync jobs/#-j#/CURRENT.new". First the
 * schedules of seeds A..B run undisturbed, and each occurrence of a point is counted by the part
 * that its node plays then:
 *
 *   leader       it leads
 *   holder       the file is another node's shard that it holds a copy of, or a word about one
 *   participant  everything else
 *
 * Then each point is struck before and after its 1st to 5th occurrence in each part, in N
 * schedules: a run is the same up to its crash, so every plan whose occurrence was counted does
 * strike. The node comes back; the oracles of the world (publication.h) look after every event and
 * at the end. Prints the matrix's size and its points; ends with 1 where an oracle speaks or a plan
 * missed. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "control/message.h"
#include "tests/sim/publication_core.h"

#define POINTS_MAX 512
#define SEEDS_MAX  64
#define FILES_MAX  256
#define NTH_MAX    5U
#define PLACE_SIZE 96
#define FAULT_MS   4000U

enum part { LEADER, HOLDER, PARTICIPANT, PARTS };
static const char *const part_names[PARTS] = {"leader", "holder", "participant"};

struct point {
    char name[PLACE_SIZE + 16];
    uint32_t counts[PARTS][SEEDS_MAX]; /* occurrences in that schedule */
};

static struct point points[POINTS_MAX];
static size_t points_count;

/* The schedule under way. */
static struct world *world_now;
static uint64_t seed_first;
static size_t seed_index;
static bool counting;
static enum publication_mutant mutant;
static struct {
    const struct point *point; /* NULL: none */
    enum part part;
    uint32_t nth;
    bool after;
    uint32_t seen;
    bool struck;
} plan;

/* ---- points ---- */

/* Numbers become one '#'. */
static void name_of(const char *operation, const char *place, char name[PLACE_SIZE + 16])
{
    size_t size = (size_t)snprintf(name, 16, "%s ", operation);
    for (const char *at = place; *at != '\0' && size < PLACE_SIZE + 14; at++) {
        bool digit = isdigit((unsigned char)*at) != 0;
        if (!digit || name[size - 1] != '#') {
            name[size++] = digit ? '#' : *at;
        }
    }
    name[size] = '\0';
}

static struct point *point_of(const char *name)
{
    for (size_t i = 0; i < points_count; i++) {
        if (strcmp(points[i].name, name) == 0) {
            return &points[i];
        }
    }
    ASSERT(points_count < POINTS_MAX);
    struct point *point = &points[points_count++];
    (void)snprintf(point->name, sizeof(point->name), "%s", name);
    return point;
}

/* Another node's shard, by the number in its name and this node's rank in the job. */
static bool is_copy(unsigned node, const char *path)
{
    const char *shard = strstr(path, "/shard-");
    const void *self = world_self(world_now, node);
    if (strncmp(path, "jobs/", 5) != 0 || shard == NULL || self == NULL) {
        return false;
    }
    const struct state_job *job = state_job(publication_state(self), strtoull(path + 5, NULL, 10));
    return job != NULL && state_rank(job, world_id(world_now, node)) + 1 != atoi(shard + 7);
}

static enum world_moment meet(unsigned node, const char *operation, const char *place, bool copy)
{
    char name[PLACE_SIZE + 16];
    enum part part = copy ? HOLDER : world_leader(world_now) == (int)node ? LEADER : PARTICIPANT;
    if (!world_faulty(world_now)) {
        return WORLD_GO_ON; /* The healed phase is the proof, not the test. */
    }
    name_of(operation, place, name);
    struct point *point = point_of(name);
    if (counting) {
        point->counts[part][seed_index]++;
    }
    if (plan.point != point || plan.part != part || ++plan.seen != plan.nth) {
        return WORLD_GO_ON;
    }
    plan.struck = true;
    return plan.after ? WORLD_DIE_AFTER : WORLD_DIE_BEFORE;
}

/* ---- disks ---- */

static struct fs_ops probed; /* the simulated disk's table, each operation met first */
static const struct fs_ops *real;
static struct {
    struct fs *fs;
    struct sim_disk *disk;
    unsigned node;
} disks[WORLD_NODES_MAX];
static struct {
    struct fs_file *file; /* NULL: free */
    struct fs *fs;
    char path[PLACE_SIZE];
} files[FILES_MAX];

static void meet_on_disk(struct fs *fs, const char *operation, const char *path)
{
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        if (disks[i].fs != fs || sim_disk_dead(disks[i].disk)) {
            continue;
        }
        enum world_moment moment =
            meet(disks[i].node, operation, path, is_copy(disks[i].node, path));
        if (moment != WORLD_GO_ON) {
            sim_disk_crash_at(disks[i].disk, sim_disk_ops(disks[i].disk) + 1,
                              moment == WORLD_DIE_AFTER);
        }
        return;
    }
}

static void meet_on_file(struct fs_file *file, const char *operation)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (files[i].file == file) {
            meet_on_disk(files[i].fs, operation, files[i].path);
            return;
        }
    }
    ASSERT(false);
}

static int probed_open(struct fs *fs, const char *path, enum fs_mode mode,
                       struct fs_file **ret_file, struct err *err)
{
    bool there = true;
    struct err ignored = {0};
    if (mode != FS_READ && real->exists(fs, path, &there, &ignored) == 0 && !there) {
        meet_on_disk(fs, "create", path);
    }
    int code = real->open(fs, path, mode, ret_file, err);
    for (size_t i = 0; code == 0; i++) {
        ASSERT(i < FILES_MAX);
        if (files[i].file == NULL) {
            files[i].file = *ret_file;
            files[i].fs = fs;
            (void)snprintf(files[i].path, sizeof(files[i].path), "%s", path);
            break;
        }
    }
    return code;
}

static int probed_close(struct fs_file *file, struct err *err)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (files[i].file == file) {
            files[i].file = NULL;
        }
    }
    return real->close(file, err);
}

static int probed_reserve(struct fs_file *file, uint64_t size, struct err *err)
{
    meet_on_file(file, "reserve");
    return real->reserve(file, size, err);
}

static int probed_write(struct fs_file *file, const void *bytes, size_t size, struct err *err)
{
    meet_on_file(file, "write");
    return real->write(file, bytes, size, err);
}

static int probed_truncate(struct fs_file *file, uint64_t size, struct err *err)
{
    meet_on_file(file, "truncate");
    return real->truncate(file, size, err);
}

static int probed_sync(struct fs_file *file, struct err *err)
{
    meet_on_file(file, "fsync");
    return real->sync(file, err);
}

static int probed_rename(struct fs *fs, const char *from, const char *to, struct err *err)
{
    meet_on_disk(fs, "rename", to);
    return real->rename(fs, from, to, err);
}

static int probed_unlink(struct fs *fs, const char *path, struct err *err)
{
    meet_on_disk(fs, "unlink", path);
    return real->unlink(fs, path, err);
}

static int probed_mkdir(struct fs *fs, const char *path, struct err *err)
{
    meet_on_disk(fs, "mkdir", path);
    return real->mkdir(fs, path, err);
}

static int probed_rmdir(struct fs *fs, const char *path, struct err *err)
{
    meet_on_disk(fs, "rmdir", path);
    return real->rmdir(fs, path, err);
}

static int probed_sync_folder(struct fs *fs, const char *path, struct err *err)
{
    meet_on_disk(fs, "dirsync", path);
    return real->sync_folder(fs, path, err);
}

static void on_disk(struct world *world, unsigned node, struct sim_disk *disk)
{
    struct fs *fs = sim_disk_fs(disk);
    world_now = world; /* world_new() has not returned yet. */
    if (real == NULL) {
        real = fs->ops;
        probed = *real;
        probed.open = probed_open;
        probed.close = probed_close;
        probed.reserve = probed_reserve;
        probed.write = probed_write;
        probed.truncate = probed_truncate;
        probed.sync = probed_sync;
        probed.rename = probed_rename;
        probed.unlink = probed_unlink;
        probed.mkdir = probed_mkdir;
        probed.rmdir = probed_rmdir;
        probed.sync_folder = probed_sync_folder;
    }
    fs->ops = &probed;
    disks[node].fs = fs;
    disks[node].disk = disk;
    disks[node].node = node;
}

/* ---- messages ---- */

static enum world_moment on_send(struct world *world, unsigned from, bool is_control,
                                 const uint8_t *bytes, size_t size)
{
    static const char *const kinds[] = {
        [MESSAGE_PREVOTE] = "prevote",   [MESSAGE_PREVOTE_ANSWER] = "prevote answer",
        [MESSAGE_VOTE] = "vote",         [MESSAGE_VOTE_ANSWER] = "vote answer",
        [MESSAGE_APPEND] = "append",     [MESSAGE_APPEND_ANSWER] = "append answer",
        [MESSAGE_SNAPSHOT] = "snapshot", [MESSAGE_SNAPSHOT_ANSWER] = "snapshot answer",
        [MESSAGE_FORWARD] = "proposal",
    };
    static const char *const mails[] = {
        [MAIL_BEAT] = "heartbeat",
        [MAIL_STEP] = "step",
        [MAIL_ACK] = "step's answer",
        [MAIL_COPY] = "copy's bytes",
        [MAIL_ASK] = "question of who is in",
        [MAIL_OUT] = "answer to who is out",
    };
    static const char *const words[] = {
        [AGENT_OFFER] = "word offer", [AGENT_STORED] = "word stored", [AGENT_DOUBT] = "word doubt"};
    (void)world;
    ASSERT(size >= 1);
    if (is_control) {
        ASSERT(size >= 2);
        ASSERT(bytes[1] < sizeof(kinds) / sizeof(kinds[0]));
        return meet(from, "send", kinds[bytes[1]], false);
    }
    if (bytes[0] != MAIL_WORD) {
        ASSERT(bytes[0] <= MAIL_OUT);
        return meet(from, "send", mails[bytes[0]], bytes[0] == MAIL_COPY && bytes[1] != 0);
    }
    ASSERT(size >= 2);
    ASSERT(bytes[1] < sizeof(words) / sizeof(words[0]));
    return meet(from, "send", words[bytes[1]], bytes[1] == AGENT_STORED);
}

/* ---- schedules ---- */

static bool run_schedule(uint64_t seed)
{
    struct world_options world_options;
    struct publication_options options;
    struct world_extension extension = world_publication;
    extension.on_disk = on_disk;
    extension.on_send = on_send;
    world_options_of_seed(seed, &world_options);
    publication_options_of_seed(seed, &options, &world_options);
    /* One crash is the fault; every other schedule also has cuts, for snapshots on the way, and
     * in some they go in many pieces. */
    world_options.nodes = seed % 4 == 3 ? 4 : 3; /* one joins: it is sent a snapshot */
    world_options.voters = 3;
    world_options.member_ms = 0;
    world_options.wipe_ms = 0;
    world_options.crash_ms = 0;
    world_options.pause_ms = 0;
    world_options.sync_fail_ms = 0;
    world_options.full_ms = 0;
    world_options.fault_ms = FAULT_MS;
    world_options.cut_ms = seed % 2 == 0 ? 900 : 0;
    world_options.snapshot_entries = 6;
    world_options.trailing_entries = 1;
    world_options.chunk_size = seed % 2 == 0 ? 400 : 65536;
    if (seed % 4 == 3) {
        world_options.chunk_size = 150;
    }
    world_options.cut_length_ms = 1500;
    options.jobs = 1;
    options.keep = 1;
    options.replicas = 1;
    options.hurt_ms = seed % 4 == 1 ? 1500 : 0; /* copies are made anew, from holders too */
    options.disturb_ms = 0;
    options.removes = 0;
    options.rejoins = 0;
    options.mutant = mutant;
    memset(disks, 0, sizeof(disks));
    memset(files, 0, sizeof(files));
    plan.seen = 0;
    plan.struck = false;
    struct publication *all = publication_new(&options);
    struct world *world = world_new(&world_options, &extension, all);
    world_now = world;
    bool good = world_run(world);
    if (!good) {
        publication_options_print(&options);
    }
    world_free(world);
    publication_free(all);
    return good;
}

struct totals {
    uint64_t plans, struck, failed, missed;
};

static void strike(const struct point *point, enum part part, uint32_t nth, bool after,
                   size_t index, struct totals *totals)
{
    plan.point = point;
    plan.part = part;
    plan.nth = nth;
    plan.after = after;
    bool good = run_schedule(seed_first + index);
    totals->plans++;
    totals->struck += plan.struck ? 1 : 0;
    totals->missed += plan.struck ? 0 : 1;
    totals->failed += good ? 0 : 1;
    if (!good || !plan.struck) {
        printf("%s: %s %" PRIu32 ". '%s' as %s, seed %" PRIu64 "\n", good ? "not struck" : "FAILED",
               after ? "after the" : "before the", nth, point->name, part_names[part],
               seed_first + index);
    }
    plan.point = NULL;
}

static void strike_all(const struct point *point, enum part part, size_t seeds, uint32_t schedules,
                       struct totals *totals)
{
    for (uint32_t nth = 1; nth <= NTH_MAX; nth++) {
        for (int after = 0; after < 2; after++) {
            uint32_t done = 0;
            /* Other points begin with other seeds: all are used. */
            for (size_t k = 0; k < seeds && done < schedules; k++) {
                size_t index = (k + (size_t)(point - points) + nth) % seeds;
                if (point->counts[part][index] >= nth) {
                    strike(point, part, nth, after != 0, index, totals);
                    done++;
                }
            }
        }
    }
}

int main(int argc, char **argv)
{
    unsigned long long first = 1;
    unsigned long long last = 8;
    unsigned long schedules = 1;
    bool list = false;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--list") == 0) {
            list = true;
        } else if (strcmp(argv[i], "--schedules") == 0 && i + 1 < argc) {
            schedules = strtoul(argv[++i], &end, 10);
        } else if (strcmp(argv[i], "--mutant") == 0 && i + 1 < argc) {
            mutant = (enum publication_mutant)strtoul(argv[++i], &end, 10);
        } else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc) {
            first = strtoull(argv[++i], &end, 10);
            last = strncmp(end, "..", 2) == 0 ? strtoull(end + 2, &end, 10) : 0;
        } else {
            (void)fprintf(stderr, "usage: crash_points [--seeds A..B] [--schedules N] [--list] "
                                  "[--mutant N]\n");
            return 2;
        }
    }
    if (last < first || last - first >= SEEDS_MAX || schedules == 0 ||
        mutant >= PUBLICATION_MUTANTS_COUNT) {
        (void)fprintf(stderr, "crash_points: at most %d seeds, at least 1 schedule\n", SEEDS_MAX);
        return 2;
    }
    uint64_t start = clock_now_ms();
    size_t seeds = (size_t)(last - first + 1);
    struct totals totals = {0};
    seed_first = first;
    counting = true;
    for (seed_index = 0; seed_index < seeds; seed_index++) {
        totals.failed += run_schedule(first + seed_index) ? 0 : 1;
    }
    counting = false;
    size_t met = points_count; /* What only a crash brings about is not struck a second time. */
    unsigned parts[PARTS] = {0};
    uint64_t crashes[PARTS] = {0};
    for (size_t i = 0; i < met; i++) {
        for (unsigned part = 0; part < PARTS; part++) {
            uint64_t before = totals.plans;
            strike_all(&points[i], (enum part)part, seeds, (uint32_t)schedules, &totals);
            parts[part] += totals.plans > before ? 1 : 0;
            crashes[part] += totals.plans - before;
            if (list && totals.plans > before) {
                printf("%-64s %-11s %4" PRIu64 " crashes\n", points[i].name, part_names[part],
                       totals.plans - before);
            }
        }
    }
    for (unsigned part = 0; part < PARTS; part++) {
        printf("as %-11s %3u points, %5" PRIu64 " crashes\n", part_names[part], parts[part],
               crashes[part]);
    }
    printf("%zu points; before and after, 1st to %uth "
           "occurrence, %lu schedule%s each of seeds %llu..%llu: %" PRIu64 " crashes planned, "
           "%" PRIu64 " struck, %" PRIu64 " missed, %" PRIu64 " failed, in %.1f s\n",
           met, NTH_MAX, schedules, schedules == 1 ? "" : "s", first, last, totals.plans,
           totals.struck, totals.missed, totals.failed, (double)(clock_now_ms() - start) / 1000);
    return totals.failed == 0 && totals.missed == 0 && totals.struck > 0 ? 0 : 1;
}

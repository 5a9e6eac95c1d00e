/* Changes of the group, told on a few cores whose letters go where the scene wants them. The first
 * three are those by which Ongaro showed in 2015 that single changes alone are not safe (raft-dev,
 * "bug in single-server membership changes"). */
#include "tests/sim/directed.h"

#include "base/assert.h"
#include "control/raft.h"

#define CORES 6U

struct core {
    struct raft *raft;
    struct raft_output output;
    uint64_t now_ms;
};

/* Letters reach only cores of `heard`; appends only those of `appended`. Bit n: core n. */
struct desk {
    struct core cores[CORES + 1];
    unsigned heard;
    unsigned appended;
    struct raft_letter letters[4096]; /* a queue */
    uint32_t from[4096];
    size_t first, last;
};

static void take_output(struct desk *desk, uint32_t id)
{
    struct core *core = &desk->cores[id];
    for (size_t i = 0; i < core->output.letters_count; i++) {
        ASSERT(desk->last < sizeof(desk->letters) / sizeof(desk->letters[0]));
        desk->from[desk->last] = id;
        desk->letters[desk->last++] = core->output.letters[i];
        core->output.letters[i].bytes = (struct buf)BUF_NONE;
    }
    uint64_t write = core->output.write;
    raft_output_clear(&core->output);
    if (write != 0) { /* disks are quick here */
        struct raft_input input = {.kind = RAFT_PERSISTED, .write = write};
        raft_step(core->raft, &input, &core->output);
        take_output(desk, id);
    }
}

static void step(struct desk *desk, uint32_t id, const struct raft_input *input)
{
    raft_step(desk->cores[id].raft, input, &desk->cores[id].output);
    take_output(desk, id);
}

/* Delivers until nothing is on its way. */
static void pump(struct desk *desk)
{
    while (desk->first < desk->last) {
        struct raft_letter letter = desk->letters[desk->first];
        uint32_t from = desk->from[desk->first++];
        struct raft_message message;
        ASSERT(message_decode(letter.bytes.bytes, letter.bytes.size, &message, NULL) == 0);
        unsigned both = 1U << letter.to | 1U << from;
        bool append = message.kind == MESSAGE_APPEND;
        if ((desk->heard & both) == both && (!append || (desk->appended & both) == both)) {
            struct raft_input input = {.kind = RAFT_RECEIVE, .message = &message};
            step(desk, letter.to, &input);
        }
        buf_done(&letter.bytes);
    }
    desk->first = 0;
    desk->last = 0;
}

static void tick(struct desk *desk, uint32_t id, uint64_t ms)
{
    struct core *core = &desk->cores[id];
    core->now_ms += ms;
    struct raft_input input = {.kind = RAFT_TICK, .now_ms = core->now_ms};
    step(desk, id, &input);
}

static void reach(struct desk *desk, unsigned heard, unsigned appended)
{
    desk->heard = heard;
    desk->appended = appended;
}

static bool leads(const struct desk *desk, uint32_t id)
{
    return raft_role(desk->cores[id].raft) == RAFT_LEADER;
}

/* The core's time passes until it leads those that hear it. */
static void elect(struct desk *desk, uint32_t id)
{
    for (int turn = 0; turn < 20 && !leads(desk, id); turn++) {
        tick(desk, id, 1500);
        pump(desk);
    }
    ASSERT(leads(desk, id));
}

/* Voters 1..4, and 5 and 6 that listen; 1 leads and all have its log. */
static struct desk *desk_new(void)
{
    static struct desk desk;
    struct control_settings settings;
    desk = (struct desk){0};
    control_settings_default(&settings);
    for (uint32_t id = 1; id <= CORES; id++) {
        struct raft_recovered recovered = {0};
        for (uint32_t i = 1; i <= CORES; i++) {
            group_set(&recovered.first, i, i <= 4);
        }
        settings.self = id;
        desk.cores[id].now_ms = 1000;
        desk.cores[id].raft = raft_new(&settings, &recovered, id, 1000);
    }
    reach(&desk, ~0U, ~0U);
    elect(&desk, 1);
    ASSERT(raft_commit(desk.cores[1].raft) == 1);
    for (int i = 0; i < 3; i++) { /* 5 and 6 stream; the others know the commit */
        tick(&desk, 1, 100);
        pump(&desk);
    }
    return &desk;
}

static void desk_free(struct desk *desk)
{
    for (uint32_t id = 1; id <= CORES; id++) {
        raft_output_done(&desk->cores[id].output);
        raft_free(desk->cores[id].raft);
    }
}

/* Drops the member, or makes it a voter, where the core may; true: it did. */
static bool change(struct desk *desk, uint32_t leader, uint32_t id, bool voter)
{
    struct control_group next = *raft_group(desk->cores[leader].raft);
    if (voter) {
        group_set(&next, id, true);
    } else {
        group_drop(&next, id);
    }
    if (!raft_may_change(desk->cores[leader].raft, &next)) {
        return false;
    }
    struct raft_input input = {.kind = RAFT_CHANGE, .group = &next};
    step(desk, leader, &input);
    pump(desk);
    return true;
}

/* No index is committed with two terms. */
static bool agree(const struct desk *desk)
{
    for (uint32_t a = 1; a <= CORES; a++) {
        for (uint32_t b = a + 1; b <= CORES; b++) {
            const struct raft *left = desk->cores[a].raft;
            const struct raft *right = desk->cores[b].raft;
            uint64_t commit =
                raft_commit(left) < raft_commit(right) ? raft_commit(left) : raft_commit(right);
            for (uint64_t i = 1; i <= commit; i++) {
                if (raft_log_term(raft_log(left), i) != raft_log_term(raft_log(right), i)) {
                    return false;
                }
            }
        }
    }
    return true;
}

#define BIT(id) (1U << (id))

/* 1 changes the group and reaches only `with_first`; 2 is elected by 3 and 4, changes it too and
 * reaches `with_second`; then 1 stands again before `with_first` and 4 (or 3). The two majorities
 * do not meet: only that 2 may change nothing before an entry of its own term is committed keeps
 * them from deciding twice. */
static bool scene(uint32_t first, bool first_votes, unsigned with_first, uint32_t second,
                  bool second_votes, unsigned with_second, unsigned again)
{
    struct desk *desk = desk_new();
    reach(desk, with_first, with_first);
    ASSERT(change(desk, 1, first, first_votes));
    ASSERT(raft_commit(desk->cores[1].raft) == 1); /* no majority of either group */
    for (uint32_t id = 3; id <= 4; id++) {         /* they miss their leader too, unheard */
        reach(desk, 0, 0);
        tick(desk, id, 3000);
        pump(desk);
    }
    reach(desk, BIT(2) | BIT(3) | BIT(4) | with_second, with_second);
    elect(desk, 2);
    for (int i = 0; i < 3; i++) {
        tick(desk, 2, 100);
        pump(desk);
    }
    bool changed = change(desk, 2, second, second_votes);
    reach(desk, 0, 0);
    tick(desk, 1, 5000); /* 1 hears nobody and steps down; the others forget 2 */
    for (uint32_t id = 3; id <= 5; id++) {
        tick(desk, id, 5000);
    }
    pump(desk);
    reach(desk, again, again);
    for (int turn = 0; turn < 20 && !leads(desk, 1); turn++) {
        tick(desk, 1, 1500);
        pump(desk);
    }
    bool good = agree(desk) && !changed;
    /* Then all hear each other: one leader, one log, and the changes are possible again. */
    reach(desk, ~0U, ~0U);
    for (int turn = 0; good && turn < 60; turn++) {
        for (uint32_t id = 1; id <= CORES; id++) {
            tick(desk, id, 90);
            pump(desk);
        }
    }
    good = good && agree(desk);
    desk_free(desk);
    return good;
}

bool directed_two_adds(void)
{
    return scene(5, true, BIT(1) | BIT(5), 6, true, BIT(2) | BIT(3) | BIT(6),
                 BIT(1) | BIT(4) | BIT(5));
}

bool directed_an_add_and_a_remove(void)
{
    return scene(5, true, BIT(1) | BIT(5), 1, false, BIT(2) | BIT(3), BIT(1) | BIT(4) | BIT(5));
}

bool directed_two_removes(void)
{
    return scene(4, false, BIT(1), 1, false, BIT(2) | BIT(4), BIT(1) | BIT(3));
}

bool directed_changes_wait_for_an_entry_of_the_own_term(void)
{
    return directed_two_adds() && directed_an_add_and_a_remove() && directed_two_removes();
}

/* 4.2.2: it leads until its removal is committed, by the others, and then no more. */
bool directed_a_removed_leader_goes(void)
{
    struct desk *desk = desk_new();
    reach(desk, BIT(1) | BIT(2), BIT(1) | BIT(2));
    ASSERT(change(desk, 1, 1, false));
    bool stays = leads(desk, 1) && raft_commit(desk->cores[1].raft) == 1; /* 2 of {2, 3, 4} */
    reach(desk, ~0U, ~0U);
    tick(desk, 1, 100);
    pump(desk);
    bool goes = !leads(desk, 1) && raft_commit(desk->cores[1].raft) == 2;
    tick(desk, 1, 9000);
    pump(desk);
    goes = goes && raft_role(desk->cores[1].raft) == RAFT_FOLLOWER;
    desk_free(desk);
    return stays && goes;
}

/* A change that is not committed is no part of a snapshot before it. */
bool directed_a_snapshot_has_the_group_of_its_entry(void)
{
    struct desk *desk = desk_new();
    reach(desk, BIT(1), BIT(1));
    ASSERT(change(desk, 1, 4, false));
    struct buf bytes = BUF_NONE;
    buf_put(&bytes, "state", 5);
    struct raft_input input = {.kind = RAFT_SNAPSHOT_TAKEN, .index = 1, .snapshot = &bytes};
    step(desk, 1, &input);
    const struct raft_snapshot *snapshot = raft_snapshot(desk->cores[1].raft);
    bool good = snapshot->index == 1 && group_is_voter(&snapshot->group, 4) &&
                raft_group(desk->cores[1].raft)->count == CORES - 1;
    desk_free(desk);
    return good;
}

/* The second change waits for the first one's commit. */
bool directed_one_change_at_a_time(void)
{
    struct desk *desk = desk_new();
    reach(desk, BIT(1), BIT(1));
    ASSERT(change(desk, 1, 4, false));
    bool waits = !change(desk, 1, 3, false);
    reach(desk, ~0U, ~0U);
    tick(desk, 1, 100);
    pump(desk);
    bool then = change(desk, 1, 3, false);
    desk_free(desk);
    return waits && then;
}

/* 1 drops 4, reaches nobody, and is deposed: the entry is cut off, and 4 is a member for it again.
 */
bool directed_a_group_that_is_cut_off_counts_no_more(void)
{
    struct desk *desk = desk_new();
    reach(desk, BIT(1), BIT(1));
    ASSERT(change(desk, 1, 4, false));
    bool counted = group_get(raft_group(desk->cores[1].raft), 4) == NULL;
    reach(desk, 0, 0);
    for (uint32_t id = 3; id <= 4; id++) {
        tick(desk, id, 3000);
        pump(desk);
    }
    reach(desk, BIT(2) | BIT(3) | BIT(4), BIT(2) | BIT(3) | BIT(4));
    elect(desk, 2);
    reach(desk, ~0U, ~0U);
    for (int i = 0; i < 4; i++) {
        tick(desk, 2, 100);
        pump(desk);
    }
    bool back = group_is_voter(raft_group(desk->cores[1].raft), 4) &&
                group_equal(raft_group(desk->cores[1].raft), raft_group(desk->cores[2].raft));
    desk_free(desk);
    return counted && back;
}

/* Measures the simulator by its mutants: each seeded mistake (control/raft.h) must be seen within
 * so many schedules. mutants [--seeds N] [--only M] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "control/raft.h"
#include "tests/sim/directed.h"
#include "tests/sim/hashes.h"

/* `scene`: where random schedules see it too rarely, a directed one must. */
static const struct {
    int number;
    const char *name;
    bool (*scene)(void);
} mutants[] = {
    {MUTANT_COMMIT_OLD_TERM, "commits entries of older terms by counting (Figure 3.7)",
     directed_old_term_is_not_committed_by_counting},
    {MUTANT_VOTE_NOT_PERSISTED, "tells a vote without writing it", NULL},
    {MUTANT_LEADER_COUNTS_EARLY, "the leader counts its entries before they are durable", NULL},
    {MUTANT_ACK_BEFORE_DURABLE, "a follower answers for what is only in memory", NULL},
    {MUTANT_VOTE_ANY_LOG, "votes without comparing logs", NULL},
    {MUTANT_NO_PREVIOUS_CHECK, "appends without the previous entry's term", NULL},
    {MUTANT_VOTE_TWICE, "forgets whom it voted for in a term", NULL},
    {MUTANT_TERM_NOT_PERSISTED, "follows a higher term without writing it", NULL},
    {MUTANT_SNAPSHOT_OLD_TERM, "a snapshot carries another term than its entry's", NULL},
    {MUTANT_KEEP_LOG_ON_INSTALL, "the log does not begin anew behind an installed snapshot", NULL},
    {MUTANT_COMMIT_UNVERIFIED, "a follower commits beyond what matched",
     directed_commit_stays_within_what_matched},
    {MUTANT_NO_TRUNCATE, "a conflicting tail stays", NULL},
    {MUTANT_MINORITY, "half of the voters are a majority", NULL},
    {MUTANT_STABLE_BY_COUNT, "counts entries as durable that are not", NULL},
    {MUTANT_WAL_NO_SYNC, "the log is written and not synced", NULL},
    {MUTANT_SNAPSHOT_NO_SYNC, "a snapshot file is not synced", NULL},
    {MUTANT_RELEASE_EARLY, "log files go before the snapshot is durable", NULL},
    {MUTANT_NO_NOOP, "no entry at the start of a term", NULL},
    {MUTANT_NO_HINT_PROGRESS, "a reject does not move the probe back", NULL},
    {MUTANT_SNAPSHOT_RESTARTS, "a newer snapshot takes the place of one on its way",
     directed_a_snapshot_on_its_way_is_finished},
    {MUTANT_APPLY_UNSTABLE, "applies before the entry is on its own disk", NULL},
    {MUTANT_STALE_ANSWERS, "counts answers of an older term",
     directed_an_answer_of_an_older_term_counts_nothing},
    {MUTANT_GRANTS_KEPT, "pre-votes count as votes", NULL},
    {MUTANT_NO_CHECK_QUORUM, "a leader that hears nobody stays",
     directed_a_leader_that_hears_nobody_steps_down},
    {MUTANT_VERIFIES_ALL, "an append vouches for all that follows it in the log",
     directed_commit_stays_within_what_matched},
    {MUTANT_TRUNCATES_ALWAYS, "an old append cuts off what came after it", NULL},
    {MUTANT_OWN_VOTE_EARLY, "wins before its own vote is durable",
     directed_a_candidate_waits_for_its_own_vote},
    {MUTANT_ACK_WHILE_INSTALLING, "answers for a snapshot that is not durable yet",
     directed_a_snapshot_counts_when_it_is_durable},
    {MUTANT_CHANGE_EARLY, "changes the group before an entry of its own term is committed",
     directed_changes_wait_for_an_entry_of_the_own_term},
    {MUTANT_TWO_CHANGES, "changes the group before the change before is committed",
     directed_one_change_at_a_time},
    {MUTANT_LEARNER_COUNTED, "a learner's disk counts", NULL},
    {MUTANT_LEARNER_VOTES, "a learner's vote counts", NULL},
    {MUTANT_REMOVED_COUNTED, "a leader that was dropped counts its own disk", NULL},
    {MUTANT_GROUP_KEPT, "a group that was cut off the log still counts",
     directed_a_group_that_is_cut_off_counts_no_more},
    {MUTANT_GROUP_LATE, "a group counts from its commit on only", NULL},
    {MUTANT_SNAPSHOT_GROUP, "a snapshot carries a group that is newer than its entry",
     directed_a_snapshot_has_the_group_of_its_entry},
    {MUTANT_REMOVED_LEADS, "a leader that was removed stays", directed_a_removed_leader_goes},
    {MUTANT_DROPPED_IDLE, "who is dropped does not lead while that is not committed", NULL},
    {MUTANT_IDENTITY, "who lost its disk is taken for who it was", NULL},
    {MUTANT_JUMP, "several members change in one step", NULL},
};
#define MUTANTS_COUNT (sizeof(mutants) / sizeof(mutants[0]))

struct verdict {
    uint64_t seed;
    char text[256];
};

static void run_until_seen(struct verdict *verdict, uint64_t seeds)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct world_options options;
        world_options_of_seed(seed, &options);
        verdict->seed = seed;
        struct hashes *all = hashes_new();
        struct world *world = world_new(&options, &world_hashes, all);
        world_set_quiet(world, true);
        if (!world_run(world)) {
            (void)snprintf(verdict->text, sizeof(verdict->text), "%s", world_violation_text(world));
            _exit(1);
        }
        world_free(world);
        hashes_free(all);
    }
    _exit(0);
}

/* In a child: an assertion is a kill too. */
static bool is_seen(int number, uint64_t seeds, struct verdict *verdict)
{
    *verdict = (struct verdict){0};
    (void)fflush(stdout);
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        raft_mutant = number;
        ASSERT(freopen("/dev/null", "w", stderr) != NULL);
        (void)alarm(300);
        run_until_seen(verdict, seeds);
    }
    int status = 0;
    ASSERT(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 1)) {
        (void)snprintf(verdict->text, sizeof(verdict->text), "an assertion");
        return true;
    }
    return WEXITSTATUS(status) == 1;
}

int main(int argc, char **argv)
{
    uint64_t seeds = 2000;
    int only = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seeds") == 0) {
            seeds = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--only") == 0) {
            only = (int)strtol(argv[i + 1], NULL, 10);
        }
    }
    struct verdict *verdict =
        mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(verdict != MAP_FAILED);
    unsigned tried = 0;
    unsigned seen = 0;
    for (size_t i = 0; i < MUTANTS_COUNT; i++) {
        if (only != 0 && mutants[i].number != only) {
            continue;
        }
        uint64_t start = clock_now_ms();
        bool killed = is_seen(mutants[i].number, seeds, verdict);
        if (!killed && mutants[i].scene != NULL) {
            raft_mutant = mutants[i].number;
            killed = !mutants[i].scene();
            raft_mutant = 0;
            (void)snprintf(verdict->text, sizeof(verdict->text), "its directed scene");
            ASSERT(mutants[i].scene()); /* which the true core passes */
        }
        tried++;
        seen += killed ? 1 : 0;
        printf("%-8s %2d %s: %s%s (schedule %llu, %.1f s)\n", killed ? "killed" : "SURVIVED",
               mutants[i].number, mutants[i].name, killed ? "by " : "not seen",
               killed ? verdict->text : "", (unsigned long long)verdict->seed,
               (double)(clock_now_ms() - start) / 1000);
    }
    printf("%u of %u mutants killed within %llu schedules\n", seen, tried,
           (unsigned long long)seeds);
    (void)munmap(verdict, sizeof(*verdict));
    return seen == tried ? 0 : 1;
}

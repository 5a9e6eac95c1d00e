/* soak_publication [--seeds A..B] [--mutant N]: schedules of publication in the simulated world. A
 * failing seed is printed with every option that it was derived to; `--seeds N..N` replays it.
 * `--mutants A..B` looks for the first seed that finds each mutant, and fails where one survives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/publication.h"

struct totals {
    struct world_stats world;
    struct publication_counts counts;
};

static bool run_seed(uint64_t seed, enum publication_mutant mutant, struct totals *totals)
{
    struct world_options world_options;
    struct publication_options options;
    world_options_of_seed(seed, &world_options);
    publication_options_of_seed(seed, &options, &world_options);
    options.mutant = mutant;
    struct publication *all = publication_new(&options);
    struct world *world = world_new(&world_options, &world_publication, all);
    world_set_quiet(world, mutant != MUTANT_NONE && totals == NULL);
    bool good = world_run(world);
    if (!good && totals != NULL) {
        publication_options_print(&options);
        publication_print(world);
    }
    if (totals != NULL) {
        struct world_stats stats;
        struct publication_counts counts;
        world_stats(world, &stats);
        publication_counts(all, &counts);
        totals->world.events += stats.events;
        totals->world.crashes += stats.crashes;
        totals->world.elections += stats.elections;
        totals->world.disk_ops += stats.disk_ops;
        totals->counts.committed += counts.committed;
        totals->counts.aborted += counts.aborted;
        totals->counts.published += counts.published;
        totals->counts.collected += counts.collected;
        totals->counts.generations += counts.generations;
        totals->counts.looks += counts.looks;
        totals->counts.succeeded += counts.succeeded;
        totals->counts.refused_stages += counts.refused_stages;
        totals->counts.copies += counts.copies;
        totals->counts.hurts += counts.hurts;
        totals->counts.repairs += counts.repairs;
        totals->counts.rejoins += counts.rejoins;
        totals->counts.told += counts.told;
    } else if (!good) {
        printf("killed by seed %llu: %s\n", (unsigned long long)seed, world_violation_text(world));
    }
    world_free(world);
    publication_free(all);
    return good;
}

static int hunt(unsigned long long first, unsigned long long last)
{
    int survivors = 0;
    for (int mutant = MUTANT_NONE + 1; mutant < PUBLICATION_MUTANTS_COUNT; mutant++) {
        bool survives = true;
        printf("mutant '%s': ", publication_mutant_text((enum publication_mutant)mutant));
        (void)fflush(stdout);
        for (unsigned long long seed = first; survives && seed <= last; seed++) {
            survives = run_seed(seed, (enum publication_mutant)mutant, NULL);
        }
        if (survives) {
            printf("SURVIVES seeds %llu..%llu\n", first, last);
            survivors++;
        }
    }
    printf("%d of %d mutants killed\n", PUBLICATION_MUTANTS_COUNT - 1 - survivors,
           PUBLICATION_MUTANTS_COUNT - 1);
    return survivors == 0 ? 0 : 1;
}

static bool parse_range(const char *text, unsigned long long *first, unsigned long long *last)
{
    char *end = NULL;
    *first = strtoull(text, &end, 10);
    *last = strncmp(end, "..", 2) == 0 ? strtoull(end + 2, &end, 10) : 0;
    return *end == '\0' && *last >= *first;
}

int main(int argc, char **argv)
{
    unsigned long long first = 1;
    unsigned long long last = 500;
    int mutant = MUTANT_NONE;
    bool hunting = false;
    for (int i = 1; i < argc; i += 2) {
        bool seeds = strcmp(argv[i], "--seeds") == 0;
        bool mutants = strcmp(argv[i], "--mutants") == 0;
        bool one = strcmp(argv[i], "--mutant") == 0;
        if (i + 1 == argc || (!seeds && !mutants && !one) ||
            ((seeds || mutants) && !parse_range(argv[i + 1], &first, &last)) ||
            (one && ((mutant = atoi(argv[i + 1])) < 0 || mutant >= PUBLICATION_MUTANTS_COUNT))) {
            (void)fprintf(stderr, "usage: soak_publication [--seeds A..B] [--mutant N] | "
                                  "--mutants A..B\n");
            return 2;
        }
        hunting = hunting || mutants;
    }
    if (hunting) {
        return hunt(first, last);
    }
    struct totals totals = {0};
    unsigned long long failed = 0;
    uint64_t start = clock_now_ms();
    for (unsigned long long seed = first; seed <= last; seed++) {
        failed += run_seed(seed, (enum publication_mutant)mutant, &totals) ? 0 : 1;
    }
    double seconds = (double)(clock_now_ms() - start + 1) / 1000;
    unsigned long long count = last - first + 1;
    printf("%llu schedules (seeds %llu..%llu) in %.1f s, %.0f/s: %llu events, %llu crashes, %llu "
           "elections, %llu disk operations; %llu generations, %llu epochs committed, %llu "
           "aborted (%llu shards could not be written), %llu published, %llu collected, %llu jobs "
           "succeeded, %llu looks of the reader; %llu failed\n",
           count, first, last, seconds, (double)count / seconds,
           (unsigned long long)totals.world.events, (unsigned long long)totals.world.crashes,
           (unsigned long long)totals.world.elections, (unsigned long long)totals.world.disk_ops,
           (unsigned long long)totals.counts.generations,
           (unsigned long long)totals.counts.committed, (unsigned long long)totals.counts.aborted,
           (unsigned long long)totals.counts.refused_stages,
           (unsigned long long)totals.counts.published, (unsigned long long)totals.counts.collected,
           (unsigned long long)totals.counts.succeeded, (unsigned long long)totals.counts.looks,
           failed);
    printf(
        "%llu copies fetched, %llu losses of a disk or node, %llu of them seen whole again, %llu "
        "nodes that lost their log too came back as somebody else, %llu heard that they were "
        "removed\n",
        (unsigned long long)totals.counts.copies, (unsigned long long)totals.counts.hurts,
        (unsigned long long)totals.counts.repairs, (unsigned long long)totals.counts.rejoins,
        (unsigned long long)totals.counts.told);
    return failed == 0 ? 0 : 1;
}

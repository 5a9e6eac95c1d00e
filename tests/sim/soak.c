/* soak --seeds A..B: runs schedules of the simulated world and says
 * how many there were. A failing seed is printed with every option that it was derived to; `soak
 * --seeds N..N` replays it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/hashes.h"

static bool run_seed(uint64_t seed, struct world_stats *total, uint64_t *acknowledged)
{
    struct world_options options;
    world_options_of_seed(seed, &options);
    struct hashes *all = hashes_new();
    struct world *world = world_new(&options, &world_hashes, all);
    bool good = world_run(world);
    struct world_stats stats;
    world_stats(world, &stats);
    total->events += stats.events;
    total->crashes += stats.crashes;
    total->elections += stats.elections;
    total->entries_committed += stats.entries_committed;
    total->snapshots_installed += stats.snapshots_installed;
    total->messages += stats.messages;
    total->disk_ops += stats.disk_ops;
    total->group_changes += stats.group_changes;
    total->wipes += stats.wipes;
    *acknowledged += hashes_acknowledged(all);
    world_free(world);
    hashes_free(all);
    return good;
}

int main(int argc, char **argv)
{
    unsigned long long first = 1;
    unsigned long long last = 3000;
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        char *end = NULL;
        first = strtoull(argv[2], &end, 10);
        last = strncmp(end, "..", 2) == 0 ? strtoull(end + 2, &end, 10) : 0;
        if (*end != '\0' || last < first) {
            (void)fprintf(stderr, "soak: '%s' is no range of seeds such as 1..3000\n", argv[2]);
            return 2;
        }
    } else if (argc != 1) {
        (void)fprintf(stderr, "usage: soak [--seeds A..B]\n");
        return 2;
    }
    struct world_stats total = {0};
    uint64_t acknowledged = 0;
    uint64_t failed = 0;
    uint64_t start = clock_now_ms();
    for (unsigned long long seed = first; seed <= last; seed++) {
        failed += run_seed(seed, &total, &acknowledged) ? 0 : 1;
    }
    double seconds = (double)(clock_now_ms() - start + 1) / 1000;
    unsigned long long count = last - first + 1;
    printf("%llu schedules (seeds %llu..%llu) in %.1f s, %.0f/s: %llu events, %llu crashes, "
           "%llu elections, %llu entries committed, %llu commands acknowledged, %llu messages, "
           "%llu disk operations, %llu changes of the group, %llu lost disks; %llu failed\n",
           count, first, last, seconds, (double)count / seconds, (unsigned long long)total.events,
           (unsigned long long)total.crashes, (unsigned long long)total.elections,
           (unsigned long long)total.entries_committed, (unsigned long long)acknowledged,
           (unsigned long long)total.messages, (unsigned long long)total.disk_ops,
           (unsigned long long)total.group_changes, (unsigned long long)total.wipes,
           (unsigned long long)failed);
    return failed == 0 ? 0 : 1;
}

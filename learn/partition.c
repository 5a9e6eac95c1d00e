#include "learn/learn.h"

#include "numerics/nodes.h"

/* Sums of weights stay below, so that 128 times one fits. */
#define WEIGHT_MAX ((uint64_t)1 << 55)

/* Each of a range's two cuts may be this far off, so that the range is within 12 %. */
#define SLACK_PERCENT 6

static uint64_t weight_of(const struct partition_settings *settings, bool even, uint64_t column)
{
    return even ? 1 : settings->weights[column];
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The cut behind `first` whose weight to the left, in `parts`ths, is near `ideal`: of those within
 * `slack` the one at the highest power of two, the nearest of equals; else the nearest. *prefix is
 * the weight left of `first`, then of the cut. */
static uint64_t choose_cut(const struct partition_settings *settings, bool even, uint64_t first,
                           uint64_t last, uint64_t ideal, uint64_t slack, uint64_t *prefix)
{
    uint64_t parts = settings->participants;
    uint64_t best = 0;
    uint64_t best_far = UINT64_MAX;
    uint64_t best_prefix = 0;
    unsigned best_power = 0;
    uint64_t at = *prefix;
    for (uint64_t cut = first; cut <= last; cut++) {
        if (cut > first) {
            at += weight_of(settings, even, cut - 1);
        }
        uint64_t far = distance(at * parts, ideal);
        unsigned power = far <= slack ? 1 + arith_trailing_zeros(cut) : 0;
        if (power > best_power || (power == best_power && far < best_far)) {
            best = cut;
            best_far = far;
            best_prefix = at;
            best_power = power;
        }
        if (at * parts > ideal && far > slack) {
            break; /* from here on it only gets farther */
        }
    }
    *prefix = best_prefix;
    return best;
}

int partition_cut(const struct partition_settings *settings, uint64_t *bounds, struct err *err)
{
    uint64_t coordinates = settings->columns + (settings->intercept ? 1 : 0);
    uint32_t parts = settings->participants;
    if (settings->columns == 0 || settings->columns >= WEIGHT_MAX) {
        return err_set(err, ERR_JOB, "a model of %llu columns cannot be cut",
                       (unsigned long long)settings->columns);
    }
    if (parts == 0 || parts > LEARN_PARTICIPANTS_MAX || parts > coordinates) {
        return err_set(
            err, ERR_JOB, "%llu coordinates cannot be given to %u nodes; give 1 to %llu nodes",
            (unsigned long long)coordinates, parts,
            (unsigned long long)(coordinates < LEARN_PARTICIPANTS_MAX ? coordinates
                                                                      : LEARN_PARTICIPANTS_MAX));
    }
    uint64_t total = 0;
    for (uint64_t j = 0; settings->weights != NULL && j < settings->columns; j++) {
        if (settings->weights[j] > WEIGHT_MAX - total) {
            return err_set(err, ERR_JOB, "the columns hold more than 2^55 non-zeros");
        }
        total += settings->weights[j];
    }
    bool even = total == 0; /* dense, or a matrix of zeros */
    if (even) {
        total = settings->columns;
    }
    bounds[0] = 0;
    bounds[parts] = coordinates;
    uint64_t prefix = 0;
    for (uint32_t p = 1; p < parts; p++) {
        uint64_t first = bounds[p - 1] + 1;
        uint64_t last = coordinates - (parts - p);
        prefix += weight_of(settings, even, first - 1);
        bounds[p] = choose_cut(settings, even, first, last, total * p, total * SLACK_PERCENT / 100,
                               &prefix);
    }
    return 0;
}

size_t learn_nodes_count(const struct learn_settings *settings, uint32_t rank)
{
    struct node nodes[NODES_MAX];
    return nodes_cover(settings->bounds[rank], settings->bounds[rank + 1], nodes);
}

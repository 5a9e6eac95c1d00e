/* Canonical nodes of the index line, and the fold that joins those of all participants.
 *
 * The index line is the coordinates 0 .. d-1 and, where the model has an intercept, coordinate d:
 * the intercept is a coordinate like the others. A participant owns a contiguous range and sends,
 * for each row, the values of the canonical nodes of its range and nothing else. Whoever has the
 * values of all participants folds them in tree order and gets the root that one node alone would
 * get, wherever the cuts are.
 *
 * nodes_cover() is for host and device; the fold plan is for the host. A plan is built once (it
 * allocates), is immutable then, and may be run from several threads at a time. */
#ifndef COPPELIUS_NUMERICS_NODES_H
#define COPPELIUS_NUMERICS_NODES_H

#include <stddef.h>

#include "numerics/arith.h"

/* Indices below 2^62 are covered by at most 2 * 61 nodes; ranges of n by max(1, 2 * floor(log2 n)).
 */
#define NODES_MAX       128
#define NODES_INDEX_END ((uint64_t)1 << 62)

/* Node (level, index) covers index * 2^level .. (index + 1) * 2^level - 1. */
struct node {
    uint64_t index;
    uint32_t level;
};

ARITH uint64_t node_first(struct node node)
{
    return node.index << node.level;
}

ARITH uint64_t node_end(struct node node)
{
    return (node.index + 1) << node.level;
}

/* The canonical nodes of first .. end-1 in index order; returns how many (0 for an empty range).
 * end is at most NODES_INDEX_END. */
ARITH size_t nodes_cover(uint64_t first, uint64_t end, struct node out[NODES_MAX])
{
    size_t count = 0;
    while (first < end) {
        unsigned level = arith_highest_bit(end - first); /* the largest that fits … */
        if (first != 0 && arith_trailing_zeros(first) < level) {
            level = arith_trailing_zeros(first); /* … and starts here */
        }
        out[count].index = first >> level;
        out[count].level = level;
        count++;
        first += (uint64_t)1 << level;
    }
    return count;
}

#ifndef __CUDACC__

#include "base/err.h"

struct fold_step {
    uint32_t left; /* below inputs_count: an input; else scratch slot left - inputs_count */
    uint32_t right;
    uint32_t slot; /* scratch slot of the sum */
};

/* Lives in the caller's memory. */
struct fold_plan {
    size_t inputs_count;
    size_t steps_count;
    struct fold_step *steps; /* the joins of the tree, children before parents */
};

#define FOLD_PLAN_NONE \
    {                  \
        0, 0, NULL     \
    }

/* nodes: the concatenated canonical nodes of all participants in index order (rank order). Each
 * must begin where the one before it ends, else ERR_PROTO. No node at all is fine: the sum is +0.0.
 */
int fold_plan_init(struct fold_plan *plan, const struct node *nodes, size_t nodes_count,
                   struct err *err);
/* From the bounds of the partition: participant p owns bounds[p] .. bounds[p + 1] - 1;
 * participants + 1 bounds. */
int fold_plan_init_bounds(struct fold_plan *plan, const uint64_t *bounds, size_t participants_count,
                          struct err *err);
void fold_plan_done(struct fold_plan *plan); /* FOLD_PLAN_NONE and twice are fine */

/* out[i] = canon(root of inputs[0][i], inputs[1][i] …), i < count, added in tree order. inputs[n]
 * is the array of node n in the order of fold_plan_init(). out may be one of the inputs. Allocates
 * nothing. */
void fold_plan_run(const struct fold_plan *plan, const double *const inputs[], double *out,
                   size_t count);

#endif
#endif

#include "numerics/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "numerics/dyadic.h"
#include "numerics/product.h"

/* Elements that go up the tree together: the scratch of a usual tree stays in the first cache. */
#define FOLD_BLOCK 128

/* What waits on the stack while the plan is made. */
struct waiting {
    uint32_t source; /* as in struct fold_step */
    unsigned bit;    /* where it meets the next on the stack */
};

int fold_plan_init(struct fold_plan *plan, const struct node *nodes, size_t nodes_count,
                   struct err *err)
{
    if (nodes_count > UINT32_MAX / 2) {
        return err_set(err, ERR_PROTO, "a fold of %zu nodes; the most is %u", nodes_count,
                       UINT32_MAX / 2);
    }
    for (size_t i = 0; i < nodes_count; i++) {
        if (nodes[i].level > 61 || nodes[i].index >= NODES_INDEX_END >> nodes[i].level) {
            return err_set(err, ERR_PROTO, "node %zu (level %u, index %llu) is off the index line",
                           i, nodes[i].level, (unsigned long long)nodes[i].index);
        }
        if (i > 0 && node_first(nodes[i]) != node_end(nodes[i - 1])) {
            return err_set(err, ERR_PROTO,
                           "node %zu begins at coordinate %llu, the one before it ends at %llu", i,
                           (unsigned long long)node_first(nodes[i]),
                           (unsigned long long)node_end(nodes[i - 1]));
        }
    }
    struct fold_step *steps = calloc(nodes_count > 1 ? nodes_count - 1 : 1, sizeof(*steps));
    if (steps == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a fold of %zu nodes", nodes_count);
    }
    struct waiting stack[DYADIC_LEVELS_MAX];
    size_t depth = 0;
    size_t made = 0;
    for (size_t i = 0; i <= nodes_count; i++) {
        /* The end of the line meets everything last. */
        unsigned bit = DYADIC_LEVELS_MAX;
        if (i > 0 && i < nodes_count) {
            bit = arith_highest_bit(node_first(nodes[i]) ^ node_first(nodes[i - 1]));
        }
        while (i > 0 && depth > 1 && stack[depth - 2].bit < bit) {
            steps[made] = (struct fold_step){.left = stack[depth - 2].source,
                                             .right = stack[depth - 1].source,
                                             .slot = (uint32_t)(depth - 2)};
            made++;
            stack[depth - 2].source = (uint32_t)(nodes_count + depth - 2);
            depth--;
        }
        if (i < nodes_count) {
            if (depth > 0) {
                stack[depth - 1].bit = bit;
            }
            ASSERT(depth < DYADIC_LEVELS_MAX);
            stack[depth].source = (uint32_t)i;
            depth++;
        }
    }
    ASSERT(made == (nodes_count > 1 ? nodes_count - 1 : 0));
    *plan = (struct fold_plan){.inputs_count = nodes_count, .steps_count = made, .steps = steps};
    return 0;
}

int fold_plan_init_bounds(struct fold_plan *plan, const uint64_t *bounds, size_t participants_count,
                          struct err *err)
{
    struct node *nodes = calloc(participants_count * NODES_MAX + 1, sizeof(*nodes));
    if (nodes == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the nodes of %zu participants",
                       participants_count);
    }
    size_t nodes_count = 0;
    int result = 0;
    for (size_t p = 0; p < participants_count; p++) {
        if (bounds[p] > bounds[p + 1] || bounds[p + 1] > NODES_INDEX_END) {
            result = err_set(err, ERR_PROTO, "participant %zu has coordinates %llu to %llu", p,
                             (unsigned long long)bounds[p], (unsigned long long)bounds[p + 1]);
            break;
        }
        nodes_count += nodes_cover(bounds[p], bounds[p + 1], nodes + nodes_count);
    }
    if (result == 0) {
        result = fold_plan_init(plan, nodes, nodes_count, err);
    }
    free(nodes);
    return result;
}

void fold_plan_done(struct fold_plan *plan)
{
    free(plan->steps);
    *plan = (struct fold_plan)FOLD_PLAN_NONE;
}

/* Sums in place are usual: a slot is its left child's. */
#ifdef __clang__
#define EACH_ON_ITS_OWN _Pragma("clang loop vectorize(assume_safety)")
#else
#define EACH_ON_ITS_OWN _Pragma("GCC ivdep")
#endif

/* Where the values of elements at .. of a source are. */
static inline const double *source_of(const struct fold_plan *plan, const double *const inputs[],
                                      double (*slots)[FOLD_BLOCK], uint32_t source, size_t at)
{
    return source < plan->inputs_count ? inputs[source] + at : slots[source - plan->inputs_count];
}

/* The body of each variant below: the same additions, whatever the registers' width. */
static inline __attribute__((always_inline)) void
run(const struct fold_plan *plan, const double *const inputs[], double *out, size_t count)
{
    double slots[DYADIC_LEVELS_MAX][FOLD_BLOCK];
    for (size_t at = 0; at < count; at += FOLD_BLOCK) {
        size_t size = count - at < FOLD_BLOCK ? count - at : FOLD_BLOCK;
        double *root = out + at;
        for (size_t s = 0; s + 1 < plan->steps_count; s++) {
            const struct fold_step *step = &plan->steps[s];
            const double *left = source_of(plan, inputs, slots, step->left, at);
            const double *right = source_of(plan, inputs, slots, step->right, at);
            double *sum = slots[step->slot];
            EACH_ON_ITS_OWN
            for (size_t i = 0; i < size; i++) {
                sum[i] = left[i] + right[i];
            }
        }
        if (plan->steps_count == 0) {
            const double *only = inputs[0] + at;
            EACH_ON_ITS_OWN
            for (size_t i = 0; i < size; i++) {
                root[i] = canon(only[i]);
            }
            continue;
        }
        const struct fold_step *last = &plan->steps[plan->steps_count - 1];
        const double *left = source_of(plan, inputs, slots, last->left, at);
        const double *right = source_of(plan, inputs, slots, last->right, at);
        EACH_ON_ITS_OWN
        for (size_t i = 0; i < size; i++) {
            root[i] = canon(left[i] + right[i]);
        }
    }
}

static void run_plain(const struct fold_plan *plan, const double *const inputs[], double *out,
                      size_t count)
{
    run(plan, inputs, out, count);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void
run_avx2(const struct fold_plan *plan, const double *const inputs[], double *out, size_t count)
{
    run(plan, inputs, out, count);
}
#endif

void fold_plan_run(const struct fold_plan *plan, const double *const inputs[], double *out,
                   size_t count)
{
    if (plan->inputs_count == 0) {
        memset(out, 0, count * sizeof(*out));
        return;
    }
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        run_avx2(plan, inputs, out, count);
        return;
    }
#endif
    run_plain(plan, inputs, out, count);
}

/* The embedding's gradient in a fixed order: the rows of a token in position order within leaves of
 * MODEL_SCATTER_LEAF positions, the leaves as a dyadic tree in which a leaf without the token is
 * absent; the root is added to the table's row.
 *
 * 1. order (rows): in each leaf the positions, sorted by (token, position)
 * 2. leaves (rows, width): at the place of a token's first position in order, the sum of its rows
 * in the leaf; not written where that is a single row, which stands for itself
 * 3. for each token of the vocabulary the tree over the leaves */
#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"

#include "base/assert.h"

#define LEVELS  24 /* of the tree of leaves: 2^24 leaves of 1024 positions */
#define COLUMNS 64 /* of a pass over the leaves */

static size_t leaf_size(const struct model_launch *launch, size_t leaf)
{
    size_t left = launch->rows - leaf * MODEL_SCATTER_LEAF;
    return left < MODEL_SCATTER_LEAF ? left : MODEL_SCATTER_LEAF;
}

/* item: a leaf. A merge sort, bottom up, stable: equal tokens stay in position order. */
void cpu_scatter_order(const struct model_launch *launch, void *const operand[], size_t item)
{
    const int32_t *token = operand[0];
    size_t first = item * MODEL_SCATTER_LEAF;
    size_t size = leaf_size(launch, item);
    int32_t *order = (int32_t *)operand[2] + first;
    int32_t other[MODEL_SCATTER_LEAF];
    for (size_t i = 0; i < size; i++) {
        order[i] = (int32_t)(first + i);
    }
    for (size_t run = 1; run < size; run *= 2) {
        for (size_t start = 0; start < size; start += 2 * run) {
            size_t middle = start + run < size ? start + run : size;
            size_t end = start + 2 * run < size ? start + 2 * run : size;
            size_t left = start;
            size_t right = middle;
            for (size_t i = start; i < end; i++) {
                bool take_left =
                    left < middle && (right == end || token[order[left]] <= token[order[right]]);
                other[i] = take_left ? order[left++] : order[right++];
            }
        }
        memcpy(order, other, size * sizeof(*order));
    }
}

/* How many places from `place` of the leaf on hold the same token. */
static size_t run_length(const int32_t *token, const int32_t *order, size_t size, size_t place)
{
    size_t end = place + 1;
    while (end < size && token[order[end]] == token[order[place]]) {
        end++;
    }
    return end - place;
}

/* item: a leaf */
void cpu_scatter_leaf(const struct model_launch *launch, void *const operand[], size_t item)
{
    const int32_t *token = operand[0];
    size_t width = launch->shape.width;
    size_t first = item * MODEL_SCATTER_LEAF;
    size_t size = leaf_size(launch, item);
    const int32_t *order = (const int32_t *)operand[2] + first;
    const float *dx = operand[1];
    size_t run;
    for (size_t place = 0; place < size; place += run) {
        run = run_length(token, order, size, place);
        if (run == 1) {
            continue;
        }
        float *restrict sum = (float *)operand[3] + (first + place) * width;
        memcpy(sum, dx + (size_t)order[place] * width, width * sizeof(float));
        for (size_t i = 1; i < run; i++) {
            const float *restrict row = dx + (size_t)order[place + i] * width;
            for (size_t j = 0; j < width; j++) {
                sum[j] += row[j];
            }
        }
    }
}

/* The leaf's sum for a token, or NULL where the leaf has none. */
static const float *find_leaf(const struct model_launch *launch, void *const operand[], size_t leaf,
                              int32_t wanted)
{
    const int32_t *token = operand[0];
    size_t first = leaf * MODEL_SCATTER_LEAF;
    size_t size = leaf_size(launch, leaf);
    const int32_t *order = (const int32_t *)operand[2] + first;
    size_t low = 0;
    size_t high = size;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (token[order[middle]] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == size || token[order[low]] != wanted) {
        return NULL;
    }
    if (run_length(token, order, size, low) == 1) {
        return (const float *)operand[1] + (size_t)order[low] * launch->shape.width;
    }
    return (const float *)operand[3] + (first + low) * launch->shape.width;
}

/* A binary counter of finished nodes: level l of the tree waits for its right sibling. */
struct tree {
    bool there[LEVELS]; /* else absent, or nothing waits */
    float value[LEVELS][COLUMNS];
};

/* Puts leaf number `leaf` (NULL: absent) into the tree. */
static void tree_put(struct tree *tree, size_t leaf, const float *value, size_t columns)
{
    float carry[COLUMNS];
    bool have = value != NULL;
    if (have) {
        memcpy(carry, value, columns * sizeof(float));
    }
    size_t level = 0;
    for (; (leaf >> level & 1) != 0; level++) {
        if (tree->there[level]) {
            for (size_t j = 0; j < columns; j++) {
                carry[j] = have ? tree->value[level][j] + carry[j] : tree->value[level][j];
            }
            have = true;
        }
    }
    ASSERT(level < LEVELS);
    tree->there[level] = have;
    if (have) {
        memcpy(tree->value[level], carry, columns * sizeof(float));
    }
}

/* item: a token of the vocabulary. The leaves that are missing to a power of two are absent, so
 * that the root is one node. */
void cpu_scatter_root(const struct model_launch *launch, void *const operand[], size_t item)
{
    size_t width = launch->shape.width;
    size_t leaves = (launch->rows + MODEL_SCATTER_LEAF - 1) / MODEL_SCATTER_LEAF;
    size_t padded = 1;
    size_t levels = 0;
    while (padded < leaves) {
        padded *= 2;
        levels++;
    }
    for (size_t first = 0; first < width; first += COLUMNS) {
        size_t columns = width - first < COLUMNS ? width - first : COLUMNS;
        struct tree tree;
        memset(tree.there, 0, sizeof(tree.there));
        for (size_t leaf = 0; leaf < padded; leaf++) {
            const float *sum =
                leaf < leaves ? find_leaf(launch, operand, leaf, (int32_t)item) : NULL;
            tree_put(&tree, leaf, sum != NULL ? sum + first : NULL, columns);
        }
        if (!tree.there[levels]) {
            return; /* the token is nowhere */
        }
        float *row = (float *)operand[4] + item * width + first;
        for (size_t j = 0; j < columns; j++) {
            row[j] += tree.value[levels][j];
        }
    }
}

#include "gpu/sparse_order.h"

#include <string.h>

#include "base/assert.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"

#define FOLD ((uint64_t)1 << ENTRY_FOLDS)

uint64_t sparse_entry(uint64_t key, float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return key << 32 | bits;
}

/* Addition commutes bit for bit, so a node's halves may be summed in either order. The one with
 * more terms first: a single term is then added to what is in hand, only a lighter half's value
 * meets one that waits, and no more than log2 of the terms wait. In index order twice as many folds
 * would need the stack, and 32 threads that go together would wait for the one with the most. */
struct tree_order {
    const uint64_t *terms; /* ascending; an index is key >> shift, plus first */
    uint64_t *out;
    size_t at;
    unsigned shift;
    uint64_t first;
};

static uint64_t index_of(const struct tree_order *order, size_t i)
{
    return (order->terms[i] >> order->shift) + order->first;
}

/* Recursion: once a bit of the index. */
static void put_node(struct tree_order *order, size_t begin, size_t end)
{
    uint64_t differ = index_of(order, begin) ^ index_of(order, end - 1);
    if (differ == 0) { /* terms of one index just add */
        for (size_t i = begin; i < end; i++) {
            order->out[order->at++] = order->terms[i] + (i > begin ? FOLD : 0);
        }
        return;
    }
    unsigned bit = arith_highest_bit(differ);
    size_t low = begin;    /* in the left half */
    size_t high = end - 1; /* in the right one */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if ((index_of(order, middle) >> bit & 1) == 0) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (high - begin >= end - high) {
        put_node(order, begin, high);
        put_node(order, high, end);
    } else {
        put_node(order, high, end);
        put_node(order, begin, high);
    }
    order->out[order->at - 1] += FOLD;
}

uint64_t sparse_order_row(uint64_t *entries, size_t count, const struct node *nodes, uint64_t first,
                          bool whole, uint64_t *room)
{
    struct tree_order order = {.terms = entries, .out = room, .shift = 32, .first = first};
    uint64_t waiting = 0; /* nodes on the stack */
    uint64_t most = 0;
    for (size_t begin = 0; begin < count;) {
        while (node_end(*nodes) <= index_of(&order, begin)) {
            nodes++;
        }
        size_t end = begin + 1;
        while (end < count && index_of(&order, end) < node_end(*nodes)) {
            end++;
        }
        put_node(&order, begin, end);
        uint64_t depth = waiting + sparse_order_depth(room + begin, end - begin);
        most = depth > most ? depth : most;
        waiting += whole ? 1 : 0;
        begin = end;
    }
    memcpy(entries, room, count * sizeof(*entries));
    return most;
}

/* By lane, then pass: key lane << 4 | pass. The keys of a cell are distinct. */
static void sort_cell(uint64_t *cell, size_t count, uint64_t *room)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t row = cell[i] >> 32;
        uint64_t key = row % PANEL_LANES << 4 | row / PANEL_LANES;
        cell[i] = key << 32 | (cell[i] & UINT32_MAX);
    }
    if (count < 48) {
        for (size_t i = 1; i < count; i++) {
            uint64_t entry = cell[i];
            size_t k = i;
            for (; k > 0 && cell[k - 1] >> 32 > entry >> 32; k--) {
                cell[k] = cell[k - 1];
            }
            cell[k] = entry;
        }
        return;
    }
    memset(room, 0xff, PANEL_ROWS * sizeof(*room));
    for (size_t i = 0; i < count; i++) {
        room[cell[i] >> 32] = cell[i];
    }
    size_t at = 0;
    for (size_t key = 0; key < PANEL_ROWS; key++) {
        if (room[key] != UINT64_MAX) {
            cell[at++] = room[key];
        }
    }
    ASSERT(at == count);
}

void sparse_order_cell(uint64_t *entries, size_t count, uint64_t *room)
{
    struct tree_order order = {.terms = entries, .out = room, .shift = 36};
    if (count == 0) {
        return;
    }
    sort_cell(entries, count, room);
    put_node(&order, 0, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t lane = room[i] >> 36 & (PANEL_LANES - 1);
        uint64_t pass = room[i] >> 32 & 15;
        uint64_t row = pass * PANEL_LANES + lane;
        entries[i] = row << 32 | (room[i] & UINT32_MAX) | (room[i] & ~(FOLD - 1));
    }
}

uint64_t sparse_order_depth(const uint64_t *entries, size_t count)
{
    uint64_t depth = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        depth = depth + 1 - (entries[i] >> ENTRY_FOLDS);
        most = depth > most ? depth : most;
    }
    return most;
}

/* Sparse entries in the order in which the device's stack sums them (gpu/kernels/params.h has the
 * entry). Pure; any thread. */
#ifndef COPPELIUS_GPU_SPARSE_ORDER_H
#define COPPELIUS_GPU_SPARSE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/kernels/params.h"
#include "numerics/nodes.h"

/* bits of the value | key << 32, without folds yet */
uint64_t sparse_entry(uint64_t key, float value);
/* A row's `count` entries, keys are local columns, ascending; put into the tree's order with their
 * folds. nodes: the canonical nodes of the columns `first` and on: each is summed by itself, in
 * their order, and remains on the stack where the row is summed as a whole. room: as many entries.
 * Returns the slots of the stack that it takes. */
uint64_t sparse_order_row(uint64_t *entries, size_t count, const struct node *nodes, uint64_t first,
                          bool whole, uint64_t *room);
/* A cell's `count` entries, keys are rows of a panel, ascending; lanes meet as the tree demands,
 * rows of one lane add in their order. room: PANEL_ROWS entries at least. */
void sparse_order_cell(uint64_t *entries, size_t count, uint64_t *room);
/* Slots of a stack that such entries push to, one after the other. */
uint64_t sparse_order_depth(const uint64_t *entries, size_t count);

#endif

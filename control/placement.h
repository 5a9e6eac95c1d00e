/* Which nodes hold the copies of a shard: a function of the agreed state and the nodes that the
 * leader hears, so the same everywhere.
 *
 * The order of a shard of rank r: its own node, the participants of ranks r + 1, r + 2, … (around),
 * the other trainers and spares by id, the arbiters by id. A node on an IPv4 address that no holder
 * has goes before one that shares an address: one machine may go with all that runs on it. */
#ifndef COPPELIUS_CONTROL_PLACEMENT_H
#define COPPELIUS_CONTROL_PLACEMENT_H

#include <stdint.h>

#include "control/state.h"

/* The node for one more copy beside the shard's holders, among `live` (bit id - 1) who are in; 0:
 * none. */
uint32_t placement_next(const struct state *state, const struct state_epoch *epoch, uint32_t rank,
                        uint64_t live);

/* Fills holders and copies of a shard that begins: its own node, then up to `replicas` others. */
void placement_begin(const struct state *state, struct state_epoch *epoch, uint32_t rank,
                     uint64_t live, uint32_t replicas);

#endif

/* Who this node is and who the others are, at a start: as it last knew (roll.h); else as a cluster
 * that it asks lets it in (join.h); else one of the config's first nodes, or the only one.
 *
 * Blocks, before the loop runs; a node with `join` in its config asks until it is let in. */
#ifndef COPPELIUS_DAEMON_ENTER_H
#define COPPELIUS_DAEMON_ENTER_H

#include "daemon/config.h"
#include "daemon/roll.h"
#include "daemon/state_folder.h"

struct trust;

/* *ret_joined: by a roll of its own; it begins no cluster. */
int enter_find(const struct config *config, const struct state_folder *folder, struct trust *trust,
               struct roll *ret_roll, bool *ret_joined, struct err *err);

#endif

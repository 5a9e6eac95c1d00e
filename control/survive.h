/* The survivor goes on alone: what an operator does when a majority is gone for good.
 *
 * Works on the log folder of a stopped node. survive_look() reads it as a start would and says what
 * is there; survive_act() appends, durably and at once, the group of this node alone and the
 * RECOVER entry, in the next term: at its next start the node leads, commits all that its log holds
 * and fences the others by identity, those too that had never registered: each of them is removed
 * by an entry of its own. What the others had agreed on and this log lacks is lost; what
 * this log holds and nobody had agreed on becomes true. */
#ifndef COPPELIUS_CONTROL_SURVIVE_H
#define COPPELIUS_CONTROL_SURVIVE_H

#include "base/fs.h"
#include "control/group.h"
#include "control/state.h"

struct survivor {
    struct wal *wal;
    uint32_t self; /* its identity */
    uint64_t term;
    uint64_t last_index;
    uint64_t last_term;
    struct control_group group; /* the newest in the log */
    /* Members of any group in the log whom the state does not know: they never said a word that was
     * agreed on, but they may vote, and they have logs. */
    struct control_group silent;
    struct state *state; /* as it would be with the whole log applied */
};

/* folder: of the log, below the fs root. survivor_done() where it fails too. ERR_NOT_FOUND: no log
 * there; ERR_DAMAGED as control_open(). */
int survive_look(struct fs *fs, const char *folder, struct survivor *ret_survivor, struct err *err);
/* ERR_STATE where it cannot be: the node is alone already, or was removed. */
int survive_act(struct survivor *survivor, uint64_t wall_ms, struct err *err);
void survivor_done(struct survivor *survivor);

#endif

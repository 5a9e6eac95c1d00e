/* Who is in the consensus group: the configuration, as one value.
 *
 * A member's id names an identity, not a machine: the low byte is its place (1..127, what the rest
 * of the house calls the node id), the rest counts the identities that had this place. A node whose
 * disk was lost comes back with another id, so that nothing which the old one promised is asked of
 * the new one, and nothing which the old one still says is taken for the new one's.
 *
 * As bytes (in entries, snapshots and messages): u8 count, then u32 id and u8 voter (0: a learner,
 * which is sent the log and counts for nothing), ids ascending. At least one voter, at most 7. */
#ifndef COPPELIUS_CONTROL_GROUP_H
#define COPPELIUS_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define CONTROL_VOTERS_MAX  7
#define CONTROL_MEMBERS_MAX 127
#define GROUP_SIZE_MAX      (1U + 5U * CONTROL_MEMBERS_MAX)

struct control_member {
    uint32_t id;
    bool voter;
};

struct control_group {
    uint32_t count;
    struct control_member items[CONTROL_MEMBERS_MAX];
};

/* The place of an identity, and an identity of a place: the first one is the place itself. */
static inline uint32_t member_place(uint32_t id)
{
    return id & 0xffU;
}

static inline uint32_t member_id(uint32_t place, uint32_t life)
{
    return place | life << 8U;
}

/* NULL: not among them. */
const struct control_member *group_get(const struct control_group *group, uint32_t id);
bool group_is_voter(const struct control_group *group, uint32_t id);
uint32_t group_voters(const struct control_group *group); /* how many */
bool group_equal(const struct control_group *a, const struct control_group *b);
/* Adds, or makes the one that is there a voter or a learner. The caller has looked for room. */
void group_set(struct control_group *group, uint32_t id, bool voter);
void group_drop(struct control_group *group, uint32_t id);
/* 4.1: may `next` follow `now` in one step? One member added as a learner or voter, dropped, or
 * turned; at least one voter is left and not too many. */
bool group_is_one_step(const struct control_group *now, const struct control_group *next);

void group_put(struct buf *bytes, const struct control_group *group);
/* False: these bytes are none. All are taken. */
bool group_parse(const uint8_t *bytes, size_t size, struct control_group *ret_group);

#endif

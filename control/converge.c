/* From the group that is to the one that is wanted, a safe step at a time. */
#include "control/control.h"

#include "control/raft.h"

/* Where a step is tried: on a copy. */
static bool try_step(struct control *control, const struct control_group *next)
{
    return control_change(control, next, NULL) == 0;
}

static bool drop(struct control *control, uint32_t id)
{
    struct control_group next = *control_group(control, NULL);
    group_drop(&next, id);
    return try_step(control, &next);
}

static bool turn(struct control *control, uint32_t id, bool voter)
{
    struct control_group next = *control_group(control, NULL);
    if (group_get(&next, id) == NULL && next.count == CONTROL_MEMBERS_MAX) {
        return false;
    }
    group_set(&next, id, voter);
    return try_step(control, &next);
}

/* Those who are to go, or to vote no more; `silent`: only who is not heard, which makes room. */
static bool drop_one(struct control *control, const struct control_group *wanted, uint32_t self,
                     bool silent)
{
    const struct raft *raft = control_raft(control);
    const struct control_group *now = control_group(control, NULL);
    for (uint32_t i = 0; i < now->count; i++) {
        const struct control_member *member = &now->items[i];
        const struct control_member *after = group_get(wanted, member->id);
        if (member->id == self || (silent && raft_is_heard(raft, member->id))) {
            continue;
        }
        if (after == NULL ? drop(control, member->id)
                          : member->voter && !after->voter && turn(control, member->id, false)) {
            return true;
        }
    }
    return false;
}

bool control_converge(struct control *control, const struct control_group *wanted)
{
    const struct control_group *now = control_group(control, NULL);
    if (!control_is_leader(control) || group_equal(now, wanted) || group_voters(wanted) == 0) {
        return false;
    }
    uint32_t self = control_self(control);
    for (uint32_t i = 0; i < wanted->count; i++) {
        if (group_get(now, wanted->items[i].id) == NULL &&
            turn(control, wanted->items[i].id, false)) {
            return true;
        }
    }
    if (drop_one(control, wanted, self, true)) {
        return true;
    }
    for (uint32_t i = 0; i < wanted->count; i++) {
        if (wanted->items[i].voter && !group_is_voter(now, wanted->items[i].id) &&
            turn(control, wanted->items[i].id, true)) {
            return true;
        }
    }
    if (drop_one(control, wanted, self, false)) {
        return true;
    }
    const struct control_member *after = group_get(wanted, self);
    if (after == NULL) {
        return drop(control, self);
    }
    return !after->voter && group_is_voter(now, self) && turn(control, self, false);
}

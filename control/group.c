#include "control/group.h"

#include <string.h>

#include "base/assert.h"

/* Where the id is, or would be. */
static uint32_t place_of(const struct control_group *group, uint32_t id)
{
    uint32_t at = 0;
    while (at < group->count && group->items[at].id < id) {
        at++;
    }
    return at;
}

const struct control_member *group_get(const struct control_group *group, uint32_t id)
{
    uint32_t at = place_of(group, id);
    return at < group->count && group->items[at].id == id ? &group->items[at] : NULL;
}

bool group_is_voter(const struct control_group *group, uint32_t id)
{
    const struct control_member *member = group_get(group, id);
    return member != NULL && member->voter;
}

uint32_t group_voters(const struct control_group *group)
{
    uint32_t voters = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        voters += group->items[i].voter ? 1 : 0;
    }
    return voters;
}

bool group_equal(const struct control_group *a, const struct control_group *b)
{
    bool equal = a->count == b->count;
    for (uint32_t i = 0; equal && i < a->count; i++) {
        equal = a->items[i].id == b->items[i].id && a->items[i].voter == b->items[i].voter;
    }
    return equal;
}

void group_set(struct control_group *group, uint32_t id, bool voter)
{
    uint32_t at = place_of(group, id);
    if (at == group->count || group->items[at].id != id) {
        ASSERT(group->count < CONTROL_MEMBERS_MAX);
        memmove(&group->items[at + 1], &group->items[at],
                (group->count - at) * sizeof(group->items[0]));
        group->count++;
    }
    group->items[at] = (struct control_member){id, voter};
}

void group_drop(struct control_group *group, uint32_t id)
{
    uint32_t at = place_of(group, id);
    if (at < group->count && group->items[at].id == id) {
        group->count--;
        memmove(&group->items[at], &group->items[at + 1],
                (group->count - at) * sizeof(group->items[0]));
    }
}

bool group_is_one_step(const struct control_group *now, const struct control_group *next)
{
    uint32_t steps = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        const struct control_member *after = group_get(next, now->items[i].id);
        steps += after == NULL || after->voter != now->items[i].voter ? 1 : 0;
    }
    for (uint32_t i = 0; i < next->count; i++) {
        steps += group_get(now, next->items[i].id) == NULL ? 1 : 0;
    }
    uint32_t voters = group_voters(next);
    return steps == 1 && voters >= 1 && voters <= CONTROL_VOTERS_MAX;
}

void group_put(struct buf *bytes, const struct control_group *group)
{
    buf_put_u8(bytes, (uint8_t)group->count);
    for (uint32_t i = 0; i < group->count; i++) {
        buf_put_u32(bytes, group->items[i].id);
        buf_put_u8(bytes, group->items[i].voter ? 1 : 0);
    }
}

bool group_parse(const uint8_t *bytes, size_t size, struct control_group *ret_group)
{
    struct reader reader = {bytes, size, false};
    struct control_group made = {.count = read_u8(&reader)};
    if (reader.failed || made.count == 0 || made.count > CONTROL_MEMBERS_MAX ||
        reader.size != 5U * made.count) {
        return false;
    }
    for (uint32_t i = 0; i < made.count; i++) {
        made.items[i].id = read_u32(&reader);
        uint8_t voter = read_u8(&reader);
        made.items[i].voter = voter == 1;
        if (voter > 1 || made.items[i].id <= (i == 0 ? 0 : made.items[i - 1].id) ||
            member_place(made.items[i].id) == 0) {
            return false;
        }
    }
    uint32_t voters = group_voters(&made);
    if (voters == 0 || voters > CONTROL_VOTERS_MAX) {
        return false;
    }
    *ret_group = made;
    return true;
}

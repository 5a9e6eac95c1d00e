/* The group and its changes: dissertation 4.1 to 4.3, one member at a time, with the correction of
 * 2015 (raft-dev, "bug in single-server membership changes"): a leader changes nothing before an
 * entry of its own term is committed; else two leaders' changes of one group may have majorities
 * that do not meet.
 *
 * Only the entries of the log say what the group is; everything here is derived from them. */
#include "control/raft_core.h"

#include <string.h>

#include "base/assert.h"

#define CAUGHT_UP_ENTRIES 64U /* a learner may lack so many to become a voter: a moment's worth */

static void parse_entry(const struct raft_entry *entry, struct control_group *ret_group)
{
    ASSERT(entry->kind == ENTRY_GROUP);
    ASSERT(group_parse(entry->bytes, entry->size, ret_group)); /* looked at when it came */
}

/* The newest entry with a group, not behind `last`; 0: none in the log. */
static uint64_t find_group(const struct raft *raft, uint64_t last)
{
    for (uint64_t index = last; index > raft->log.base_index; index--) {
        if (raft_log_at(&raft->log, index)->kind == ENTRY_GROUP) {
            return index;
        }
    }
    return 0;
}

void membership_at(const struct raft *raft, uint64_t index, struct control_group *ret_group)
{
    if (raft->group_index != 0 && raft->group_index <= index) {
        *ret_group = raft->group;
        return;
    }
    uint64_t found = find_group(raft, index);
    if (found == 0) {
        *ret_group = raft->base;
    } else {
        parse_entry(raft_log_at(&raft->log, found), ret_group);
    }
}

void membership_compact(struct raft *raft, uint64_t index)
{
    if (index <= raft->log.base_index) {
        return;
    }
    struct control_group base;
    membership_at(raft, index, &base);
    raft->base = base;
}

void membership_set(struct raft *raft, const struct control_group *next, uint64_t index)
{
    struct raft_peer peers[CONTROL_MEMBERS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct control_member *member = &next->items[i];
        if (member->id == raft->self) {
            continue;
        }
        struct raft_peer *known = raft_peer_of(raft, member->id);
        peers[count] = known != NULL ? *known
                                     : (struct raft_peer){.id = member->id,
                                                          .next = raft_log_last(&raft->log) + 1};
        peers[count].voter = member->voter;
        count++;
    }
    memcpy(raft->peers, peers, count * sizeof(peers[0]));
    raft->peers_count = count;
    raft->group = *next;
    raft->group_index = index;
    raft->votes = group_is_voter(next, raft->self);
}

void membership_refresh(struct raft *raft)
{
    uint64_t last = raft_log_last(&raft->log);
    if (MUTANT(MUTANT_GROUP_LATE) && raft->commit < last) {
        last = raft->commit > raft->log.base_index ? raft->commit : raft->log.base_index;
    }
    uint64_t index = find_group(raft, last);
    struct control_group next = raft->base;
    if (index != 0) {
        parse_entry(raft_log_at(&raft->log, index), &next);
    }
    membership_set(raft, &next, index);
}

/* 4.2.2: who is dropped may have to lead until that is committed: nobody else may have the entry.
 */
bool membership_may_lead(const struct raft *raft)
{
    if (raft->votes) {
        return true;
    }
    if (raft->group_index <= raft->commit || MUTANT(MUTANT_DROPPED_IDLE)) {
        return false;
    }
    struct control_group before;
    uint64_t found = find_group(raft, raft->group_index - 1);
    if (found == 0) {
        return group_is_voter(&raft->base, raft->self);
    }
    parse_entry(raft_log_at(&raft->log, found), &before);
    return group_is_voter(&before, raft->self);
}

void membership_check_removed(struct raft *raft)
{
    if (raft->role == RAFT_LEADER && !raft->votes && raft->group_index <= raft->commit &&
        !MUTANT(MUTANT_REMOVED_LEADS)) {
        raft->counts.step_downs++;
        election_follow(raft, raft->term, 0);
    }
}

/* --- changes --------------------------------------------------------------------------------- */
static const struct raft_peer *peer_of(const struct raft *raft, uint32_t id)
{
    for (size_t i = 0; i < raft->peers_count; i++) {
        if (raft->peers[i].id == id) {
            return &raft->peers[i];
        }
    }
    return NULL;
}

bool raft_is_heard(const struct raft *raft, uint32_t id)
{
    const struct raft_peer *peer = peer_of(raft, id);
    return id == raft->self || (peer != NULL && peer->heard_ms != 0 &&
                                raft->now_ms - peer->heard_ms <= raft->election_ms_max);
}

bool raft_has_log(const struct raft *raft, uint32_t id)
{
    const struct raft_peer *peer = peer_of(raft, id);
    uint64_t last = raft_log_last(&raft->log);
    return id == raft->self ||
           (peer != NULL && peer->mode == PEER_STREAM && peer->match + CAUGHT_UP_ENTRIES >= last &&
            peer->match >= raft->log.base_index);
}

/* Could the next group commit anything with those who were heard lately? */
static bool is_alive(const struct raft *raft, const struct control_group *next)
{
    uint32_t heard = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        heard += next->items[i].voter && raft_is_heard(raft, next->items[i].id) ? 1 : 0;
    }
    return heard >= group_voters(next) / 2 + 1;
}

bool raft_may_change(const struct raft *raft, const struct control_group *next)
{
    bool settled = raft_group_settled(raft) || MUTANT(MUTANT_TWO_CHANGES);
    bool own = raft->commit >= raft->log.base_index &&
               raft_log_term(&raft->log, raft->commit) == raft->term;
    if (raft->role != RAFT_LEADER || !settled || !(own || MUTANT(MUTANT_CHANGE_EARLY)) ||
        (!group_is_one_step(&raft->group, next) && !MUTANT(MUTANT_JUMP)) ||
        group_voters(next) == 0 || raft->log.size >= raft->log_size_max || !is_alive(raft, next)) {
        return false;
    }
    for (uint32_t i = 0; i < next->count; i++) {
        const struct control_member *member = &next->items[i];
        if (member->voter && !group_is_voter(&raft->group, member->id) &&
            !raft_has_log(raft, member->id)) {
            return false; /* 4.2.1: first it catches up. */
        }
    }
    return true;
}

void membership_change(struct raft *raft, const struct control_group *next)
{
    ASSERT(raft_may_change(raft, next));
    struct buf bytes = BUF_NONE;
    group_put(&bytes, next);
    struct message_entry entry = {raft->term, ENTRY_GROUP, bytes.bytes, (uint32_t)bytes.size};
    replication_append_own(raft, &entry);
    buf_done(&bytes);
    if (!MUTANT(MUTANT_GROUP_LATE)) {
        membership_set(raft, next, raft_log_last(&raft->log));
    }
    replication_send_all(raft);
}

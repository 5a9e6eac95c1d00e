/* Snapshots: dissertation chapter 5. Index, term, voters and bytes are one unit everywhere. One is
 * taken from applied state, or installed from the leader, never both at once; it counts when its
 * write is durable. The leader sends the durable one in chunks, one outstanding.
 *
 * A snapshot that is on its way is finished, also when newer ones are taken meanwhile: else a slow
 * follower would begin again and again. It then moves to `sending`, with the log behind it, until
 * nobody who is heard needs it; whoever begins meanwhile gets the same one, so that there are
 * never more than two. */
#include "control/raft_core.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define GONE_ELECTIONS 8U /* election timeouts without a word: what it was sent is given up */

static void snapshot_move(struct raft_snapshot *to, struct raft_snapshot *from)
{
    buf_done(&to->bytes);
    *to = *from;
    *from = (struct raft_snapshot){0};
}

/* --- taking ---------------------------------------------------------------------------------- */
void snapshot_taken(struct raft *raft, uint64_t index, struct buf *bytes)
{
    ASSERT(raft_may_snapshot(raft));
    ASSERT(index > raft->snapshot.index);
    ASSERT(index <= raft->commit);
    ASSERT(index <= raft->stable);
    struct raft_snapshot *taking = &raft->taking;
    taking->index = index;
    taking->term = raft_log_term(&raft->log, index);
    if (MUTANT(MUTANT_SNAPSHOT_OLD_TERM)) {
        taking->term = raft->snapshot.term > 0 ? raft->snapshot.term : 1;
    }
    membership_at(raft, MUTANT(MUTANT_SNAPSHOT_GROUP) ? raft_log_last(&raft->log) : index,
                  &taking->group);
    buf_done(&taking->bytes);
    taking->bytes = *bytes;
    *bytes = (struct buf)BUF_NONE;
    taking->hash = hash_xxh3(taking->bytes.bytes, taking->bytes.size);
    raft->taking_write = raft_mark(raft);
    raft->output->snapshot = taking;
    raft->output->release_before =
        index > raft->trailing_entries ? index - raft->trailing_entries + 1 : 1;
}

/* Does a follower that was heard lately still lack a part of it, or its disk? */
static bool is_awaited(const struct raft *raft, uint64_t index)
{
    for (size_t i = 0; raft->role == RAFT_LEADER && i < raft->peers_count; i++) {
        const struct raft_peer *peer = &raft->peers[i];
        if (peer->snapshot_index == index && peer->match < index &&
            raft->now_ms - peer->heard_ms < (uint64_t)GONE_ELECTIONS * raft->election_ms_max) {
            return true;
        }
    }
    return false;
}

void snapshot_release(struct raft *raft)
{
    if (raft->sending.index != 0 && !is_awaited(raft, raft->sending.index)) {
        buf_done(&raft->sending.bytes);
        raft->sending = (struct raft_snapshot){0};
    }
}

static void finish_taking(struct raft *raft)
{
    uint64_t index = raft->taking.index;
    if (index <= raft->log.base_index) {
        buf_done(&raft->taking.bytes); /* A newer one is being installed. */
        raft->taking = (struct raft_snapshot){0};
        return;
    }
    bool keep = raft->sending.index == 0 && is_awaited(raft, raft->snapshot.index) &&
                !MUTANT(MUTANT_SNAPSHOT_RESTARTS);
    if (keep) {
        snapshot_move(&raft->sending, &raft->snapshot);
    }
    snapshot_move(&raft->snapshot, &raft->taking);
    if (raft->log.size > raft->log_size_max / 4) {
        membership_compact(raft, index);
        raft_log_compact(&raft->log, index); /* Large entries: nothing is kept for the slow. */
    } else if (index > raft->trailing_entries) {
        uint64_t before = index - raft->trailing_entries;
        bool held = raft->sending.index != 0 && raft->sending.index < before;
        before = held ? raft->sending.index : before;
        membership_compact(raft, before);
        raft_log_compact(&raft->log, before);
    }
}

static void finish_installing(struct raft *raft)
{
    snapshot_move(&raft->snapshot, &raft->installing);
    uint64_t index = raft->snapshot.index;
    ASSERT(raft->commit <= index);
    raft->commit = index;
    raft->stable = index;
    raft->verified = raft->verified > index ? raft->verified : index;
    raft->counts.snapshots_installed++;
    raft->output->load = true;
    if (raft->role == RAFT_FOLLOWER && raft->leader != 0) {
        replication_answer(raft);
    }
}

void snapshot_persisted(struct raft *raft)
{
    if (raft->taking.index != 0 && raft->taking_write <= raft->persisted) {
        finish_taking(raft);
    }
    if (raft->installing.index != 0 && raft->installing_write <= raft->persisted) {
        finish_installing(raft);
    }
}

/* --- sending --------------------------------------------------------------------------------- */
/* The snapshot that the peer has a part of; NULL: none that is still here. */
static const struct raft_snapshot *sent_to(const struct raft *raft, const struct raft_peer *peer)
{
    if (peer->snapshot_index == 0) {
        return NULL;
    }
    if (peer->snapshot_index == raft->sending.index) {
        return &raft->sending;
    }
    return peer->snapshot_index == raft->snapshot.index ? &raft->snapshot : NULL;
}

void snapshot_send(struct raft *raft, struct raft_peer *peer, bool heartbeat)
{
    ASSERT(raft->snapshot.index >= raft->log.base_index);
    const struct raft_snapshot *snapshot = sent_to(raft, peer);
    if (snapshot == NULL) { /* The first chunk, or what it was sent has been given up. */
        bool join = raft->sending.index != 0 && raft->sending.index >= raft->log.base_index;
        snapshot = join ? &raft->sending : &raft->snapshot;
        peer->snapshot_index = snapshot->index;
        peer->snapshot_offset = 0;
        peer->waiting = false;
    }
    if (peer->waiting && !heartbeat) {
        return;
    }
    size_t left = snapshot->bytes.size - (size_t)peer->snapshot_offset;
    struct buf group = BUF_NONE;
    group_put(&group, &snapshot->group);
    struct raft_message message = {
        .kind = MESSAGE_SNAPSHOT,
        .index = snapshot->index,
        .log_term = snapshot->term,
        .group = group.bytes,
        .group_size = group.size,
        .total = snapshot->bytes.size,
        .hash = snapshot->hash,
        .offset = peer->snapshot_offset,
        .bytes = left > 0 ? snapshot->bytes.bytes + peer->snapshot_offset : NULL,
        .size = left < raft->chunk_size ? left : raft->chunk_size,
    };
    raft_send(raft, peer->id, &message, 0);
    buf_done(&group);
    peer->waiting = true;
    peer->sent_ms = raft->now_ms;
}

void snapshot_on_answer(struct raft *raft, const struct raft_message *message)
{
    if (message->term > raft->term) {
        election_follow(raft, message->term, 0);
        return;
    }
    if (raft->role != RAFT_LEADER || message->term != raft->term) {
        return;
    }
    struct raft_peer *peer = raft_peer_of(raft, message->from);
    peer->heard_ms = raft->now_ms;
    const struct raft_snapshot *snapshot = sent_to(raft, peer);
    if (peer->mode != PEER_SNAPSHOT || message->index != peer->snapshot_index || snapshot == NULL ||
        message->offset > snapshot->bytes.size) {
        return;
    }
    bool moved = message->offset != peer->snapshot_offset;
    peer->snapshot_offset = message->offset;
    if (moved) { /* Else a doubled answer: the heartbeat repeats what was lost. */
        peer->waiting = false;
        snapshot_send(raft, peer, false);
    }
}

/* --- installing ------------------------------------------------------------------------------ */
static void want_chunk(struct raft *raft, const struct raft_message *message, uint64_t offset)
{
    struct raft_message answer = {
        .kind = MESSAGE_SNAPSHOT_ANSWER, .index = message->index, .offset = offset};
    raft_send(raft, message->from, &answer, raft->hard_write);
}

static void incoming_reset(struct raft *raft)
{
    buf_done(&raft->incoming.bytes);
    raft->incoming = (struct raft_snapshot){0};
}

static void begin_install(struct raft *raft)
{
    snapshot_move(&raft->installing, &raft->incoming);
    struct raft_snapshot *installing = &raft->installing;
    if (!MUTANT(MUTANT_KEEP_LOG_ON_INSTALL) || raft_log_last(&raft->log) < installing->index ||
        installing->index < raft->log.base_index) {
        raft_log_reset(&raft->log, installing->index, installing->term);
    } else {
        raft_log_compact(&raft->log, installing->index);
    }
    raft->base = installing->group;
    membership_refresh(raft);
    raft->stable = 0;
    raft->verified = installing->index; /* what is committed there is committed here */
    raft->acked = 0;
    raft->installing_write = raft_mark(raft);
    raft->output->snapshot = installing;
    raft->output->install = true;
    raft->output->release_before = installing->index + 1;
}

/* 5.3: the log already holds what the snapshot covers; nothing is to be installed. */
static bool has_all_of(struct raft *raft, const struct raft_message *message)
{
    if (message->index <= raft->commit) {
        return true;
    }
    if (message->index <= raft_log_last(&raft->log) &&
        raft_log_term(&raft->log, message->index) == message->log_term) {
        raft->commit = message->index;
        return true;
    }
    return false;
}

void snapshot_on_chunk(struct raft *raft, const struct raft_message *message)
{
    if (!replication_obey(raft, message)) {
        return;
    }
    if (raft->installing.index != 0) {
        if (message->index == raft->installing.index) {
            want_chunk(raft, message, message->total);
        } else {
            replication_answer(raft);
        }
        return;
    }
    if (has_all_of(raft, message)) {
        raft->verified = raft->verified > raft->commit ? raft->verified : raft->commit;
        incoming_reset(raft);
        replication_answer(raft);
        return;
    }
    struct raft_snapshot *incoming = &raft->incoming;
    if (incoming->index != message->index || incoming->term != message->log_term ||
        incoming->hash != message->hash || raft->incoming_total != message->total ||
        raft->incoming_from != message->from) {
        incoming_reset(raft);
        incoming->index = message->index;
        incoming->term = message->log_term;
        incoming->hash = message->hash;
        ASSERT(group_parse(message->group, message->group_size, &incoming->group)); /* decoded */
        raft->incoming_total = message->total;
        raft->incoming_from = message->from;
    }
    if (message->offset == incoming->bytes.size) {
        buf_put(&incoming->bytes, message->bytes, message->size);
    }
    if (incoming->bytes.size < message->total) {
        want_chunk(raft, message, incoming->bytes.size);
        return;
    }
    if (hash_xxh3(incoming->bytes.bytes, incoming->bytes.size) != incoming->hash) {
        incoming_reset(raft);
        want_chunk(raft, message, 0);
        return;
    }
    want_chunk(raft, message, message->total);
    begin_install(raft);
}

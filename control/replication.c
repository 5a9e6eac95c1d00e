/* Log replication: dissertation 3.5 (consistency check), 3.6.2 (which entries may be committed by
 * counting), 10.2.1 (the leader writes its disk while its followers write theirs), 10.2.2
 * (pipelining behind one probing append). */
#include "control/raft_core.h"

#include <string.h>

#include "base/assert.h"

/* --- the leader ------------------------------------------------------------------------------ */
void replication_append_own(struct raft *raft, const struct message_entry *entry)
{
    ASSERT(raft->role == RAFT_LEADER);
    raft_log_append(&raft->log, entry, raft_mark(raft));
    struct raft_output *output = raft->output;
    output->append_last = raft_log_last(&raft->log);
    output->append_first = output->append_first == 0 ? output->append_last : output->append_first;
}

void replication_lead(struct raft *raft)
{
    for (size_t i = 0; i < raft->peers_count; i++) {
        struct raft_peer *peer = &raft->peers[i];
        *peer = (struct raft_peer){.id = peer->id,
                                   .voter = peer->voter,
                                   .next = raft_log_last(&raft->log) + 1,
                                   .heard_ms = raft->now_ms};
    }
    /* 6.4: entries of older terms commit with this one, never by themselves. */
    if (raft_log_last(&raft->log) == 0) { /* The cluster's first entry: who it is. */
        struct buf bytes = BUF_NONE;
        group_put(&bytes, &raft->group);
        struct message_entry first = {raft->term, ENTRY_GROUP, bytes.bytes, (uint32_t)bytes.size};
        replication_append_own(raft, &first);
        buf_done(&bytes);
        raft->group_index = raft_log_last(&raft->log);
    } else if (!MUTANT(MUTANT_NO_NOOP)) {
        struct message_entry noop = {raft->term, ENTRY_NOOP, NULL, 0};
        replication_append_own(raft, &noop);
    }
    for (size_t i = 0; i < raft->peers_count; i++) {
        replication_send(raft, &raft->peers[i], true);
    }
}

void replication_tick(struct raft *raft)
{
    for (size_t i = 0; i < raft->peers_count; i++) {
        if (raft->now_ms - raft->peers[i].sent_ms >= raft->heartbeat_ms) {
            replication_send(raft, &raft->peers[i], true);
        }
    }
}

/* An append behind next - 1 with as many entries as fit; returns how many. */
static uint32_t send_append(struct raft *raft, struct raft_peer *peer, bool with_entries)
{
    const struct raft_log *log = &raft->log;
    struct buf entries = BUF_NONE;
    uint32_t count = 0;
    uint64_t last = with_entries ? raft_log_last(log) : peer->next - 1;
    for (uint64_t index = peer->next; index <= last && count < MESSAGE_ENTRIES_MAX; index++) {
        const struct raft_entry *entry = raft_log_at(log, index);
        if (count > 0 && entries.size + entry->size + ENTRY_HEADER_SIZE > raft->append_size) {
            break;
        }
        struct message_entry sent = {entry->term, entry->kind, entry->bytes, entry->size};
        message_put_entry(&entries, &sent);
        count++;
    }
    struct raft_message message = {
        .kind = MESSAGE_APPEND,
        .index = peer->next - 1,
        .log_term = raft_log_term(log, peer->next - 1),
        .commit = raft->commit,
        .entries_count = count,
        .bytes = entries.bytes,
        .size = entries.size,
    };
    raft_send(raft, peer->id, &message, 0);
    buf_done(&entries);
    peer->commit_sent = raft->commit;
    peer->sent_ms = raft->now_ms;
    return count;
}

void replication_send(struct raft *raft, struct raft_peer *peer, bool heartbeat)
{
    if (peer->mode != PEER_SNAPSHOT && peer->next - 1 < raft->log.base_index) {
        peer->mode = PEER_SNAPSHOT;
        peer->waiting = false;
        peer->snapshot_index = 0;
    }
    if (peer->mode == PEER_SNAPSHOT) {
        snapshot_send(raft, peer, heartbeat);
        return;
    }
    if (peer->mode == PEER_PROBE) {
        if (!peer->waiting || heartbeat) {
            (void)send_append(raft, peer, true);
            peer->waiting = true;
        }
        return;
    }
    bool sent = false;
    while (peer->next <= raft_log_last(&raft->log) && peer->inflight_count < raft->inflight_max) {
        peer->next += send_append(raft, peer, true);
        uint32_t at = (peer->inflight_first + peer->inflight_count) % RAFT_INFLIGHT_MAX;
        peer->inflight[at] = peer->next - 1;
        peer->inflight_count++;
        sent = true;
    }
    if (!sent && (heartbeat || peer->commit_sent < raft->commit)) {
        (void)send_append(raft, peer, false);
    }
}

void replication_send_all(struct raft *raft)
{
    for (size_t i = 0; i < raft->peers_count; i++) {
        replication_send(raft, &raft->peers[i], false);
    }
}

/* What it said is durable there need not be any more: recovery takes damage to a log's very last
 * batch for a torn tail. All of it is asked anew; what is committed stays so. */
void replication_reconnected(struct raft *raft, uint32_t id)
{
    struct raft_peer *peer = raft_peer_of(raft, id);
    if (raft->role != RAFT_LEADER || peer == NULL) {
        return;
    }
    *peer = (struct raft_peer){.id = id,
                               .voter = peer->voter,
                               .next = raft_log_last(&raft->log) + 1,
                               .heard_ms = peer->heard_ms};
    replication_send(raft, peer, true);
}

/* The largest index that a majority of the voters has on disk; ours counts like any other: when it
 * is there, and while this node is a voter. */
static uint64_t majority_index(const struct raft *raft)
{
    uint64_t have[CONTROL_MEMBERS_MAX + 1];
    size_t count = 0;
    if (raft->votes || MUTANT(MUTANT_REMOVED_COUNTED)) {
        have[count++] =
            MUTANT(MUTANT_LEADER_COUNTS_EARLY) ? raft_log_last(&raft->log) : raft->stable;
    }
    for (size_t i = 0; i < raft->peers_count; i++) {
        if (!raft->peers[i].voter && !MUTANT(MUTANT_LEARNER_COUNTED)) {
            continue;
        }
        uint64_t match = raft->peers[i].match;
        size_t at = count++;
        for (; at > 0 && have[at - 1] < match; at--) {
            have[at] = have[at - 1];
        }
        have[at] = match;
    }
    ASSERT(count >= raft_majority(raft));
    return have[raft_majority(raft) - 1]; /* descending */
}

void replication_advance(struct raft *raft)
{
    ASSERT(raft->role == RAFT_LEADER);
    uint64_t index = majority_index(raft);
    /* 3.6.2, Figure 3.7: only an entry of the own term is committed by counting. */
    if (index > raft->commit &&
        (raft_log_term(&raft->log, index) == raft->term || MUTANT(MUTANT_COMMIT_OLD_TERM))) {
        raft->commit = index;
        raft->confirmed = index;
    }
    replication_send_all(raft);
    membership_check_removed(raft);
}

/* The largest index up to `index` whose term is at most `term`; the base where there is none. */
static uint64_t find_by_term(const struct raft_log *log, uint64_t index, uint64_t term)
{
    uint64_t last = raft_log_last(log);
    index = index < last ? index : last;
    while (index > log->base_index && raft_log_term(log, index) > term) {
        index--;
    }
    return index > log->base_index ? index : log->base_index;
}

static void on_reject(struct raft *raft, struct raft_peer *peer, const struct raft_message *message)
{
    /* Stale: of an append that others have overtaken. */
    if (message->rejected <= peer->match || peer->mode == PEER_SNAPSHOT ||
        (peer->mode == PEER_PROBE && message->rejected != peer->next - 1)) {
        return;
    }
    uint64_t next = message->rejected;
    if (message->hint_index < raft->log.base_index) {
        next = message->hint_index + 1; /* below our base: a snapshot follows */
    } else if (message->hint_index <= message->rejected) {
        next = find_by_term(&raft->log, message->hint_index, message->hint_term) + 1;
        next = next < message->rejected ? next : message->rejected;
    }
    if (MUTANT(MUTANT_NO_HINT_PROGRESS)) {
        next = peer->next;
    }
    peer->next = next > peer->match ? next : peer->match + 1;
    peer->mode = PEER_PROBE;
    peer->waiting = false;
    peer->inflight_count = 0;
    replication_send(raft, peer, false);
}

void replication_on_answer(struct raft *raft, const struct raft_message *message)
{
    if (message->term > raft->term) {
        election_follow(raft, message->term, 0);
        return;
    }
    uint64_t last = raft_log_last(&raft->log);
    bool ours = message->term == raft->term || MUTANT(MUTANT_STALE_ANSWERS);
    if (raft->role != RAFT_LEADER || !ours || message->index > last || message->verified > last ||
        message->index > message->verified) {
        return;
    }
    struct raft_peer *peer = raft_peer_of(raft, message->from);
    peer->heard_ms = raft->now_ms;
    if (message->index > peer->match) {
        peer->match = message->index;
    }
    if (!message->ok) {
        on_reject(raft, peer, message);
        replication_advance(raft);
        return;
    }
    while (peer->inflight_count > 0 && peer->inflight[peer->inflight_first] <= message->verified) {
        peer->inflight_first = (peer->inflight_first + 1) % RAFT_INFLIGHT_MAX;
        peer->inflight_count--;
    }
    bool found = peer->mode == PEER_PROBE && message->verified + 1 >= peer->next;
    bool installed = peer->mode == PEER_SNAPSHOT && message->verified >= raft->log.base_index;
    if (peer->mode == PEER_SNAPSHOT && !installed && message->verified >= peer->snapshot_index) {
        peer->snapshot_index = 0; /* It has that one, but the log begins later by now: another. */
        peer->waiting = false;
    }
    if (found || installed) {
        raft->counts.snapshots_sent += installed ? 1 : 0;
        peer->mode = PEER_STREAM;
        peer->next = message->verified + 1;
        peer->waiting = false;
        peer->inflight_count = 0;
    }
    replication_advance(raft);
}

/* --- the follower ---------------------------------------------------------------------------- */
bool replication_obey(struct raft *raft, const struct raft_message *message)
{
    if (message->term < raft->term) {
        /* Tells a deposed leader about the term that deposed it. */
        struct raft_message answer = {.kind = MESSAGE_APPEND_ANSWER};
        raft_send(raft, message->from, &answer, raft->hard_write);
        return false;
    }
    if (message->term == raft->term && raft->role == RAFT_LEADER) {
        return false; /* A second leader of our term: impossible, unless it lies. */
    }
    if (message->term > raft->term || raft->role != RAFT_FOLLOWER ||
        raft->leader != message->from) {
        election_follow(raft, message->term, message->from);
    }
    election_reset_timer(raft);
    raft->leader_heard_ms = raft->now_ms;
    return true;
}

void replication_answer(struct raft *raft)
{
    uint64_t durable = raft->verified < raft->stable ? raft->verified : raft->stable;
    if (MUTANT(MUTANT_ACK_BEFORE_DURABLE)) {
        durable = raft->verified;
    }
    if (raft->installing.index != 0) {
        durable = MUTANT(MUTANT_ACK_WHILE_INSTALLING) ? raft->verified : 0;
    }
    struct raft_message answer = {
        .kind = MESSAGE_APPEND_ANSWER, .ok = true, .index = durable, .verified = raft->verified};
    raft->acked = durable;
    raft_send(raft, raft->leader, &answer, raft->hard_write);
}

static void reject(struct raft *raft, const struct raft_message *message)
{
    /* Our last entry that could agree: nothing of a later term than the probe's can. */
    uint64_t hint = find_by_term(&raft->log, message->index, message->log_term);
    struct raft_message answer = {
        .kind = MESSAGE_APPEND_ANSWER,
        .hint_index = hint,
        .hint_term = raft_log_term(&raft->log, hint),
        .rejected = message->index,
    };
    raft_send(raft, message->from, &answer, raft->hard_write);
}

/* 3.5: the entry there is the leader's, or becomes it. */
static void take_entry(struct raft *raft, uint64_t index, const struct message_entry *entry)
{
    struct raft_log *log = &raft->log;
    if (index <= log->base_index) {
        return; /* committed, and part of a snapshot */
    }
    if (index <= raft_log_last(log)) {
        bool cut = MUTANT(MUTANT_TRUNCATES_ALWAYS) && index > raft->commit;
        if ((raft_log_term(log, index) == entry->term && !cut) || MUTANT(MUTANT_NO_TRUNCATE)) {
            return;
        }
        ASSERT(index > raft->commit);
        raft_log_truncate(log, index);
        if (raft->group_index >= index && !MUTANT(MUTANT_GROUP_KEPT)) {
            membership_refresh(raft);
        }
        raft->stable = raft->stable < index ? raft->stable : index - 1;
    }
    raft_log_append(log, entry, raft_mark(raft));
    if (entry->kind == ENTRY_GROUP) {
        membership_refresh(raft);
    }
    raft->output->append_first =
        raft->output->append_first == 0 ? index : raft->output->append_first;
    raft->output->append_last = index;
}

static bool previous_agrees(const struct raft *raft, const struct raft_message *message)
{
    const struct raft_log *log = &raft->log;
    if (message->index < log->base_index) {
        return true; /* Up to the base all is committed, so equal. */
    }
    if (message->index > raft_log_last(log)) {
        return false;
    }
    return raft_log_term(log, message->index) == message->log_term ||
           (MUTANT(MUTANT_NO_PREVIOUS_CHECK) &&
            raft_log_term(log, message->index) <= message->log_term);
}

void replication_on_append(struct raft *raft, const struct raft_message *message)
{
    if (!replication_obey(raft, message)) {
        return;
    }
    if (raft->installing.index != 0) {
        replication_answer(raft); /* alive; nothing is taken before the snapshot is durable */
        return;
    }
    if (!previous_agrees(raft, message)) {
        reject(raft, message);
        return;
    }
    struct reader reader = {message->bytes, message->size, false};
    for (uint32_t i = 0; i < message->entries_count; i++) {
        struct message_entry entry;
        ASSERT(message_read_entry(&reader, &entry, NULL) == 0); /* decoded before */
        take_entry(raft, message->index + 1 + i, &entry);
    }
    uint64_t matched = message->index + message->entries_count;
    if (MUTANT(MUTANT_VERIFIES_ALL)) {
        matched = raft_log_last(&raft->log);
    }
    raft->verified = matched > raft->verified ? matched : raft->verified;
    uint64_t commit = message->commit < raft->verified ? message->commit : raft->verified;
    if (MUTANT(MUTANT_COMMIT_UNVERIFIED)) {
        uint64_t last = raft_log_last(&raft->log);
        commit = message->commit < last ? message->commit : last;
    }
    if (commit > raft->commit) {
        raft->commit = commit;
    }
    if (raft->commit == message->commit && raft->commit >= raft->log.base_index &&
        raft_log_term(&raft->log, raft->commit) == raft->term) {
        raft->confirmed = raft->commit;
    }
    replication_answer(raft);
}

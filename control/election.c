/* Elections: dissertation 3.4 (votes), 3.6.1 (whose log may lead), 9.6 (pre-vote), 6.2 (a leader
 * without a majority steps down; a server that hears a leader disregards candidates, 4.2.3). */
#include "control/raft_core.h"

#include "base/assert.h"

void election_reset_timer(struct raft *raft)
{
    uint64_t spread = raft->election_ms_max - raft->election_ms_min + 1U;
    raft->election_deadline_ms =
        raft->now_ms + raft->election_ms_min + rand_below(&raft->rand, spread);
}

static void set_leader(struct raft *raft, uint32_t leader)
{
    if (leader != 0 && leader != raft->leader) {
        raft->counts.leader_changes++;
    }
    raft->leader = leader;
}

/* A follower of `leader` (0: not known yet) in a term that is not below ours. */
void election_follow(struct raft *raft, uint64_t term, uint32_t leader)
{
    ASSERT(term >= raft->term);
    if (term > raft->term) {
        raft->term = term;
        raft->vote = 0;
        if (!MUTANT(MUTANT_TERM_NOT_PERSISTED)) {
            raft_mark_hard(raft);
        }
        raft->verified = raft->commit; /* Leader completeness: it has all that is committed. */
        raft->acked = 0;
    }
    if (raft->role == RAFT_LEADER) {
        raft->verified = raft->commit;
        raft->acked = 0;
    }
    raft->role = RAFT_FOLLOWER;
    set_leader(raft, leader);
    election_reset_timer(raft);
}

static void ask_all(struct raft *raft, enum message_kind kind, uint64_t term, uint64_t after)
{
    for (size_t i = 0; i < raft->peers_count; i++) {
        raft->peers[i].granted = raft->peers[i].granted && MUTANT(MUTANT_GRANTS_KEPT);
        if (!raft->peers[i].voter && !MUTANT(MUTANT_LEARNER_VOTES)) {
            continue;
        }
        struct raft_message message = {
            .kind = kind,
            .term = term,
            .index = raft_log_last(&raft->log),
            .log_term = raft_log_last_term(&raft->log),
        };
        raft_send(raft, raft->peers[i].id, &message, after);
    }
}

static size_t granted_count(const struct raft *raft)
{
    size_t count = raft->votes ? 1 : 0; /* our own */
    for (size_t i = 0; i < raft->peers_count; i++) {
        bool counts = raft->peers[i].voter || MUTANT(MUTANT_LEARNER_VOTES);
        count += raft->peers[i].granted && counts ? 1 : 0;
    }
    return count;
}

static void election_campaign(struct raft *raft)
{
    raft->role = RAFT_CANDIDATE;
    raft->term++;
    raft->vote = raft->self;
    raft->counts.elections++;
    raft_mark_hard(raft);
    election_reset_timer(raft);
    /* Nobody hears of the term before it, and our vote in it, are durable here. By then all entries
     * that the request speaks of are durable too: writes keep their order. */
    ask_all(raft, MESSAGE_VOTE, raft->term, raft->hard_write);
}

static void election_begin(struct raft *raft)
{
    raft->role = RAFT_PRE_CANDIDATE;
    set_leader(raft, 0);
    raft->verified = raft->commit;
    raft->acked = 0;
    election_reset_timer(raft);
    ask_all(raft, MESSAGE_PREVOTE, raft->term + 1, 0);
    if (granted_count(raft) >= raft_majority(raft)) {
        election_campaign(raft);
    }
}

/* Votes count when our own is durable: the others' answers imply it, a single voter has none. */
void election_check_won(struct raft *raft)
{
    bool durable = raft->persisted >= raft->hard_write || MUTANT(MUTANT_OWN_VOTE_EARLY);
    if (raft->role != RAFT_CANDIDATE || !durable || granted_count(raft) < raft_majority(raft)) {
        return;
    }
    ASSERT(raft->installing.index == 0); /* Its write came before our vote's. */
    raft->role = RAFT_LEADER;
    set_leader(raft, raft->self);
    raft->counts.leaderships++;
    raft->quorum_deadline_ms = raft->now_ms + raft->election_ms_max;
    replication_lead(raft);
}

static void check_quorum(struct raft *raft)
{
    if (raft->now_ms < raft->quorum_deadline_ms) {
        return;
    }
    size_t heard = raft->votes ? 1 : 0;
    for (size_t i = 0; i < raft->peers_count; i++) {
        heard +=
            raft->peers[i].voter && raft->now_ms - raft->peers[i].heard_ms <= raft->election_ms_max
                ? 1
                : 0;
    }
    if (heard < raft_majority(raft) && !MUTANT(MUTANT_NO_CHECK_QUORUM)) {
        raft->counts.step_downs++;
        election_follow(raft, raft->term, 0);
        return;
    }
    raft->quorum_deadline_ms = raft->now_ms + raft->heartbeat_ms;
}

void election_tick(struct raft *raft)
{
    if (raft->role == RAFT_LEADER) {
        check_quorum(raft);
    } else if (raft->now_ms >= raft->election_deadline_ms && membership_may_lead(raft)) {
        election_begin(raft);
    } else if (raft->now_ms >= raft->election_deadline_ms) {
        election_follow(raft, raft->term, 0); /* It only waits for one who leads. */
    }
}

/* 3.6.1: may a log that ends there lead ours? */
static bool is_up_to_date(const struct raft *raft, const struct raft_message *message)
{
    if (MUTANT(MUTANT_VOTE_ANY_LOG)) {
        return true;
    }
    uint64_t last_term = raft_log_last_term(&raft->log);
    if (message->log_term != last_term) {
        return message->log_term > last_term;
    }
    return message->index >= raft_log_last(&raft->log);
}

/* A leader in office is not disturbed: by no one who merely lost touch with it. */
static bool has_live_leader(const struct raft *raft)
{
    if (raft->role == RAFT_LEADER) {
        return true; /* check_quorum() watches over that */
    }
    return raft->role == RAFT_FOLLOWER && raft->leader != 0 &&
           raft->now_ms - raft->leader_heard_ms < raft->election_ms_min;
}

static void answer(struct raft *raft, uint32_t to, enum message_kind kind, uint64_t term, bool ok)
{
    struct raft_message message = {.kind = kind, .term = term, .ok = ok};
    uint64_t after = MUTANT(MUTANT_VOTE_NOT_PERSISTED) ? 0 : raft->hard_write;
    raft_send(raft, to, &message, after);
}

void election_on_prevote(struct raft *raft, const struct raft_message *message)
{
    /* The term of the request is the one that it would campaign in; ours does not move. */
    bool ok = message->term > raft->term && !has_live_leader(raft) && is_up_to_date(raft, message);
    answer(raft, message->from, MESSAGE_PREVOTE_ANSWER, ok ? message->term : raft->term, ok);
}

void election_on_prevote_answer(struct raft *raft, const struct raft_message *message)
{
    if (!message->ok) {
        if (message->term > raft->term) {
            election_follow(raft, message->term, 0);
        }
        return;
    }
    if (raft->role != RAFT_PRE_CANDIDATE || message->term != raft->term + 1) {
        return;
    }
    raft_peer_of(raft, message->from)->granted = true;
    if (granted_count(raft) >= raft_majority(raft)) {
        election_campaign(raft);
    }
}

void election_on_vote(struct raft *raft, const struct raft_message *message)
{
    if (message->term > raft->term) {
        if (has_live_leader(raft)) {
            return;
        }
        election_follow(raft, message->term, 0);
    }
    bool free_vote = raft->vote == 0 || raft->vote == message->from;
    if (MUTANT(MUTANT_VOTE_TWICE)) {
        free_vote = raft->role == RAFT_FOLLOWER;
    }
    bool idle = raft->role == RAFT_FOLLOWER || raft->role == RAFT_PRE_CANDIDATE;
    bool ok = message->term == raft->term && free_vote && idle && is_up_to_date(raft, message);
    if (ok && raft->vote != message->from) {
        raft->vote = message->from;
        if (!MUTANT(MUTANT_VOTE_NOT_PERSISTED)) {
            raft_mark_hard(raft);
        }
    }
    if (ok) {
        raft->role = RAFT_FOLLOWER;
        election_reset_timer(raft);
    }
    answer(raft, message->from, MESSAGE_VOTE_ANSWER, raft->term, ok);
}

void election_on_vote_answer(struct raft *raft, const struct raft_message *message)
{
    if (message->term > raft->term) {
        election_follow(raft, message->term, 0);
        return;
    }
    if (raft->role != RAFT_CANDIDATE || message->term != raft->term || !message->ok) {
        return;
    }
    raft_peer_of(raft, message->from)->granted = true;
    election_check_won(raft);
}

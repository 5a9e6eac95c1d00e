#include "control/raft_core.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#ifdef RAFT_MUTANTS
int raft_mutant = 0;
#endif

void raft_output_clear(struct raft_output *output)
{
    struct raft_letter *letters = output->letters;
    size_t capacity = output->letters_capacity;
    for (size_t i = 0; i < output->letters_count; i++) {
        buf_done(&letters[i].bytes);
    }
    *output = (struct raft_output){.letters = letters, .letters_capacity = capacity};
}

void raft_output_done(struct raft_output *output)
{
    raft_output_clear(output);
    free(output->letters);
    *output = (struct raft_output){0};
}

struct raft *raft_new(const struct control_settings *settings, struct raft_recovered *recovered,
                      uint64_t seed, uint64_t now_ms)
{
    struct raft *raft = calloc(1, sizeof(*raft));
    ASSERT(raft != NULL);
    ASSERT(settings->election_ms_min > 0);
    ASSERT(settings->election_ms_max >= settings->election_ms_min);
    ASSERT(settings->append_size <= CONTROL_MESSAGE_SIZE / 4);
    ASSERT(settings->chunk_size > 0);
    ASSERT(settings->chunk_size <= CONTROL_MESSAGE_SIZE / 2);
    raft->self = settings->self;
    raft->election_ms_min = settings->election_ms_min;
    raft->election_ms_max = settings->election_ms_max;
    raft->heartbeat_ms = settings->heartbeat_ms;
    raft->trailing_entries = settings->trailing_entries;
    raft->append_size = settings->append_size;
    raft->chunk_size = settings->chunk_size;
    raft->inflight_max =
        settings->inflight_max < RAFT_INFLIGHT_MAX ? settings->inflight_max : RAFT_INFLIGHT_MAX;
    ASSERT(raft->inflight_max > 0);
    raft->log_size_max = settings->log_size_max;
    raft->rand.state = seed;
    raft->now_ms = now_ms;
    raft->term = recovered->term;
    raft->vote = recovered->vote;
    raft->log = recovered->log;
    raft->snapshot = recovered->snapshot;
    recovered->log = (struct raft_log){0};
    recovered->snapshot = (struct raft_snapshot){0};
    ASSERT(raft->log.base_index == raft->snapshot.index);
    ASSERT(raft_log_last_term(&raft->log) <= raft->term);
    raft->write_next = 1;
    raft->commit = raft->snapshot.index;
    raft->verified = raft->commit;
    raft->stable = raft_log_last(&raft->log);
    raft->base = raft->snapshot.index != 0 ? raft->snapshot.group : recovered->first;
    membership_refresh(raft);
    election_reset_timer(raft);
    if (raft->votes && group_voters(&raft->group) == 1) {
        raft->election_deadline_ms = now_ms; /* There is nobody to wait for. */
    }
    return raft;
}

void raft_free(struct raft *raft)
{
    if (raft == NULL) {
        return;
    }
    raft_log_done(&raft->log);
    buf_done(&raft->snapshot.bytes);
    buf_done(&raft->sending.bytes);
    buf_done(&raft->taking.bytes);
    buf_done(&raft->installing.bytes);
    buf_done(&raft->incoming.bytes);
    free(raft);
}

uint64_t raft_mark(struct raft *raft)
{
    if (raft->output->write == 0) {
        raft->output->write = raft->write_next++;
    }
    return raft->output->write;
}

void raft_mark_hard(struct raft *raft)
{
    raft->hard_write = raft_mark(raft);
    raft->output->hard = true;
    raft->output->term = raft->term;
    raft->output->vote = raft->vote;
}

size_t raft_majority(const struct raft *raft)
{
    size_t voters = group_voters(&raft->group);
    if (MUTANT(MUTANT_MINORITY)) {
        return voters / 2 > 0 ? voters / 2 : 1;
    }
    return voters / 2 + 1;
}

struct raft_peer *raft_peer_of(struct raft *raft, uint32_t id)
{
    for (size_t i = 0; i < raft->peers_count; i++) {
        if (raft->peers[i].id == id ||
            (MUTANT(MUTANT_IDENTITY) && member_place(raft->peers[i].id) == member_place(id))) {
            return &raft->peers[i];
        }
    }
    return NULL;
}

void raft_send(struct raft *raft, uint32_t to, struct raft_message *message, uint64_t after)
{
    struct raft_output *output = raft->output;
    if (output->letters_count == output->letters_capacity) {
        output->letters_capacity = output->letters_capacity == 0 ? 8 : 2 * output->letters_capacity;
        output->letters =
            realloc(output->letters, output->letters_capacity * sizeof(*output->letters));
        ASSERT(output->letters != NULL);
    }
    struct raft_letter *letter = &output->letters[output->letters_count++];
    *letter = (struct raft_letter){to, raft->term, after, BUF_NONE};
    message->from = raft->self;
    message->to = to;
    message->term = message->term == 0 ? raft->term : message->term;
    message_encode(message, &letter->bytes);
}

/* --- the step -------------------------------------------------------------------------------- */
static void on_message(struct raft *raft, const struct raft_message *message)
{
    bool answers = message->kind == MESSAGE_PREVOTE_ANSWER ||
                   message->kind == MESSAGE_VOTE_ANSWER || message->kind == MESSAGE_APPEND_ANSWER ||
                   message->kind == MESSAGE_SNAPSHOT_ANSWER;
    bool ours = message->to == raft->self ||
                (MUTANT(MUTANT_IDENTITY) && member_place(message->to) == member_place(raft->self));
    if (!ours || message->from == raft->self ||
        (answers && raft_peer_of(raft, message->from) == NULL)) {
        return;
    }
    /* 4.1: who asks need not be in this node's group; it may know a newer one. */
    switch (message->kind) {
    case MESSAGE_PREVOTE:
        election_on_prevote(raft, message);
        break;
    case MESSAGE_PREVOTE_ANSWER:
        election_on_prevote_answer(raft, message);
        break;
    case MESSAGE_VOTE:
        election_on_vote(raft, message);
        break;
    case MESSAGE_VOTE_ANSWER:
        election_on_vote_answer(raft, message);
        break;
    case MESSAGE_APPEND:
        replication_on_append(raft, message);
        break;
    case MESSAGE_APPEND_ANSWER:
        replication_on_answer(raft, message);
        break;
    case MESSAGE_SNAPSHOT:
        snapshot_on_chunk(raft, message);
        break;
    case MESSAGE_SNAPSHOT_ANSWER:
        snapshot_on_answer(raft, message);
        break;
    case MESSAGE_FORWARD:
        break; /* control's */
    }
}

static void advance_stable(struct raft *raft)
{
    if (raft->installing.index != 0) {
        return;
    }
    if (MUTANT(MUTANT_STABLE_BY_COUNT)) {
        raft->stable = raft_log_last(&raft->log);
        return;
    }
    while (raft->stable < raft_log_last(&raft->log) &&
           raft_log_at(&raft->log, raft->stable + 1)->write <= raft->persisted) {
        raft->stable++;
    }
}

static void on_persisted(struct raft *raft, uint64_t write)
{
    ASSERT(write > raft->persisted);
    ASSERT(write < raft->write_next);
    raft->persisted = write;
    snapshot_persisted(raft);
    advance_stable(raft);
    election_check_won(raft);
    if (raft->role == RAFT_LEADER) {
        replication_advance(raft);
    } else if (raft->leader != 0 && raft->installing.index == 0) {
        uint64_t durable = raft->verified < raft->stable ? raft->verified : raft->stable;
        if (durable > raft->acked) {
            replication_answer(raft);
        }
    }
}

static void on_tick(struct raft *raft, uint64_t now_ms)
{
    if (now_ms > raft->now_ms) {
        raft->now_ms = now_ms;
    }
    if (raft->role == RAFT_LEADER) {
        replication_tick(raft);
    }
    election_tick(raft);
}

static void on_propose(struct raft *raft, const uint8_t *bytes, size_t size)
{
    ASSERT(raft_may_propose(raft));
    ASSERT(size > 0);
    ASSERT(size <= CONTROL_COMMAND_SIZE);
    struct message_entry entry = {raft->term, ENTRY_COMMAND, bytes, (uint32_t)size};
    replication_append_own(raft, &entry);
    replication_send_all(raft);
}

void raft_step(struct raft *raft, const struct raft_input *input, struct raft_output *output)
{
    ASSERT(output->write == 0);
    ASSERT(output->letters_count == 0);
    raft->output = output;
    uint64_t commit = raft->commit;
    uint64_t term = raft->term;
    switch (input->kind) {
    case RAFT_TICK:
        on_tick(raft, input->now_ms);
        break;
    case RAFT_RECEIVE:
        on_message(raft, input->message);
        break;
    case RAFT_PERSISTED:
        on_persisted(raft, input->write);
        break;
    case RAFT_PROPOSE:
        on_propose(raft, input->bytes, input->size);
        break;
    case RAFT_RECONNECTED:
        replication_reconnected(raft, input->from);
        break;
    case RAFT_CHANGE:
        membership_change(raft, input->group);
        break;
    case RAFT_SNAPSHOT_TAKEN:
        snapshot_taken(raft, input->index, input->snapshot);
        break;
    }
    snapshot_release(raft);
    if (MUTANT(MUTANT_GROUP_LATE)) {
        membership_refresh(raft);
    }
    ASSERT(raft->commit >= commit);
    ASSERT(raft->term >= term);
    ASSERT(raft->stable <= raft_log_last(&raft->log));
    ASSERT(raft->role == RAFT_FOLLOWER || raft->vote == raft->self ||
           raft->role == RAFT_PRE_CANDIDATE);
    raft->output = NULL;
}

/* --- looking --------------------------------------------------------------------------------- */
bool raft_may_propose(const struct raft *raft)
{
    return raft->role == RAFT_LEADER && raft->log.size < raft->log_size_max;
}

bool raft_may_snapshot(const struct raft *raft)
{
    return raft->taking.index == 0 && raft->installing.index == 0;
}

enum raft_role raft_role(const struct raft *raft)
{
    return raft->role;
}

uint64_t raft_term(const struct raft *raft)
{
    return raft->term;
}

uint32_t raft_vote(const struct raft *raft)
{
    return raft->vote;
}

uint32_t raft_leader(const struct raft *raft)
{
    return raft->leader;
}

uint64_t raft_commit(const struct raft *raft)
{
    return raft->commit;
}

uint64_t raft_stable(const struct raft *raft)
{
    return raft->stable;
}

uint64_t raft_confirmed(const struct raft *raft)
{
    return raft->confirmed;
}

bool raft_installing(const struct raft *raft)
{
    return raft->installing.index != 0;
}

const struct raft_log *raft_log(const struct raft *raft)
{
    return &raft->log;
}

const struct control_group *raft_group(const struct raft *raft)
{
    return &raft->group;
}

uint64_t raft_group_index(const struct raft *raft)
{
    return raft->group_index;
}

bool raft_group_settled(const struct raft *raft)
{
    return raft->group_index <= raft->commit;
}

const struct raft_snapshot *raft_snapshot(const struct raft *raft)
{
    return &raft->snapshot;
}

const struct raft_counts *raft_counts(const struct raft *raft)
{
    return &raft->counts;
}

#include "control/control.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/message.h"
#include "control/raft.h"
#include "control/wal.h"

#define PROPOSALS_MAX 64U  /* that may wait for the end of a call */
#define UNDER_WAY_MAX 256U /* of the log's last entries, where a repeated command is looked for */

/* A letter that waits for a write. */
struct waiting {
    struct raft_letter letter;
    struct waiting *next;
};

struct control {
    struct control_fsm fsm;
    struct control_env env;
    uint32_t self;
    uint32_t snapshot_entries;
    uint64_t log_size_max;
    struct wal *wal;
    struct raft *raft;
    struct raft_output output;
    struct waiting *waiting_first;
    struct waiting **waiting_last;
    uint64_t persisted;
    uint64_t applied;
    bool caught_up;
    bool busy; /* inside a call: proposals of callbacks wait */
    bool failed;
    struct buf proposals[PROPOSALS_MAX];
    size_t proposals_count;
    struct {
        uint32_t id;
        uint64_t ms;
    } heard[CONTROL_MEMBERS_MAX + 1]; /* by place: the identity that was heard last */
    struct control_stats stats;
};

void control_settings_default(struct control_settings *settings)
{
    *settings = (struct control_settings){
        .election_ms_min = 500,
        .election_ms_max = 1000,
        .heartbeat_ms = 80,
        .snapshot_entries = 4096,
        .trailing_entries = 1024,
        .append_size = 64 * 1024,
        .chunk_size = 64 * 1024,
        .inflight_max = 16,
        .log_size_max = 64 * 1024 * 1024,
        .segment_size = 8 * 1024 * 1024,
        .folder = "log",
    };
}

/* --- what a step asks for --------------------------------------------------------------------- */
static void send_letter(struct control *control, const struct raft_letter *letter)
{
    control->stats.messages_sent++;
    control->env.send(control->env.context, letter->to, letter->bytes.bytes, letter->bytes.size);
}

static void post_letters(struct control *control)
{
    for (size_t i = 0; i < control->output.letters_count; i++) {
        struct raft_letter *letter = &control->output.letters[i];
        if (letter->after <= control->persisted) {
            send_letter(control, letter);
            continue;
        }
        struct waiting *waiting = calloc(1, sizeof(*waiting));
        ASSERT(waiting != NULL);
        waiting->letter = *letter;
        letter->bytes = (struct buf)BUF_NONE;
        *control->waiting_last = waiting;
        control->waiting_last = &waiting->next;
    }
}

/* What has become durable may leave, unless this node has moved to another term meanwhile. */
static void release_letters(struct control *control)
{
    while (control->waiting_first != NULL &&
           control->waiting_first->letter.after <= control->persisted) {
        struct waiting *waiting = control->waiting_first;
        control->waiting_first = waiting->next;
        if (control->waiting_first == NULL) {
            control->waiting_last = &control->waiting_first;
        }
        if (waiting->letter.term == raft_term(control->raft)) {
            send_letter(control, &waiting->letter);
        }
        buf_done(&waiting->letter.bytes);
        free(waiting);
    }
}

static void persist(struct control *control)
{
    const struct raft_output *output = &control->output;
    if (output->write == 0) {
        return;
    }
    struct control_write *write = calloc(1, sizeof(*write));
    ASSERT(write != NULL);
    write->wal = control->wal;
    write->number = output->write;
    write->hard = output->hard;
    write->term = output->term;
    write->vote = output->vote;
    write->append_first = output->append_first;
    if (output->append_first != 0) {
        const struct raft_log *log = raft_log(control->raft);
        for (uint64_t index = output->append_first; index <= output->append_last; index++) {
            const struct raft_entry *entry = raft_log_at(log, index);
            struct message_entry put = {entry->term, entry->kind, entry->bytes, entry->size};
            message_put_entry(&write->entries, &put);
            write->entries_count++;
        }
    }
    if (output->snapshot != NULL) {
        write->snapshot = true;
        write->install = output->install;
        write->snapshot_index = output->snapshot->index;
        write->snapshot_term = output->snapshot->term;
        write->release_before = output->release_before;
        group_put(&write->snapshot_group, &output->snapshot->group);
        buf_put(&write->snapshot_bytes, output->snapshot->bytes.bytes,
                output->snapshot->bytes.size);
    }
    control->stats.writes++;
    control->env.persist(control->env.context, write);
}

static int load_snapshot(struct control *control, struct err *err)
{
    const struct raft_snapshot *snapshot = raft_snapshot(control->raft);
    int code = control->fsm.snapshot_load(control->fsm.context, snapshot->index,
                                          snapshot->bytes.bytes, snapshot->bytes.size, err);
    if (code != 0) {
        return err_prefix(err, "the cluster's state in the snapshot of entry %" PRIu64 ": ",
                          snapshot->index);
    }
    control->applied = snapshot->index;
    return 0;
}

/* Committed and on this disk. */
static bool apply(struct control *control)
{
    struct raft *raft = control->raft;
    const struct raft_log *log = raft_log(raft);
    uint64_t commit = raft_commit(raft);
    uint64_t stable = raft_stable(raft);
    uint64_t last = commit < stable || MUTANT(MUTANT_APPLY_UNSTABLE) ? commit : stable;
    uint64_t before = control->applied;
    while (!raft_installing(raft) && control->applied < last) {
        const struct raft_entry *entry = raft_log_at(log, control->applied + 1);
        control->applied++;
        if (entry->kind == ENTRY_COMMAND) {
            control->fsm.apply(control->fsm.context, control->applied, entry->term, entry->bytes,
                               entry->size);
        }
    }
    return control->applied != before;
}

static void step(struct control *control, const struct raft_input *input);

static void maybe_snapshot(struct control *control)
{
    uint64_t since = raft_snapshot(control->raft)->index;
    if (control->applied - since < control->snapshot_entries || !raft_may_snapshot(control->raft) ||
        control->applied <= since) {
        return;
    }
    struct buf bytes = BUF_NONE;
    control->fsm.snapshot_write(control->fsm.context, &bytes);
    ASSERT(bytes.size <= CONTROL_SNAPSHOT_SIZE);
    struct raft_input input = {
        .kind = RAFT_SNAPSHOT_TAKEN, .index = control->applied, .snapshot = &bytes};
    control->stats.snapshots_taken++;
    step(control, &input);
}

static void step(struct control *control, const struct raft_input *input)
{
    raft_output_clear(&control->output);
    raft_step(control->raft, input, &control->output);
    persist(control); /* before any letter, so that a letter's write is always on its way */
    post_letters(control);
    bool changed = false;
    if (control->output.load) {
        struct err err = {0};
        if (load_snapshot(control, &err) != 0) {
            control->failed = true;
            control->env.failed(control->env.context, &err);
            return;
        }
        changed = true;
    }
    changed = apply(control) || changed;
    uint64_t confirmed = raft_confirmed(control->raft);
    control->caught_up = control->caught_up || (confirmed != 0 && control->applied >= confirmed);
    if (changed) {
        if (control->env.applied != NULL) {
            control->env.applied(control->env.context, control->applied);
        }
        maybe_snapshot(control);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */
static void enter(struct control *control)
{
    ASSERT(!control->busy);
    control->busy = true;
}

static int propose_now(struct control *control, const uint8_t *command, size_t size,
                       struct err *err);

static void leave(struct control *control)
{
    for (size_t i = 0; i < control->proposals_count; i++) {
        /* Theirs to repeat when it is refused now. A step may add more: they follow. */
        if (!control->failed) {
            (void)propose_now(control, control->proposals[i].bytes, control->proposals[i].size,
                              NULL);
        }
        buf_done(&control->proposals[i]);
    }
    control->proposals_count = 0;
    control->busy = false;
}

void control_fail(struct control *control)
{
    control->failed = true;
}

static int failed(struct err *err)
{
    return err_set(err, ERR_STATE, "this node's log has failed; it is ending");
}

void control_tick(struct control *control)
{
    if (control->failed) {
        return;
    }
    enter(control);
    struct raft_input input = {.kind = RAFT_TICK,
                               .now_ms = control->env.now_ms(control->env.context)};
    step(control, &input);
    leave(control);
}

/* Is the same command in the log and not yet applied? Then a repetition adds nothing: this leader
 * does not lose the one that is there, and when another takes over, the proposer repeats again. */
static bool is_under_way(const struct control *control, const uint8_t *command, size_t size)
{
    const struct raft_log *log = raft_log(control->raft);
    uint64_t last = raft_log_last(log);
    uint64_t before = control->applied > log->base_index ? control->applied : log->base_index;
    for (uint64_t index = last; index > before && last - index < UNDER_WAY_MAX; index--) {
        const struct raft_entry *entry = raft_log_at(log, index);
        if (entry->kind == ENTRY_COMMAND && entry->size == size &&
            memcmp(entry->bytes, command, size) == 0) {
            return true;
        }
    }
    return false;
}

static void append(struct control *control, const uint8_t *command, size_t size)
{
    if (is_under_way(control, command, size)) {
        control->stats.proposals_under_way++;
        return;
    }
    struct raft_input input = {.kind = RAFT_PROPOSE, .bytes = command, .size = size};
    control->stats.proposals++;
    step(control, &input);
}

static int refuse(struct control *control, struct err *err, const char *why)
{
    control->stats.messages_refused++;
    return err_set(err, ERR_PROTO, "a consensus message %s", why);
}

int control_receive(struct control *control, uint32_t from, const uint8_t *bytes, size_t size,
                    struct err *err)
{
    struct raft_message message;
    if (control->failed) {
        return failed(err);
    }
    int code = message_decode(bytes, size, &message, err);
    if (code != 0) {
        control->stats.messages_refused++;
        return code;
    }
    if (message.from != from || from == control->self || member_place(from) == 0 ||
        member_place(from) > CONTROL_MEMBERS_MAX) {
        return refuse(control, err, "that is signed by another node");
    }
    bool ours =
        message.to == control->self ||
        (MUTANT(MUTANT_IDENTITY) && member_place(message.to) == member_place(control->self));
    if (!ours) {
        control->stats.messages_refused++;
        return err_set(err, ERR_PEER,
                       "a consensus message for identity %u of this node, which is %u", message.to,
                       control->self);
    }
    enter(control);
    control->stats.messages_received++;
    control->heard[member_place(from)].id = from;
    control->heard[member_place(from)].ms = control->env.now_ms(control->env.context);
    if (message.kind == MESSAGE_FORWARD) {
        if (raft_may_propose(control->raft)) { /* Else it is lost; the proposer repeats it. */
            append(control, message.bytes, message.size);
        }
    } else {
        struct raft_input input = {.kind = RAFT_RECEIVE, .message = &message};
        step(control, &input);
    }
    leave(control);
    return 0;
}

static int propose_now(struct control *control, const uint8_t *command, size_t size,
                       struct err *err)
{
    struct raft *raft = control->raft;
    if (raft_role(raft) == RAFT_LEADER) {
        if (!raft_may_propose(raft)) {
            control->stats.proposals_refused++;
            return err_set(err, ERR_BUSY, "the log holds %" PRIu64 " bytes that wait; try again",
                           raft_log(raft)->size);
        }
        append(control, command, size);
        return 0;
    }
    uint32_t leader = raft_leader(raft);
    if (leader == 0) {
        control->stats.proposals_refused++;
        return err_set(err, ERR_UNHEALTHY, "the cluster has no leader now; try again");
    }
    struct raft_message message = {
        .kind = MESSAGE_FORWARD,
        .from = control->self,
        .to = leader,
        .term = raft_term(raft),
        .bytes = command,
        .size = size,
    };
    struct raft_letter letter = {leader, message.term, 0, BUF_NONE};
    message_encode(&message, &letter.bytes);
    control->stats.proposals_forwarded++;
    send_letter(control, &letter);
    buf_done(&letter.bytes);
    return 0;
}

void control_reconnected(struct control *control, uint32_t node)
{
    if (control->failed) {
        return;
    }
    enter(control);
    struct raft_input input = {.kind = RAFT_RECONNECTED, .from = node};
    step(control, &input);
    leave(control);
}

int control_change(struct control *control, const struct control_group *next, struct err *err)
{
    if (control->failed) {
        return failed(err);
    }
    if (!raft_may_change(control->raft, next)) {
        return err_set(err, ERR_UNHEALTHY, "the group cannot be changed so now; try again");
    }
    enter(control);
    struct raft_input input = {.kind = RAFT_CHANGE, .group = next};
    step(control, &input);
    leave(control);
    return 0;
}

int control_propose(struct control *control, const uint8_t *command, size_t size, struct err *err)
{
    if (control->failed) {
        return failed(err);
    }
    if (size == 0 || size > CONTROL_COMMAND_SIZE) {
        return err_set(err, ERR_USAGE, "a command of %zu bytes; 1 to %u are possible", size,
                       CONTROL_COMMAND_SIZE);
    }
    if (control->busy) {
        if (control->proposals_count == PROPOSALS_MAX) {
            control->stats.proposals_refused++;
            return err_set(err, ERR_BUSY, "%u proposals wait already; try again", PROPOSALS_MAX);
        }
        buf_put(&control->proposals[control->proposals_count++], command, size);
        return 0;
    }
    enter(control);
    int code = propose_now(control, command, size, err);
    leave(control);
    return code;
}

void control_persisted(struct control *control, struct control_write *write)
{
    if (control->failed) {
        control_write_free(write);
        return;
    }
    enter(control);
    ASSERT(write->number == control->persisted + 1);
    control->persisted = write->number;
    struct raft_input input = {.kind = RAFT_PERSISTED, .write = write->number};
    control_write_free(write);
    release_letters(control);
    step(control, &input);
    leave(control);
}

/* --- life ------------------------------------------------------------------------------------- */
int control_open(const struct control_settings *settings, const struct control_fsm *fsm,
                 const struct control_env *env, struct fs *fs, struct control **ret_control,
                 bool *ret_fresh, struct err *err)
{
    struct control *control = calloc(1, sizeof(*control));
    ASSERT(control != NULL);
    control->fsm = *fsm;
    control->env = *env;
    control->self = settings->self;
    control->snapshot_entries = settings->snapshot_entries > 0 ? settings->snapshot_entries : 1;
    control->log_size_max = settings->log_size_max;
    control->waiting_last = &control->waiting_first;
    ASSERT(member_place(control->self) >= 1);
    ASSERT(member_place(control->self) <= CONTROL_MEMBERS_MAX);
    struct raft_recovered recovered = {0};
    bool fresh = false;
    int code = wal_open(fs, settings, &control->wal, &recovered, &fresh, err);
    if (code == 0) {
        uint64_t now_ms = env->now_ms(env->context);
        control->raft = raft_new(settings, &recovered, env->random(env->context), now_ms);
        if (raft_snapshot(control->raft)->index != 0) {
            code = load_snapshot(control, err);
        }
    }
    if (code != 0) {
        control_free(control);
        return code;
    }
    if (ret_fresh != NULL) {
        *ret_fresh = fresh;
    }
    *ret_control = control;
    return 0;
}

void control_free(struct control *control)
{
    if (control == NULL) {
        return;
    }
    while (control->waiting_first != NULL) {
        struct waiting *waiting = control->waiting_first;
        control->waiting_first = waiting->next;
        buf_done(&waiting->letter.bytes);
        free(waiting);
    }
    for (size_t i = 0; i < control->proposals_count; i++) {
        buf_done(&control->proposals[i]);
    }
    raft_output_done(&control->output);
    raft_free(control->raft);
    wal_close(control->wal);
    free(control);
}

/* --- looking ---------------------------------------------------------------------------------- */
uint32_t control_self(const struct control *control)
{
    return control->self;
}

uint32_t control_leader(const struct control *control)
{
    return member_place(raft_leader(control->raft));
}

bool control_is_leader(const struct control *control)
{
    return raft_role(control->raft) == RAFT_LEADER;
}

uint64_t control_term(const struct control *control)
{
    return raft_term(control->raft);
}

bool control_leads(const struct control *control)
{
    return control_is_leader(control) && control->applied > 0 &&
           raft_log_term(raft_log(control->raft), control->applied) == raft_term(control->raft);
}

uint64_t control_commit_index(const struct control *control)
{
    return raft_commit(control->raft);
}

uint64_t control_applied_index(const struct control *control)
{
    return control->applied;
}

bool control_caught_up(const struct control *control)
{
    return control->caught_up;
}

uint64_t control_last_heard_ms(const struct control *control, uint32_t node)
{
    uint32_t place = member_place(node);
    return place <= CONTROL_MEMBERS_MAX && control->heard[place].id == node
               ? control->heard[place].ms
               : 0;
}

const struct control_group *control_group(const struct control *control, bool *ret_settled)
{
    if (ret_settled != NULL) {
        *ret_settled = raft_group_settled(control->raft);
    }
    return raft_group(control->raft);
}

void control_stats(const struct control *control, struct control_stats *ret_stats)
{
    const struct raft_counts *counts = raft_counts(control->raft);
    struct control_stats stats = control->stats;
    stats.term = raft_term(control->raft);
    stats.commit_index = raft_commit(control->raft);
    stats.applied_index = control->applied;
    stats.last_index = raft_log_last(raft_log(control->raft));
    stats.stable_index = raft_stable(control->raft);
    stats.snapshot_index = raft_snapshot(control->raft)->index;
    stats.log_size = raft_log(control->raft)->size;
    stats.elections = counts->elections;
    stats.leaderships = counts->leaderships;
    stats.leader_changes = counts->leader_changes;
    stats.step_downs = counts->step_downs;
    stats.snapshots_sent = counts->snapshots_sent;
    stats.snapshots_installed = counts->snapshots_installed;
    *ret_stats = stats;
}

const struct raft *control_raft(const struct control *control)
{
    return control->raft;
}

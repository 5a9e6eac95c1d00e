#include "control/coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "control/placement.h"
#include "control/roster.h"

/* One call: what it looks at and where its answer goes. */
struct look {
    struct coordinator *c;
    const struct state *state;
    const struct coordinator_view *view;
    struct command *ret;
};

void coordinator_reset(struct coordinator *coordinator)
{
    *coordinator = (struct coordinator){0};
}

static uint64_t suspect_ms(const struct coordinator_view *view)
{
    return view->suspect_ms != 0 ? view->suspect_ms : COORDINATOR_SUSPECT_MS;
}

static const struct coordinator_node *seen(const struct coordinator_view *view, uint32_t node)
{
    for (uint32_t i = 0; i < view->nodes_count; i++) {
        if (view->nodes[i].id == node) {
            return &view->nodes[i];
        }
    }
    return NULL;
}

/* The place of what was said of it, of what it follows on, or a free one; NULL: all are taken. */
static struct coordinator_said *place_of(struct look *look, enum command_kind kind, uint64_t job,
                                         uint64_t number)
{
    bool assign = kind == COMMAND_ASSIGN;
    struct coordinator_said *said = assign ? look->c->assigned : look->c->said;
    size_t count = assign ? COORDINATOR_ASSIGNED_MAX : COORDINATOR_SAID_MAX;
    struct coordinator_said *place = NULL;
    for (size_t i = 0; i < count; i++) {
        if (said[i].kind == kind && said[i].job == job && (!assign || said[i].number == number)) {
            return &said[i];
        }
        if (said[i].kind == 0 || look->view->now_ms - said[i].ms >= COORDINATOR_REPEAT_MS) {
            place = &said[i];
        }
    }
    return place;
}

/* True where this is to be said now; it is then remembered as said. */
static bool say(struct look *look, enum command_kind kind, uint64_t job, uint64_t number)
{
    uint64_t now = look->view->now_ms;
    struct coordinator_said *place = place_of(look, kind, job, number);
    if (place == NULL || (place->kind == kind && place->job == job && place->number == number &&
                          now - place->ms < COORDINATOR_REPEAT_MS)) {
        return false;
    }
    *place = (struct coordinator_said){(uint8_t)kind, job, number, now};
    *look->ret = (struct command){.kind = kind, .wall_ms = look->view->wall_ms};
    return true;
}

/* Whether the process that was placed is gone; says how. A new leader gives everybody suspect_ms.
 */
static bool is_gone(const struct look *look, uint32_t node, uint64_t incarnation, char *text,
                    size_t capacity)
{
    const struct state_node *known = state_node(look->state, node);
    const struct coordinator_node *peer = seen(look->view, node);
    const char *name = state_node_name(look->state, node);
    if (known == NULL || known->incarnation != incarnation ||
        (peer != NULL && peer->incarnation > incarnation)) {
        (void)snprintf(text, capacity, "node '%s' has restarted", name);
        return true;
    }
    uint64_t heard = peer != NULL && peer->heard && peer->heard_ms > look->c->since_ms
                         ? peer->heard_ms
                         : look->c->since_ms;
    uint64_t now = look->view->now_ms;
    uint64_t silent = now > heard ? now - heard : 0;
    if (silent > suspect_ms(look->view)) {
        (void)snprintf(text, capacity, "node '%s' is silent for %" PRIu64 ".%" PRIu64 " s", name,
                       silent / 1000, silent % 1000 / 100);
        return true;
    }
    return false;
}

static bool next_interrupt(struct look *look)
{
    const struct state_job *job = state_active_job(look->state);
    char text[COMMAND_REASON_SIZE];
    for (uint32_t i = 0; job != NULL && i < job->participants_count; i++) {
        const struct state_participant *p = &job->participants[i];
        if (is_gone(look, p->node, p->incarnation, text, sizeof(text)) &&
            say(look, COMMAND_INTERRUPT, job->id, job->generation)) {
            look->ret->interrupt.job = job->id;
            look->ret->interrupt.generation = job->generation;
            look->ret->interrupt.node = p->node;
            memcpy(look->ret->interrupt.reason, text, sizeof(text));
            return true;
        }
    }
    return false;
}

/* Bit id - 1 of each. */
static uint64_t alive_nodes(const struct look *look)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < look->view->nodes_count; i++) {
        const struct coordinator_node *peer = &look->view->nodes[i];
        live |= roster_alive(look->state, look->view, peer->id) ? UINT64_C(1) << (peer->id - 1) : 0;
    }
    return live;
}

/* ---- publications ---- */

static void watch_open(struct coordinator *c, const struct state_job *job, uint64_t now_ms)
{
    if (c->open_job == job->id && job->open != NULL && c->open_epoch == job->open->epoch) {
        return;
    }
    if (c->open_job == job->id && c->open_epoch != 0) { /* It has been decided. */
        const struct state_epoch *epoch = state_epoch(job, c->open_epoch);
        if (epoch != NULL && state_epoch_committed(epoch)) {
            c->publication_ms = now_ms - c->open_ms;
        }
        c->open_job = 0;
        c->open_epoch = 0;
    }
    if (job->open != NULL) {
        c->open_job = job->id;
        c->open_epoch = job->open->epoch;
        c->open_ms = now_ms;
    }
}

/* Longer after each abort: what took too long once would again. */
static uint64_t prepare_ms(const struct look *look, const struct state_job *job)
{
    uint32_t doublings = job->aborted_in_turn > 5 ? 5 : job->aborted_in_turn;
    uint64_t least = look->view->prepare_ms != 0 ? look->view->prepare_ms : COORDINATOR_PREPARE_MS;
    uint64_t usual = 10 * look->c->publication_ms;
    return (usual > least ? usual : least) << doublings;
}

static bool abort_one(struct look *look, const struct state_job *job)
{
    const struct state_epoch *epoch = job->open;
    char text[COMMAND_REASON_SIZE];
    uint32_t node = 0;
    bool due = false;
    for (uint32_t i = 0; !due && i < epoch->shards_count; i++) {
        const struct state_shard *s = &epoch->shards[i];
        if (!s->prepared && is_gone(look, s->node, s->incarnation, text, sizeof(text))) {
            node = s->node;
            due = true;
        }
        /* A holder that has restarted gets its copy again; one that is silent does not. */
        for (uint32_t k = 0; !due && !s->prepared && k < s->holders_count; k++) {
            const struct state_node *holder = state_node(look->state, s->holders[k]);
            const struct coordinator_node *peer = seen(look->view, s->holders[k]);
            uint64_t incarnation = peer != NULL && peer->heard ? peer->incarnation
                                   : holder != NULL            ? holder->incarnation
                                                               : 0;
            if (holder == NULL || (incarnation == holder->incarnation &&
                                   is_gone(look, holder->id, incarnation, text, sizeof(text)))) {
                node = s->holders[k];
                due = true;
            }
        }
    }
    if (!due && look->view->now_ms - look->c->open_ms > prepare_ms(look, job)) {
        for (uint32_t i = 0; i < epoch->shards_count && node == 0; i++) {
            node = epoch->shards[i].prepared ? 0 : epoch->shards[i].node;
        }
        (void)snprintf(text, sizeof(text),
                       "node '%s' has not prepared its shard within %" PRIu64 " s",
                       state_node_name(look->state, node), prepare_ms(look, job) / 1000);
        due = true;
    }
    if (!due || !say(look, COMMAND_ABORT, job->id, epoch->epoch)) {
        return false;
    }
    look->ret->abort.job = job->id;
    look->ret->abort.epoch = epoch->epoch;
    look->ret->abort.node = node;
    memcpy(look->ret->abort.reason, text, sizeof(text));
    return true;
}

static bool next_abort(struct look *look)
{
    for (uint32_t i = 0; i < look->state->jobs_count; i++) {
        const struct state_job *job = look->state->jobs[i];
        watch_open(look->c, job, look->view->now_ms);
        if (job->open != NULL && abort_one(look, job)) {
            return true;
        }
    }
    return false;
}

static uint64_t backoff_ms(uint32_t times)
{
    if (times <= 1) {
        return 0;
    }
    uint32_t doublings = times - 2 > 5 ? 5 : times - 2;
    uint64_t wait = (uint64_t)COORDINATOR_BACKOFF_MS << doublings;
    return wait > COORDINATOR_BACKOFF_MS_MAX ? COORDINATOR_BACKOFF_MS_MAX : wait;
}

/* What all participants of the generation report alike, or NULL. */
static const struct coordinator_report *agreed_capture(const struct look *look,
                                                       const struct state_job *job)
{
    const struct coordinator_report *first = NULL;
    for (uint32_t i = 0; i < job->participants_count; i++) {
        const struct coordinator_node *peer = seen(look->view, job->participants[i].node);
        if (peer == NULL || !peer->heard || peer->incarnation != job->participants[i].incarnation ||
            peer->captured.job != job->id || peer->captured.generation != job->generation) {
            return NULL;
        }
        if (first == NULL) {
            first = &peer->captured;
        } else if (first->step != peer->captured.step || first->ends != peer->captured.ends) {
            return NULL;
        }
    }
    return first;
}

static bool next_begin(struct look *look)
{
    const struct state_job *job = state_active_job(look->state);
    if (job == NULL || (job->state != JOB_RUNNING && job->state != JOB_FINISHING) ||
        job->open != NULL || job->epochs_count == STATE_EPOCHS_MAX) {
        return false;
    }
    const struct coordinator_report *capture = agreed_capture(look, job);
    const struct state_epoch *newest = state_newest_epoch(job);
    if (capture == NULL || capture->step > job->steps ||
        capture->step <= (newest == NULL ? 0 : newest->step)) {
        return false;
    }
    if (capture->step <= job->begun_step) { /* Its publication was aborted. */
        struct coordinator *c = look->c;
        if (c->aborted_job != job->id || c->aborted_epoch != job->aborted_epoch) {
            c->aborted_job = job->id;
            c->aborted_epoch = job->aborted_epoch;
            c->aborted_ms = look->view->now_ms;
        }
        if (!capture->ends ||
            look->view->now_ms - c->aborted_ms < backoff_ms(job->aborted_in_turn + 1)) {
            return false;
        }
    }
    if (!say(look, COMMAND_BEGIN, job->id, job->epoch_next)) {
        return false;
    }
    look->ret->begin.job = job->id;
    look->ret->begin.epoch = job->epoch_next;
    look->ret->begin.step = capture->step;
    look->ret->begin.generation = job->generation;
    look->ret->begin.ends = capture->ends;
    look->ret->begin.live = alive_nodes(look);
    return true;
}

static bool next_collect(struct look *look)
{
    for (uint32_t i = 0; i < look->state->jobs_count; i++) {
        const struct state_job *job = look->state->jobs[i];
        uint32_t published = 0;
        for (uint32_t k = 1; k < job->epochs_count; k++) {
            published += state_epoch_safe(job->epochs[k]) ? 1 : 0;
        }
        if (published >= job->keep && state_epoch_safe(state_newest_epoch(job)) &&
            say(look, COMMAND_COLLECT, job->id, job->epochs[0]->epoch)) {
            look->ret->collect.job = job->id;
            look->ret->collect.epoch = job->epochs[0]->epoch;
            return true;
        }
    }
    return false;
}

/* ---- copies ---- */

/* A committed shard without all its copies: who is to make one. An asked node that is away is
 * replaced by another one. */
static bool assign_one(struct look *look, const struct state_job *job,
                       const struct state_epoch *epoch, uint32_t rank, uint64_t live)
{
    const struct state_shard *shard = &epoch->shards[rank];
    /* Nodes that were away when it began may hold what the job asks for. */
    uint32_t due = shard->copies > job->replicas ? shard->copies : job->replicas;
    if (shard->holders_count >= 1 + due || shard->holders_count == COMMAND_HOLDERS_MAX ||
        (shard->wanted != 0 && (live >> (shard->wanted - 1) & 1) != 0)) {
        return false;
    }
    uint32_t node = placement_next(look->state, epoch, rank, live);
    if (node == 0 || !say(look, COMMAND_ASSIGN, job->id, epoch->epoch * STATE_NODES_MAX + rank)) {
        return false;
    }
    look->ret->copy.job = job->id;
    look->ret->copy.epoch = epoch->epoch;
    look->ret->copy.rank = rank;
    look->ret->copy.node = node;
    look->ret->copy.life = state_node(look->state, node)->life;
    memcpy(look->ret->copy.sha256, shard->sha256, SHA256_SIZE);
    return true;
}

static bool next_assign(struct look *look)
{
    uint64_t live = alive_nodes(look);
    for (uint32_t i = 0; i < look->state->jobs_count; i++) {
        const struct state_job *job = look->state->jobs[i];
        for (uint32_t k = job->epochs_count; k > 0; k--) { /* the newest first */
            for (uint32_t rank = 0; rank < job->epochs[k - 1]->shards_count; rank++) {
                if (assign_one(look, job, job->epochs[k - 1], rank, live)) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* ---- placing ---- */

static bool next_resume(struct look *look)
{
    for (uint32_t i = 0; i < look->state->jobs_count; i++) {
        const struct state_job *job = look->state->jobs[i];
        if (job->state != JOB_PAUSED || job->hold != HOLD_NODE) {
            continue;
        }
        const struct coordinator_node *peer = seen(look->view, job->hold_node);
        if (peer != NULL && roster_alive(look->state, look->view, peer->id) &&
            peer->incarnation != job->hold_incarnation &&
            say(look, COMMAND_RESUME, job->id, job->turn)) {
            look->ret->resume.job = job->id;
            look->ret->resume.turn = job->turn;
            return true;
        }
    }
    return false;
}

static bool any_open(const struct state *state)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        if (state->jobs[i]->open != NULL) {
            return true;
        }
    }
    return false;
}

static uint64_t bits_of(const struct roster *roster)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < roster->count; i++) {
        bits |= UINT64_C(1) << (roster->nodes[i] - 1);
    }
    return bits;
}

/* Whether every line between two of the nodes works, as far as was seen lately; it is wanted then,
 * so that who looks knows where. */
static bool lines_work(struct look *look, const struct state_job *job, const struct roster *roster)
{
    struct coordinator *c = look->c;
    uint64_t now = look->view->now_ms;
    uint64_t since = now > COORDINATOR_FRESH_MS ? now - COORDINATOR_FRESH_MS : 0;
    if (look->view->reach == NULL || roster->count < 2) {
        return true;
    }
    if (job->attempts > 1 && c->paused_ms > since) {
        since = c->paused_ms; /* What was seen before did not keep it from failing. */
    }
    c->wanted = bits_of(roster);
    c->wanted_since_ms = since;
    return roster_lines_work(roster, look->view, since);
}

static bool next_place(struct look *look)
{
    const struct state_job *job = state_next_job(look->state);
    struct coordinator *c = look->c;
    c->wanted = 0;
    if (job == NULL || state_active_job(look->state) != NULL || any_open(look->state)) {
        return false;
    }
    if (c->paused_job != job->id || c->paused_generation != job->generation) {
        c->paused_job = job->id;
        c->paused_generation = job->generation;
        c->paused_ms = look->view->now_ms;
    }
    struct roster roster;
    roster_choose(look->state, look->view, job, look->view->now_ms - c->paused_ms, &roster);
    if (roster.count == 0 || roster.missing_count > 0) {
        return false;
    }
    bool lines = lines_work(look, job, &roster); /* Looked at while the rest is waited for. */
    if (job->attempts > 0) { /* Interrupted: it takes a word from everybody since. */
        if (look->view->now_ms - c->paused_ms < backoff_ms(job->attempts)) {
            return false;
        }
        for (uint32_t i = 0; i < roster.count; i++) {
            const struct coordinator_node *peer = seen(look->view, roster.nodes[i]);
            if (peer == NULL || peer->heard_ms <= c->paused_ms) {
                return false;
            }
        }
    }
    if (!lines || !say(look, COMMAND_PLACE, job->id, look->state->generation + 1)) {
        return false;
    }
    look->ret->place.job = job->id;
    look->ret->place.generation = look->state->generation + 1;
    look->ret->place.nodes_count = roster.count;
    for (uint32_t i = 0; i < roster.count; i++) {
        look->ret->place.nodes[i] = roster.nodes[i];
        look->ret->place.incarnations[i] = state_node(look->state, roster.nodes[i])->incarnation;
    }
    return true;
}

/* The active job goes on with others from its next step boundary: who came has stayed a while, or a
 * participant is drained. */
static bool next_regroup(struct look *look)
{
    const struct state_job *job = state_active_job(look->state);
    struct coordinator *c = look->c;
    char text[COMMAND_REASON_SIZE];
    if (job == NULL || !roster_regroup(look->state, look->view, job, text, sizeof(text))) {
        c->regroup_generation = 0;
        return false;
    }
    if (c->regroup_generation != job->generation) {
        c->regroup_generation = job->generation;
        c->regroup_ms = look->view->now_ms;
    }
    uint64_t settle_ms = roster_drained(look->state, job) != 0 ? 0 : ROSTER_SETTLE_MS;
    if (look->view->now_ms - c->regroup_ms < settle_ms ||
        !say(look, COMMAND_STOP, job->id, job->turn)) {
        return false;
    }
    look->ret->stop.job = job->id;
    look->ret->stop.turn = job->turn;
    look->ret->stop.how = STOP_REGROUP;
    memcpy(look->ret->stop.reason, text, sizeof(text));
    return true;
}

bool coordinator_next(struct coordinator *coordinator, const struct state *state,
                      const struct coordinator_view *view, struct command *ret_command)
{
    if (!view->leading) {
        return false;
    }
    if (coordinator->since_ms == 0) {
        coordinator->since_ms = view->now_ms == 0 ? 1 : view->now_ms;
    }
    struct look look = {coordinator, state, view, ret_command};
    return next_interrupt(&look) || next_abort(&look) || next_begin(&look) || next_collect(&look) ||
           next_assign(&look) || next_resume(&look) || next_regroup(&look) || next_place(&look);
}

/* ---- for people ---- */

uint64_t coordinator_roster(const struct state *state, const struct coordinator_view *view,
                            const struct state_job *job)
{
    struct roster roster;
    if (state_next_job(state) != job || state_active_job(state) != NULL || any_open(state)) {
        return 0;
    }
    roster_choose(state, view, job, UINT64_MAX, &roster);
    return roster.missing_count == 0 ? bits_of(&roster) : 0;
}

static void missing_text(const struct look *look, const struct roster *roster, char *text,
                         size_t capacity)
{
    int used = snprintf(text, capacity, "waits for node%s", roster->missing_count == 1 ? "" : "s");
    for (uint32_t i = 0; i < roster->missing_count && used > 0 && (size_t)used < capacity; i++) {
        const struct coordinator_node *peer = seen(look->view, roster->missing[i]);
        const struct state_node *known = state_node(look->state, roster->missing[i]);
        const char *name = peer != NULL && peer->name != NULL
                               ? peer->name
                               : state_node_name(look->state, roster->missing[i]);
        bool removed = known != NULL && known->standing == STANDING_REMOVED;
        bool unfit = peer != NULL && peer->unfit != NULL && peer->unfit[0] != '\0';
        used += snprintf(text + used, capacity - (size_t)used, "%s %s%s", i == 0 ? "" : ",", name,
                         removed ? " (removed; another may take its place)"
                         : known != NULL && known->drained ? " (drained)"
                         : unfit                           ? " ("
                                                           : "");
        if (unfit && !removed && (known == NULL || !known->drained) && used > 0 &&
            (size_t)used < capacity) {
            used += snprintf(text + used, capacity - (size_t)used, "%.160s)", peer->unfit);
        }
    }
}

void coordinator_wait_text(const struct state *state, const struct coordinator_view *view,
                           const struct state_job *job, char *text, size_t capacity)
{
    ASSERT(capacity > 0);
    text[0] = '\0';
    if (job->stopping) {
        (void)snprintf(text, capacity, "stops after its next checkpoint");
        return;
    }
    if (job->state == JOB_PAUSED && job->hold == HOLD_USER) {
        (void)snprintf(text, capacity, "held until 'coppeliusctl job resume %s'", job->name);
        return;
    }
    if (job->state == JOB_PAUSED && job->hold == HOLD_NODE) {
        (void)snprintf(text, capacity, "waits for node %s, which was stopped, to return",
                       state_node_name(state, job->hold_node));
        return;
    }
    if (job->state != JOB_SUBMITTED && job->state != JOB_PAUSED) {
        return;
    }
    uint32_t before = 0;
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        const struct state_job *other = state->jobs[i];
        before +=
            other != job &&
                    (state_job_active(other) ||
                     (other->id < job->id && !state_job_ended(other) && other->hold == HOLD_NONE))
                ? 1
                : 0;
    }
    if (before > 0) {
        (void)snprintf(text, capacity, "%" PRIu32 " job%s before it", before,
                       before == 1 ? "" : "s");
        return;
    }
    struct look look = {NULL, state, view, NULL};
    struct roster roster;
    roster_choose(state, view, job, UINT64_MAX, &roster);
    if (roster.missing_count > 0) { /* On a follower whom it does not hear, in its own words. */
        missing_text(&look, &roster, text, capacity);
    } else if (roster.count == 0) {
        (void)snprintf(text, capacity,
                       "wants %" PRIu32 " trainers, more than the cluster has: start more, or "
                       "submit it with fewer",
                       job->nodes_wanted);
    } else if (job->open != NULL) {
        (void)snprintf(text, capacity, "waits until epoch %" PRIu64 " is decided",
                       job->open->epoch);
    } else {
        (void)snprintf(text, capacity, "is placed as soon as its nodes answer");
    }
}

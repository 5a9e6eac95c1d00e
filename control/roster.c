#include "control/roster.h"

#include <stdio.h>
#include <string.h>

static const struct coordinator_node *seen(const struct coordinator_view *view, uint32_t node)
{
    for (uint32_t i = 0; i < view->nodes_count; i++) {
        if (view->nodes[i].id == node) {
            return &view->nodes[i];
        }
    }
    return NULL;
}

bool roster_alive(const struct state *state, const struct coordinator_view *view, uint32_t node)
{
    const struct state_node *known = state_node(state, node);
    const struct coordinator_node *peer = seen(view, node);
    uint64_t suspect_ms = view->suspect_ms != 0 ? view->suspect_ms : COORDINATOR_SUSPECT_MS;
    return state_node_in(known) && peer != NULL && peer->heard &&
           known->incarnation == peer->incarnation && view->now_ms - peer->heard_ms <= suspect_ms;
}

/* Alive, and its device can be worked with. */
static bool can_work(const struct state *state, const struct coordinator_view *view, uint32_t node)
{
    const struct coordinator_node *peer = seen(view, node);
    return roster_alive(state, view, node) && (peer->unfit == NULL || peer->unfit[0] == '\0');
}

static void miss(struct roster *roster, uint32_t node)
{
    for (uint32_t i = 0; i < roster->missing_count; i++) {
        if (roster->missing[i] == node) {
            return;
        }
    }
    roster->missing[roster->missing_count++] = node;
}

static bool has(const struct roster *roster, uint32_t node)
{
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->nodes[i] == node) {
            return true;
        }
    }
    return false;
}

/* What is configured, and not drained or removed. */
static bool may_work(const struct state *state, const struct coordinator_node *peer, uint8_t role)
{
    const struct state_node *known = state_node(state, peer->id);
    return peer->role == role && (known == NULL || (state_node_in(known) && !known->drained));
}

/* Adds live nodes of that role, by id, up to `wanted`; returns how many there are, live or not. */
static uint32_t add_live(const struct state *state, const struct coordinator_view *view,
                         uint8_t role, uint32_t wanted, struct roster *roster)
{
    uint32_t there = 0;
    for (uint32_t id = 1; id <= STATE_NODES_MAX; id++) {
        const struct coordinator_node *peer = seen(view, id);
        if (peer == NULL || !may_work(state, peer, role)) {
            continue;
        }
        there++;
        if (roster->count < wanted && !has(roster, id) && can_work(state, view, id)) {
            roster->nodes[roster->count++] = id;
        }
    }
    return there;
}

static void sort(struct roster *roster)
{
    for (uint32_t i = 1; i < roster->count; i++) {
        uint32_t node = roster->nodes[i];
        uint32_t at = i;
        for (; at > 0 && roster->nodes[at - 1] > node; at--) {
            roster->nodes[at] = roster->nodes[at - 1];
        }
        roster->nodes[at] = node;
    }
}

/* Trainers that are away, or cannot work now, and would be used. */
static void miss_trainers(const struct state *state, const struct coordinator_view *view,
                          struct roster *roster)
{
    for (uint32_t i = 0; i < view->nodes_count; i++) {
        const struct coordinator_node *peer = &view->nodes[i];
        if (may_work(state, peer, ROLE_TRAINER) && !can_work(state, view, peer->id)) {
            miss(roster, peer->id);
        }
    }
}

static uint32_t trainers_of(const struct state *state, const struct coordinator_view *view)
{
    struct roster none = {0};
    return add_live(state, view, ROLE_TRAINER, 0, &none);
}

/* Whether they can work now or not: a spare stands in for who is drained, too. */
static uint32_t all_trainers(const struct state *state, const struct coordinator_view *view)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->nodes_count; i++) {
        const struct state_node *known = state_node(state, view->nodes[i].id);
        count += view->nodes[i].role == ROLE_TRAINER && (known == NULL || state_node_in(known));
    }
    return count;
}

static void choose_elastic(const struct state *state, const struct coordinator_view *view,
                           const struct state_job *job, uint64_t waited_ms, struct roster *roster)
{
    uint32_t wanted = job->nodes_wanted != 0 ? job->nodes_wanted : all_trainers(state, view);
    (void)add_live(state, view, ROLE_TRAINER, wanted, roster);
    if (roster->count < wanted && waited_ms < ROSTER_GRACE_MS) {
        miss_trainers(state, view, roster); /* It may be back in a moment. */
    }
    (void)add_live(state, view, ROLE_SPARE, wanted, roster);
    if (roster->count == 0) {
        miss_trainers(state, view, roster);
    }
}

/* The nodes of the checkpoint; in place of a removed one any other. */
static void choose_makers(const struct state *state, const struct coordinator_view *view,
                          const struct state_epoch *epoch, struct roster *roster)
{
    uint32_t gone = 0;
    uint32_t drained = 0;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        uint32_t id = epoch->shards[i].node;
        const struct state_node *known = state_node(state, id);
        if (!state_node_in(known)) {
            gone++;
        } else if (known->drained || !can_work(state, view, id)) {
            drained += known->drained ? 1 : 0;
            miss(roster, id);
        } else {
            roster->nodes[roster->count++] = id;
        }
    }
    roster->drained = drained > 0 && drained == roster->missing_count;
    uint32_t wanted = roster->count + gone;
    (void)add_live(state, view, ROLE_TRAINER, wanted, roster);
    (void)add_live(state, view, ROLE_SPARE, wanted, roster);
    if (roster->count < wanted) {
        for (uint32_t i = 0; i < epoch->shards_count; i++) {
            if (!state_node_in(state_node(state, epoch->shards[i].node))) {
                miss(roster, epoch->shards[i].node);
            }
        }
    }
}

static void choose_first(const struct state *state, const struct coordinator_view *view,
                         const struct state_job *job, struct roster *roster)
{
    uint32_t trainers = trainers_of(state, view);
    uint32_t wanted = job->nodes_wanted == 0 ? trainers : job->nodes_wanted;
    (void)add_live(state, view, ROLE_TRAINER, wanted, roster);
    if (roster->count < wanted) {
        miss_trainers(state, view, roster);
        if (roster->missing_count == 0) {
            roster->count = 0; /* There are not so many. */
        }
    }
}

/* Nodes without which a shard of the checkpoint cannot be had. */
static void miss_holders(const struct state *state, const struct coordinator_view *view,
                         const struct state_epoch *epoch, struct roster *roster)
{
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        const struct state_shard *shard = &epoch->shards[i];
        bool held = false;
        for (uint32_t k = 0; k < shard->holders_count; k++) {
            held = held || roster_alive(state, view, shard->holders[k]);
        }
        if (!held) {
            miss(roster, shard->node);
        }
    }
}

void roster_choose(const struct state *state, const struct coordinator_view *view,
                   const struct state_job *job, uint64_t waited_ms, struct roster *ret_roster)
{
    const struct state_epoch *newest = state_newest_epoch(job);
    memset(ret_roster, 0, sizeof(*ret_roster));
    if (job->elastic) {
        choose_elastic(state, view, job, waited_ms, ret_roster);
    } else if (newest != NULL) {
        choose_makers(state, view, newest, ret_roster);
    } else {
        choose_first(state, view, job, ret_roster);
    }
    if (newest != NULL) {
        miss_holders(state, view, newest, ret_roster);
    }
    sort(ret_roster);
}

uint32_t roster_drained(const struct state *state, const struct state_job *job)
{
    for (uint32_t i = 0; i < job->participants_count; i++) {
        const struct state_node *known = state_node(state, job->participants[i].node);
        if (known != NULL && known->drained) {
            return known->id;
        }
    }
    return 0;
}

bool roster_lines_work(const struct roster *roster, const struct coordinator_view *view,
                       uint64_t since_ms)
{
    for (uint32_t i = 0; view->reach != NULL && i < roster->count; i++) {
        for (uint32_t k = 0; k < roster->count; k++) {
            uint64_t good = view->reach->good_ms[roster->nodes[i] - 1][roster->nodes[k] - 1];
            if (i != k && (good == 0 || good < since_ms)) {
                return false;
            }
        }
    }
    return true;
}

bool roster_regroup(const struct state *state, const struct coordinator_view *view,
                    const struct state_job *job, char *text, size_t capacity)
{
    if (job->state != JOB_RUNNING || job->stopping) {
        return false;
    }
    uint32_t drained = roster_drained(state, job);
    if (drained != 0) {
        (void)snprintf(text, capacity, "node '%s' is drained", state_node_name(state, drained));
        return true;
    }
    if (!job->elastic || job->participants_count >= job->coordinates) {
        return false;
    }
    struct roster roster;
    roster_choose(state, view, job, UINT64_MAX, &roster);
    if (roster.missing_count > 0 || !roster_lines_work(&roster, view, 0)) {
        return false; /* Else a job that runs would stop, and wait for the line. */
    }
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < roster.count && fresh == 0; i++) {
        fresh = state_rank(job, roster.nodes[i]) < 0 ? roster.nodes[i] : 0;
    }
    /* More hands; or a trainer in place of the spare that stood in for it. */
    bool instead = fresh != 0 && state_node(state, fresh)->role == ROLE_TRAINER &&
                   roster.count == job->participants_count;
    if (fresh == 0 || (roster.count <= job->participants_count && !instead)) {
        return false;
    }
    (void)snprintf(text, capacity, "node '%s' joins", state_node_name(state, fresh));
    return true;
}

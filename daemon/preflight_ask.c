/* The leader's part: who is to look at what. */
#include <stdlib.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/preflight.h"
#include "proto/message.h"

static uint64_t bit_of(uint32_t node)
{
    return UINT64_C(1) << (node - 1);
}

/* Whether it is there, as the log knows it. */
static bool is_there(const struct daemon *daemon, const struct member *member)
{
    const struct state_node *known = state_node(&daemon->state, member->id);
    return state_node_in(known) && known->incarnation == member->incarnation &&
           members_state(daemon, member) != FACTS_DOWN && !member->progress.stopping;
}

static bool is_due(struct daemon *daemon, uint32_t from, uint32_t to, uint64_t now_ms)
{
    const struct coordinator *coordinator = &daemon->coordinator;
    const struct preflight_pair *pair = preflight_pair(daemon, from, to);
    bool wanted =
        (coordinator->wanted & bit_of(from)) != 0 && (coordinator->wanted & bit_of(to)) != 0;
    if (pair == NULL) {
        return true;
    }
    if (pair->code != 0) {
        return now_ms - pair->at_ms >= (wanted ? PREFLIGHT_AGAIN_MS : PREFLIGHT_FAILED_MS);
    }
    return wanted && pair->at_ms < coordinator->wanted_since_ms;
}

static uint64_t due_of(struct daemon *daemon, const struct member *from, uint64_t now_ms)
{
    uint64_t due = 0;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *to = &daemon->members[i];
        if (to->id != from->id && is_there(daemon, to) &&
            is_due(daemon, from->id, to->id, now_ms)) {
            due |= bit_of(to->id);
        }
    }
    return due;
}

static bool send_ask(struct daemon *daemon, uint32_t node, uint64_t nodes)
{
    uint32_t to[STATE_NODES_MAX];
    uint8_t bytes[8 * STATE_NODES_MAX];
    struct err err = {0};
    Peer__ProbeAsk ask;
    peer__probe_ask__init(&ask);
    ask.to = to;
    for (uint32_t id = 1; id <= STATE_NODES_MAX; id++) {
        if ((nodes & bit_of(id)) != 0) {
            to[ask.n_to++] = id;
        }
    }
    ASSERT(peer__probe_ask__get_packed_size(&ask) <= sizeof(bytes));
    size_t size = peer__probe_ask__pack(&ask, bytes);
    return mesh_send(daemon->mesh, node, FRAME_PROBE_ASK, bytes, size, &err) == 0;
}

void preflight_ask_turn(struct daemon *daemon)
{
    struct preflight *preflight = daemon->preflight;
    uint64_t now_ms = clock_now_ms();
    if (!control_leads(daemon->control) || daemon->stopping) {
        return;
    }
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *from = &daemon->members[i];
        uint64_t *asked = &preflight->asked[from->id - 1];
        uint64_t *asked_ms = &preflight->asked_ms[from->id - 1];
        if (!is_there(daemon, from)) {
            *asked = 0;
            continue;
        }
        if (now_ms - *asked_ms >= PREFLIGHT_ANSWER_MS) {
            *asked = 0;
        }
        uint64_t due = due_of(daemon, from, now_ms) & ~*asked;
        if (due == 0 || (!from->self && !send_ask(daemon, from->id, due))) {
            continue;
        }
        *asked |= due;
        *asked_ms = now_ms;
        if (from->self) {
            preflight_wish(daemon, due);
        }
    }
}

void preflight_on_ask(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    uint64_t nodes = 0;
    if (message_unpack(&peer__probe_ask__descriptor, bytes, size, &message, &err) != 0) {
        log_warning("preflight.ask", "from=%u error=\"%s\" next=\"dropped\"", node, err.text);
        return;
    }
    const Peer__ProbeAsk *ask = (const Peer__ProbeAsk *)(const void *)message;
    for (size_t i = 0; i < ask->n_to && i < STATE_NODES_MAX; i++) {
        nodes |= ask->to[i] >= 1 && ask->to[i] <= STATE_NODES_MAX ? bit_of(ask->to[i]) : 0;
    }
    message_free(message);
    /* It counts as soon as this node knows that the other leads; the newest order does. */
    daemon->preflight->ordered = nodes;
    daemon->preflight->ordered_by = node;
    preflight_look_turn(daemon);
}

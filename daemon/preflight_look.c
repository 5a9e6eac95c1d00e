/* The node's part: it looks, and says what it found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/preflight.h"

struct result_mail {
    struct message message;
    size_t index; /* of the round's targets */
    struct probe_result result;
};

static uint64_t bit_of(uint32_t node)
{
    return UINT64_C(1) << (node - 1);
}

/* ---- sentences ---- */

/* What is wrong with the line, and what a person can do. */
static void explain(const struct daemon *daemon, const char *to, const char *address,
                    const struct probe_result *result, char *text, size_t capacity)
{
    const char *from = daemon->name;
    const char *why = result->err.text;
    const char *ip = strncmp(why, address, strlen(address)) == 0 ? why + strlen(address) : "";
    why = ip[0] == ':' && ip[1] == ' ' ? ip + 2 : why; /* The address is said already. */
    switch (result->step) {
    case PROBE_CONNECT:
        if (result->late) {
            (void)snprintf(text, capacity,
                           "node %s cannot connect to node %s at %s: no answer within %u s; let "
                           "TCP from %s in at that port of %s (firewall, the pod's port mapping), "
                           "or correct `advertise` on %s",
                           from, to, address, PROBE_CONNECT_MS / 1000, from, to, to);
        } else {
            (void)snprintf(text, capacity,
                           "node %s cannot connect to node %s at %s: %.120s; see that this port "
                           "leads to the daemon of %s (firewall, the pod's port mapping), or "
                           "correct `advertise` on %s",
                           from, to, address, why, to, to);
        }
        return;
    case PROBE_GREET:
        if (result->late) {
            (void)snprintf(text, capacity,
                           "node %s connects to node %s at %s and gets no answer to its greeting "
                           "within %u s; see what listens there, and whether large packets get "
                           "through (`ping -M do -s 1400`; a smaller MTU)",
                           from, to, address, PROBE_CONNECT_MS / 1000);
        } else {
            (void)snprintf(text, capacity,
                           "node %s is not let in by node %s at %s: %.200s; see that `advertise` "
                           "on %s is its own address",
                           from, to, address, why, to);
        }
        return;
    case PROBE_PING:
        (void)snprintf(text, capacity,
                       "node %s reaches node %s at %s, and then nothing comes back: %.160s", from,
                       to, address, why);
        return;
    case PROBE_PUT:
        (void)snprintf(text, capacity, "node %s reaches node %s at %s, but not with data: %.160s%s",
                       from, to, address, why,
                       result->holes ? "; packets of full size are lost on this way: lower the MTU "
                                       "of both (`ip link set dev DEVICE mtu 1400`)"
                                     : "");
        return;
    case PROBE_DONE:
        text[0] = '\0';
        return;
    }
}

/* ---- results ---- */

static void take_result(struct daemon *daemon, const struct result_mail *mail)
{
    struct preflight *preflight = daemon->preflight;
    ASSERT(mail->index < preflight->targets_count);
    uint32_t to = preflight->targets[mail->index];
    struct preflight_pair pair = preflight->begun[mail->index];
    const struct probe_result *result = &mail->result;
    preflight->results_count++;
    preflight->under_way &= ~bit_of(to);
    if (result->err.code == ERR_CANCELED) {
        return;
    }
    pair.at_ms = clock_now_ms();
    pair.code = result->err.code;
    pair.sealed = result->sealed;
    pair.round_trip_ns = result->round_trip_ns;
    pair.bytes_per_s = result->bytes_per_s;
    pair.bytes = result->bytes;
    explain(daemon, members_find(daemon, to)->name, pair.address, result, pair.text,
            sizeof(pair.text));
    preflight_put(daemon, daemon->node_id, to, &pair);
    preflight->untold = true;
}

void preflight_on_results(struct mailbox *results)
{
    struct preflight *preflight = OWNER_OF(results, struct preflight, results);
    struct daemon *daemon = preflight->daemon;
    for (struct message *at = mailbox_take(results); at != NULL; at = mailbox_take(results)) {
        struct result_mail *mail = OWNER_OF(at, struct result_mail, message);
        if (preflight->round != NULL) {
            take_result(daemon, mail);
        }
        free(mail);
    }
    if (preflight->round != NULL && preflight->results_count == preflight->targets_count) {
        probe_round_free(preflight->round); /* Its threads have nothing more to do. */
        preflight->round = NULL;
    }
    preflight_look_turn(daemon);
}

static void on_result(void *context, size_t index, const struct probe_result *result)
{
    struct preflight *preflight = context;
    struct result_mail *mail = malloc(sizeof(*mail));
    ASSERT(mail != NULL);
    *mail = (struct result_mail){.index = index, .result = *result};
    mailbox_put(&preflight->results, &mail->message);
}

/* ---- rounds ---- */

void preflight_wish(struct daemon *daemon, uint64_t nodes)
{
    struct preflight *preflight = daemon->preflight;
    uint64_t now_ms = clock_now_ms();
    for (uint32_t i = 0; i < daemon->members_count && !daemon->stopping; i++) {
        uint32_t to = daemon->members[i].id;
        if (daemon->members[i].self || (nodes & bit_of(to)) == 0) {
            continue;
        }
        const struct preflight_pair *pair = preflight_pair(daemon, daemon->node_id, to);
        if (pair != NULL && now_ms - pair->at_ms < PREFLIGHT_LEAST_MS) {
            preflight->untold = true; /* Whoever asks has not heard yet. */
        } else {
            preflight->wished |= bit_of(to) & ~preflight->under_way;
        }
    }
}

/* From the node behind this one around: so that not everybody begins with the same. */
static size_t choose(struct daemon *daemon, struct probe_target *targets)
{
    struct preflight *preflight = daemon->preflight;
    size_t count = 0;
    uint64_t later = 0;
    for (uint32_t k = 1; k < STATE_NODES_MAX; k++) {
        uint32_t id = (daemon->node_id - 1 + k) % STATE_NODES_MAX + 1;
        const struct member *member = members_get(daemon, id);
        const struct state_node *known = state_node(&daemon->state, id);
        const struct state_node *self = state_node(&daemon->state, daemon->node_id);
        if ((preflight->wished & bit_of(id)) == 0) {
            continue;
        }
        if (member == NULL || known == NULL || self == NULL ||
            self->incarnation != daemon->incarnation) {
            later |= bit_of(id); /* The leader knows more of the log than this node yet. */
            continue;
        }
        struct preflight_pair *begun = &preflight->begun[count];
        *begun = (struct preflight_pair){.from_incarnation = daemon->incarnation,
                                         .to_incarnation = known->incarnation};
        (void)snprintf(begun->address, sizeof(begun->address), "%s", member->address);
        preflight->targets[count] = id;
        targets[count++] = (struct probe_target){id, member->life, member->name, member->address};
    }
    preflight->wished = later;
    return count;
}

static void begin_round(struct daemon *daemon)
{
    struct preflight *preflight = daemon->preflight;
    struct probe_target targets[STATE_NODES_MAX];
    struct err err = {0};
    size_t count = choose(daemon, targets);
    struct probe_settings settings = {.cluster = daemon->cluster,
                                      .node = daemon->name,
                                      .node_id = daemon->node_id,
                                      .life = daemon->life,
                                      .incarnation = daemon->incarnation,
                                      .trust = daemon->trust,
                                      .context = preflight,
                                      .on_result = on_result};
    preflight->targets_count = count;
    preflight->results_count = 0;
    if (count == 0) {
        return;
    }
    if (probe_round_new(&settings, targets, count, &preflight->round, &err) != 0) {
        log_warning("preflight.look", "error=\"%s\" next=\"the leader asks again\"", err.text);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        preflight->under_way |= bit_of(preflight->targets[i]);
    }
}

void preflight_look_turn(struct daemon *daemon)
{
    struct preflight *preflight = daemon->preflight;
    if (preflight->ordered != 0 && daemon_leader(daemon) == preflight->ordered_by) {
        preflight_wish(daemon, preflight->ordered);
        preflight->ordered = 0;
    }
    if (preflight->round == NULL && preflight->wished != 0 && !daemon->stopping) {
        begin_round(daemon);
    }
    if (preflight->untold &&
        (preflight->round == NULL || clock_now_ms() - preflight->told_ms >= PREFLIGHT_TELL_MS)) {
        preflight_tell(daemon);
    }
}

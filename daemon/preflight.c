/* What all nodes have found of their lines. */
#include "daemon/preflight.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/message.h"

#define AGE_MAX_MS (UINT64_C(365) * 24 * 3600 * 1000)

static bool is_place(uint32_t node)
{
    return node >= 1 && node <= STATE_NODES_MAX;
}

const struct preflight_pair *preflight_pair(struct daemon *daemon, uint32_t from, uint32_t to)
{
    struct preflight *preflight = daemon->preflight;
    if (!is_place(from) || !is_place(to) || preflight->rows[from - 1] == NULL) {
        return NULL;
    }
    const struct preflight_pair *pair = &preflight->rows[from - 1][to - 1];
    const struct state_node *a = state_node(&daemon->state, from);
    const struct state_node *b = state_node(&daemon->state, to);
    const struct member *other = members_get(daemon, to);
    bool now = pair->from_incarnation != 0 && a != NULL && b != NULL && other != NULL &&
               pair->from_incarnation == a->incarnation && pair->to_incarnation == b->incarnation &&
               strcmp(pair->address, other->address) == 0;
    return now ? pair : NULL;
}

const struct coordinator_reach *preflight_reach(struct daemon *daemon)
{
    if (daemon->preflight == NULL) {
        return NULL;
    }
    struct coordinator_reach *reach = &daemon->preflight->reach;
    memset(reach, 0, sizeof(*reach));
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        for (uint32_t k = 0; k < daemon->members_count; k++) {
            uint32_t from = daemon->members[i].id;
            uint32_t to = daemon->members[k].id;
            const struct preflight_pair *pair = preflight_pair(daemon, from, to);
            reach->good_ms[from - 1][to - 1] = pair != NULL && pair->code == 0 ? pair->at_ms : 0;
        }
    }
    return reach;
}

/* ---- slow lines ---- */

static bool is_near(const char *address)
{
    struct sockaddr_in parsed;
    struct err err = {0};
    return peer_address_parse(address, &parsed, &err) == 0 &&
           ntohl(parsed.sin_addr.s_addr) >> 24 == 127;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t median_bytes_s(struct daemon *daemon)
{
    static uint64_t rates[STATE_NODES_MAX * STATE_NODES_MAX]; /* the loop's */
    struct preflight *preflight = daemon->preflight;
    if (preflight->median_version == preflight->version) {
        return preflight->median_bytes_s;
    }
    size_t count = 0;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        for (uint32_t k = 0; k < daemon->members_count; k++) {
            const struct preflight_pair *pair =
                preflight_pair(daemon, daemon->members[i].id, daemon->members[k].id);
            if (pair != NULL && pair->code == 0) {
                rates[count++] = pair->bytes_per_s;
            }
        }
    }
    qsort(rates, count, sizeof(rates[0]), by_size);
    preflight->median_version = preflight->version;
    preflight->median_bytes_s = count > 0 ? rates[count / 2] : 0;
    return preflight->median_bytes_s;
}

/* A machine's loopback says nothing about a line. */
bool preflight_slow(struct daemon *daemon, const struct preflight_pair *pair)
{
    if (pair->code != 0 || pair->bytes_per_s >= PREFLIGHT_FAST_BYTES_S || is_near(pair->address)) {
        return false;
    }
    return pair->bytes_per_s < PREFLIGHT_SLOW_BYTES_S ||
           pair->bytes_per_s < median_bytes_s(daemon) / PREFLIGHT_SLOW_SHARE;
}

/* ---- what comes in ---- */

static void say_news(struct daemon *daemon, uint32_t from, uint32_t to, bool failed_before,
                     const struct preflight_pair *pair)
{
    const char *a = members_find(daemon, from)->name;
    char name[FACTS_NAME_SIZE];
    (void)snprintf(name, sizeof(name), "%s", a); /* members_find() may give the same twice. */
    const char *b = members_find(daemon, to)->name;
    bool leads = daemon->was_leading;
    if (pair->code != 0 && !failed_before && leads) {
        daemon_event(daemon, "pre-flight: %s", pair->text);
    } else if (pair->code == 0 && failed_before && leads) {
        daemon_event(daemon, "pre-flight: node %s reaches node %s again", name, b);
    }
    if (from != daemon->node_id) {
        return;
    }
    if (pair->code != 0 && !failed_before) {
        log_warning("preflight.failed", "from=%s to=%s address=%s reason=\"%s\"", name, b,
                    pair->address, pair->text);
    } else if (pair->code == 0) {
        bool slow = preflight_slow(daemon, pair);
        log_event(slow ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
                  slow ? "preflight.slow" : "preflight.good",
                  "from=%s to=%s address=%s round_trip_ms=%.3f bytes_per_s=%llu tls=%s%s", name, b,
                  pair->address, (double)pair->round_trip_ns * 1e-6,
                  (unsigned long long)pair->bytes_per_s, pair->sealed ? "yes" : "no",
                  slow ? " next=\"a job waits for its slowest line: see 'nodes -o wide'\"" : "");
    }
}

void preflight_put(struct daemon *daemon, uint32_t from, uint32_t to,
                   const struct preflight_pair *found)
{
    struct preflight *preflight = daemon->preflight;
    ASSERT(is_place(from) && is_place(to));
    if (preflight->rows[from - 1] == NULL) {
        preflight->rows[from - 1] = calloc(STATE_NODES_MAX, sizeof(*preflight->rows[from - 1]));
        ASSERT(preflight->rows[from - 1] != NULL);
    }
    struct preflight_pair *pair = &preflight->rows[from - 1][to - 1];
    bool same = pair->from_incarnation == found->from_incarnation &&
                pair->to_incarnation == found->to_incarnation &&
                strcmp(pair->address, found->address) == 0;
    bool news = !same || pair->code != found->code || pair->round_trip_ns != found->round_trip_ns ||
                pair->bytes_per_s != found->bytes_per_s;
    bool failed_before = same && pair->code != 0;
    preflight->asked[from - 1] &= ~(UINT64_C(1) << (to - 1));
    *pair = *found;
    preflight->version++;
    if (news) {
        say_news(daemon, from, to, failed_before, pair);
        daemon_soon(daemon);
    }
}

static void take_text(char *text, size_t capacity, const char *value)
{
    (void)snprintf(text, capacity, "%.*s", (int)capacity - 1, value != NULL ? value : "");
    for (char *at = text; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == '"' ? ' ' : *at; /* It goes into log lines. */
    }
}

void preflight_on_row(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (message_unpack(&peer__probe_row__descriptor, bytes, size, &message, &err) != 0) {
        log_warning("preflight.row", "from=%u error=\"%s\" next=\"dropped\"", node, err.text);
        return;
    }
    const Peer__ProbeRow *row = (const Peer__ProbeRow *)(const void *)message;
    uint64_t now_ms = clock_now_ms();
    for (size_t i = 0; i < row->n_pair && i < STATE_NODES_MAX; i++) {
        const Peer__ProbePair *said = row->pair[i];
        if (!is_place(said->to) || said->to == node || !is_place(node)) {
            continue;
        }
        uint64_t age_ms = said->age_ms < AGE_MAX_MS ? said->age_ms : AGE_MAX_MS;
        struct preflight_pair pair = {.from_incarnation = row->incarnation,
                                      .to_incarnation = said->incarnation,
                                      .at_ms = now_ms > age_ms ? now_ms - age_ms : 1,
                                      .code = said->code < 0 && said->code >= ERR_BUSY ? said->code
                                              : said->code == 0                        ? 0
                                                                                       : ERR_PEER,
                                      .sealed = said->sealed,
                                      .round_trip_ns = said->round_trip_ns,
                                      .bytes_per_s = said->bytes_per_s,
                                      .bytes = said->bytes};
        take_text(pair.address, sizeof(pair.address), said->address);
        take_text(pair.text, sizeof(pair.text), said->text);
        preflight_put(daemon, node, said->to, &pair);
    }
    message_free(message);
}

/* ---- what goes out ---- */

static size_t row_of(struct daemon *daemon, Peer__ProbePair *pairs)
{
    struct preflight_pair *row = daemon->preflight->rows[daemon->node_id - 1];
    uint64_t now_ms = clock_now_ms();
    size_t count = 0;
    for (uint32_t to = 1; row != NULL && to <= STATE_NODES_MAX; to++) {
        struct preflight_pair *pair = &row[to - 1];
        if (pair->from_incarnation == 0) {
            continue;
        }
        Peer__ProbePair *said = &pairs[count++];
        peer__probe_pair__init(said);
        said->to = to;
        said->incarnation = pair->to_incarnation;
        said->address = pair->address;
        said->code = pair->code;
        said->text = pair->text;
        said->round_trip_ns = pair->round_trip_ns;
        said->bytes_per_s = pair->bytes_per_s;
        said->bytes = pair->bytes;
        said->age_ms = now_ms - pair->at_ms;
        said->sealed = pair->sealed;
    }
    return count;
}

/* To one node, or (0) to all. */
static void send_row(struct daemon *daemon, uint32_t node)
{
    static Peer__ProbePair pairs[STATE_NODES_MAX]; /* the loop's */
    Peer__ProbePair *list[STATE_NODES_MAX];
    Peer__ProbeRow row;
    peer__probe_row__init(&row);
    row.incarnation = daemon->incarnation;
    row.n_pair = row_of(daemon, pairs);
    row.pair = list;
    for (size_t i = 0; i < row.n_pair; i++) {
        list[i] = &pairs[i];
    }
    size_t size = peer__probe_row__get_packed_size(&row);
    if (row.n_pair == 0 || daemon->mesh == NULL) {
        return;
    }
    uint8_t *bytes = malloc(size);
    ASSERT(bytes != NULL);
    (void)peer__probe_row__pack(&row, bytes);
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        struct err err = {0};
        uint32_t id = daemon->members[i].id;
        if (!daemon->members[i].self && (node == 0 || node == id) && mesh_is_up(daemon->mesh, id)) {
            (void)mesh_send(daemon->mesh, id, FRAME_PROBE_ROW, bytes, size,
                            &err); /* The leader asks again. */
        }
    }
    free(bytes);
}

void preflight_tell(struct daemon *daemon)
{
    daemon->preflight->untold = false;
    daemon->preflight->told_ms = clock_now_ms();
    send_row(daemon, 0);
}

void preflight_on_up(struct daemon *daemon, uint32_t node)
{
    send_row(daemon, node);
}

/* ---- life ---- */

void preflight_open(struct daemon *daemon)
{
    struct preflight *preflight = calloc(1, sizeof(*preflight));
    struct err err = {0};
    ASSERT(preflight != NULL);
    preflight->daemon = daemon;
    preflight->version = 1;
    daemon->preflight = preflight;
    ASSERT(probe_server_new(&preflight->server, &err) == 0);
    ASSERT(mailbox_open(&preflight->results, daemon->loop, preflight_on_results) == 0);
}

static void on_results_closed(struct mailbox *results)
{
    struct preflight *preflight = OWNER_OF(results, struct preflight, results);
    preflight->on_closed(preflight->daemon);
}

void preflight_close(struct daemon *daemon, void (*on_closed)(void *context))
{
    struct preflight *preflight = daemon->preflight;
    preflight->on_closed = on_closed;
    preflight->wished = 0;
    probe_round_free(preflight->round);
    preflight->round = NULL;
    probe_server_free(preflight->server);
    preflight->server = NULL;
    for (struct message *at = mailbox_take(&preflight->results); at != NULL;
         at = mailbox_take(&preflight->results)) {
        free(at);
    }
    mailbox_close(&preflight->results, on_results_closed);
}

void preflight_free(struct daemon *daemon)
{
    struct preflight *preflight = daemon->preflight;
    daemon->preflight = NULL;
    for (size_t i = 0; preflight != NULL && i < STATE_NODES_MAX; i++) {
        free(preflight->rows[i]);
    }
    free(preflight);
}

void preflight_take(struct daemon *daemon, const struct peer_incoming *incoming)
{
    struct peer_incoming refused = *incoming;
    if (daemon->preflight->server == NULL || daemon->stopping) {
        peer_refuse(&refused, ERR_BUSY, "this daemon is stopping");
        return;
    }
    probe_server_take(daemon->preflight->server, incoming);
}

void preflight_turn(struct daemon *daemon)
{
    preflight_ask_turn(daemon);
    preflight_look_turn(daemon);
}

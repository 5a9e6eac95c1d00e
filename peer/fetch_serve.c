/* The holder's side: a thread for each connection, at most so many. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "peer/fetch_room.h"

#define CONNECTIONS_DEFAULT 8U
#define IDLE_DEFAULT_MS     60000U
#define WAIT_EVERY_MS       1000U
#define BYE_MS              1000U

struct serving { /* a connection */
    struct serving *next;
    struct fetch_server *server;
    struct peer_incoming incoming;
    struct wire wire;
    pthread_t thread;
    atomic_bool ended;
};

struct fetch_server {
    struct fetch_server_settings settings;
    struct serving *list; /* the taking thread's */
    uint32_t count;
    atomic_bool stopping;
    struct fetch_counters counters;
    _Atomic uint64_t accepted, refused, failed;
    _Atomic uint32_t serving;
};

int fetch_request_get(const struct frame_header *header, const uint8_t *body,
                      struct fetch_request *ret_request, struct err *err)
{
    struct reader reader = {body, header->body_size, false};
    if (header->kind != PEER_FETCH_READ || header->body_size != FETCH_READ_SIZE) {
        return err_set(err, ERR_PROTO, "a frame of kind %u and %u bytes came; a request was due",
                       header->kind, header->body_size);
    }
    struct fetch_request request = {.part = read_u32(&reader)};
    request.size = read_u32(&reader);
    request.offset = read_u64(&reader);
    if (request.size == 0 || request.size > FETCH_SIZE_MAX) {
        return err_set(err, ERR_PROTO, "%u bytes are asked for at once; 1 to %u are possible",
                       request.size, FETCH_SIZE_MAX);
    }
    *ret_request = request;
    return 0;
}

struct waiting {
    struct wire *wire;
    uint64_t told_ms;
};

static bool on_wait(void *context, uint64_t done, uint64_t total)
{
    struct waiting *waiting = context;
    struct wire *wire = waiting->wire;
    uint64_t now = clock_now_ms();
    struct err err = {0};
    if (wire->cancel != NULL && atomic_load(wire->cancel)) {
        return false;
    }
    if (now - waiting->told_ms < WAIT_EVERY_MS) {
        return true;
    }
    struct buf body = BUF_NONE;
    buf_put_u64(&body, done);
    buf_put_u64(&body, total);
    int code =
        wire_send(wire, PEER_FETCH_WAIT, 0, body.bytes, body.size, now + wire->silence_ms, &err);
    buf_done(&body);
    waiting->told_ms = now;
    return code == 0;
}

static void say_bye(struct wire *wire, const struct err *why)
{
    struct buf body = BUF_NONE;
    struct err err = {0};
    buf_put_u32(&body, (uint32_t)why->code);
    buf_put(&body, why->text, strlen(why->text));
    (void)wire_send(wire, PEER_BYE, 0, body.bytes, body.size, clock_now_ms() + BYE_MS, &err);
    buf_done(&body);
}

static int answer_all(struct wire *wire, const struct fetch_source *source, void *served,
                      uint32_t idle_ms, uint8_t *buffer, struct fetch_counters *counters,
                      struct err *err)
{
    for (;;) {
        struct frame_header header;
        struct fetch_request request;
        uint8_t body[FETCH_READ_SIZE];
        bool begun = false;
        int code =
            wire_receive(wire, body, sizeof(body), clock_now_ms() + idle_ms, &header, &begun, err);
        if (code == ERR_PEER && !begun) {
            *err = (struct err){0};
            return 0; /* It has what it wants. */
        }
        if (code != 0 || fetch_request_get(&header, body, &request, err) != 0 ||
            source->read(served, request.part, request.offset, buffer, request.size, err) != 0 ||
            wire_send(wire, PEER_FETCH_DATA, header.sequence, buffer, request.size,
                      clock_now_ms() + idle_ms, err) != 0) {
            return err->code;
        }
        atomic_fetch_add(&counters->answers, 1);
        atomic_fetch_add(&counters->bytes_out, request.size);
    }
}

int fetch_serve(struct wire *wire, const struct fetch_source *source, uint32_t node_id,
                const uint8_t digest[FETCH_DIGEST_SIZE], uint32_t idle_ms, uint8_t *buffer,
                struct fetch_counters *counters, struct err *err)
{
    struct waiting waiting = {wire, clock_now_ms()};
    struct fetch_wait wait = {on_wait, &waiting};
    struct buf about = BUF_NONE;
    void *served = NULL;
    uint64_t manifest_size = 0;
    uint64_t table_size = 0;
    int code = source->open(source->context, node_id, digest, &wait, &served, &manifest_size,
                            &table_size, err);
    if (code == 0) {
        buf_put_u64(&about, manifest_size);
        buf_put_u64(&about, table_size);
        code = wire_send(wire, PEER_FETCH_ABOUT, 0, about.bytes, about.size,
                         clock_now_ms() + idle_ms, err);
        code = code == 0 ? answer_all(wire, source, served, idle_ms, buffer, counters, err) : code;
        source->close(source->context, served);
    }
    buf_done(&about);
    if (code != 0) {
        say_bye(wire, err);
    }
    return code;
}

static void *serve_main(void *context)
{
    struct serving *serving = context;
    struct fetch_server *server = serving->server;
    const struct fetch_server_settings *settings = &server->settings;
    struct err err = {0};
    uint8_t *buffer = malloc(FETCH_SIZE_MAX);
    int code = buffer == NULL ? err_set(&err, ERR_NOMEM, "no memory for an answer")
                              : peer_welcome(&serving->incoming, &err);
    if (code == 0) {
        code = fetch_serve(&serving->wire, &settings->source, serving->incoming.hello.node_id,
                           serving->incoming.hello.identity, settings->idle_ms, buffer,
                           &server->counters, &err);
    }
    if (code != 0 && !atomic_load(&server->stopping)) {
        atomic_fetch_add(&server->failed, 1);
        log_warning("fetch.serve", "to=%s address=%s error=\"%s\" next=\"closed\"",
                    serving->incoming.hello.node, serving->incoming.address, err.text);
    }
    free(buffer);
    wire_done(&serving->wire);
    atomic_fetch_sub(&server->serving, 1);
    atomic_store(&serving->ended, true);
    return NULL;
}

/* Joins the threads that have ended, or (all) waits for every one. */
static void reap(struct fetch_server *server, bool all)
{
    for (struct serving **at = &server->list; *at != NULL;) {
        struct serving *serving = *at;
        if (!all && !atomic_load(&serving->ended)) {
            at = &serving->next;
            continue;
        }
        ASSERT(pthread_join(serving->thread, NULL) == 0);
        *at = serving->next;
        server->count--;
        free(serving);
    }
}

int fetch_server_new(const struct fetch_server_settings *settings, struct fetch_server **ret_server,
                     struct err *err)
{
    struct fetch_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the server of data");
    }
    server->settings = *settings;
    if (server->settings.connections_max == 0) {
        server->settings.connections_max = CONNECTIONS_DEFAULT;
    }
    if (server->settings.idle_ms == 0) {
        server->settings.idle_ms = IDLE_DEFAULT_MS;
    }
    *ret_server = server;
    return 0;
}

void fetch_server_free(struct fetch_server *server)
{
    if (server == NULL) {
        return;
    }
    atomic_store(&server->stopping, true);
    reap(server, true);
    ASSERT(server->count == 0);
    free(server);
}

void fetch_server_take(struct fetch_server *server, const struct peer_incoming *incoming)
{
    struct peer_incoming refused = *incoming;
    reap(server, false);
    struct serving *serving =
        server->count < server->settings.connections_max ? calloc(1, sizeof(*serving)) : NULL;
    if (serving == NULL) {
        atomic_fetch_add(&server->refused, 1);
        peer_refuse(&refused, ERR_BUSY, "this node serves as many fetches as it may");
        return;
    }
    serving->server = server;
    serving->incoming = *incoming;
    serving->wire = (struct wire){.generation = incoming->hello.generation,
                                  .silence_ms = server->settings.idle_ms,
                                  .cancel = &server->stopping};
    serving->wire.transport = incoming->transport;
    atomic_fetch_add(&server->serving, 1);
    if (pthread_create(&serving->thread, NULL, serve_main, serving) != 0) {
        atomic_fetch_sub(&server->serving, 1);
        atomic_fetch_add(&server->refused, 1);
        free(serving);
        peer_refuse(&refused, ERR_BUSY, "this node has no thread for a fetch now");
        return;
    }
    atomic_fetch_add(&server->accepted, 1);
    serving->next = server->list;
    server->list = serving;
    server->count++;
}

void fetch_server_stats(struct fetch_server *server, struct fetch_server_stats *ret_stats)
{
    *ret_stats = (struct fetch_server_stats){
        .accepted = atomic_load(&server->accepted),
        .refused = atomic_load(&server->refused),
        .failed = atomic_load(&server->failed),
        .answers = atomic_load(&server->counters.answers),
        .bytes_out = atomic_load(&server->counters.bytes_out),
        .serving = atomic_load(&server->serving),
    };
}

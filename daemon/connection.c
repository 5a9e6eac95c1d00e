#include "daemon/connection.h"

#include <peer.pb-c.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/api_room.h"
#include "proto/frame.h"
#include "proto/message.h"

#define HELLO_SIZE_MAX 4096
#define READ_SIZE      65536
#define READS_A_TURN   8

static void read_on(struct connection *connection);

static size_t limit_of(const struct connection *connection)
{
    return connection->state == CONNECTION_HELLO ? HELLO_SIZE_MAX : FRAME_LIMIT_CTL;
}

void connection_release(struct connection *connection)
{
    if (connection->state != CONNECTION_CLOSED || connection->handles_open > 0 ||
        connection->ask.busy) {
        return;
    }
    ask_drop(connection);
    buf_done(&connection->in);
    buf_done(&connection->out);
    struct api *api = connection->api;
    api_forget(api, connection);
    free(connection);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data; /* One callback for both handles. */
    ASSERT(connection->handles_open > 0);
    connection->handles_open--;
    connection_release(connection);
}

static void watch(struct connection *connection);

static void on_poll_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    transport_close(&connection->transport);
    on_handle_closed(handle);
}

void connection_close(struct connection *connection, const char *why)
{
    if (connection->state == CONNECTION_CLOSED) {
        return;
    }
    connection->state = CONNECTION_CLOSED;
    if (why != NULL) {
        connection->api->stats.cut++;
        if (api_may_log(connection->api)) {
            log_info("ctl.cut", "from=%s cut_total=%llu reason=\"%s\"", connection->from,
                     (unsigned long long)connection->api->stats.cut, why);
        }
    }
    ask_drop(connection);
    uv_close((uv_handle_t *)&connection->poll, on_poll_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

static void on_written(struct connection *connection)
{
    connection->writing = false;
    buf_clear(&connection->out);
    if (connection->state == CONNECTION_ENDING) {
        connection_close(connection, NULL);
        return;
    }
    connection->idle_ms = clock_now_ms();
    ask_on_written(connection);
    if (connection->state == CONNECTION_OPEN && !connection->writing) {
        read_on(connection);
    }
}

static void write_on(struct connection *connection)
{
    struct transport *transport = &connection->transport;
    struct err err = {0};
    struct iovec part = {connection->out.bytes + connection->written,
                         connection->out.size - connection->written};
    ssize_t taken = transport->ops->write(transport, &part, part.iov_len > 0 ? 1 : 0, &err);
    if (taken < 0) {
        connection_close(connection, NULL); /* The client is gone: its right. */
        return;
    }
    connection->written += (size_t)taken;
    if (connection->writing && connection->written == connection->out.size &&
        !transport->ops->wants_write(transport)) {
        on_written(connection);
    }
}

/* From the loop's next turn on: what comes of it must not come from inside. */
void connection_flush(struct connection *connection)
{
    if (connection->writing || connection->out.size == 0 ||
        connection->state == CONNECTION_CLOSED) {
        return;
    }
    connection->writing = true;
    connection->written = 0;
    connection->deadline_ms = clock_now_ms() + connection->api->settings.write_ms;
    watch(connection);
}

void connection_reply(struct connection *connection, Ctl__Reply *reply)
{
    ASSERT(!connection->writing); /* out's bytes are on their way. */
    struct err err = {0};
    if (message_frame(&connection->out, FRAME_REPLY, /* generation= */ 0, connection->sequence,
                      &reply->base, FRAME_LIMIT_CTL, &err) != 0) {
        Ctl__Reply refusal;
        ctl__reply__init(&refusal);
        refusal.id = reply->id;
        refusal.code = ERR_INTERNAL;
        refusal.text = err.text;
        refusal.hint = (char[]){"ask for less: one job instead of all"};
        int status = message_frame(&connection->out, FRAME_REPLY, 0, connection->sequence,
                                   &refusal.base, FRAME_LIMIT_CTL, NULL);
        ASSERT(status == 0);
    }
    connection->sequence++;
}

/* The last frame of a connection that is not let in. */
static void refuse(struct connection *connection, int code, const char *text)
{
    union {
        const char *in;
        char *out;
    } borrowed = {.in = text}; /* Generated structs have no const; packing does not write. */
    Peer__Refusal refusal;
    peer__refusal__init(&refusal);
    refusal.code = code;
    refusal.text = borrowed.out;
    refusal.retry = code == ERR_BUSY;
    int status = message_frame(&connection->out, FRAME_REFUSAL, 0, connection->sequence++,
                               &refusal.base, FRAME_LIMIT_CTL, NULL);
    ASSERT(status == 0);
    connection->state = CONNECTION_ENDING;
    connection->reading = false;
    connection->api->stats.refused++;
    if (api_may_log(connection->api)) {
        log_notice("ctl.refused", "from=%s refused_total=%llu reason=\"%s\"", connection->from,
                   (unsigned long long)connection->api->stats.refused, text);
    }
    connection_flush(connection);
}

static void welcome(struct connection *connection)
{
    const struct api_settings *settings = &connection->api->settings;
    union {
        const char *in;
        char *out;
    } cluster = {settings->cluster}, node = {settings->node}, version = {settings->version};
    Peer__Welcome message;
    peer__welcome__init(&message);
    message.cluster = cluster.out;
    message.node = node.out;
    message.version = version.out;
    message.node_id = settings->node_id;
    message.incarnation = settings->incarnation;
    message.protocol_version = FRAME_PROTOCOL_VERSION;
    int status = message_frame(&connection->out, FRAME_WELCOME, 0, connection->sequence++,
                               &message.base, FRAME_LIMIT_CTL, NULL);
    ASSERT(status == 0);
    connection->state = CONNECTION_OPEN;
    connection_flush(connection);
}

static void on_hello(struct connection *connection, const struct frame *frame)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (connection->refusal != 0) {
        refuse(connection, connection->refusal, connection->refusal_text);
        return;
    }
    if (frame->kind != FRAME_HELLO || frame->flags != 0) {
        refuse(connection, ERR_PROTO, "the first frame is no HELLO; is this coppeliusctl?");
        return;
    }
    if (message_unpack(&peer__hello__descriptor, frame->body, frame->body_size, &message, &err) !=
        0) {
        refuse(connection, ERR_PROTO, err.text);
        return;
    }
    const Peer__Hello *hello = (const Peer__Hello *)(const void *)message;
    const char *cluster = connection->api->settings.cluster;
    if (hello->protocol_version != FRAME_PROTOCOL_VERSION) {
        (void)err_set(
            &err, ERR_PROTO,
            "protocol %u is spoken here, yours is %u; use the coppeliusctl of this daemon's "
            "version (%s)",
            FRAME_PROTOCOL_VERSION, hello->protocol_version, connection->api->settings.version);
    } else if (hello->class_ != PEER__CLASS__CLASS_CTL) {
        (void)err_set(&err, ERR_PROTO,
                      "the admin socket is for coppeliusctl; daemons use the port of `listen`");
    } else if (hello->cluster[0] != '\0' && strcmp(hello->cluster, cluster) != 0) {
        (void)err_set(&err, ERR_PROTO, "this is cluster '%s', not '%.63s'", cluster,
                      hello->cluster);
    }
    message_free(message);
    if (err.code != 0) {
        refuse(connection, err.code, err.text);
        return;
    }
    welcome(connection);
}

static void on_request(struct connection *connection, const struct frame *frame)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (frame->kind != FRAME_REQUEST || frame->flags != 0) {
        connection_close(connection, "a frame that is no question");
        return;
    }
    if (message_unpack(&ctl__request__descriptor, frame->body, frame->body_size, &message, &err) !=
        0) {
        connection_close(connection, err.text);
        return;
    }
    connection->api->stats.requests++;
    connection->idle_ms = clock_now_ms();
    ask_begin(connection, (const Ctl__Request *)(const void *)message);
    message_free(message);
}

/* Parses what is there, a frame at a time: while a question is worked on or its answer is written,
 * the rest waits. */
static void parse(struct connection *connection)
{
    while (connection->state <= CONNECTION_OPEN && connection->ask.state == ASK_IDLE &&
           !connection->ask.busy && !connection->writing) {
        struct frame frame;
        struct err err = {0};
        size_t used = 0;
        if (frame_parse(connection->in.bytes, connection->in.size, limit_of(connection), &frame,
                        &used, &err) != 0) {
            connection_close(connection, err.text);
            return;
        }
        if (used == 0) {
            if (connection->input_ended) {
                connection_close(connection, NULL);
            }
            return;
        }
        if (connection->state == CONNECTION_HELLO) {
            on_hello(connection, &frame);
        } else {
            on_request(connection, &frame);
        }
        ASSERT(used <= connection->in.size);
        connection->in.size -= used;
        memmove(connection->in.bytes, connection->in.bytes + used, connection->in.size);
    }
}

/* How much more may be read: one whole frame waits at most until it is answered. */
static size_t room_of(const struct connection *connection)
{
    size_t most = limit_of(connection) + FRAME_HEADER_SIZE;
    return most > connection->in.size ? most - connection->in.size : 0;
}

static void on_end(struct connection *connection)
{
    connection->reading = false;
    if (connection->ask.state != ASK_WATCH && connection->ask.state != ASK_LOGS) {
        /* It may have asked and closed its side only: it gets its answer, then the end. */
        connection->input_ended = true;
        parse(connection);
        return;
    }
    connection_close(connection, NULL);
}

static void on_readable(struct connection *connection)
{
    struct transport *transport = &connection->transport;
    transport->reads_left = READS_A_TURN;
    while (connection->reading && connection->state <= CONNECTION_OPEN) {
        struct err err = {0};
        size_t room = room_of(connection);
        if (room == 0) {
            connection->reading = false; /* No more until what is there is answered. */
            return;
        }
        room = room < READ_SIZE ? room : READ_SIZE;
        buf_reserve(&connection->in, room);
        struct iovec part = {connection->in.bytes + connection->in.size, room};
        ssize_t got = transport->ops->read(transport, &part, 1, &err);
        if (got == 0) {
            return;
        }
        if (got < 0) {
            on_end(connection);
            return;
        }
        connection->in.size += (size_t)got;
        parse(connection);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct connection *connection = OWNER_OF(poll, struct connection, poll);
    if (status != 0) {
        connection_close(connection, NULL);
        return;
    }
    if ((events & UV_READABLE) != 0 && connection->reading) {
        on_readable(connection);
    }
    if ((events & UV_WRITABLE) != 0 && connection->state != CONNECTION_CLOSED) {
        write_on(connection);
    }
    watch(connection);
}

static void watch(struct connection *connection)
{
    if (connection->state == CONNECTION_CLOSED) {
        return;
    }
    bool write =
        connection->writing || connection->transport.ops->wants_write(&connection->transport);
    int events = (connection->reading ? UV_READABLE : 0) | (write ? UV_WRITABLE : 0);
    if (events != connection->events) {
        connection->events = events;
        ASSERT((events != 0 ? uv_poll_start(&connection->poll, events, on_poll)
                            : uv_poll_stop(&connection->poll)) == 0);
    }
}

static void read_on(struct connection *connection)
{
    parse(connection);
    if (connection->state <= CONNECTION_OPEN && !connection->reading && !connection->input_ended) {
        connection->reading = true;
        on_readable(connection); /* TLS may hold bytes that poll does not know of. */
    }
    watch(connection);
}

bool connection_is_idle(const struct connection *connection)
{
    return connection->state <= CONNECTION_OPEN && connection->ask.state == ASK_IDLE &&
           !connection->ask.busy && !connection->writing;
}

static void on_tick(uv_timer_t *timer)
{
    struct connection *connection = OWNER_OF(timer, struct connection, timer);
    if (connection_is_idle(connection) && clock_now_ms() - connection->idle_ms >= API_IDLE_MS) {
        connection_close(connection, "nothing was asked for 10 minutes");
        return;
    }
    bool waits = connection->writing || connection->state == CONNECTION_HELLO;
    if (waits && clock_now_ms() >= connection->deadline_ms) {
        connection_close(connection, connection->writing ? "it does not take its answer"
                                                         : "no HELLO within 5 s");
        return;
    }
    if (connection->state == CONNECTION_OPEN && !connection->writing) {
        ask_tick(connection);
    }
}

struct connection *connection_open(struct api *api, const struct transport *transport,
                                   bool needs_hello, bool may_change, const char *from,
                                   uint64_t source)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    ASSERT(connection != NULL);
    connection->api = api;
    connection->transport = *transport;
    connection->may_change = may_change;
    connection->local = needs_hello;
    connection->state = needs_hello ? CONNECTION_HELLO : CONNECTION_OPEN;
    connection->sequence = needs_hello ? 0 : 1; /* WELCOME was 0. */
    connection->idle_ms = clock_now_ms();
    connection->deadline_ms = connection->idle_ms + API_HELLO_MS;
    connection->source = source;
    (void)snprintf(connection->from, sizeof(connection->from), "%s", from);
    if (uv_poll_init(api->loop, &connection->poll, transport->fd) != 0) {
        transport_close(&connection->transport);
        free(connection);
        return NULL;
    }
    int status = uv_timer_init(api->loop, &connection->timer);
    ASSERT(status == 0);
    connection->poll.data = connection;
    connection->timer.data = connection;
    connection->handles_open = 2;
    connection->next = api->connections;
    api->connections = connection;
    api->stats.connections++;
    api->stats.accepted++;
    status = uv_timer_start(&connection->timer, on_tick, API_TICK_MS, API_TICK_MS);
    ASSERT(status == 0);
    /* Nothing is read from inside: the caller may refuse it before its HELLO counts. */
    connection->reading = true;
    watch(connection);
    return connection;
}

void connection_refuse(struct connection *connection, int code, const char *text)
{
    ASSERT(code != 0);
    if (connection->state == CONNECTION_HELLO) {
        connection->refusal = code;
        (void)snprintf(connection->refusal_text, sizeof(connection->refusal_text), "%s", text);
    }
}

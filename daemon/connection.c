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

void connection_close(struct connection *connection, const char *why)
{
    if (connection->state == CONNECTION_CLOSED) {
        return;
    }
    connection->state = CONNECTION_CLOSED;
    if (why != NULL) {
        connection->api->stats.cut++;
        log_info("ctl.cut", "from=%s reason=\"%s\"", connection->from, why);
    }
    ask_drop(connection);
    uv_close(&connection->socket.handle, on_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

static void on_written(uv_write_t *write, int status)
{
    struct connection *connection = OWNER_OF(write, struct connection, write);
    connection->writing = false;
    if (connection->state == CONNECTION_CLOSED) {
        return;
    }
    if (status != 0) {
        connection_close(connection, NULL); /* The client is gone: its right. */
        return;
    }
    buf_clear(&connection->out);
    if (connection->state == CONNECTION_ENDING) {
        connection_close(connection, NULL);
        return;
    }
    ask_on_written(connection);
    if (connection->state == CONNECTION_OPEN && !connection->writing) {
        read_on(connection);
    }
}

void connection_flush(struct connection *connection)
{
    if (connection->writing || connection->out.size == 0 ||
        connection->state == CONNECTION_CLOSED) {
        return;
    }
    uv_buf_t bytes = uv_buf_init((char *)connection->out.bytes, (unsigned)connection->out.size);
    int status = uv_write(&connection->write, &connection->socket.stream, &bytes, 1, on_written);
    if (status != 0) {
        connection_close(connection, NULL);
        return;
    }
    connection->writing = true;
    connection->deadline_ms = clock_now_ms() + connection->api->settings.write_ms;
}

void connection_reply(struct connection *connection, Ctl__Reply *reply)
{
    ASSERT(!connection->writing); /* libuv holds out's bytes while it writes. */
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
    (void)uv_read_stop(&connection->socket.stream);
    connection->api->stats.refused++;
    log_notice("ctl.refused", "from=%s reason=\"%s\"", connection->from, text);
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

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    struct connection *connection = handle->data;
    size_t most = limit_of(connection) + FRAME_HEADER_SIZE;
    size_t room = most > connection->in.size ? most - connection->in.size : 0;
    if (room > suggested) {
        room = suggested;
    }
    if (room > 0) {
        buf_reserve(&connection->in, room);
    }
    *ret_buf = uv_buf_init((char *)connection->in.bytes + connection->in.size, (unsigned)room);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *bytes)
{
    (void)bytes;
    struct connection *connection = stream->data;
    if (got == UV_ENOBUFS) { /* One whole frame waits already: no more until it is answered. */
        (void)uv_read_stop(stream);
        connection->reading = false;
        return;
    }
    if (got == UV_EOF && connection->ask.state != ASK_WATCH && connection->ask.state != ASK_LOGS) {
        /* It may have asked and closed its side only: it gets its answer, then the end. */
        (void)uv_read_stop(stream);
        connection->reading = false;
        connection->input_ended = true;
        parse(connection);
        return;
    }
    if (got < 0) {
        connection_close(connection, NULL);
        return;
    }
    connection->in.size += (size_t)got;
    parse(connection);
}

static void read_on(struct connection *connection)
{
    parse(connection);
    if (connection->state <= CONNECTION_OPEN && !connection->reading && !connection->input_ended) {
        connection->reading = uv_read_start(&connection->socket.stream, on_alloc, on_read) == 0;
        if (!connection->reading) {
            connection_close(connection, "it cannot be read");
        }
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct connection *connection = OWNER_OF(timer, struct connection, timer);
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

struct connection *connection_open(struct api *api, int fd, bool is_pipe, bool needs_hello,
                                   const char *from)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    ASSERT(connection != NULL);
    connection->api = api;
    connection->state = needs_hello ? CONNECTION_HELLO : CONNECTION_OPEN;
    connection->sequence = needs_hello ? 0 : 1; /* WELCOME was 0. */
    connection->deadline_ms = clock_now_ms() + API_HELLO_MS;
    (void)snprintf(connection->from, sizeof(connection->from), "%s", from);
    int status = is_pipe ? uv_pipe_init(api->loop, &connection->socket.pipe, /* ipc= */ 0)
                         : uv_tcp_init(api->loop, &connection->socket.tcp);
    ASSERT(status == 0);
    status = uv_timer_init(api->loop, &connection->timer);
    ASSERT(status == 0);
    connection->socket.handle.data = connection;
    connection->timer.data = connection;
    connection->handles_open = 2;
    connection->next = api->connections;
    api->connections = connection;
    api->stats.connections++;
    api->stats.accepted++;
    status = is_pipe ? uv_pipe_open(&connection->socket.pipe, fd)
                     : uv_tcp_open(&connection->socket.tcp, fd);
    if (status != 0) {
        (void)close(fd);
        connection_close(connection, uv_strerror(status));
        return NULL;
    }
    status = uv_timer_start(&connection->timer, on_tick, API_TICK_MS, API_TICK_MS);
    ASSERT(status == 0);
    read_on(connection);
    return connection;
}

void connection_refuse(struct connection *connection, int code, const char *text)
{
    if (connection->state == CONNECTION_HELLO) {
        refuse(connection, code, text);
    }
}

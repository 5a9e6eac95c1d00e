/* The admin socket over the facts of facts_fixture.h, and a client that speaks to it by hand, on
 * one loop that turns while the client waits. */
#ifndef COPPELIUS_TESTS_API_FIXTURE_H
#define COPPELIUS_TESTS_API_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <peer.pb-c.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/api.h"
#include "daemon/ask.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "tests/lib/unit.h"
#include "tests/unit/daemon/facts_fixture.h"

static uv_loop_t loop;
static struct api *api;
static struct log_ring ring;
static struct doctor_settings doctor = {.device = "cpu"};
static char folder[64];
static char socket_path[96];

static uint64_t write_ms = 60000; /* the machine may be busy */

static inline void start(void)
{
    struct err err = {0};
    (void)signal(SIGPIPE, SIG_IGN); /* As main does: libuv writes to sockets that are gone. */
    (void)snprintf(folder, sizeof(folder), "api-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(socket_path, sizeof(socket_path), "%s/ctl.sock", folder);
    FIXTURE_TEXT(doctor.state_dir, "%s", folder);
    ck_assert_int_eq(log_ring_init(&ring, 32, &err), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct api_settings settings = {.facts = fixture_facts(),
                                    .log_ring = &ring,
                                    .doctor = &doctor,
                                    .socket_path = socket_path,
                                    .group = "coppelius",
                                    .cluster = "home",
                                    .node = "a",
                                    .version = "0.1.0",
                                    .node_id = 1,
                                    .write_ms = write_ms};
    int status = api_open(&loop, &settings, &api, &err);
    ck_assert_msg(status == 0, "%s", err.text);
}

static inline void stop(void)
{
    api_close(api, NULL, NULL);
    if (fixture.done != NULL) { /* As a stopping daemon does. */
        struct facts_result result = {.err = {.code = ERR_CANCELED, .text = "the daemon stops"}};
        facts_done_fn *done = fixture.done;
        fixture.done = NULL;
        done(fixture.done_context, &result);
    }
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0) {
    }
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    log_ring_done(&ring);
    ck_assert_int_eq(access(socket_path, F_OK), -1);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

struct client {
    int fd;
    uint64_t sequence;
    struct buf in;
    size_t used; /* of in, the frame last heard */
};

static inline struct client dial(void)
{
    struct client client = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    ck_assert_int_eq(connect(client.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return client;
}

static inline void hang_up(struct client *client)
{
    (void)close(client->fd);
    buf_done(&client->in);
    for (unsigned i = 0; i < 20; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(500);
    }
}

static inline void say_bytes(struct client *client, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t sent = send(client->fd, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        } else if (errno != EAGAIN) {
            return;
        }
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static inline void say(struct client *client, uint16_t kind, const ProtobufCMessage *message)
{
    struct buf out = BUF_NONE;
    ck_assert_int_eq(
        message_frame(&out, kind, 0, client->sequence++, message, FRAME_LIMIT_CTL, NULL), 0);
    say_bytes(client, out.bytes, out.size);
    buf_done(&out);
}

/* The next frame; kind 0: the connection ended, 1000: nothing within ms, and so many turns of the
 * loop: on a busy machine a turn may take long. */
static inline struct frame hear(struct client *client, uint64_t ms)
{
    uint64_t end = clock_now_ms() + ms;
    struct frame frame = {0};
    if (client->used > 0) {
        client->in.size -= client->used;
        memmove(client->in.bytes, client->in.bytes + client->used, client->in.size);
        client->used = 0;
    }
    for (uint64_t turns = 0;; turns++) {
        struct err err = {0};
        ck_assert_int_eq(frame_parse(client->in.bytes, client->in.size, FRAME_LIMIT_CTL, &frame,
                                     &client->used, &err),
                         0);
        if (client->used > 0) {
            return frame;
        }
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        buf_reserve(&client->in, 65536);
        ssize_t got = recv(client->fd, client->in.bytes + client->in.size, 65536, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            frame.kind = 0;
            return frame;
        }
        if (got > 0) {
            client->in.size += (size_t)got;
        } else if (clock_now_ms() > end && turns >= (ms < 1000 ? ms : 1000)) {
            frame.kind = 1000;
            return frame;
        } else {
            (void)usleep(500);
        }
    }
}

static inline struct client dial_hello(void)
{
    struct client client = dial();
    Peer__Hello hello;
    peer__hello__init(&hello);
    hello.node = (char[]){"ctl"};
    hello.protocol_version = FRAME_PROTOCOL_VERSION;
    hello.class_ = PEER__CLASS__CLASS_CTL;
    say(&client, FRAME_HELLO, &hello.base);
    return client;
}

static inline struct client dial_welcome(void)
{
    struct client client = dial_hello();
    struct frame frame = hear(&client, 50000);
    ck_assert_uint_eq(frame.kind, FRAME_WELCOME);
    return client;
}

/* What a reply held, until the next one. */
static struct {
    int code;
    bool more;
    uint64_t total;
    char text[8192];
    char json[65536];
    uint8_t data[API_PIECE_SIZE];
    size_t data_size;
} reply;

static inline bool hear_reply(struct client *client, uint64_t ms)
{
    struct frame frame = hear(client, ms);
    if (frame.kind != FRAME_REPLY) {
        return false;
    }
    ProtobufCMessage *message = NULL;
    ck_assert_int_eq(
        message_unpack(&ctl__reply__descriptor, frame.body, frame.body_size, &message, NULL), 0);
    const Ctl__Reply *heard = (const Ctl__Reply *)(const void *)message;
    ck_assert_uint_eq(heard->id, 42);
    reply.code = heard->code;
    reply.more = heard->more;
    reply.total = heard->total;
    FIXTURE_TEXT(reply.text, "%s", heard->text);
    FIXTURE_TEXT(reply.json, "%.*s", (int)heard->json.len, (const char *)heard->json.data);
    ck_assert_uint_le(heard->data.len, sizeof(reply.data));
    reply.data_size = heard->data.len;
    if (heard->data.len > 0) {
        memcpy(reply.data, heard->data.data, heard->data.len);
    }
    message_free(message);
    return true;
}

static inline void ask(struct client *client, Ctl__Request *request)
{
    request->id = 42;
    say(client, FRAME_REQUEST, &request->base);
}

#define ASK(client, kind, member, init)         \
    do {                                        \
        Ctl__Request request_;                  \
        ctl__request__init(&request_);          \
        request_.ask_case = (kind);             \
        request_.member = (init);               \
        ask((client), &request_);               \
        ck_assert(hear_reply((client), 50000)); \
    } while (0)

#define JSON_HAS(what) \
    ck_assert_msg(strstr(reply.json, (what)) != NULL, "no %s in %s", (what), reply.json)

#endif

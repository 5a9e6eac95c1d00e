/* One question over a connection of its own, for a thread that may block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer/handshake.h"
#include "peer/peer.h"
#include "peer/wire.h"

#define SILENCE_MS 40000U

static int greet(struct wire *wire, const char *cluster, uint64_t deadline_ms, struct err *err)
{
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION, .class = PEER_CTL};
    struct buf body = BUF_NONE;
    struct frame_header header;
    uint8_t answer[HANDSHAKE_LIMIT];
    (void)snprintf(hello.cluster, sizeof(hello.cluster), "%s", cluster);
    (void)snprintf(hello.node, sizeof(hello.node), "ctl");
    handshake_put_hello(&body, &hello);
    int code = wire_send(wire, FRAME_HELLO, 0, body.bytes, body.size, deadline_ms, err);
    buf_done(&body);
    code = code == 0 ? wire_receive(wire, answer, sizeof(answer), deadline_ms, &header, NULL, err)
                     : code;
    if (code == 0 && header.kind == FRAME_REFUSAL) {
        struct handshake_refusal refusal;
        code = handshake_get_refusal(answer, header.body_size, &refusal, err);
        code = code == 0 ? err_set(err, refusal.code, "%s", refusal.text) : code;
    } else if (code == 0 && header.kind != FRAME_WELCOME) {
        code = err_set(err, ERR_PROTO, "a frame of kind %u came instead of WELCOME", header.kind);
    }
    return code;
}

int peer_connect(const char *address, uint64_t deadline_ms, int *ret_fd, struct err *err)
{
    return wire_connect(address, /* cancel= */ NULL, deadline_ms, ret_fd, err);
}

int peer_ask(const char *cluster, const char *address, struct trust *trust, const void *request,
             size_t request_size, uint64_t deadline_ms, struct buf *reply, struct err *err)
{
    struct wire wire = {.transport = {.fd = -1}, .silence_ms = SILENCE_MS};
    struct frame_header header;
    int fd = -1;
    uint8_t *body = malloc(FRAME_LIMIT_CONTROL);
    if (body == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for an answer");
    }
    int code = wire_connect(address, NULL, deadline_ms, &fd, err);
    if (code == 0) {
        code = transport_dial(&wire.transport, trust, fd, /* node= */ NULL, err);
        if (code != 0) {
            (void)close(fd);
            wire.transport.fd = -1;
        }
    }
    code = code == 0 ? greet(&wire, cluster, deadline_ms, err) : code;
    code = code == 0 ? wire_send(&wire, FRAME_REQUEST, 1, request, request_size, deadline_ms, err)
                     : code;
    code = code == 0
               ? wire_receive(&wire, body, FRAME_LIMIT_CONTROL, deadline_ms, &header, NULL, err)
               : code;
    if (code == 0 && header.kind != FRAME_REPLY) {
        code = err_set(err, ERR_PROTO, "a frame of kind %u came instead of an answer", header.kind);
    }
    if (code == 0) {
        buf_put(reply, body, header.body_size);
    }
    if (wire.transport.fd >= 0) {
        wire_done(&wire);
    }
    free(body);
    return code;
}

/* HELLO and its answer over a wire: how a thread that may block comes to speak with a node. */
#include <string.h>

#include "base/buf.h"
#include "peer/handshake.h"
#include "peer/wire.h"

static int answered(const struct frame_header *header, const uint8_t *body,
                    const struct peer_hello *hello, const struct wire_node *node, bool *ret_again,
                    struct err *err)
{
    if (header->kind == FRAME_REFUSAL) {
        struct handshake_refusal refusal;
        if (handshake_get_refusal(body, header->body_size, &refusal, err) != 0) {
            return err->code;
        }
        *ret_again = refusal.retry;
        return err_set(err, refusal.code, "%s", refusal.text);
    }
    struct peer_hello welcome;
    if (header->kind != FRAME_WELCOME) {
        return err_set(err, ERR_PROTO, "a frame of kind %u came instead of WELCOME", header->kind);
    }
    if (handshake_get_welcome(body, header->body_size, &welcome, err) != 0) {
        return err->code;
    }
    if (strcmp(welcome.cluster, hello->cluster) != 0 || strcmp(welcome.node, node->name) != 0) {
        return err_set(err, ERR_AUTH, "node '%s' of cluster '%s' answers there", welcome.node,
                       welcome.cluster);
    }
    if (welcome.node_id != node->id || welcome.life != node->life) {
        return err_set(err, ERR_AUTH,
                       "node '%s' answers there with another identity (%u of id %u, not %u of id "
                       "%u): one of them was removed from the cluster",
                       welcome.node, welcome.life, welcome.node_id, node->life, node->id);
    }
    return 0;
}

int wire_greet(struct wire *wire, const struct peer_hello *hello, const struct wire_node *node,
               uint64_t deadline_ms, bool *ret_again, struct err *err)
{
    struct buf body = BUF_NONE;
    struct frame_header header;
    handshake_put_hello(&body, hello);
    int code = wire_send(wire, FRAME_HELLO, 0, body.bytes, body.size, deadline_ms, err);
    buf_done(&body);
    /* A refusal may come from the mesh, which knows no generation. */
    uint8_t answer[HANDSHAKE_LIMIT];
    bool begun = false;
    code = code == 0 ? wire_receive(wire, answer, sizeof(answer), deadline_ms, &header, &begun, err)
                     : code;
    if (code == ERR_PROTO && begun && header.generation == 0 && wire->generation != 0 &&
        header.kind == FRAME_REFUSAL) {
        code = 0;
    }
    return code == 0 ? answered(&header, answer, hello, node, ret_again, err) : code;
}

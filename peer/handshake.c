#include "peer/handshake.h"

#include <stdio.h>
#include <string.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "proto/frame.h"
#include "proto/message.h"

static void put_message(struct buf *body, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    buf_reserve(body, size);
    body->size += protobuf_c_message_pack(message, body->bytes + body->size);
}

/* protobuf-c wants char *; it only reads. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

void handshake_put_hello(struct buf *body, const struct peer_hello *hello)
{
    Peer__Hello message;
    uint8_t identity[32];
    peer__hello__init(&message); /* The macro of it casts const away. */
    memcpy(identity, hello->identity, sizeof(identity));
    message.cluster = text_of(hello->cluster);
    message.node = text_of(hello->node);
    message.node_id = hello->node_id;
    message.life = hello->life;
    message.incarnation = hello->incarnation;
    message.protocol_version = hello->protocol;
    message.class_ = (Peer__Class)hello->class;
    if (hello->class == PEER_BULK || hello->class == PEER_DATA) {
        message.job = hello->job;
        message.generation = hello->generation;
        message.identity.data = identity;
        message.identity.len = sizeof(identity);
        message.policy = text_of(hello->policy);
        message.stream = hello->stream;
        message.streams = hello->streams;
    }
    put_message(body, &message.base);
}

void handshake_put_welcome(struct buf *body, const struct peer_hello *self)
{
    Peer__Welcome message;
    peer__welcome__init(&message);
    message.cluster = text_of(self->cluster);
    message.node = text_of(self->node);
    message.node_id = self->node_id;
    message.life = self->life;
    message.incarnation = self->incarnation;
    message.protocol_version = FRAME_PROTOCOL_VERSION;
    put_message(body, &message.base);
}

void handshake_put_refusal(struct buf *body, const struct handshake_refusal *refusal)
{
    Peer__Refusal message;
    peer__refusal__init(&message);
    message.code = refusal->code;
    message.retry = refusal->retry;
    message.text = text_of(refusal->text);
    put_message(body, &message.base);
}

/* A name of ours from theirs: short enough and printable, for it goes into log lines. */
static int copy_name(const char *what, const char *name, char *ret_name, struct err *err)
{
    size_t size = strlen(name);
    if (size >= PEER_NAME_SIZE) {
        return err_set(err, ERR_PROTO, "a %s of %zu bytes came; the most is %d", what, size,
                       PEER_NAME_SIZE - 1);
    }
    for (size_t i = 0; i < size; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '\'' || name[i] == '"') {
            return err_set(err, ERR_PROTO, "a %s with a byte %u came", what,
                           (unsigned)(uint8_t)name[i]);
        }
    }
    memcpy(ret_name, name, size + 1);
    return 0;
}

static int hello_of(const Peer__Hello *message, struct peer_hello *hello, struct err *err)
{
    if (copy_name("cluster's name", message->cluster, hello->cluster, err) != 0 ||
        copy_name("node's name", message->node, hello->node, err) != 0 ||
        copy_name("policy", message->policy, hello->policy, err) != 0) {
        return err->code;
    }
    if (message->class_ != PEER__CLASS__CLASS_CONTROL &&
        message->class_ != PEER__CLASS__CLASS_BULK && message->class_ != PEER__CLASS__CLASS_CTL &&
        message->class_ != PEER__CLASS__CLASS_DATA && message->class_ != PEER__CLASS__CLASS_PROBE) {
        return err_set(err, ERR_PROTO, "a HELLO of class %d came", (int)message->class_);
    }
    hello->protocol = message->protocol_version;
    hello->class = (enum peer_class)message->class_;
    hello->node_id = message->node_id;
    hello->life = message->life;
    hello->incarnation = message->incarnation;
    hello->job = message->job;
    hello->generation = message->generation;
    hello->stream = message->stream;
    hello->streams = message->streams;
    if (hello->class == PEER_BULK || hello->class == PEER_DATA) {
        if (message->identity.len != sizeof(hello->identity)) {
            return err_set(err, ERR_PROTO, "a HELLO with an identity of %zu bytes came; it has 32",
                           message->identity.len);
        }
        memcpy(hello->identity, message->identity.data, sizeof(hello->identity));
    }
    return 0;
}

int handshake_get_hello(const uint8_t *body, size_t size, struct peer_hello *ret_hello,
                        struct err *err)
{
    ProtobufCMessage *message = NULL;
    struct peer_hello hello = {0};
    if (message_unpack(&peer__hello__descriptor, body, size, &message, err) != 0) {
        return err->code;
    }
    int code = hello_of((const Peer__Hello *)(const void *)message, &hello, err);
    message_free(message);
    if (code == 0) {
        *ret_hello = hello;
    }
    return code;
}

int handshake_get_welcome(const uint8_t *body, size_t size, struct peer_hello *ret_welcome,
                          struct err *err)
{
    ProtobufCMessage *message = NULL;
    struct peer_hello welcome = {0};
    if (message_unpack(&peer__welcome__descriptor, body, size, &message, err) != 0) {
        return err->code;
    }
    const Peer__Welcome *from = (const Peer__Welcome *)(const void *)message;
    welcome.protocol = from->protocol_version;
    welcome.node_id = from->node_id;
    welcome.life = from->life;
    welcome.incarnation = from->incarnation;
    int code = copy_name("cluster's name", from->cluster, welcome.cluster, err);
    if (code == 0) {
        code = copy_name("node's name", from->node, welcome.node, err);
    }
    message_free(message);
    if (code == 0) {
        *ret_welcome = welcome;
    }
    return code;
}

int handshake_get_refusal(const uint8_t *body, size_t size, struct handshake_refusal *ret_refusal,
                          struct err *err)
{
    ProtobufCMessage *message = NULL;
    if (message_unpack(&peer__refusal__descriptor, body, size, &message, err) != 0) {
        return err->code;
    }
    const Peer__Refusal *from = (const Peer__Refusal *)(const void *)message;
    ret_refusal->code = from->code < 0 ? from->code : ERR_PEER;
    ret_refusal->retry = from->retry;
    (void)snprintf(ret_refusal->text, sizeof(ret_refusal->text), "%.400s", from->text);
    for (char *at = ret_refusal->text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ') {
            *at = ' '; /* It goes into a log line. */
        }
    }
    message_free(message);
    return 0;
}

/* A small frame on a fresh connection: the socket has room for it, or its end is gone. */
static int answer(struct peer_incoming *incoming, uint16_t kind, const struct buf *body,
                  struct err *err)
{
    struct buf frame = BUF_NONE;
    struct frame answer = {.kind = kind,
                           .generation = incoming->hello.generation,
                           .body = body->bytes,
                           .body_size = body->size};
    frame_write(&frame, &answer);
    struct iovec part = {frame.bytes, frame.size};
    ssize_t sent = incoming->transport.ops->write(&incoming->transport, &part, 1, err);
    bool whole = sent == (ssize_t)frame.size;
    buf_done(&frame);
    if (!whole) {
        return err_set(err, ERR_PEER, "the connection from %s is gone", incoming->address);
    }
    return 0;
}

int peer_welcome(struct peer_incoming *incoming, struct err *err)
{
    struct buf body = BUF_NONE;
    handshake_put_welcome(&body, &incoming->self);
    int code = answer(incoming, FRAME_WELCOME, &body, err);
    buf_done(&body);
    return code;
}

void peer_refuse(struct peer_incoming *incoming, int code, const char *text)
{
    struct handshake_refusal refusal = {.code = code, .retry = code == ERR_BUSY};
    struct buf body = BUF_NONE;
    struct err err = {0};
    ASSERT(incoming->transport.fd >= 0);
    (void)snprintf(refusal.text, sizeof(refusal.text), "%.*s", ERR_TEXT_SIZE - 1, text);
    handshake_put_refusal(&body, &refusal);
    (void)answer(incoming, FRAME_REFUSAL, &body, &err); /* The dialer may have gone: so be it. */
    buf_done(&body);
    transport_close(&incoming->transport);
}

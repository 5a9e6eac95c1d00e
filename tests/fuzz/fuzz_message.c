/* Every protobuf message that a daemon or a coppeliusctl unpacks: the first byte chooses the type,
 * the rest is the body. Refused, or unpacked within the limits of proto/message.h and packed again;
 * greetings (HELLO, WELCOME, REFUSAL) also by peer/handshake.h, whose texts are then in bounds. */
#include <stdint.h>
#include <string.h>

#include <ctl.pb-c.h>
#include <peer.pb-c.h>

#include "base/assert.h"
#include "peer/handshake.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    struct buf packed = BUF_NONE;
    if (message_unpack(type, data, size, &message, &err) != 0) {
        ASSERT(err.code == ERR_PROTO);
        ASSERT(err.text[0] != '\0');
        return;
    }
    if (message_frame(&packed, FRAME_REQUEST, 0, 0, message, FRAME_LIMIT_CTL, &err) == 0) {
        ASSERT(packed.size <= FRAME_LIMIT_CTL + FRAME_HEADER_SIZE);
    }
    buf_done(&packed);
    message_free(message);
}

static void greet(unsigned which, const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct peer_hello hello = {0};
    struct handshake_refusal refusal;
    int status = 0;
    if (which == 0) {
        status = handshake_get_hello(data, size, &hello, &err);
    } else if (which == 1) {
        status = handshake_get_welcome(data, size, &hello, &err);
    } else {
        status = handshake_get_refusal(data, size, &refusal, &err);
        ASSERT(status != 0 || memchr(refusal.text, 0, sizeof(refusal.text)) != NULL);
    }
    ASSERT(status == 0 || err.text[0] != '\0');
    if (status == 0 && which < 2) {
        ASSERT(memchr(hello.cluster, 0, sizeof(hello.cluster)) != NULL);
        ASSERT(memchr(hello.node, 0, sizeof(hello.node)) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &peer__hello__descriptor,     &peer__welcome__descriptor,    &peer__refusal__descriptor,
        &peer__progress__descriptor,  &peer__record__descriptor,     &peer__records_ask__descriptor,
        &peer__records__descriptor,   &ctl__request__descriptor,     &ctl__reply__descriptor,
        &peer__probe_ask__descriptor, &peer__probe_pair__descriptor, &peer__probe_row__descriptor};
    unsigned types_count = sizeof(types) / sizeof(types[0]);
    if (size < 1) {
        return 0;
    }
    unsigned which = data[0] % (types_count + 3);
    if (which < types_count) {
        unpack(types[which], data + 1, size - 1);
    } else {
        greet(which - types_count, data + 1, size - 1);
    }
    return 0;
}

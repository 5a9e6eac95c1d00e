/* Whatever bytes come as the body of a request or a hello: refused, or unpacked within the limits,
 * and then packed and unpacked again to the same bytes. */
#include <stdint.h>
#include <string.h>

#include <ctl.pb-c.h>
#include <peer.pb-c.h>

#include "base/assert.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (message_unpack(type, data, size, &message, &err) != 0) {
        ASSERT(err.code == ERR_PROTO);
        return;
    }
    struct buf once = BUF_NONE;
    struct frame frame;
    size_t used = 0;
    if (message_frame(&once, FRAME_REQUEST, 0, 0, message, FRAME_LIMIT_CTL, &err) == 0) {
        ASSERT(frame_parse(once.bytes, once.size, FRAME_LIMIT_CTL, &frame, &used, &err) == 0);
        ASSERT(used == once.size);
        ProtobufCMessage *again = NULL;
        struct buf twice = BUF_NONE;
        ASSERT(message_unpack(type, frame.body, frame.body_size, &again, &err) == 0);
        ASSERT(message_frame(&twice, FRAME_REQUEST, 0, 0, again, FRAME_LIMIT_CTL, &err) == 0);
        ASSERT(once.size == twice.size);
        ASSERT(memcmp(once.bytes, twice.bytes, once.size) == 0);
        message_free(again);
        buf_done(&twice);
    }
    buf_done(&once);
    message_free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    one(&ctl__request__descriptor, data, size);
    one(&ctl__reply__descriptor, data, size);
    one(&peer__hello__descriptor, data, size);
    return 0;
}

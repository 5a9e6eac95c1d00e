/* Whatever bytes come as the body of a request or a hello: refused, or unpacked within the limits
 * and packed again into one whole frame. (That the library reads back what it packs holds for the
 * messages that we make, not for every merged and unknown field that it lets in.) */
#include <stdint.h>

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
        ASSERT(frame.body_size == protobuf_c_message_get_packed_size(message));
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

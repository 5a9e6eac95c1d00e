/* Whatever bytes come: a parsed frame lies inside them, and is written back to the same bytes. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame frame;
    struct err err = {0};
    struct buf again = BUF_NONE;
    size_t used = 0;
    if (frame_parse(data, size, FRAME_LIMIT_CONTROL, &frame, &used, &err) == 0 && used > 0) {
        ASSERT(used <= size);
        ASSERT(frame.body + frame.body_size == data + used);
        frame_write(&again, &frame);
        ASSERT(again.size == used);
        ASSERT(memcmp(again.bytes, data, used) == 0);
    }
    /* The same bytes as a body always make the round trip. */
    size_t body_size = size < FRAME_LIMIT_CONTROL ? size : FRAME_LIMIT_CONTROL;
    struct frame made = {.kind = 20, .body = data, .body_size = body_size};
    buf_clear(&again);
    frame_write(&again, &made);
    ASSERT(frame_parse(again.bytes, again.size, FRAME_LIMIT_CONTROL, &frame, &used, &err) == 0);
    ASSERT(used == again.size);
    ASSERT(memcmp(frame.body, data, body_size) == 0);
    buf_done(&again);
    return 0;
}

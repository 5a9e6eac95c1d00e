/* Whatever a peer sends: a message that is accepted is written back to the same bytes, its bytes
 * lie inside the input, and its entries can be walked to the end. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "control/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct raft_message message;
    struct err err = {0};
    if (message_decode(data, size, &message, &err) != 0) {
        ASSERT(err.code == ERR_PROTO);
        ASSERT(err.text[0] != '\0');
        return 0;
    }
    if (message.size > 0) {
        ASSERT(message.bytes >= data);
        ASSERT(message.bytes + message.size <= data + size);
    }
    struct reader reader = {message.bytes, message.size, false};
    for (uint32_t i = 0; message.kind == MESSAGE_APPEND && i < message.entries_count; i++) {
        struct message_entry entry;
        ASSERT(message_read_entry(&reader, &entry, &err) == 0);
    }
    struct buf again = BUF_NONE;
    message_encode(&message, &again);
    ASSERT(again.size == size);
    ASSERT(memcmp(again.bytes, data, size) == 0);
    buf_done(&again);
    return 0;
}

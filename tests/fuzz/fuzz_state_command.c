/* A run of entries, each behind a u16 length, into one state: it never breaks, its snapshot always
 * loads and is the same again. An entry that decodes is encoded to the same bytes,
 * one of an older format to one that decodes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "control/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const uint8_t *data, size_t size)
{
    struct command command;
    struct buf bytes = BUF_NONE;
    if (command_decode(data, size, &command, NULL) == 0) {
        ASSERT(command_encode(&command, &bytes, NULL) == 0);
        if (data[0] == COMMAND_FORMAT) {
            ASSERT(bytes.size == size);
            ASSERT(memcmp(bytes.bytes, data, size) == 0);
        } else { /* Of an older log: it is written as one of now. */
            ASSERT(command_decode(bytes.bytes, bytes.size, &command, NULL) == 0);
        }
    }
    buf_done(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct state state;
    static struct state loaded;
    struct buf bytes = BUF_NONE;
    struct buf again = BUF_NONE;
    state_init(&state);
    state_init(&loaded);
    uint64_t index = 0;
    while (size >= 2) {
        size_t length = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        length = length > size ? size : length;
        check_round_trip(data, length);
        (void)state_apply(&state, ++index, data, length, NULL);
        data += length;
        size -= length;
    }
    state_write(&state, &bytes);
    ASSERT(state_load(&loaded, bytes.bytes, bytes.size, NULL) == 0);
    state_write(&loaded, &again);
    ASSERT(bytes.size == again.size);
    ASSERT(memcmp(bytes.bytes, again.bytes, bytes.size) == 0);
    buf_done(&bytes);
    buf_done(&again);
    state_done(&state);
    state_done(&loaded);
    return 0;
}

/* Whatever the other side of a look at a line sends: whoever is asked takes no more than was said
 * and answers no more than it got, or ends with a sentence; whoever asks believes no account that
 * cannot be.
 *
 * No sockets: frames come out of memory. Byte 0: the side (3n: who is asked; 3n + 1: pings; 3n + 2:
 * data). Then records {u8 kind, u8 flags, u16 size, size bytes}: kind % 8 of the room's kinds;
 * flags & 1: the check is wrong; flags & 2: the stream ends in the frame; flags & 4: size times 16
 * bytes, as zeros. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "peer/probe_room.h"
#include "tests/fuzz/memory_wire.h"

#define ZEROS_SIZE (1U << 20)
#define IN_MAX     (4U << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_frames(const uint8_t *data, size_t size, struct buf *out)
{
    static const uint16_t kinds[8] = {PEER_PROBE_PING, PEER_PROBE_BEGIN, PEER_PROBE_DATA,
                                      PEER_PROBE_PONG, PEER_PROBE_GOT,   PEER_BYE,
                                      FRAME_WELCOME,   PEER_FETCH_READ};
    static const uint8_t zeros[ZEROS_SIZE];
    while (size >= 4 && out->size < IN_MAX) {
        size_t said = (size_t)data[2] | (size_t)data[3] << 8;
        bool of_zeros = (data[1] & 4) != 0;
        size_t body_size = of_zeros ? said * 16 : said < size - 4 ? said : size - 4;
        struct frame frame = {.kind = kinds[data[0] % 8],
                              .body = of_zeros ? zeros : data + 4,
                              .body_size = body_size < ZEROS_SIZE ? body_size : ZEROS_SIZE};
        frame_write(out, &frame);
        if ((data[1] & 1) != 0) {
            out->bytes[out->size - 1] ^= 1;
        }
        if ((data[1] & 2) != 0) {
            out->size -= frame.body_size / 2 + 1;
            return;
        }
        size_t used = 4 + (of_zeros ? 0 : body_size);
        data += used;
        size -= used;
    }
}

/* Whole frames, pongs and one account, and not more bytes than came. */
static void check_answers(const struct memory *memory)
{
    unsigned accounts = 0;
    ASSERT(memory->out.size <= memory->in.size + FRAME_HEADER_SIZE + PROBE_GOT_SIZE);
    for (size_t at = 0; at < memory->out.size;) {
        struct frame frame;
        struct err err = {0};
        size_t used = 0;
        ASSERT(frame_parse(memory->out.bytes + at, memory->out.size - at, FRAME_LIMIT_BULK, &frame,
                           &used, &err) == 0);
        ASSERT(used > 0);
        ASSERT(frame.kind == PEER_PROBE_PONG || frame.kind == PEER_PROBE_GOT);
        accounts += frame.kind == PEER_PROBE_GOT;
        at += used;
    }
    ASSERT(accounts <= 1);
}

static void serve(struct wire *wire, const struct memory *memory)
{
    struct err err = {0};
    _Atomic uint64_t bytes_in = 0;
    uint8_t *buffer = malloc(PROBE_PIECE_SIZE);
    ASSERT(buffer != NULL);
    int code = probe_serve(wire, buffer, &bytes_in, &err);
    ASSERT(code == 0 || err.text[0] != '\0');
    ASSERT(atomic_load(&bytes_in) <= PROBE_BYTES_MAX);
    ASSERT(atomic_load(&bytes_in) <= memory->in.size);
    check_answers(memory);
    free(buffer);
}

static void ask(struct wire *wire, bool pings)
{
    static const uint8_t pattern[PROBE_PIECE_SIZE];
    struct probe_result result = {0};
    struct err err = {0};
    uint64_t now_ms = clock_now_ms();
    int code = pings ? probe_pings(wire, now_ms, now_ms + 1000, &result, &err)
                     : probe_put(wire, pattern, 4096, 1, now_ms + 1000, &result, &err);
    ASSERT(code == 0 || err.text[0] != '\0');
    ASSERT(result.bytes <= 4096);
    ASSERT(pings || code != 0 || result.step == PROBE_DONE);
    ASSERT(!result.holes || code == ERR_TIMEOUT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory memory = {.in = BUF_NONE, .out = BUF_NONE};
    struct wire wire = {.transport = {.ops = &memory_ops, .fd = -1, .state = &memory},
                        .silence_ms = 1000};
    if (size == 0) {
        return 0;
    }
    put_frames(data + 1, size - 1, &memory.in);
    if (data[0] % 3 == 0) {
        serve(&wire, &memory);
    } else {
        ask(&wire, data[0] % 3 == 1);
    }
    buf_done(&memory.in);
    buf_done(&memory.out);
    return 0;
}

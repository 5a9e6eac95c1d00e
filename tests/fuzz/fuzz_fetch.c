/* Whatever the other side of a fetch sends: the holder answers what was asked within its data or
 * ends with a sentence; the fetcher takes what it asked for, in order, or ends with a sentence.
 *
 * No sockets: frames come out of memory. Byte 0: the side (even: the holder's, odd: the fetcher's).
 * Then records {u8 kind, u8 generation, u8 sequence, u8 flags, u16 size, size bytes}: kind % 8 of
 * the room's kinds; flags & 1: the check is wrong; flags & 2: the stream ends in the frame. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "peer/fetch_room.h"
#include "tests/fuzz/memory_wire.h"

#define PART_SIZE 100000U

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_open(void *context, uint32_t node_id, const uint8_t digest[FETCH_DIGEST_SIZE],
                   const struct fetch_wait *wait, void **ret_served, uint64_t *ret_manifest_size,
                   uint64_t *ret_table_size, struct err *err)
{
    (void)digest;
    (void)node_id;
    (void)err;
    ASSERT(wait->on_wait(wait->context, 1, 2));
    *ret_served = context;
    *ret_manifest_size = PART_SIZE;
    *ret_table_size = PART_SIZE;
    return 0;
}

static int on_source_read(void *served, uint32_t part, uint64_t offset, void *bytes, size_t size,
                          struct err *err)
{
    ASSERT(size >= 1);
    ASSERT(size <= FETCH_SIZE_MAX);
    if (part > 3 || offset > PART_SIZE || size > PART_SIZE - offset) {
        return err_set(err, ERR_PROTO, "not there");
    }
    memcpy(bytes, (const uint8_t *)served + offset, size);
    return 0;
}

static void on_close(void *context, void *served)
{
    ASSERT(context == served);
}

static void put_frames(const uint8_t *data, size_t size, struct buf *out)
{
    static const uint16_t kinds[8] = {PEER_FETCH_READ, PEER_FETCH_DATA, PEER_FETCH_ABOUT,
                                      PEER_FETCH_WAIT, PEER_BYE,        PEER_ALIVE,
                                      FRAME_WELCOME,   PEER_VALUES};
    while (size >= 6) {
        size_t body_size = (size_t)data[4] | (size_t)data[5] << 8;
        body_size = body_size < size - 6 ? body_size : size - 6;
        struct frame frame = {.kind = kinds[data[0] % 8],
                              .generation = data[1] < 250 ? 7 : data[1],
                              .sequence = data[2],
                              .body = data + 6,
                              .body_size = body_size};
        frame_write(out, &frame);
        if ((data[3] & 1) != 0) {
            out->bytes[out->size - 1] ^= 1;
        }
        if ((data[3] & 2) != 0) {
            out->size -= body_size / 2 + 1;
            return;
        }
        data += 6 + body_size;
        size -= 6 + body_size;
    }
}

/* What the holder wrote are whole frames, and data only for requests. */
static void check_answers(const struct buf *out)
{
    for (size_t at = 0; at < out->size;) {
        struct frame frame;
        struct err err = {0};
        size_t used = 0;
        ASSERT(frame_parse(out->bytes + at, out->size - at, FRAME_LIMIT_BULK, &frame, &used,
                           &err) == 0);
        ASSERT(used > 0);
        ASSERT(frame.generation == 7);
        ASSERT(frame.kind == PEER_FETCH_ABOUT || frame.kind == PEER_FETCH_DATA ||
               frame.kind == PEER_BYE || frame.kind == PEER_FETCH_WAIT);
        ASSERT(frame.body_size <= FETCH_SIZE_MAX);
        at += used;
    }
}

static void hold(struct wire *wire, struct memory *memory)
{
    static uint8_t bytes[PART_SIZE];
    struct fetch_source source = {bytes, on_open, on_source_read, on_close};
    struct fetch_counters counters = {0};
    struct err err = {0};
    const uint8_t digest[FETCH_DIGEST_SIZE] = {0};
    uint8_t *buffer = malloc(FETCH_SIZE_MAX);
    ASSERT(buffer != NULL);
    int code = fetch_serve(wire, &source, 1, digest, 1000, buffer, &counters, &err);
    ASSERT(code == 0 || err.text[0] != '\0');
    check_answers(&memory->out);
    free(buffer);
}

static void ask(struct wire *wire)
{
    struct fetch_settings settings = {.holder = "b"};
    struct fetch fetch = {.settings = &settings, .wire = *wire};
    struct err err = {0};
    fetch.buffer = malloc(FETCH_SIZE_MAX);
    ASSERT(fetch.buffer != NULL);
    int code = fetch_begin(&fetch, &err);
    ASSERT(code != 0 || fetch.manifest_size <= FETCH_MANIFEST_MAX);
    for (uint32_t i = 0; code == 0 && i < 40; i++) {
        const uint8_t *bytes = NULL;
        uint32_t size = 0;
        ASSERT(fetch_ask(&fetch, i, i, i % 5 + 1, &err) == 0);
        if (fetch_unanswered(&fetch) == FETCH_WINDOW || i % 3 == 0) {
            code = fetch_take(&fetch, &bytes, &size, &err);
            ASSERT(code != 0 || (size >= 1 && size <= 5));
        }
    }
    ASSERT(code == 0 || err.text[0] != '\0');
    free(fetch.buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory memory = {.in = BUF_NONE, .out = BUF_NONE};
    struct wire wire = {.transport = {.ops = &memory_ops, .fd = -1, .state = &memory},
                        .generation = 7,
                        .silence_ms = 1000};
    if (size == 0) {
        return 0;
    }
    put_frames(data + 1, size - 1, &memory.in);
    if (data[0] % 2 == 0) {
        hold(&wire, &memory);
    } else {
        ask(&wire);
    }
    buf_done(&memory.in);
    buf_done(&memory.out);
    return 0;
}

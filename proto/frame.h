/* Frames: the envelope of every message between daemons, and between coppeliusctl and a daemon.
 *
 *   offset  size  field, little endian
 *        0     4  length      bytes of the body; the header is not counted
 *        4     2  kind        the room that speaks decides what the numbers mean (FRAME_HELLO and
 *                             the other kinds below 16 belong to proto)
 *        6     2  flags       FRAME_FLAG_*; bits that a receiver does not know are refused by the
 *                             room that reads the kind, not here
 *        8     8  generation  of the run; 0 on control and ctl connections
 *       16     8  sequence    counts the frames of one direction of a connection from 0
 *       24     8  check       XXH3-64 of bytes 0..23 followed by the body
 *       32     …  body
 *
 * The check finds accidents (a torn write, a bug, a bad memory chip), not enemies: TLS is for them.
 * Links over TLS leave it 0, and do not look at it, for bodies over FRAME_CHECKED_MAX: the records'
 * tags cover every byte already.
 * Nothing here allocates, keeps state or has a thread. */
#ifndef COPPELIUS_PROTO_FRAME_H
#define COPPELIUS_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define FRAME_HEADER_SIZE 32

/* The most bytes of a body, by class of connection. */
#define FRAME_LIMIT_CONTROL (1U << 20)
#define FRAME_LIMIT_BULK    (4U << 20)
#define FRAME_LIMIT_CTL     (4U << 20)
#define FRAME_CHECKED_MAX   4096U

/* The version in HELLO and WELCOME; peers of another version refuse each other by name. */
#define FRAME_PROTOCOL_VERSION 1

/* Kinds common to every class. Rooms number their own from FRAME_KIND_FIRST on. */
enum frame_kind {
    FRAME_HELLO = 1,   /* body: peer.proto Hello; the first frame of whoever dialled */
    FRAME_WELCOME = 2, /* body: peer.proto Welcome; the answer that lets it in */
    FRAME_REFUSAL = 3, /* body: peer.proto Refusal; the answer that does not; then the end */
    FRAME_REQUEST = 4, /* body: ctl.proto Request; ctl connections only */
    FRAME_REPLY = 5,   /* body: ctl.proto Reply; ctl connections only */
    FRAME_KIND_FIRST = 16,
};

struct frame_header {
    uint32_t body_size;
    uint16_t kind;
    uint16_t flags;
    uint64_t generation;
    uint64_t sequence;
    uint64_t check;
};

struct frame {
    uint16_t kind;
    uint16_t flags;
    uint64_t generation;
    uint64_t sequence;
    const uint8_t *body; /* borrowed from the bytes that were parsed */
    size_t body_size;
};

/* One whole frame at the front of `bytes`. limit is the class' FRAME_LIMIT_*.
 *   0 and *ret_used > 0   *ret_frame is filled; its body lies in `bytes`
 *   0 and *ret_used == 0  not all of it is there yet: feed more (never more than limit + header)
 *   ERR_PROTO             a body over the limit (said as soon as its 4 length bytes are there) or a
 *                         wrong check; the connection is beyond repair: close it */
int frame_parse(const void *bytes, size_t size, size_t limit, struct frame *ret_frame,
                size_t *ret_used, struct err *err);

/* Appends header and body to `out`. frame->body_size is at most FRAME_LIMIT_BULK (asserted). */
void frame_write(struct buf *out, const struct frame *frame);

/* For bulk data that is received straight into its place or sent from where it lies: the header
 * alone. frame_header_read refuses a body over the limit; frame_header_check compares the check
 * once all of the body is there; frame_header_make computes it over a body in `parts` pieces. */
struct frame_part {
    const void *bytes;
    size_t size;
};

int frame_header_read(const uint8_t bytes[FRAME_HEADER_SIZE], size_t limit,
                      struct frame_header *ret_header, struct err *err);
int frame_header_check(const uint8_t header[FRAME_HEADER_SIZE], const void *body, size_t body_size,
                       struct err *err);
void frame_header_make(uint8_t bytes[FRAME_HEADER_SIZE], uint16_t kind, uint16_t flags,
                       uint64_t generation, uint64_t sequence, const struct frame_part *parts,
                       size_t parts_count);
/* The same without a check, which is 0. */
void frame_header_bare(uint8_t bytes[FRAME_HEADER_SIZE], uint16_t kind, uint16_t flags,
                       uint64_t generation, uint64_t sequence, size_t body_size);

#endif

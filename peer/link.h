/* One connection on a libuv loop: frames in and out.
 *
 *   CONNECTING -> OPEN        connected                                  [on_writable -> on_open]
 *   CONNECTING, OPEN -> ENDED refused, end of file, broken, bad frame    [end -> on_ended]
 *   any -> CLOSING            link_close, link_detach                    [-> on_closed]
 *
 * End of file is the peer's death, not zero bytes: on_ended says so. After on_ended the owner calls
 * link_close. The handshake is the owner's: a link carries its frames like others.
 *
 * Sending: a struct link_send is the owner's memory and stays queued until on_sent. Its bytes are
 * sent from where they lie, cut into frames of at most piece_size that carry the same kind and
 * sequence. Urgent ones (queue 0) go before the others (queue 1), frame by frame. The queue has no
 * limit of its own: owners bound what they queue (mesh by bytes, exchange by construction) and look
 * at link->queued_size. Receiving: bodies go where place() says, without a copy; else into the
 * link's buffer, which grows to the limit at most and is used again.
 *
 * Thread: the loop's. Private to the room and its tests. */
#ifndef COPPELIUS_PEER_LINK_H
#define COPPELIUS_PEER_LINK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "peer/transport.h"
#include "proto/frame.h"

#define LINK_BATCH      8            /* frames that one system call may carry */
#define LINK_PIECE_SIZE (256U << 10) /* of bulk frames: check and copy stay in the second cache */
#define LINK_BURST      (512U << 10) /* bytes of one link in one turn of the loop */

enum link_state { LINK_CONNECTING, LINK_OPEN, LINK_ENDED, LINK_CLOSING };

struct link;

struct link_send {
    struct link_send *next;
    uint16_t kind;
    uint64_t generation;
    uint64_t sequence;
    const uint8_t *bytes;
    size_t size;
    size_t offset; /* cut into frames so far; private */
    bool queued;   /* private: from link_send until on_sent */
    /* All is written to the socket, or the link was ended or closed before (`sent` is false). May
     * come from inside link_send and link_close. NULL is fine. */
    void (*on_sent)(struct link *link, struct link_send *send, bool sent);
};

struct link_ops {
    void (*on_open)(struct link *link); /* dialled links only: connected */
    /* Taken links only: the handshake below is done, nothing has been read. May be NULL. The
     * callback may detach or close the link. */
    void (*on_ready)(struct link *link);
    /* Where the body goes; NULL in *ret_place: the link's buffer. An error ends the link. May be
     * NULL itself. header->body_size bytes are written at the place. */
    int (*place)(struct link *link, const struct frame_header *header, uint8_t **ret_place,
                 struct err *err);
    /* A whole frame with a right check. body is borrowed for the call. An error ends the link; the
     * callback may also close it. */
    int (*on_frame)(struct link *link, const struct frame_header *header, uint8_t *body,
                    struct err *err);
    void (*on_ended)(struct link *link, const struct err *err);
    void (*on_closed)(struct link *link); /* the memory is the owner's again */
};

struct link_out { /* a frame on its way */
    uint8_t header[FRAME_HEADER_SIZE];
    struct link_send *send;
    const uint8_t *bytes;
    size_t size;
    bool last; /* of its send */
};

struct link {
    uv_poll_t poll;
    const struct link_ops *ops;
    struct transport transport;
    enum link_state state;
    size_t limit;      /* of a body that comes; the owner may change it */
    size_t piece_size; /* of a body that goes */
    bool one_frame;    /* read not a byte past the next frame: before a handshake's end */
    int events;        /* what poll waits for now */
    struct err broken; /* a write failed; told from the loop */

    uint8_t header[2][FRAME_HEADER_SIZE]; /* in turns: the next may come with a body's end */
    int turn;
    size_t header_have;
    bool in_body;
    struct frame_header frame;
    uint8_t *body;
    size_t body_have;
    uint8_t *buffer;
    size_t buffer_size;

    struct link_send *queue_first[2];
    struct link_send **queue_last[2];
    size_t queued_size; /* payload bytes queued and not yet written */
    struct link_out out[LINK_BATCH];
    unsigned out_first, out_count;
    size_t out_done; /* bytes of the first one written */
    size_t burst;    /* bytes written since the loop last had its turn */
    bool shut_when_sent;

    uint64_t bytes_in, bytes_out, frames_in, frames_out;
    uint64_t heard_ms, sent_ms; /* uv_now of the last byte in and out */
};

/* Whom to dial. trust NULL: in plain text. */
struct link_target {
    const struct sockaddr_in *address;
    struct trust *trust;
    const char *node; /* its name: what its certificate must say */
};

/* Initialises and begins to connect. 0, or an error and then link is untouched by the loop. */
int link_dial(struct link *link, uv_loop_t *loop, const struct link_target *target,
              const struct link_ops *ops, size_t limit, struct err *err);
/* Takes a connected transport (not when it fails). */
int link_take(struct link *link, uv_loop_t *loop, const struct transport *transport,
              const struct link_ops *ops, size_t limit, struct err *err);
void link_send(struct link *link, struct link_send *send, int queue);
/* Drops all that is queued but `send`, which goes out if no other frame is half written, then the
 * direction is shut. False: nothing could be said (the link is not open or is in mid-frame). */
bool link_farewell(struct link *link, struct link_send *send);
/* After what is queued now, the direction is shut. */
void link_shut(struct link *link);
/* Reads what is there now instead of waiting for the loop to see it. */
void link_read_now(struct link *link);
/* Answers what is queued (sent = false), closes; on_closed comes later on the loop. */
void link_close(struct link *link);
/* The same, but the transport is given to the caller: nothing was read behind the last frame. */
struct transport link_detach(struct link *link);

/* Between link.c and link_frames.c. */
void link_on_poll(uv_poll_t *poll, int status, int events);
void link_end(struct link *link, const struct err *err);
void link_flush(struct link *link);
void link_watch(struct link *link); /* what poll waits for, after the transport has moved */
void link_read_frames(struct link *link);
void link_drop_queued(struct link *link); /* answers it, unsent */

/* TCP_NODELAY, keepalive, TCP_USER_TIMEOUT, no blocking, close on exec. */
int link_tune(int fd, struct err *err);

#endif

/* peer: links to the other daemons. The room's map:
 *
 *   mesh      the listening socket and one control connection to every other node: small frames,
 *             never behind bulk data; who is there, who is gone and why          (loop thread)
 *   exchange  the bulk connections of one generation of one job and the ordered fold over them:
 *             values of canonical nodes out, the owners' answers back             (own threads)
 *   fetch     another node's data in pieces: server threads, a blocking client  (fetch.h)
 *   probe     what the line to another node is like: reach, round trip, rate        (probe.h)
 *   transport the seam between socket and frames: plain, or TLS 1.3 (trust/trust.h)
 *   link      one connection: frames, handshake, queue, counters                  (private)
 *
 * Stands on base, trust, proto, numerics. AF_INET only. One port: the first frame of a connection
 * is a HELLO that says which class it is; the dialer sends nothing more before it has read WELCOME.
 */
#ifndef COPPELIUS_PEER_PEER_H
#define COPPELIUS_PEER_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "peer/transport.h"

#define PEER_PROTOCOL                                                          \
    1U /* version of frames and handshake; peers that differ refuse each other \
        */
#define PEER_NAME_SIZE    64  /* node and cluster names with the terminating zero */
#define PEER_ADDRESS_SIZE 24  /* "255.255.255.255:65535" with the terminating zero */
#define PEER_NODES_MAX    128 /* node ids are 1 .. PEER_NODES_MAX - 1 */

enum peer_class { PEER_CONTROL = 1, PEER_BULK = 2, PEER_CTL = 3, PEER_DATA = 4, PEER_PROBE = 5 };

/* What the dialer says of itself. The fields from job on count only for PEER_BULK and (job,
 * generation, identity: the dataset's digest) PEER_DATA. */
struct peer_hello {
    uint32_t protocol; /* FRAME_PROTOCOL_VERSION; peers that differ refuse each other */
    enum peer_class class;
    char cluster[PEER_NAME_SIZE];
    char node[PEER_NAME_SIZE]; /* the dialer's name; of a ctl, what it calls itself */
    uint32_t node_id;          /* 0 for a ctl */
    uint32_t life;             /* of the identity that has the id (control/group.h) */
    uint64_t incarnation;
    uint64_t job;
    uint64_t generation;
    uint8_t identity[32]; /* the job's identity digest */
    char policy[PEER_NAME_SIZE];
    uint32_t stream;  /* which of the pair's bulk connections, from 0 */
    uint32_t streams; /* of how many */
};

/* A connection whose HELLO was read and which waits for WELCOME. Whoever gets it owns the transport
 * (its socket: non blocking, TCP_NODELAY; nothing read ahead). Where there is TLS, the HELLO's
 * cluster and node are those of the certificate. */
struct peer_incoming {
    struct transport transport;
    char address[PEER_ADDRESS_SIZE]; /* the dialer's */
    struct peer_hello hello;
    struct peer_hello
        self; /* what WELCOME says of this node: cluster, node, node_id, incarnation */
};

/* One question to the daemon at an address, and its answer: a connection of class ctl of its own.
 * Blocks until the deadline (clock_now_ms). trust NULL: plain text. reply gets the body of the
 * answer's frame. ERR_REACH, ERR_PEER, ERR_PROTO, ERR_TIMEOUT; what it refused with. */
struct trust;
int peer_ask(const char *cluster, const char *address, struct trust *trust, const void *request,
             size_t request_size, uint64_t deadline_ms, struct buf *reply, struct err *err);

/* Answers for an incoming connection's new owner; any thread. peer_welcome leaves the transport
 * open and the owner's (ERR_PEER when the dialer is gone: it is still the owner's). peer_refuse
 * sends the code and sentence and closes the transport. ERR_BUSY tells the dialer to come again. */
int peer_welcome(struct peer_incoming *incoming, struct err *err);
void peer_refuse(struct peer_incoming *incoming, int code, const char *text);

/* A connected, non-blocking socket to "IP:PORT", for a thread that may block. ERR_REACH. */
int peer_connect(const char *address, uint64_t deadline_ms, int *ret_fd, struct err *err);

/* "IP:PORT", both numbers, IPv4; ERR_CONFIG with a sentence that says what is wrong. */
struct sockaddr_in;
int peer_address_parse(const char *text, struct sockaddr_in *ret_address, struct err *err);

/* ------------------------------------------------------------------ mesh
 * Thread: the loop it was opened on, all functions and callbacks. One control connection to each
 * configured peer: of a pair the lower id dials, and dials again after 50 ms, doubling to 1 s; the
 * higher id accepts, and a new connection replaces an old one. */

struct mesh;

struct mesh_peer { /* copied */
    uint32_t node_id;
    uint32_t life;
    const char *name;
    const char *address; /* "IP:PORT" */
};

struct mesh_settings {
    const char *cluster;
    const char *name; /* this node's */
    uint32_t node_id;
    uint32_t life;        /* of this identity */
    uint64_t incarnation; /* new at each start of the daemon */
    const char *listen;   /* "IP:PORT"; port 0 takes a free one (mesh_port tells) */
    const struct mesh_peer
        *peers; /* the other nodes; an entry with this node's own id is skipped */
    size_t peers_count;
    uint32_t silence_ms;   /* a peer that was not heard for so long is down; 0: 3000 */
    size_t queue_size_max; /* bytes that may wait for one peer; 0: 8 MiB. Full: mesh_send refuses */
    struct trust *trust;   /* outlives the mesh and whatever it hands over; NULL: plain text */

    void *context;
    /* A peer's connection is up (handshake done, both names checked). */
    void (*on_up)(void *context, uint32_t node_id, uint64_t incarnation);
    /* It is gone: reason is a sentence without the peer's name. Once for each on_up. */
    void (*on_down)(void *context, uint32_t node_id, const char *reason);
    /* A frame of one of the owner's kinds. bytes are borrowed for the call, aligned to 8. */
    void (*on_message)(void *context, uint32_t node_id, uint16_t kind, const uint8_t *bytes,
                       size_t size);
    /* Takes incoming->transport (copy the struct). NULL: such connections are refused. Bulk dialers
     * were checked to be of this cluster, protocol and configured names, and the very identity and
     * process whose control connection was the last to come up; before one did: ERR_BUSY. */
    void (*on_bulk)(void *context, const struct peer_incoming *incoming);
    void (*on_ctl)(void *context, const struct peer_incoming *incoming);
    void (*on_data)(void *context, const struct peer_incoming *incoming); /* checked as bulk */
    void (*on_probe)(void *context, const struct peer_incoming *incoming); /* likewise */
    /* Somebody without a certificate who will show a token (trust/authority.h): no HELLO was read
     * and none will come. NULL: nobody is let in without a certificate. */
    void (*on_join)(void *context, const struct peer_incoming *incoming);
};

/* Kinds below this are the room's own; the owner's messages use MESH_KIND_FIRST .. 65535. */
#define MESH_KIND_FIRST 256U

struct mesh_peer_stats {
    uint32_t node_id;
    const char *name;
    const char *address;
    bool up;
    uint64_t incarnation;   /* of the last connection; 0: never up */
    uint64_t heard_ms_ago;  /* UINT64_MAX: never */
    uint64_t round_trip_us; /* last ping; 0: not measured */
    uint64_t bytes_in, bytes_out, frames_in, frames_out;
    uint64_t connects;      /* times it came up: reconnects are one less */
    uint64_t queue_refused; /* mesh_send calls that found the queue full */
    const char *last_error; /* why it is not up, or ""; valid until the mesh's next callback */
};

struct mesh_stats {
    uint64_t accepted;
    uint64_t refused;     /* wrong cluster, protocol, name; sent a refusal */
    uint64_t cut;         /* no valid HELLO within 5 s, or too many strangers at once */
    uint64_t turned_away; /* more connections a second than a source may make (gate.h) */
    uint64_t handed_bulk, handed_ctl, handed_data, handed_probe, handed_join;
    uint64_t bytes_in, bytes_out; /* control class; bulk's are in exchange_stats */
    size_t peers_up, peers_count;
};

/* Listens and begins to dial. ERR_CONFIG (addresses, ids, names), ERR_REACH (the port is taken: the
 * sentence names the address, the holder's pid where it can be known, and what to do). */
int mesh_open(const struct mesh_settings *settings, uv_loop_t *loop, struct mesh **ret_mesh,
              struct err *err);
/* on_closed (may be NULL) comes on the loop when all handles are closed; the mesh is freed then.
 * No other callback comes after mesh_close. */
void mesh_close(struct mesh *mesh, void (*on_closed)(void *context), void *context);

/* One more peer, dialled or waited for from now on; again after a removal, as itself or as another
 * of its id. ERR_CONFIG as mesh_open. */
int mesh_add_peer(struct mesh *mesh, const struct mesh_peer *peer, struct err *err);
/* Its connection ends (on_down with the reason, where it was up) and none is made or let in again.
 * Who is no peer: nothing. Not from inside on_message. */
void mesh_remove_peer(struct mesh *mesh, uint32_t node_id, const char *reason);

/* Copies the bytes (at most 1 MiB - 64). Delivered in order while the connection lasts; whoever
 * must be sure repeats. ERR_REACH: not up. ERR_BUSY: the queue is full; nothing was queued. */
int mesh_send(struct mesh *mesh, uint32_t node_id, uint16_t kind, const void *bytes, size_t size,
              struct err *err);
bool mesh_is_up(const struct mesh *mesh, uint32_t node_id);
uint16_t mesh_port(const struct mesh *mesh);
void mesh_stats(const struct mesh *mesh, struct mesh_stats *ret_stats);
/* index 0 .. peers_count-1 in the settings' order without this node. */
void mesh_peer_stats(const struct mesh *mesh, size_t index, struct mesh_peer_stats *ret_stats);
/* False: no peer has the id. */
bool mesh_peer_stats_of(const struct mesh *mesh, uint32_t node_id,
                        struct mesh_peer_stats *ret_stats);

/* -------------------------------------------------------------- exchange
 * The ordered fold of one generation. Life:
 *
 *   OPENING -> READY            all links to all participants are up          [on_ready]
 *   OPENING, READY -> FAILED    a link, a protocol error, finish, a deadline  [on_failed]
 *   any -> CLOSED               exchange_close                                [on_closed]
 *
 * Threads: open, adopt, direct, close on the loop; begin, push, pull on one compute thread; gather,
 * cancel, stats on any. Callbacks of the settings on_* come on the loop; finish is called on the
 * exchange's threads: each has the chunks and connections of its streams, so several streams use
 * several cores. Nothing else shows how many there are, and no bit depends on it.
 *
 * A step: exchange_begin(step, rows, chunk_rows); then each chunk is pushed once and pulled once:
 * all are pushed, in any order, before the first is pulled; or, where everybody pushes in ascending
 * order, a chunk is pulled when it and all before it are pushed. All are pulled before the next
 * begin.
 * Every participant begins the same steps in the same order with the same rows and chunk_rows.
 * Chunk c holds the rows c*chunk_rows .. min(rows, (c+1)*chunk_rows)-1 and is folded by the
 * participant of rank c % participants; chunk 0 so by rank 0.
 *
 * Traffic, counted in stats.values_out etc. as payload (frame headers apart): of a chunk with R
 * rows whose owner is another one, a participant with k canonical nodes sends 8*k*R bytes and
 * receives 4*R + 8*ceil(R/panel_rows); the owner sends the latter to each of the others. */

struct exchange;

struct exchange_participant { /* copied by exchange_open; in rank order */
    uint32_t node_id;
    uint32_t life;        /* of its identity, */
    uint64_t incarnation; /* and the process that was placed: no other one is let in */
    const char *name;
    const char *address; /* "IP:PORT" of its mesh */
    uint64_t first, end; /* its coordinates; the next one's first is this one's end */
};

/* What the owner of a chunk makes of the folded z[rows]: residual[rows], panel_losses[panels].
 * Pure; reads only what does not change; on several threads at once. An error ends the exchange for
 * everyone, with its sentence. */
typedef int exchange_finish_fn(void *context, uint64_t step, uint32_t chunk, uint32_t rows,
                               const double *z, float *residual, double *panel_losses,
                               struct err *err);

enum exchange_pumps { EXCHANGE_PUMPS_AUTO, EXCHANGE_PUMPS_NO, EXCHANGE_PUMPS_YES };

struct exchange_settings {
    const char *cluster;
    uint64_t job;
    uint64_t generation;
    uint8_t identity[32];
    const char *policy;
    struct trust *trust; /* outlives the exchange; NULL: plain text */
    /* Whether each TLS connection seals and opens on a thread of its own (pump.h). Auto: where
     * there are at least eight processors, one exchange thread, at most 32 connections, and chunks
     * of 8192 rows. */
    enum exchange_pumps pumps;
    const struct exchange_participant *participants;
    size_t participants_count; /* 1 .. PEER_NODES_MAX - 1; one: no links, everything is local */
    size_t rank;               /* this node's place among them */
    uint32_t streams;          /* bulk connections of a pair, 1 .. 16; 0: 4, over TLS 8. All must
                                  agree */
    uint32_t threads;          /* exchange threads of this node, at most one a stream (others may
                                  have another number); 0: one for each two cores that it may use,
                                  over TLS one for each, the most of these that divide the streams */
    uint32_t chunk_rows_max;   /* over all steps of the generation, evaluation included */
    uint32_t chunks_max;       /* likewise */
    uint32_t panel_rows;       /* rows of a panel: 2048 in the policy */
    size_t window_size; /* bytes of values that may be ahead of an owner's answers, of each thread
                           (two chunks at least); 0: 512 KiB to a participant on this host, 8 MiB to
                           others */
    uint32_t connect_timeout_ms; /* for all links to be up; 0: 60000 */
    uint32_t silence_ms;  /* a link on which nothing comes for so long has failed; 0: 10000. Idle
                             links carry a small frame at a quarter of it */
    uint32_t progress_ms; /* a peer whose link lives but which owes values or an answer for so long
                             has failed; 0: 300000 */

    exchange_finish_fn *finish;
    void *finish_context;

    void *context; /* of the callbacks below */
    void (*on_ready)(void *context);
    /* Once, and no on_ready after it. culprit: a node id, 0 when it is this node (finish, memory,
     * cancel). The sentence names peer, step, phase and bytes. push and pull return the same. */
    void (*on_failed)(void *context, uint32_t culprit, const struct err *err);
    /* Rank 0: the whole vectors of exchange_gather(step), in coordinate order from participant 0's
     * first to the last one's end. Takes: the receiver frees both with free(). May be NULL. */
    void (*on_gathered)(void *context, uint64_t step, double *parameter, double *accumulator,
                        size_t count);
    /* Every rank: the slices given to exchange_gather(step) are no longer borrowed. May be NULL. */
    void (*on_slices_sent)(void *context, uint64_t step);
};

struct exchange_stats {
    uint64_t values_out, values_in;   /* payload bytes of node values */
    uint64_t results_out, results_in; /* payload bytes of residuals and panel losses */
    uint64_t gather_out, gather_in;   /* payload bytes of gathered slices */
    uint64_t wire_out, wire_in;       /* all bytes with headers, handshakes and idle frames */
    uint64_t steps;                   /* begun */
    uint64_t folds;                   /* chunks folded here */
    uint64_t fold_ns;                 /* time in fold and finish, of all threads */
    uint64_t pull_wait_ns;            /* time the compute thread waited in exchange_pull */
    uint64_t ahead_max;               /* chunks of one participant that lay here at once, at most;
                                         the sum over the threads */
    uint64_t stale_frames;            /* of another generation: dropped */
    uint64_t refused;                 /* incoming links of wrong generation, identity, policy */
    size_t links_up, links_count;
    size_t threads;
};

/* Allocates all step buffers, starts the threads, begins to dial. ERR_NOMEM names the size. */
int exchange_open(const struct exchange_settings *settings, uv_loop_t *loop,
                  struct exchange **ret_exchange, struct err *err);
/* Takes incoming->transport, a bulk connection that the mesh handed over for this job; answers it.
 */
void exchange_adopt(struct exchange *exchange, const struct peer_incoming *incoming);
/* Rank 0: sets these bits in the word of the next chunk-0 answer not yet made; they are cleared as
 * they go out. Every participant sees the same word in the same step. */
void exchange_direct(struct exchange *exchange, uint32_t bits);
/* Ends waiting: from now push and pull return ERR_CANCELED with the sentence. In a step the peers
 * are told it, and it ends the exchange for all; between steps this node just leaves, which fails
 * only who still needs it. Nothing when it has failed already. */
void exchange_cancel(struct exchange *exchange, const char *reason);
/* The compute thread has left push and pull for good (cancel first where it may not have). Sends
 * what is queued (at most 2 s), says goodbye, ends the threads; never hangs. on_closed (may be
 * NULL) comes on the loop; the exchange is freed then and no other callback comes after
 * exchange_close.
 */
void exchange_close(struct exchange *exchange, void (*on_closed)(void *context), void *context);

int exchange_begin(struct exchange *exchange, uint64_t step, uint64_t rows, uint32_t chunk_rows,
                   struct err *err);
/* values[n*chunk's rows + i]: n over this node's canonical nodes in index order (numerics/nodes.h),
 * i over the chunk's rows. Borrowed until the last chunk of the step is pulled. */
int exchange_push(struct exchange *exchange, uint64_t step, uint32_t chunk, const double *values,
                  struct err *err);
/* Waits for the owner's answer. residual[rows of the chunk], panel_losses[panels], borrowed until
 * the next begin. ret_directive (may be NULL) is the word of chunk 0, 0 for other chunks. */
int exchange_pull(struct exchange *exchange, uint64_t step, uint32_t chunk,
                  const float **ret_residual, const double **ret_panel_losses,
                  uint32_t *ret_directive, struct err *err);

/* Sends this node's slices (coordinates first .. end-1 of its participant entry) of both vectors,
 * as of `step`, to rank 0 beside the steps. Borrowed until on_slices_sent. ERR_BUSY while an
 * earlier gather is still on its way; a newer step replaces an unfinished older one at rank 0. */
int exchange_gather(struct exchange *exchange, uint64_t step, const double *parameter,
                    const double *accumulator, struct err *err);
/* All participants are known to dial and listen by now: links that are not up within that time fail
 * the exchange, however long connect_timeout_ms is. Any thread; the first call counts. */
void exchange_expect_links(struct exchange *exchange, uint32_t within_ms);
void exchange_stats(const struct exchange *exchange, struct exchange_stats *ret_stats);

#endif

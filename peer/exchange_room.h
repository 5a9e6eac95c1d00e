/* What the files of the exchange share:
 *
 *   exchange.c          life, as its owner's loop sees it
 *   exchange_worker.c   life of a worker: its thread, readiness, failure
 *   exchange_calls.c    the public functions for other threads
 *   exchange_connect.c  bulk connections come up: dialling, adopting, handshake
 *   exchange_links.c    bulk connections that are up: what they carry, goodbyes, silence
 *   steps.c, steps_place.c, fold.c
 *                       a step's values in, fold, answers out and in    (steps_room.h)
 *   gather.c            slices of two vectors to rank 0, beside the steps
 *
 * An exchange has one or several workers, each a thread with a loop. Stream s of every pair belongs
 * to worker s % workers of this node, whatever the other node has, and so do the chunks that go
 * over it: their values, slots, fold and answers. What a step does is thus within a worker, and
 * workers meet only in the mailboxes, in atomic counters, and where rare things happen:
 *
 *   all links up   a counter; who makes it full tells the others            [links_count_up]
 *   failure        the first claims it under the lock and tells the others; who stops last tells
 *                  the compute thread, as then nothing is borrowed any more [exchange_fail]
 *   closing        each for itself; a worker that ends is told nothing more [tell]
 *
 * All but the marked fields belong to the thread of the worker. Private to the room. */
#ifndef COPPELIUS_PEER_EXCHANGE_ROOM_H
#define COPPELIUS_PEER_EXCHANGE_ROOM_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/mailbox.h"
#include "numerics/nodes.h"
#include "peer/handshake.h"
#include "peer/link.h"
#include "peer/peer.h"

#define EXCHANGE_CHUNK_BITS  24 /* of a frame's sequence: step << 24 | chunk */
#define EXCHANGE_CHUNKS_MAX  ((uint32_t)1 << EXCHANGE_CHUNK_BITS)
#define EXCHANGE_STEP_MAX    (((uint64_t)1 << (64 - EXCHANGE_CHUNK_BITS)) - 1)
#define EXCHANGE_STREAMS_MAX 16
#define EXCHANGE_NOBODY      UINT32_MAX /* as a participant: this node itself */
#define BYE_BODY_SIZE        (8 + ERR_TEXT_SIZE)

enum to_worker { TO_ADOPT, TO_READY, TO_BEGIN, TO_PUSH, TO_GATHER, TO_CANCEL, TO_STOP, TO_CLOSE };
enum to_compute { CHUNK_DONE, EXCHANGE_ENDED };
enum to_loop { NEWS_READY, NEWS_FAILED, NEWS_GATHERED, NEWS_SLICES_SENT, NEWS_THREAD_ENDED };

/* Of each worker:
 *  OPENING -> READY                    all links of all are up        [get_ready]
 *  OPENING, READY -> FAILED            whatever ends it               [exchange_fail, TO_STOP]
 *  OPENING, READY, FAILED -> CLOSING   exchange_close                 [close_down]        */
enum exchange_state { EXCHANGE_OPENING, EXCHANGE_READY, EXCHANGE_FAILED, EXCHANGE_CLOSING };

struct worker;

/* One bulk connection; on the heap, in its slot until it is closed. */
enum bulk_state { BULK_DIALLING, BULK_GREETING, BULK_UP, BULK_CLOSED };

struct bulk {
    struct link link;
    struct worker *worker;
    uint32_t participant;
    uint32_t stream;
    enum bulk_state state;
    bool left; /* its BYE came */
    uint64_t deadline_ms;
    struct buf greeting_body;
    struct link_send greeting, alive, bye;
    uint8_t bye_body[BYE_BODY_SIZE];
};

struct bulk_slot {     /* of a participant and a stream */
    struct bulk *bulk; /* NULL: none now */
    uint64_t retry_at_ms, retry_ms;
};

struct participant { /* immutable but for the last three */
    uint32_t node_id;
    uint32_t life;
    uint64_t incarnation;
    char name[PEER_NAME_SIZE];
    char address_text[PEER_ADDRESS_SIZE];
    struct sockaddr_in address;
    uint64_t first, end;
    size_t nodes_count;
    /* Any worker. */
    _Atomic uint32_t links_up;
    _Atomic uint32_t links_broken; /* ended without a goodbye */
    struct err last_error;         /* under the lock */
};

struct counterpart {      /* a participant, as one worker deals with it */
    double *parts;        /* (slots, nodes, chunk_rows_max); NULL for this node */
    uint32_t *slots_free; /* a stack: the slot that was folded last is in the cache yet */
    uint32_t slots_free_count;
    size_t window_size;       /* bytes of values that may be ahead of its answers */
    uint32_t answered;        /* of its chunks of the step: all before have their answers here */
    uint32_t streams_left;    /* BYEs that came */
    _Atomic uint64_t data_ms; /* when data came last; any worker reads it */
    /* A link of it ended in READY without a goodbye. */
    bool broken;
    uint32_t broken_stream;
    uint64_t broken_ms;
    struct err broken_err;
};

/* Its worker's, but for push and values, which are the compute thread's until it is pushed. What is
 * atomic is read by other workers too, for a sentence. */
struct chunk {
    struct message push; /* compute to worker */
    const double *values;
    struct message done; /* worker to compute */
    uint32_t word;       /* with done */
    bool sent;
    _Atomic bool pushed, folded, complete;
    _Atomic size_t result_have;
    uint32_t parts_missing; /* of an owned chunk */
    struct link_send values_send;
};

struct begin_message {
    struct message message;
    uint64_t step, rows;
    uint32_t chunk_rows;
};

struct adopt_message {
    struct message message;
    struct peer_incoming incoming;
};

struct cancel_message {
    struct message message;
    char reason[ERR_TEXT_SIZE];
};

struct gather_message { /* compute to worker, and what became of it to the loop */
    struct message message;
    uint64_t step;
    const double *slices[2];
};

struct gathered_message {
    struct message message;
    uint64_t step;
    double *vectors[2];
};

struct failed_message {
    struct message message;
    uint32_t culprit;
    struct err err;
};

struct gather {
    /* sending */
    struct gather_message *mail; /* in work; NULL: none */
    struct link_send sends[2];
    unsigned sends_open;
    uv_idle_t copying; /* rank 0 copies its own slices piece by piece */
    size_t copied;     /* bytes of both */
    /* receiving, rank 0 */
    _Atomic bool open;
    _Atomic uint64_t step;
    double *vectors[2];
    _Atomic size_t *have[2]; /* bytes by participant */
    uint32_t missing;
};

/* Written by their owner, read by any thread. */
struct exchange_counters {
    _Atomic uint64_t values_out, values_in, results_out, results_in, gather_out, gather_in;
    _Atomic uint64_t wire_out, wire_in, steps, folds, fold_ns, stale_frames, refused, ahead_max;
    _Atomic size_t links_up; /* while OPENING or READY */
};

#define EXCHANGE_LINE 128 /* bytes: what two workers write is as far apart */

struct worker {
    alignas(EXCHANGE_LINE) struct exchange *exchange;
    uint32_t index;
    pthread_t thread;   /* the owner's loop */
    struct mailbox box; /* any thread; workers by tell() */
    bool deaf;          /* under the exchange's lock: its box is being closed */
    struct message ready, stop, close, ended;
    struct begin_message begin;

    uv_loop_t loop;
    uv_timer_t tick;
    uv_check_t turn; /* the end of a turn of the loop, when the compute thread is woken */
    enum exchange_state state;
    struct message *held, **held_last; /* work that came before all links were up */
    bool finishing;                    /* mailbox and timers are being closed */
    bool expecting;                    /* expect_ms is taken into connect_deadline_ms */
    uint32_t connect_timeout_ms;
    uint64_t ticked_ms, connect_deadline_ms, close_deadline_ms, looked_ms;
    size_t bulks; /* alive until their on_closed */
    uint64_t wire_out_gone, wire_in_gone;

    /* Its chunks of a step. Other workers read these under step_lock, for a sentence; it is held
     * while they change. */
    pthread_mutex_t step_lock;
    bool begun;
    uint64_t step;
    uint64_t rows;
    uint32_t chunk_rows, chunks; /* of all workers */

    uint64_t begun_ms;
    bool early; /* values of the next step are here */
    uint64_t early_step;
    uint32_t early_of; /* the participant that sent them first */
    struct counterpart *counterparts;
    uint32_t slots_count;                    /* of each: its owned chunks in a step, at most */
    struct message *answers, **answers_last; /* for the compute thread, not yet put */
    uint32_t answers_count;
    double *z;
    const double **inputs;

    alignas(EXCHANGE_LINE) struct exchange_counters counters;
};

struct exchange {
    /* Immutable after open. */
    struct exchange_settings settings;
    struct peer_hello hello; /* stream apart */
    char policy[PEER_NAME_SIZE];
    struct participant *participants;
    uint32_t participants_count;
    uint32_t rank;
    bool pumps;         /* settings.pumps, decided */
    uint32_t owned_max; /* chunks of this node in a step */
    size_t result_size_max;
    uint64_t coordinates_first, coordinates_end;
    struct fold_plan plan;
    struct worker *workers;
    uint32_t workers_count;

    /* Any thread. */
    atomic_uint expect_ms; /* exchange_expect_links(); 0: not called */
    _Atomic uint32_t directive;
    _Atomic bool gathering;
    _Atomic uint32_t incomplete; /* chunks of the step without an answer here */
    _Atomic size_t links_up;     /* of all workers, while OPENING */
    atomic_bool is_ready;        /* somebody has told all so */
    _Atomic uint32_t stopped;    /* workers that failed or were told so */
    _Atomic uint64_t pull_wait_ns;
    pthread_mutex_t lock; /* rare things: the failure, last errors, deaf workers */
    struct err failure;   /* under lock until `failed`, then immutable */
    uint32_t culprit;     /* likewise */
    bool failed, leaving; /* likewise */

    /* Mailboxes: each with its receiver's thread. */
    struct mailbox compute_box; /* the compute thread */
    struct mailbox loop_box;    /* the loop of the owner */
    struct gather_message gather_mail;
    struct message ready;
    struct failed_message failed_news, failed_answer;

    /* Compute thread. */
    uint64_t compute_step;
    uint64_t compute_rows;
    uint32_t compute_chunk_rows, compute_chunks, compute_pulled;
    bool *compute_arrived;
    bool compute_begun;
    struct err compute_failure;

    /* Owner's loop. */
    uint32_t ended; /* workers */
    bool closing;
    void (*on_closed)(void *context);
    void *closed_context;

    /* Each element is of one worker. */
    struct bulk_slot *slots; /* (participants, streams) */
    struct chunk *chunk;
    _Atomic size_t *part_have; /* (owned chunks, participants): bytes */
    uint32_t *part_slot;       /* likewise: of the counterpart's parts, while there are bytes */
    struct link_send *result_sends, *word_sends;
    uint8_t word_body[4];
    uint8_t *results; /* (chunks, result_size_max): panel losses, then residuals */
    /* The worker of the last stream. */
    struct gather gather;
};

/* exchange.c */
void exchange_count(_Atomic uint64_t *counter, uint64_t more);
/* How many exchange threads a node takes by itself on so many cores: one for each two in plain
 * text, as compute, kernel and other nodes of the host need cores too; over TLS one for each, as
 * the same rate takes half as much processor time again or twice that (docs/performance.md), and a
 * thread that waits costs nothing. At most one a stream, and no number that does not divide the
 * streams: the thread with one stream more would be waited for. */
uint32_t exchange_threads_for(uint32_t cores, bool sealed, uint32_t streams);
/* The next stream of the worker; s = worker->index is the first. */
#define EACH_STREAM(s, worker)                \
    uint32_t s = (worker)->index;             \
    s < (worker)->exchange->settings.streams; \
    s += (worker)->exchange->workers_count

/* exchange_worker.c */
int worker_open(struct worker *worker, struct err *err); /* its loop */
void worker_start(struct worker *worker);                /* its thread, which ends by TO_CLOSE */
void worker_discard(struct worker *worker); /* of one that was opened and never started */
/* Whose a stream is, on this node. */
struct worker *worker_of_stream(const struct exchange *exchange, uint32_t stream);
/* The end of push and pull, for all workers. participant: the culprit, or EXCHANGE_NOBODY. */
void exchange_fail(struct worker *worker, uint32_t participant, const struct err *err);
/* What is awaited of the participant, as "step 3, forward values of chunk 1, 8 of 64 bytes". */
void exchange_where(struct worker *worker, uint32_t participant, char *text, size_t size);
/* All links are up: this worker goes on, and the others are told. */
void worker_all_up(struct worker *worker);
/* Work that waited for the links: done, or given back where the exchange has failed. */
void worker_take_held(struct worker *worker);
/* When nothing is open any more: ends the thread's loop. */
void worker_settle(struct worker *worker);

/* exchange_connect.c */
#define LINKS_RETRY_FIRST_MS 50
void links_adopt(struct worker *worker, struct peer_incoming *incoming);
void links_on_open(struct link *link);
int links_on_answer(struct bulk *bulk, const struct frame_header *header, const uint8_t *body,
                    struct err *err);
void links_connect_tick(struct worker *worker, uint64_t now_ms);

/* exchange_links.c */
extern const struct link_ops links_bulk_ops;
int links_open(struct exchange *exchange, struct err *err);
struct bulk_slot *links_slot(const struct exchange *exchange, uint32_t participant,
                             uint32_t stream);
void links_close(struct bulk *bulk);
/* The participant's last error, for the connect deadline's sentence. */
void links_note(struct exchange *exchange, uint32_t participant, const struct err *err);
void links_noted(struct exchange *exchange, uint32_t participant, struct err *ret_err);
void links_tick(struct worker *worker, uint64_t now_ms, bool slept);
/* One more is up (NULL: none may be needed): the last one makes all workers ready. */
void links_count_up(struct worker *worker, struct bulk *bulk);
/* They are, and the worker is READY. */
void links_ready(struct worker *worker);
/* Queues for a participant's stream; a participant that left ends the exchange. */
void links_send(struct worker *worker, uint32_t participant, uint32_t stream,
                struct link_send *send, int queue);
/* Says the end (code 0: finished) on every link, after what is queued or instead of it. */
void links_bye(struct worker *worker, int code, uint32_t culprit, const char *text);
void links_close_all(struct worker *worker);

/* steps.c, steps_place.c, fold.c */
int steps_open(struct exchange *exchange, struct err *err); /* what the workers share */
int steps_open_worker(struct worker *worker, struct err *err);
void steps_done(struct exchange *exchange);
void steps_done_worker(struct worker *worker);
void steps_begin(struct worker *worker, const struct begin_message *begin);
void steps_push(struct worker *worker, struct chunk *chunk);
/* Hands the answers made so far to the compute thread. */
void steps_answer(struct worker *worker);
int steps_place(struct worker *worker, uint32_t participant, uint32_t stream,
                const struct frame_header *header, uint8_t **ret_place, struct err *err);
int steps_came(struct worker *worker, uint32_t participant, const struct frame_header *header,
               const uint8_t *body, struct err *err);
/* Whether the participant owes the worker something in this step; says what. text may be NULL.
 * Another worker than this thread's: under its step_lock. */
bool steps_owes(const struct worker *worker, uint32_t participant, char *text, size_t size);
uint32_t steps_chunk_rows(uint64_t rows, uint32_t chunk_rows, uint32_t chunk);
size_t steps_result_size(const struct exchange *exchange, uint32_t rows);
/* Whose a chunk is, on this node. */
struct worker *steps_worker(const struct exchange *exchange, uint32_t chunk);

/* gather.c: all on the worker of the last stream, but gather_owes. */
int gather_open(struct exchange *exchange, struct err *err);
void gather_done(struct exchange *exchange);
bool gather_is_of(const struct worker *worker);
void gather_start(struct worker *worker);
void gather_stop(struct worker *worker); /* no longer borrows; before the links' memory goes */
int gather_place(struct worker *worker, uint32_t participant, const struct frame_header *header,
                 uint8_t **ret_place, struct err *err);
void gather_came(struct worker *worker, uint32_t participant, const struct frame_header *header);
/* Any worker. */
bool gather_owes(const struct exchange *exchange, uint32_t participant, char *text, size_t size);

#endif

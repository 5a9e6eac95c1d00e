/* What the files of the exchange share:
 *
 *   exchange.c          life, threads, failure
 *   exchange_calls.c    the public functions for other threads
 *   exchange_connect.c  bulk connections come up: dialling, adopting, handshake
 *   exchange_links.c    bulk connections that are up: what they carry, goodbyes, silence
 *   fold.c              a step's values in, fold, answers out and in
 *   gather.c            slices of two vectors to rank 0, beside the steps
 *
 * All but the marked fields belong to the exchange thread. Private to the room. */
#ifndef COPPELIUS_PEER_EXCHANGE_ROOM_H
#define COPPELIUS_PEER_EXCHANGE_ROOM_H

#include <pthread.h>
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

enum to_exchange { TO_ADOPT, TO_BEGIN, TO_PUSH, TO_GATHER, TO_CANCEL, TO_CLOSE };
enum to_compute { CHUNK_DONE, EXCHANGE_ENDED };
enum to_loop { NEWS_READY, NEWS_FAILED, NEWS_GATHERED, NEWS_SLICES_SENT, NEWS_THREAD_ENDED };

/*  OPENING -> READY                    all links are up               [links_check_ready]
 *  OPENING, READY -> FAILED            whatever ends it               [exchange_fail]
 *  OPENING, READY, FAILED -> CLOSING   exchange_close                 [close_down]        */
enum exchange_state { EXCHANGE_OPENING, EXCHANGE_READY, EXCHANGE_FAILED, EXCHANGE_CLOSING };

/* One bulk connection; on the heap, in its slot until it is closed. */
enum bulk_state { BULK_DIALLING, BULK_GREETING, BULK_UP, BULK_CLOSED };

struct bulk {
    struct link link;
    struct exchange *exchange;
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

struct participant {
    uint32_t node_id;
    char name[PEER_NAME_SIZE];
    char address_text[PEER_ADDRESS_SIZE];
    struct sockaddr_in address;
    uint64_t first, end;
    size_t nodes_count;
    double *parts;        /* (slots, nodes, chunk_rows_max); NULL for this node */
    uint32_t *slots_free; /* a stack: the slot that was folded last is in the cache yet */
    uint32_t slots_free_count;
    size_t window_size;    /* bytes of values that may be ahead of its answers */
    uint32_t answered;     /* of its chunks of the step: all before have their answers here */
    uint32_t streams_left; /* BYEs that came */
    uint64_t data_ms;      /* when data came last */
    char last_error[ERR_TEXT_SIZE];
};

struct chunk {
    struct message push; /* compute to exchange */
    const double *values;
    struct message done; /* exchange to compute */
    uint32_t word;       /* with done */
    bool pushed, sent, folded, complete;
    size_t result_have;
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

struct gather_message { /* compute to exchange, and what became of it to the loop */
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
    bool open;
    uint64_t step;
    double *vectors[2];
    size_t *have[2]; /* bytes by participant */
    uint32_t missing;
};

/* Written by their owner, read by any thread. */
struct exchange_counters {
    _Atomic uint64_t values_out, values_in, results_out, results_in, gather_out, gather_in;
    _Atomic uint64_t wire_out, wire_in, steps, folds, fold_ns, pull_wait_ns, stale_frames, refused;
    _Atomic uint64_t ahead_max;
    _Atomic size_t links_up;
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

    /* Any thread. */
    struct exchange_counters counters;
    atomic_uint expect_ms; /* exchange_expect_links(); 0: not called */
    bool expecting;        /* ... and taken into connect_deadline_ms */
    _Atomic uint32_t directive;
    _Atomic bool gathering;

    /* Mailboxes: each with its receiver's thread. */
    struct mailbox box;         /* the exchange thread */
    struct mailbox compute_box; /* the compute thread */
    struct mailbox loop_box;    /* the loop of the owner */
    struct begin_message begin;
    struct gather_message gather_mail;
    struct message ready, ended, close;
    struct failed_message failed_news, failed_answer;

    /* Compute thread. */
    uint64_t compute_step;
    uint64_t compute_rows;
    uint32_t compute_chunk_rows, compute_chunks, compute_pulled;
    bool *compute_arrived;
    bool compute_begun;
    struct err compute_failure;

    /* Owner's loop. */
    pthread_t thread;
    bool closing;
    void (*on_closed)(void *context);
    void *closed_context;

    /* Exchange thread. */
    uv_loop_t loop;
    uv_timer_t tick;
    uv_check_t turn; /* the end of a turn of the loop, when the compute thread is woken */
    enum exchange_state state;
    struct err failure;
    struct message *held, **held_last; /* work that came before all links were up */
    bool finishing;                    /* mailbox and timers are being closed */
    uint64_t ticked_ms, connect_deadline_ms, close_deadline_ms, looked_ms;
    struct bulk_slot *slots; /* (participants, streams) */
    size_t bulks;            /* alive until their on_closed */
    uint64_t wire_out_gone, wire_in_gone;

    bool begun;
    uint64_t step;
    uint64_t begun_ms;
    uint64_t rows;
    uint32_t chunk_rows, chunks;
    bool early; /* values of the next step are here */
    uint64_t early_step;
    uint32_t early_of; /* the participant that sent them first */
    struct chunk *chunk;
    struct message *answers, **answers_last; /* for the compute thread, not yet put */
    uint32_t answers_count;
    size_t *part_have;   /* (owned chunks, participants): bytes */
    uint32_t *part_slot; /* likewise: of the participant's parts, while there are bytes */
    struct link_send *result_sends, *word_sends;
    uint8_t word_body[4];
    uint8_t *results; /* (chunks, result_size_max): panel losses, then residuals */
    double *z;
    const double **inputs;
    struct gather gather;
};

/* exchange.c */
void exchange_fail(struct exchange *exchange, uint32_t participant, const struct err *err);
/* What is awaited of the participant, as "step 3, forward values of chunk 1, 8 of 64 bytes". */
void exchange_where(const struct exchange *exchange, uint32_t participant, char *text, size_t size);
void exchange_count(_Atomic uint64_t *counter, uint64_t more);
/* Work that waited for the links: done, or given back where the exchange has failed. */
void exchange_take_held(struct exchange *exchange);
/* When nothing is open any more: ends the thread's loop. */
void exchange_settle(struct exchange *exchange);

/* exchange_connect.c */
#define LINKS_RETRY_FIRST_MS 50
void links_adopt(struct exchange *exchange, struct peer_incoming *incoming);
void links_on_open(struct link *link);
int links_on_answer(struct bulk *bulk, const struct frame_header *header, const uint8_t *body,
                    struct err *err);
void links_connect_tick(struct exchange *exchange, uint64_t now_ms);

/* exchange_links.c */
extern const struct link_ops links_bulk_ops;
int links_open(struct exchange *exchange, struct err *err);
struct bulk_slot *links_slot(struct exchange *exchange, uint32_t participant, uint32_t stream);
void links_close(struct bulk *bulk);
/* The participant's last error, for the connect deadline's sentence. */
void links_note(struct exchange *exchange, uint32_t participant, const struct err *err);
void links_tick(struct exchange *exchange, uint64_t now_ms, bool slept);
void links_check_ready(struct exchange *exchange);
/* Queues for a participant's stream; a participant that left ends the exchange. */
void links_send(struct exchange *exchange, uint32_t participant, uint32_t stream,
                struct link_send *send, int queue);
/* Says the end (code 0: finished) on every link, after what is queued or instead of it. */
void links_bye(struct exchange *exchange, int code, uint32_t culprit, const char *text);
void links_close_all(struct exchange *exchange);

/* fold.c */
int steps_open(struct exchange *exchange, struct err *err);
void steps_done(struct exchange *exchange);
void steps_begin(struct exchange *exchange, const struct begin_message *begin);
void steps_push(struct exchange *exchange, struct chunk *chunk);
/* Hands the answers made so far to the compute thread. */
void steps_answer(struct exchange *exchange);
int steps_place(struct exchange *exchange, uint32_t participant, uint32_t stream,
                const struct frame_header *header, uint8_t **ret_place, struct err *err);
int steps_came(struct exchange *exchange, uint32_t participant, const struct frame_header *header,
               const uint8_t *body, struct err *err);
bool steps_idle(const struct exchange *exchange); /* no chunk is awaited here */
/* Whether the participant owes something in this step; says what. text may be NULL. */
bool steps_owes(const struct exchange *exchange, uint32_t participant, char *text, size_t size);
uint32_t steps_chunk_rows(uint64_t rows, uint32_t chunk_rows, uint32_t chunk);
size_t steps_result_size(const struct exchange *exchange, uint32_t rows);

/* gather.c */
int gather_open(struct exchange *exchange, struct err *err);
void gather_done(struct exchange *exchange);
void gather_start(struct exchange *exchange);
void gather_stop(struct exchange *exchange); /* no longer borrows; before the links' memory goes */
int gather_place(struct exchange *exchange, uint32_t participant, const struct frame_header *header,
                 uint8_t **ret_place, struct err *err);
void gather_came(struct exchange *exchange, uint32_t participant,
                 const struct frame_header *header);
bool gather_owes(const struct exchange *exchange, uint32_t participant, char *text, size_t size);

#endif

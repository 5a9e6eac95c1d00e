/* peer: data that another node has, in pieces. A connection of class data of its own for each
 * fetch, apart from the exchange: requests by part, offset and size, answers in order, several
 * under way.
 *
 *   fetcher                                holder
 *   HELLO (class data, the digest)  ──>
 *                                   <──    WELCOME, or REFUSAL (BUSY: too many at once)
 *                                   <──    WAIT*   while it reads its data once to make the table
 *                                   <──    ABOUT   sizes of manifest and table
 *   READ part offset size           ──>            up to FETCH_WINDOW unanswered
 *                                   <──    DATA    the same sequence, exactly size bytes
 *   (closes)                        <──    BYE     code and sentence, where it cannot go on
 *
 * Frames are proto/frame.h's, with the HELLO's generation. Bodies, little endian: WAIT u64 done,
 * u64 total bytes; ABOUT u64 manifest, u64 table bytes; READ u32 part, u32 size, u64 offset.
 *
 * Both sides block with deadlines, off the loop, over the room's transport: TLS goes between. What
 * the parts are is the source's; this room checks sizes and order alone. */
#ifndef COPPELIUS_PEER_FETCH_H
#define COPPELIUS_PEER_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "peer/peer.h"

#define FETCH_DIGEST_SIZE  32
#define FETCH_SIZE_MAX     (1U << 20)            /* bytes of an answer */
#define FETCH_WINDOW       8U                    /* unanswered requests of a connection */
#define FETCH_MANIFEST_MAX (UINT64_C(256) << 10) /* bytes; more in ABOUT is refused */
#define FETCH_TABLE_MAX    (UINT64_C(256) << 20)

/* ------------------------------------------------------------------ holder */

/* Calls during open, from the same thread: false: give up (ERR_CANCELED). */
struct fetch_wait {
    bool (*on_wait)(void *context, uint64_t done, uint64_t total);
    void *context;
};

/* Where the bytes come from; any of the server's threads, several at once. */
struct fetch_source {
    void *context;
    /* The data of that digest for that node; ERR_NOT_FOUND where they are not here. */
    int (*open)(void *context, uint32_t node_id, const uint8_t digest[FETCH_DIGEST_SIZE],
                const struct fetch_wait *wait, void **ret_served, uint64_t *ret_manifest_size,
                uint64_t *ret_table_size, struct err *err);
    /* Exactly size bytes or an error; part, offset and size are the fetcher's word. */
    int (*read)(void *served, uint32_t part, uint64_t offset, void *bytes, size_t size,
                struct err *err);
    void (*close)(void *context, void *served);
};

struct fetch_server;

struct fetch_server_settings {
    struct fetch_source source;
    uint32_t connections_max; /* threads, one a connection; more are told to come again; 0: 8 */
    uint32_t idle_ms; /* a fetcher that neither asks nor reads for so long is cut; 0: 60000 */
};

struct fetch_server_stats {
    uint64_t accepted, refused, failed; /* connections */
    uint64_t answers;
    uint64_t bytes_out; /* of data; frames apart */
    uint32_t serving;   /* now */
};

int fetch_server_new(const struct fetch_server_settings *settings, struct fetch_server **ret_server,
                     struct err *err);
/* Ends all connections and waits for their threads: as long as one read of the disk. NULL is fine.
 */
void fetch_server_free(struct fetch_server *server);
/* Takes incoming->transport, a connection of class data that the mesh handed over; never blocks.
 * The thread that made the server. */
void fetch_server_take(struct fetch_server *server, const struct peer_incoming *incoming);
/* Any thread. */
void fetch_server_stats(struct fetch_server *server, struct fetch_server_stats *ret_stats);

/* ----------------------------------------------------------------- fetcher
 * One thread, which may block. Errors name the holder. */

struct fetch;

struct fetch_settings { /* borrowed until fetch_close */
    const char *cluster;
    const char *node; /* this one's name, id, identity and process */
    uint32_t node_id;
    uint32_t life;
    uint64_t incarnation;
    uint64_t job;
    uint64_t generation;
    const char *holder; /* its name, id and identity, and "IP:PORT" of its mesh */
    uint32_t holder_id;
    uint32_t holder_life;
    const char *address;
    struct trust *trust; /* NULL: plain text */
    uint8_t digest[FETCH_DIGEST_SIZE];
    uint32_t connect_ms;  /* to reach it and be let in, BUSY answers included; 0: 30000 */
    uint32_t wait_ms;     /* for it to make its table; 0: 3600000 */
    uint32_t silence_ms;  /* nothing came for so long; 0: 10000 */
    uint32_t answer_ms;   /* an answer, from when its turn came; 0: 60000 */
    atomic_bool *cancel;  /* looked at at least every 100 ms; NULL: none */
    atomic_ullong *ticks; /* counted up while something moves; NULL: none */
};

/* ERR_REACH, ERR_PEER, ERR_PROTO, ERR_TIMEOUT, ERR_CANCELED; what the holder refused with. */
int fetch_open(const struct fetch_settings *settings, struct fetch **ret_fetch, struct err *err);
void fetch_close(struct fetch *fetch); /* NULL is fine */
uint64_t fetch_manifest_size(const struct fetch *fetch);
uint64_t fetch_table_size(const struct fetch *fetch);
uint64_t fetch_bytes_in(const struct fetch *fetch); /* of data; frames apart */
/* Asks for size (1 .. FETCH_SIZE_MAX) bytes; at most FETCH_WINDOW may be unanswered (asserted). */
int fetch_ask(struct fetch *fetch, uint32_t part, uint64_t offset, uint32_t size, struct err *err);
/* The answer to the oldest request; borrowed until the next take. */
int fetch_take(struct fetch *fetch, const uint8_t **ret_bytes, uint32_t *ret_size, struct err *err);
uint32_t fetch_unanswered(const struct fetch *fetch);
/* A whole part of `size` bytes into bytes. Nothing may be unanswered. */
int fetch_whole(struct fetch *fetch, uint32_t part, void *bytes, uint64_t size, struct err *err);

#endif

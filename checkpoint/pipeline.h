/* Pieces that one thread makes and two others use, each in order: what comes over the network is
 * written and hashed while the next of it comes.
 *
 *   free ──[piece]──> being filled ──[put]──> waits for both users ──> free
 *
 * The maker's thread calls pipeline_begin, _piece, _put, _end; each user is a function that a
 * thread of the pipeline calls, one call at a time. After a use that failed there are no more of
 * that user, and pipeline_put says the code: what it put in its error belongs to the maker after
 * pipeline_end. */
#ifndef COPPELIUS_CHECKPOINT_PIPELINE_H
#define COPPELIUS_CHECKPOINT_PIPELINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPELINE_PIECES 8U
#define PIPELINE_USERS  2U

/* 0, or a negative ERR_*. */
typedef int pipeline_use_fn(void *context, const uint8_t *bytes, size_t size);

struct pipeline {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint8_t *bytes; /* PIPELINE_PIECES times piece_size */
    size_t piece_size;
    size_t sizes[PIPELINE_PIECES];
    uint64_t put; /* pieces, since the begin */
    bool ended;
    int code; /* the first failure's */
    void *context;
    struct pipeline_user {
        struct pipeline *pipeline;
        pipeline_use_fn *use;
        uint64_t used;
        pthread_t thread;
    } users[PIPELINE_USERS];
};

/* false: there is no memory or no thread for it; nothing is left to end then. */
bool pipeline_begin(struct pipeline *pipeline, size_t piece_size,
                    pipeline_use_fn *const users[PIPELINE_USERS], void *context);
/* A piece to be filled; waits until there is one. */
uint8_t *pipeline_piece(struct pipeline *pipeline);
/* That piece, filled. The code of the first use that failed, or 0. */
int pipeline_put(struct pipeline *pipeline, size_t size);
/* Waits until all that was put is used; gives everything back. */
int pipeline_end(struct pipeline *pipeline);

#endif

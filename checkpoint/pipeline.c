#include "checkpoint/pipeline.h"

#include <stdlib.h>

#include "base/assert.h"

static void *run_user(void *context)
{
    struct pipeline_user *user = context;
    struct pipeline *p = user->pipeline;
    int code = 0;
    ASSERT(pthread_mutex_lock(&p->mutex) == 0);
    for (;;) {
        while (user->used == p->put && !p->ended) {
            ASSERT(pthread_cond_wait(&p->changed, &p->mutex) == 0);
        }
        if (user->used == p->put) {
            break;
        }
        size_t slot = user->used % PIPELINE_PIECES;
        ASSERT(pthread_mutex_unlock(&p->mutex) == 0);
        if (code == 0) { /* After a failure they only pass. */
            code = user->use(p->context, p->bytes + slot * p->piece_size, p->sizes[slot]);
        }
        ASSERT(pthread_mutex_lock(&p->mutex) == 0);
        p->code = p->code != 0 ? p->code : code;
        user->used++;
        ASSERT(pthread_cond_broadcast(&p->changed) == 0);
    }
    ASSERT(pthread_mutex_unlock(&p->mutex) == 0);
    return NULL;
}

static void join(struct pipeline *p, unsigned users)
{
    ASSERT(pthread_mutex_lock(&p->mutex) == 0);
    p->ended = true;
    ASSERT(pthread_cond_broadcast(&p->changed) == 0);
    ASSERT(pthread_mutex_unlock(&p->mutex) == 0);
    for (unsigned i = 0; i < users; i++) {
        ASSERT(pthread_join(p->users[i].thread, NULL) == 0);
    }
    ASSERT(pthread_cond_destroy(&p->changed) == 0);
    ASSERT(pthread_mutex_destroy(&p->mutex) == 0);
    free(p->bytes);
    p->bytes = NULL;
}

bool pipeline_begin(struct pipeline *p, size_t piece_size,
                    pipeline_use_fn *const users[PIPELINE_USERS], void *context)
{
    *p = (struct pipeline){.piece_size = piece_size, .context = context};
    p->bytes = malloc(PIPELINE_PIECES * piece_size);
    if (p->bytes == NULL) {
        return false;
    }
    ASSERT(pthread_mutex_init(&p->mutex, NULL) == 0);
    ASSERT(pthread_cond_init(&p->changed, NULL) == 0);
    for (unsigned i = 0; i < PIPELINE_USERS; i++) {
        p->users[i] = (struct pipeline_user){.pipeline = p, .use = users[i]};
        if (pthread_create(&p->users[i].thread, NULL, run_user, &p->users[i]) != 0) {
            join(p, i);
            return false;
        }
    }
    return true;
}

static uint64_t used_by_all(const struct pipeline *p)
{
    uint64_t least = p->users[0].used;
    for (unsigned i = 1; i < PIPELINE_USERS; i++) {
        least = p->users[i].used < least ? p->users[i].used : least;
    }
    return least;
}

uint8_t *pipeline_piece(struct pipeline *p)
{
    ASSERT(pthread_mutex_lock(&p->mutex) == 0);
    while (p->put - used_by_all(p) == PIPELINE_PIECES) {
        ASSERT(pthread_cond_wait(&p->changed, &p->mutex) == 0);
    }
    uint8_t *piece = p->bytes + p->put % PIPELINE_PIECES * p->piece_size;
    ASSERT(pthread_mutex_unlock(&p->mutex) == 0);
    return piece;
}

int pipeline_put(struct pipeline *p, size_t size)
{
    ASSERT(size <= p->piece_size);
    ASSERT(pthread_mutex_lock(&p->mutex) == 0);
    ASSERT(p->put - used_by_all(p) < PIPELINE_PIECES);
    p->sizes[p->put % PIPELINE_PIECES] = size;
    p->put++;
    int code = p->code;
    ASSERT(pthread_cond_broadcast(&p->changed) == 0);
    ASSERT(pthread_mutex_unlock(&p->mutex) == 0);
    return code;
}

int pipeline_end(struct pipeline *p)
{
    join(p, PIPELINE_USERS);
    return p->code;
}

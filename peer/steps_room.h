/* What the files of the steps share: which chunk is whose, where its bytes are.
 *
 *   steps.c        memory of the steps, slots for the values of others
 *   steps_place.c  what comes: where it goes, and whether it may be
 *   fold.c         what is done with it: the fold, answers, values out
 *
 * Chunk c is folded by rank c % participants and goes over stream c / participants % streams. All
 * of a worker but where marked. Private to these files. */
#ifndef COPPELIUS_PEER_STEPS_ROOM_H
#define COPPELIUS_PEER_STEPS_ROOM_H

#include "peer/exchange_room.h"

static inline uint32_t steps_rows(const struct worker *worker, uint32_t chunk)
{
    return steps_chunk_rows(worker->rows, worker->chunk_rows, chunk);
}

static inline uint32_t steps_owner(const struct exchange *exchange, uint32_t chunk)
{
    return chunk % exchange->participants_count;
}

static inline uint32_t steps_stream(const struct exchange *exchange, uint32_t chunk)
{
    return chunk / exchange->participants_count % exchange->settings.streams;
}

static inline uint8_t *steps_result(const struct exchange *exchange, uint32_t chunk)
{
    return exchange->results + (size_t)chunk * exchange->result_size_max;
}

static inline bool steps_is_own(const struct worker *worker, uint32_t chunk)
{
    return steps_worker(worker->exchange, chunk) == worker;
}

static inline _Atomic size_t *steps_have(const struct exchange *exchange, uint32_t chunk,
                                         uint32_t participant)
{
    uint32_t owned = chunk / exchange->participants_count;
    return &exchange->part_have[(size_t)owned * exchange->participants_count + participant];
}

static inline uint32_t *steps_slot(const struct exchange *exchange, uint32_t chunk,
                                   uint32_t participant)
{
    uint32_t owned = chunk / exchange->participants_count;
    return &exchange->part_slot[(size_t)owned * exchange->participants_count + participant];
}

static inline double *steps_part(const struct worker *worker, uint32_t chunk, uint32_t participant)
{
    const struct exchange *exchange = worker->exchange;
    size_t slot = *steps_slot(exchange, chunk, participant);
    return worker->counterparts[participant].parts +
           slot * exchange->participants[participant].nodes_count *
               exchange->settings.chunk_rows_max;
}

static inline size_t steps_values_size(const struct exchange *exchange, uint32_t participant,
                                       uint32_t rows)
{
    return exchange->participants[participant].nodes_count * rows * sizeof(double);
}

/* Relaxed: only this thread writes it, and who else reads it does so for a sentence. */
static inline void steps_set_flag(_Atomic bool *flag, bool value)
{
    atomic_store_explicit(flag, value, memory_order_relaxed);
}

static inline void steps_set_size(_Atomic size_t *at, size_t value)
{
    atomic_store_explicit(at, value, memory_order_relaxed);
}

/* The worker's chunks are those of every participant in rounds: its k'th round has the chunks
 * round * participants .. + participants - 1, whose owners are the participants in rank order. */
static inline uint32_t steps_round_at(const struct worker *worker, uint32_t k)
{
    const struct exchange *exchange = worker->exchange;
    uint32_t streams = exchange->settings.streams;
    uint32_t own = (streams - worker->index - 1) / exchange->workers_count + 1; /* streams */
    return k / own * streams + worker->index + k % own * exchange->workers_count;
}

/* ... and backwards. */
static inline uint32_t steps_round_place(const struct worker *worker, uint32_t round)
{
    const struct exchange *exchange = worker->exchange;
    uint32_t streams = exchange->settings.streams;
    uint32_t own = (streams - worker->index - 1) / exchange->workers_count + 1;
    return round / streams * own + round % streams / exchange->workers_count;
}

/* steps.c: a place for a chunk of which the first bytes come; there is one for each owned chunk. */
void steps_take_slot(struct worker *worker, uint32_t chunk, uint32_t participant);
void steps_give_slot(struct worker *worker, uint32_t chunk, uint32_t participant);

/* fold.c */
/* All values of one participant for an owned chunk are here. */
void steps_part_came(struct worker *worker, uint32_t index);
/* An answer is whole: for the compute thread, with the next ones. */
void steps_answer_later(struct worker *worker, struct chunk *chunk);
/* Answers of the owner came: moves its window on and sends what is pushed and in it now. */
void steps_send_window(struct worker *worker, uint32_t owner);

#endif

/* The memory of an exchange's steps: what the workers share, each element of it one worker's, and
 * the places of each for the values of others. */
#include <stdlib.h>

#include "base/assert.h"
#include "peer/steps_room.h"

uint32_t steps_chunk_rows(uint64_t rows, uint32_t chunk_rows, uint32_t chunk)
{
    uint64_t first = (uint64_t)chunk * chunk_rows;
    ASSERT(first < rows);
    return rows - first < chunk_rows ? (uint32_t)(rows - first) : chunk_rows;
}

size_t steps_result_size(const struct exchange *exchange, uint32_t rows)
{
    uint32_t panel_rows = exchange->settings.panel_rows;
    size_t panels = ((size_t)rows + panel_rows - 1) / panel_rows;
    return panels * sizeof(double) + rows * sizeof(float);
}

struct worker *steps_worker(const struct exchange *exchange, uint32_t chunk)
{
    return worker_of_stream(exchange, steps_stream(exchange, chunk));
}

void steps_take_slot(struct worker *worker, uint32_t chunk, uint32_t participant)
{
    struct counterpart *from = &worker->counterparts[participant];
    ASSERT(from->slots_free_count > 0);
    *steps_slot(worker->exchange, chunk, participant) = from->slots_free[--from->slots_free_count];
    uint64_t used = worker->slots_count - from->slots_free_count;
    if (used > atomic_load(&worker->counters.ahead_max)) {
        atomic_store(&worker->counters.ahead_max, used); /* Only this thread writes it. */
    }
}

void steps_give_slot(struct worker *worker, uint32_t chunk, uint32_t participant)
{
    struct counterpart *from = &worker->counterparts[participant];
    ASSERT(from->slots_free_count < worker->slots_count);
    from->slots_free[from->slots_free_count++] = *steps_slot(worker->exchange, chunk, participant);
}

int steps_open(struct exchange *exchange, struct err *err)
{
    const struct exchange_settings *settings = &exchange->settings;
    uint32_t count = exchange->participants_count;
    exchange->owned_max = settings->chunks_max / count + (settings->chunks_max % count != 0);
    exchange->result_size_max =
        (steps_result_size(exchange, settings->chunk_rows_max) + 63) / 64 * 64;
    exchange->chunk = calloc(settings->chunks_max, sizeof(*exchange->chunk));
    exchange->compute_arrived = calloc(settings->chunks_max, sizeof(bool));
    exchange->part_have = calloc((size_t)exchange->owned_max * count, sizeof(size_t));
    exchange->part_slot = calloc((size_t)exchange->owned_max * count, sizeof(uint32_t));
    exchange->result_sends = calloc((size_t)exchange->owned_max * count, sizeof(struct link_send));
    exchange->word_sends = calloc(count, sizeof(struct link_send));
    exchange->results = calloc(settings->chunks_max, exchange->result_size_max);
    if (exchange->chunk == NULL || exchange->compute_arrived == NULL ||
        exchange->part_have == NULL || exchange->part_slot == NULL ||
        exchange->result_sends == NULL || exchange->word_sends == NULL ||
        exchange->results == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the answers of %u chunks of %u rows",
                       settings->chunks_max, settings->chunk_rows_max);
    }
    return 0;
}

static int open_counterpart(struct worker *worker, uint32_t participant, struct err *err)
{
    const struct exchange *exchange = worker->exchange;
    struct counterpart *from = &worker->counterparts[participant];
    size_t size = worker->slots_count * exchange->participants[participant].nodes_count *
                  exchange->settings.chunk_rows_max;
    if (participant == exchange->rank || worker->slots_count == 0) {
        return 0;
    }
    /* Pages that no step touches cost nothing. */
    from->parts = calloc(size, sizeof(double));
    from->slots_free = calloc(worker->slots_count, sizeof(*from->slots_free));
    if (from->parts == NULL || from->slots_free == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu bytes of node values of node '%s'",
                       size * sizeof(double), exchange->participants[participant].name);
    }
    while (from->slots_free_count < worker->slots_count) {
        from->slots_free[from->slots_free_count] = worker->slots_count - 1 - from->slots_free_count;
        from->slots_free_count++;
    }
    return 0;
}

int steps_open_worker(struct worker *worker, struct err *err)
{
    const struct exchange *exchange = worker->exchange;
    const struct exchange_settings *settings = &exchange->settings;
    size_t nodes = 0;
    worker->answers_last = &worker->answers;
    for (uint32_t owned = 0; owned < exchange->owned_max; owned++) {
        worker->slots_count += steps_is_own(worker, owned * exchange->participants_count);
    }
    worker->counterparts = calloc(exchange->participants_count, sizeof(*worker->counterparts));
    worker->z = calloc(settings->chunk_rows_max, sizeof(double));
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        nodes += exchange->participants[p].nodes_count;
    }
    worker->inputs = calloc(nodes, sizeof(*worker->inputs));
    if (worker->counterparts == NULL || worker->z == NULL || worker->inputs == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to fold chunks of %u rows",
                       settings->chunk_rows_max);
    }
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        if (open_counterpart(worker, p, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

void steps_done_worker(struct worker *worker)
{
    for (uint32_t p = 0; worker->counterparts != NULL && p < worker->exchange->participants_count;
         p++) {
        free(worker->counterparts[p].parts);
        free(worker->counterparts[p].slots_free);
    }
    free(worker->counterparts);
    free(worker->z);
    free((void *)(uintptr_t)worker->inputs);
}

void steps_done(struct exchange *exchange)
{
    free(exchange->chunk);
    free(exchange->compute_arrived);
    free(exchange->part_have);
    free(exchange->part_slot);
    free(exchange->result_sends);
    free(exchange->word_sends);
    free(exchange->results);
}

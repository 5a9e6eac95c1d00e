/* What comes in a step: where its bytes go, whether it may be, and what is still owed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "peer/steps_room.h"

/* Where a frame of values belongs, or why it is impossible. */
static int values_place(struct worker *worker, uint32_t participant, uint64_t step, uint32_t index,
                        uint32_t size, uint8_t **ret_place, struct err *err)
{
    struct exchange *exchange = worker->exchange;
    if (index >= exchange->settings.chunks_max || steps_owner(exchange, index) != exchange->rank) {
        return err_set(err, ERR_PROTO, "values of chunk %u came, which is not this node's", index);
    }
    const struct chunk *chunk = &exchange->chunk[index];
    size_t have = *steps_have(exchange, index, participant);
    size_t most = steps_values_size(exchange, participant, exchange->settings.chunk_rows_max);
    bool in_step = worker->begun && step == worker->step;
    if (in_step) {
        if (index >= worker->chunks || chunk->folded) {
            return err_set(err, ERR_PROTO, "values of chunk %u came again in step %" PRIu64, index,
                           step);
        }
        most = steps_values_size(exchange, participant, steps_rows(worker, index));
    } else if (worker->begun && step < worker->step) {
        return err_set(err, ERR_PROTO, "values of step %" PRIu64 " came in step %" PRIu64, step,
                       worker->step);
    } else if ((worker->early && step != worker->early_step) ||
               (worker->begun && index < worker->chunks && !chunk->folded)) {
        return err_set(err, ERR_PROTO,
                       "values of chunk %u of step %" PRIu64
                       " came, more than a step ahead of step %" PRIu64,
                       index, step, worker->step);
    } else if (!worker->early) {
        worker->early = true;
        worker->early_step = step;
        worker->early_of = participant;
    }
    if (size == 0 || size > most - have) { /* have is at most `most`. */
        return err_set(err, ERR_PROTO,
                       "%u bytes of values of chunk %u came in step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       size, index, step, most - have);
    }
    if (have == 0) {
        steps_take_slot(worker, index, participant);
    }
    *ret_place = (uint8_t *)steps_part(worker, index, participant) + have;
    return 0;
}

static int result_place(struct worker *worker, uint32_t participant, uint64_t step, uint32_t index,
                        uint32_t size, uint8_t **ret_place, struct err *err)
{
    struct exchange *exchange = worker->exchange;
    if (!worker->begun || step != worker->step || index >= worker->chunks ||
        steps_owner(exchange, index) != participant || !exchange->chunk[index].sent) {
        return err_set(err, ERR_PROTO,
                       "an answer for chunk %u of step %" PRIu64 " came, which nobody waits for",
                       index, step);
    }
    size_t have = exchange->chunk[index].result_have;
    size_t due = steps_result_size(exchange, steps_rows(worker, index)) - have;
    if (size == 0 || size > due) {
        return err_set(err, ERR_PROTO,
                       "%u bytes of the answer for chunk %u came in step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       size, index, step, due);
    }
    *ret_place = steps_result(exchange, index) + have;
    return 0;
}

static int word_place(const struct worker *worker, uint32_t participant, uint64_t step,
                      uint32_t index, uint32_t size, struct err *err)
{
    const struct exchange *exchange = worker->exchange;
    if (!worker->begun || step != worker->step || index != 0 || participant != 0 ||
        size != sizeof(uint32_t) || exchange->chunk[0].result_have > 0) {
        return err_set(err, ERR_PROTO, "a directive of %u bytes came for chunk %u of step %" PRIu64,
                       size, index, step);
    }
    return 0;
}

int steps_place(struct worker *worker, uint32_t participant, uint32_t stream,
                const struct frame_header *header, uint8_t **ret_place, struct err *err)
{
    const struct exchange *exchange = worker->exchange;
    uint64_t step = header->sequence >> EXCHANGE_CHUNK_BITS;
    uint32_t index = (uint32_t)(header->sequence & (EXCHANGE_CHUNKS_MAX - 1));
    uint32_t size = header->body_size;
    if (steps_stream(exchange, index) != stream) {
        return err_set(err, ERR_PROTO, "chunk %u came on stream %u; it belongs on %u", index,
                       stream, steps_stream(exchange, index));
    }
    switch (header->kind) {
    case PEER_VALUES:
        return values_place(worker, participant, step, index, size, ret_place, err);
    case PEER_RESULT:
        return result_place(worker, participant, step, index, size, ret_place, err);
    default:
        return word_place(worker, participant, step, index, size, err);
    }
}

int steps_came(struct worker *worker, uint32_t participant, const struct frame_header *header,
               const uint8_t *body, struct err *err)
{
    struct exchange *exchange = worker->exchange;
    uint64_t step = header->sequence >> EXCHANGE_CHUNK_BITS;
    uint32_t index = (uint32_t)(header->sequence & (EXCHANGE_CHUNKS_MAX - 1));
    struct chunk *chunk = &exchange->chunk[index];
    atomic_store_explicit(&worker->counterparts[participant].data_ms, uv_now(&worker->loop),
                          memory_order_relaxed);
    if (header->kind == PEER_WORD) {
        memcpy(&chunk->word, body, sizeof(chunk->word));
        return 0;
    }
    if (header->kind == PEER_RESULT) {
        exchange_count(&worker->counters.results_in, header->body_size);
        chunk->result_have += header->body_size;
        if (chunk->result_have == steps_result_size(exchange, steps_rows(worker, index))) {
            steps_answer_later(worker, chunk);
            steps_send_window(worker, participant);
        }
        return 0;
    }
    _Atomic size_t *have = steps_have(exchange, index, participant);
    exchange_count(&worker->counters.values_in, header->body_size);
    *have += header->body_size;
    if (!worker->begun || step != worker->step) {
        return 0; /* Early: begin looks at it. */
    }
    size_t wanted = index < worker->chunks
                        ? steps_values_size(exchange, participant, steps_rows(worker, index))
                        : 0;
    if (*have > wanted) { /* It was placed as an early one, and the step began meanwhile. */
        return err_set(err, ERR_PROTO,
                       "%zu bytes of values of chunk %u came in step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       *have, index, step, wanted);
    }
    if (*have == wanted) {
        steps_part_came(worker, index);
    }
    return 0;
}

static bool owes_of_chunk(const struct worker *worker, uint32_t participant, uint32_t index,
                          char *text, size_t size)
{
    const struct exchange *exchange = worker->exchange;
    const struct chunk *chunk = &exchange->chunk[index];
    const char *what = "forward values";
    size_t have = 0;
    size_t wanted = 0;
    if (steps_owner(exchange, index) == exchange->rank && !chunk->folded) {
        have = *steps_have(exchange, index, participant);
        wanted = steps_values_size(exchange, participant, steps_rows(worker, index));
    } else if (steps_owner(exchange, index) == participant && chunk->pushed && !chunk->complete) {
        what = "result";
        have = chunk->result_have;
        wanted = steps_result_size(exchange, steps_rows(worker, index));
    }
    if (have < wanted && text != NULL) {
        (void)snprintf(text, size, "step %" PRIu64 ", %s of chunk %u, %zu of %zu bytes came",
                       worker->step, what, index, have, wanted);
    }
    return have < wanted;
}

bool steps_owes(const struct worker *worker, uint32_t participant, char *text, size_t size)
{
    uint32_t count = worker->exchange->participants_count;
    for (uint32_t k = 0; worker->begun; k++) {
        uint64_t first = (uint64_t)steps_round_at(worker, k) * count;
        if (first >= worker->chunks) {
            break;
        }
        for (uint64_t c = first; c < first + count && c < worker->chunks; c++) {
            if (owes_of_chunk(worker, participant, (uint32_t)c, text, size)) {
                return true;
            }
        }
    }
    return false;
}

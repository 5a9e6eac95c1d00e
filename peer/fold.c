/* The steps of an exchange: values in, the fold, answers out and in. Each worker's thread, for the
 * chunks of its streams; nothing here is shared with another worker but counters.
 *
 * One set of buffers is enough. A participant sends values of step s+1 only when it has pulled
 * every chunk of s; so every owner has folded every chunk of s, which freed the chunk's parts; and
 * an answer of s+1 is made only when all have pushed the chunk in s+1, so when all have pulled all
 * of s, which freed the answers. Thus a peer may be one step ahead with values ("early") and never
 * with answers. An early frame goes to its slot at once; begin checks that it was of that step.
 *
 * Within a step an owner's answers are the others' leave to go on: of its chunks that are one
 * worker's, the values of the k + window'th leave when its answers to all up to the k'th are here.
 * So nobody runs ahead of the slowest by more than a window, the values in the sockets and slots
 * are few, and as a slot that was folded is the next to be filled, they stay in the cache. It
 * cannot wait in a circle: the first chunk without an answer is the first such of its worker too,
 * so in everybody's window, however many workers each has; and all push it before they pull what
 * comes behind it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/steps_room.h"

#define ANSWERS_A_WAKE    4 /* a wake costs as much as some 20 KiB of a chunk */
#define WINDOW_CHUNKS_MIN 2 /* one on its way while the one before is folded */

void steps_answer_later(struct worker *worker, struct chunk *chunk)
{
    steps_set_flag(&chunk->complete, true);
    (void)atomic_fetch_sub(&worker->exchange->incomplete, 1);
    chunk->done.kind = CHUNK_DONE;
    chunk->done.next = NULL;
    *worker->answers_last = &chunk->done;
    worker->answers_last = &chunk->done.next;
    if (++worker->answers_count == ANSWERS_A_WAKE) {
        steps_answer(worker);
    }
}

void steps_answer(struct worker *worker)
{
    struct message *first = worker->answers;
    worker->answers = NULL;
    worker->answers_last = &worker->answers;
    worker->answers_count = 0;
    mailbox_put_all(&worker->exchange->compute_box, first);
}

static void send_result(struct worker *worker, uint32_t index, uint32_t participant,
                        size_t result_size)
{
    struct exchange *exchange = worker->exchange;
    uint32_t owned = index / exchange->participants_count;
    struct link_send *send =
        &exchange->result_sends[(size_t)owned * exchange->participants_count + participant];
    uint64_t sequence = worker->step << EXCHANGE_CHUNK_BITS | index;
    if (index == 0) {
        struct link_send *word = &exchange->word_sends[participant];
        *word = (struct link_send){.kind = PEER_WORD,
                                   .generation = exchange->settings.generation,
                                   .sequence = sequence,
                                   .bytes = exchange->word_body,
                                   .size = sizeof(exchange->word_body)};
        links_send(worker, participant, steps_stream(exchange, index), word, 0);
    }
    *send = (struct link_send){.kind = PEER_RESULT,
                               .generation = exchange->settings.generation,
                               .sequence = sequence,
                               .bytes = steps_result(exchange, index),
                               .size = result_size};
    exchange_count(&worker->counters.results_out, result_size);
    links_send(worker, participant, steps_stream(exchange, index), send, 0);
}

/* All parts of an owned chunk are here. */
static void fold(struct worker *worker, uint32_t index)
{
    struct exchange *exchange = worker->exchange;
    struct chunk *chunk = &exchange->chunk[index];
    const struct exchange_settings *settings = &exchange->settings;
    uint32_t rows = steps_rows(worker, index);
    uint64_t start_ns = clock_now_ns();
    size_t nodes = 0;
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        const double *part = p == exchange->rank ? chunk->values : steps_part(worker, index, p);
        for (size_t n = 0; n < exchange->participants[p].nodes_count; n++) {
            worker->inputs[nodes++] = part + n * rows;
        }
        if (p != exchange->rank) {
            steps_set_size(steps_have(exchange, index, p), 0);
            steps_give_slot(worker, index,
                            p); /* Nothing is read into it before this fold is done. */
        }
    }
    fold_plan_run(&exchange->plan, worker->inputs, worker->z, rows);
    double *losses = (double *)(void *)steps_result(exchange, index);
    size_t panels = ((size_t)rows + settings->panel_rows - 1) / settings->panel_rows;
    float *residual = (float *)(void *)(losses + panels);
    struct err err = {0};
    steps_set_flag(&chunk->folded, true);
    if (settings->finish(settings->finish_context, worker->step, index, rows, worker->z, residual,
                         losses, &err) != 0) {
        exchange_fail(worker, EXCHANGE_NOBODY, &err);
        return;
    }
    exchange_count(&worker->counters.folds, 1);
    exchange_count(&worker->counters.fold_ns, clock_now_ns() - start_ns);
    chunk->word = index == 0 ? atomic_exchange(&exchange->directive, 0) : 0;
    if (index == 0) {
        memcpy(exchange->word_body, &chunk->word, sizeof(exchange->word_body));
    }
    for (uint32_t i = 1; i < exchange->participants_count; i++) {
        /* The next rank first: the owners' answers do not all go to the same node at once. */
        uint32_t p = (exchange->rank + i) % exchange->participants_count;
        send_result(worker, index, p, steps_result_size(exchange, rows));
        if (worker->state == EXCHANGE_FAILED) {
            return;
        }
    }
    steps_answer_later(worker, chunk);
}

void steps_part_came(struct worker *worker, uint32_t index)
{
    struct chunk *chunk = &worker->exchange->chunk[index];
    ASSERT(chunk->parts_missing > 0);
    if (--chunk->parts_missing == 0) {
        fold(worker, index);
    }
}

/* Early values of a chunk against the step that begins now. */
static int check_early(struct worker *worker, uint32_t index, uint32_t participant, struct err *err)
{
    const struct exchange *exchange = worker->exchange;
    size_t have = *steps_have(exchange, index, participant);
    size_t wanted = index < worker->chunks
                        ? steps_values_size(exchange, participant, steps_rows(worker, index))
                        : 0;
    if (have > wanted) {
        return err_set(err, ERR_PROTO,
                       "node '%s' sent %zu bytes of values for chunk %u of step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       exchange->participants[participant].name, have, index, worker->step, wanted);
    }
    if (have == wanted && wanted > 0) {
        exchange->chunk[index].parts_missing--;
    }
    return 0;
}

static void reset_chunk(struct worker *worker, uint32_t index)
{
    struct chunk *chunk = &worker->exchange->chunk[index];
    steps_set_flag(&chunk->pushed, false);
    steps_set_flag(&chunk->folded, false);
    steps_set_flag(&chunk->complete, false);
    steps_set_size(&chunk->result_have, 0);
    chunk->sent = false;
    chunk->word = 0;
    chunk->parts_missing = worker->exchange->participants_count;
}

static void reset_step(struct worker *worker, const struct begin_message *begin)
{
    struct exchange *exchange = worker->exchange;
    uint32_t count = exchange->participants_count;
    ASSERT(pthread_mutex_lock(&worker->step_lock) == 0);
    worker->begun = true;
    worker->begun_ms = uv_now(&worker->loop);
    worker->step = begin->step;
    worker->rows = begin->rows;
    worker->chunk_rows = begin->chunk_rows;
    worker->chunks =
        (uint32_t)(begin->rows / begin->chunk_rows + (begin->rows % begin->chunk_rows != 0));
    for (uint32_t p = 0; p < count; p++) {
        worker->counterparts[p].answered = 0;
    }
    for (uint32_t k = 0; steps_round_at(worker, k) < exchange->owned_max; k++) {
        uint32_t first = steps_round_at(worker, k) * count;
        for (uint32_t c = first; c - first < count && c < exchange->settings.chunks_max; c++) {
            reset_chunk(worker, c);
        }
    }
    ASSERT(pthread_mutex_unlock(&worker->step_lock) == 0);
    exchange_count(&worker->counters.steps, 1);
}

void steps_begin(struct worker *worker, const struct begin_message *begin)
{
    struct exchange *exchange = worker->exchange;
    struct err err = {0};
    ASSERT(worker->answers == NULL); /* Compute had them all before it began. */
    reset_step(worker, begin);
    if (worker->early && worker->early_step != begin->step) {
        (void)err_set(&err, ERR_PROTO, "node '%s' is at step %" PRIu64 ", this node at %" PRIu64,
                      exchange->participants[worker->early_of].name, worker->early_step,
                      begin->step);
        exchange_fail(worker, worker->early_of, &err);
        return;
    }
    if (!worker->early) {
        return;
    }
    worker->early = false;
    for (uint32_t k = 0; steps_round_at(worker, k) < exchange->owned_max; k++) {
        uint32_t index = steps_round_at(worker, k) * exchange->participants_count + exchange->rank;
        for (uint32_t p = 0;
             index < exchange->settings.chunks_max && p < exchange->participants_count; p++) {
            if (p != exchange->rank && check_early(worker, index, p, &err) != 0) {
                exchange_fail(worker, p, &err);
                return;
            }
        }
    }
}

/* How many chunks of an owner may be ahead of its answers. */
static uint32_t window_of(const struct worker *worker, uint32_t owner)
{
    const struct exchange *exchange = worker->exchange;
    size_t size = steps_values_size(exchange, exchange->rank, worker->chunk_rows);
    size_t window = worker->counterparts[owner].window_size / size;
    window = window < WINDOW_CHUNKS_MIN ? WINDOW_CHUNKS_MIN : window;
    return window < worker->chunks ? (uint32_t)window : worker->chunks;
}

static void send_values(struct worker *worker, uint32_t index)
{
    struct exchange *exchange = worker->exchange;
    struct chunk *chunk = &exchange->chunk[index];
    uint32_t owner = steps_owner(exchange, index);
    chunk->sent = true;
    size_t size = steps_values_size(exchange, exchange->rank, steps_rows(worker, index));
    chunk->values_send = (struct link_send){.kind = PEER_VALUES,
                                            .generation = exchange->settings.generation,
                                            .sequence = worker->step << EXCHANGE_CHUNK_BITS | index,
                                            .bytes = (const uint8_t *)chunk->values,
                                            .size = size};
    exchange_count(&worker->counters.values_out, size);
    links_send(worker, owner, steps_stream(exchange, index), &chunk->values_send, 0);
}

void steps_send_window(struct worker *worker, uint32_t owner)
{
    struct exchange *exchange = worker->exchange;
    uint32_t count = exchange->participants_count;
    struct counterpart *to = &worker->counterparts[owner];
    uint32_t window = window_of(worker, owner);
    uint32_t before = to->answered;
    for (;;) {
        uint64_t index = (uint64_t)steps_round_at(worker, to->answered) * count + owner;
        if (index >= worker->chunks || !exchange->chunk[index].complete) {
            break;
        }
        to->answered++;
    }
    for (uint32_t k = before + window; k < to->answered + window; k++) {
        uint64_t index = (uint64_t)steps_round_at(worker, k) * count + owner;
        if (index >= worker->chunks || worker->state == EXCHANGE_FAILED) {
            return;
        }
        if (exchange->chunk[index].pushed && !exchange->chunk[index].sent) {
            send_values(worker, (uint32_t)index);
        }
    }
}

void steps_push(struct worker *worker, struct chunk *chunk)
{
    struct exchange *exchange = worker->exchange;
    uint32_t index = (uint32_t)(chunk - exchange->chunk);
    uint32_t owner = steps_owner(exchange, index);
    ASSERT(steps_is_own(worker, index));
    ASSERT(!chunk->pushed);
    steps_set_flag(&chunk->pushed, true);
    if (owner == exchange->rank) {
        steps_part_came(worker, index);
        return;
    }
    uint32_t k = steps_round_place(worker, index / exchange->participants_count);
    if (k < worker->counterparts[owner].answered + window_of(worker, owner)) {
        send_values(worker, index);
    }
}

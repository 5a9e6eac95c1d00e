/* The steps of an exchange: values in, the fold, answers out and in. Exchange thread.
 *
 * One set of buffers is enough. A participant sends values of step s+1 only when it has pulled
 * every chunk of s; so every owner has folded every chunk of s, which freed the chunk's parts; and
 * an answer of s+1 is made only when all have pushed the chunk in s+1, so when all have pulled all
 * of s, which freed the answers. Thus a peer may be one step ahead with values ("early") and never
 * with answers. An early frame goes to its slot at once; begin checks that it was of that step.
 *
 * Within a step an owner's answers are the others' leave to go on: values of its chunk k + window
 * leave when its answers to all up to k are here. So nobody runs ahead of the slowest by more than
 * a window, the values in the sockets and slots are few, and as a slot that was folded is the
 * next to be filled, they stay in the cache. It cannot wait in a circle: the first chunk without an
 * answer is in everybody's window, and all push it before they pull what comes behind it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/exchange_room.h"

#define ANSWERS_A_WAKE    4 /* a wake costs as much as some 20 KiB of a chunk */
#define WINDOW_CHUNKS_MIN 2 /* one on its way while the one before is folded */

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

static uint32_t rows_of(const struct exchange *exchange, uint32_t chunk)
{
    return steps_chunk_rows(exchange->rows, exchange->chunk_rows, chunk);
}

static uint32_t owner_of(const struct exchange *exchange, uint32_t chunk)
{
    return chunk % exchange->participants_count;
}

static uint32_t stream_of(const struct exchange *exchange, uint32_t chunk)
{
    return chunk / exchange->participants_count % exchange->settings.streams;
}

static uint8_t *result_of(const struct exchange *exchange, uint32_t chunk)
{
    return exchange->results + (size_t)chunk * exchange->result_size_max;
}

static size_t *have_of(const struct exchange *exchange, uint32_t chunk, uint32_t participant)
{
    uint32_t owned = chunk / exchange->participants_count;
    return &exchange->part_have[(size_t)owned * exchange->participants_count + participant];
}

static uint32_t *slot_of(const struct exchange *exchange, uint32_t chunk, uint32_t participant)
{
    uint32_t owned = chunk / exchange->participants_count;
    return &exchange->part_slot[(size_t)owned * exchange->participants_count + participant];
}

static double *part_of(const struct exchange *exchange, uint32_t chunk, uint32_t participant)
{
    const struct participant *from = &exchange->participants[participant];
    size_t slot = *slot_of(exchange, chunk, participant);
    return from->parts + slot * from->nodes_count * exchange->settings.chunk_rows_max;
}

/* A place for a chunk of which the first bytes come: there is one for each owned chunk. */
static void take_slot(struct exchange *exchange, uint32_t chunk, uint32_t participant)
{
    struct participant *from = &exchange->participants[participant];
    ASSERT(from->slots_free_count > 0);
    *slot_of(exchange, chunk, participant) = from->slots_free[--from->slots_free_count];
    uint64_t used = exchange->owned_max - from->slots_free_count;
    if (used > atomic_load(&exchange->counters.ahead_max)) {
        atomic_store(&exchange->counters.ahead_max, used); /* Only this thread writes it. */
    }
}

static void give_slot(struct exchange *exchange, uint32_t chunk, uint32_t participant)
{
    struct participant *from = &exchange->participants[participant];
    ASSERT(from->slots_free_count < exchange->owned_max);
    from->slots_free[from->slots_free_count++] = *slot_of(exchange, chunk, participant);
}

static size_t values_size(const struct exchange *exchange, uint32_t participant, uint32_t rows)
{
    return exchange->participants[participant].nodes_count * rows * sizeof(double);
}

int steps_open(struct exchange *exchange, struct err *err)
{
    const struct exchange_settings *settings = &exchange->settings;
    uint32_t count = exchange->participants_count;
    size_t nodes = 0;
    size_t bytes = 0;
    exchange->answers_last = &exchange->answers;
    exchange->owned_max = settings->chunks_max / count + (settings->chunks_max % count != 0);
    exchange->result_size_max =
        (steps_result_size(exchange, settings->chunk_rows_max) + 63) / 64 * 64;
    for (uint32_t p = 0; p < count; p++) {
        struct participant *from = &exchange->participants[p];
        size_t size = (size_t)exchange->owned_max * from->nodes_count * settings->chunk_rows_max;
        nodes += from->nodes_count;
        if (p != exchange->rank) {
            bytes += size * sizeof(double);
            /* Pages that no step touches cost nothing. */
            from->parts = calloc(size, sizeof(double));
            from->slots_free = calloc(exchange->owned_max, sizeof(*from->slots_free));
            if (from->parts == NULL || from->slots_free == NULL) {
                return err_set(err, ERR_NOMEM, "no memory for %zu bytes of node values", bytes);
            }
            while (from->slots_free_count < exchange->owned_max) {
                from->slots_free[from->slots_free_count] =
                    exchange->owned_max - 1 - from->slots_free_count;
                from->slots_free_count++;
            }
        }
    }
    exchange->chunk = calloc(settings->chunks_max, sizeof(*exchange->chunk));
    exchange->compute_arrived = calloc(settings->chunks_max, sizeof(bool));
    exchange->part_have = calloc((size_t)exchange->owned_max * count, sizeof(size_t));
    exchange->part_slot = calloc((size_t)exchange->owned_max * count, sizeof(uint32_t));
    exchange->result_sends = calloc((size_t)exchange->owned_max * count, sizeof(struct link_send));
    exchange->word_sends = calloc(count, sizeof(struct link_send));
    exchange->results = calloc(settings->chunks_max, exchange->result_size_max);
    exchange->z = calloc(settings->chunk_rows_max, sizeof(double));
    exchange->inputs = calloc(nodes, sizeof(*exchange->inputs));
    if (exchange->chunk == NULL || exchange->compute_arrived == NULL ||
        exchange->part_have == NULL || exchange->part_slot == NULL ||
        exchange->result_sends == NULL || exchange->word_sends == NULL ||
        exchange->results == NULL || exchange->z == NULL || exchange->inputs == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the answers of %u chunks of %u rows",
                       settings->chunks_max, settings->chunk_rows_max);
    }
    return 0;
}

void steps_done(struct exchange *exchange)
{
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        free(exchange->participants[p].parts);
        free(exchange->participants[p].slots_free);
    }
    free(exchange->chunk);
    free(exchange->compute_arrived);
    free(exchange->part_have);
    free(exchange->part_slot);
    free(exchange->result_sends);
    free(exchange->word_sends);
    free(exchange->results);
    free(exchange->z);
    free((void *)(uintptr_t)exchange->inputs);
}

static void answer_compute(struct exchange *exchange, struct chunk *chunk)
{
    chunk->complete = true;
    chunk->done.kind = CHUNK_DONE;
    chunk->done.next = NULL;
    *exchange->answers_last = &chunk->done;
    exchange->answers_last = &chunk->done.next;
    if (++exchange->answers_count == ANSWERS_A_WAKE) {
        steps_answer(exchange);
    }
}

void steps_answer(struct exchange *exchange)
{
    struct message *first = exchange->answers;
    exchange->answers = NULL;
    exchange->answers_last = &exchange->answers;
    exchange->answers_count = 0;
    mailbox_put_all(&exchange->compute_box, first);
}

static void send_result(struct exchange *exchange, uint32_t index, uint32_t participant,
                        size_t result_size)
{
    uint32_t owned = index / exchange->participants_count;
    struct link_send *send =
        &exchange->result_sends[(size_t)owned * exchange->participants_count + participant];
    uint64_t sequence = exchange->step << EXCHANGE_CHUNK_BITS | index;
    if (index == 0) {
        struct link_send *word = &exchange->word_sends[participant];
        *word = (struct link_send){.kind = PEER_WORD,
                                   .generation = exchange->settings.generation,
                                   .sequence = sequence,
                                   .bytes = exchange->word_body,
                                   .size = sizeof(exchange->word_body)};
        links_send(exchange, participant, stream_of(exchange, index), word, 0);
    }
    *send = (struct link_send){.kind = PEER_RESULT,
                               .generation = exchange->settings.generation,
                               .sequence = sequence,
                               .bytes = result_of(exchange, index),
                               .size = result_size};
    exchange_count(&exchange->counters.results_out, result_size);
    links_send(exchange, participant, stream_of(exchange, index), send, 0);
}

/* All parts of an owned chunk are here. */
static void fold(struct exchange *exchange, uint32_t index)
{
    struct chunk *chunk = &exchange->chunk[index];
    const struct exchange_settings *settings = &exchange->settings;
    uint32_t rows = rows_of(exchange, index);
    uint64_t start_ns = clock_now_ns();
    size_t nodes = 0;
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        const double *part = p == exchange->rank ? chunk->values : part_of(exchange, index, p);
        for (size_t n = 0; n < exchange->participants[p].nodes_count; n++) {
            exchange->inputs[nodes++] = part + n * rows;
        }
        if (p != exchange->rank) {
            *have_of(exchange, index, p) = 0;
            give_slot(exchange, index, p); /* Nothing is read into it before this fold is done. */
        }
    }
    fold_plan_run(&exchange->plan, exchange->inputs, exchange->z, rows);
    double *losses = (double *)(void *)result_of(exchange, index);
    size_t panels = ((size_t)rows + settings->panel_rows - 1) / settings->panel_rows;
    float *residual = (float *)(void *)(losses + panels);
    struct err err = {0};
    chunk->folded = true;
    if (settings->finish(settings->finish_context, exchange->step, index, rows, exchange->z,
                         residual, losses, &err) != 0) {
        exchange_fail(exchange, EXCHANGE_NOBODY, &err);
        return;
    }
    exchange_count(&exchange->counters.folds, 1);
    exchange_count(&exchange->counters.fold_ns, clock_now_ns() - start_ns);
    chunk->word = index == 0 ? atomic_exchange(&exchange->directive, 0) : 0;
    if (index == 0) {
        memcpy(exchange->word_body, &chunk->word, sizeof(exchange->word_body));
    }
    for (uint32_t i = 1; i < exchange->participants_count; i++) {
        /* The next rank first: the owners' answers do not all go to the same node at once. */
        uint32_t p = (exchange->rank + i) % exchange->participants_count;
        send_result(exchange, index, p, steps_result_size(exchange, rows));
        if (exchange->state == EXCHANGE_FAILED) {
            return;
        }
    }
    answer_compute(exchange, chunk);
}

static void part_came(struct exchange *exchange, uint32_t index)
{
    struct chunk *chunk = &exchange->chunk[index];
    ASSERT(chunk->parts_missing > 0);
    if (--chunk->parts_missing == 0) {
        fold(exchange, index);
    }
}

/* Early values of a chunk against the step that begins now. */
static int check_early(struct exchange *exchange, uint32_t index, uint32_t participant,
                       struct err *err)
{
    size_t have = *have_of(exchange, index, participant);
    size_t wanted =
        index < exchange->chunks ? values_size(exchange, participant, rows_of(exchange, index)) : 0;
    if (have > wanted) {
        return err_set(err, ERR_PROTO,
                       "node '%s' sent %zu bytes of values for chunk %u of step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       exchange->participants[participant].name, have, index, exchange->step,
                       wanted);
    }
    if (have == wanted && wanted > 0) {
        exchange->chunk[index].parts_missing--;
    }
    return 0;
}

void steps_begin(struct exchange *exchange, const struct begin_message *begin)
{
    struct err err = {0};
    uint64_t chunks = begin->rows / begin->chunk_rows + (begin->rows % begin->chunk_rows != 0);
    exchange->begun = true;
    exchange->begun_ms = uv_now(&exchange->loop);
    exchange->step = begin->step;
    exchange->rows = begin->rows;
    exchange->chunk_rows = begin->chunk_rows;
    exchange->chunks = (uint32_t)chunks;
    exchange_count(&exchange->counters.steps, 1);
    if (exchange->early && exchange->early_step != begin->step) {
        (void)err_set(&err, ERR_PROTO, "node '%s' is at step %" PRIu64 ", this node at %" PRIu64,
                      exchange->participants[exchange->early_of].name, exchange->early_step,
                      begin->step);
        exchange_fail(exchange, exchange->early_of, &err);
        return;
    }
    exchange->early = false;
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        exchange->participants[p].answered = 0;
    }
    for (uint32_t c = 0; c < exchange->settings.chunks_max; c++) {
        struct chunk *chunk = &exchange->chunk[c];
        chunk->pushed = false;
        chunk->sent = false;
        chunk->folded = false;
        chunk->complete = false;
        chunk->result_have = 0;
        chunk->word = 0;
        chunk->parts_missing = exchange->participants_count;
        for (uint32_t p = 0; p < exchange->participants_count; p++) {
            if (owner_of(exchange, c) == exchange->rank && p != exchange->rank &&
                check_early(exchange, c, p, &err) != 0) {
                exchange_fail(exchange, p, &err);
                return;
            }
        }
    }
}

/* How many chunks of an owner may be ahead of its answers. */
static uint32_t window_of(const struct exchange *exchange, uint32_t owner)
{
    size_t size = values_size(exchange, exchange->rank, exchange->chunk_rows);
    size_t window = exchange->participants[owner].window_size / size;
    window = window < WINDOW_CHUNKS_MIN ? WINDOW_CHUNKS_MIN : window;
    return window < exchange->chunks ? (uint32_t)window : exchange->chunks;
}

static void send_values(struct exchange *exchange, uint32_t index)
{
    struct chunk *chunk = &exchange->chunk[index];
    uint32_t owner = owner_of(exchange, index);
    chunk->sent = true;
    size_t size = values_size(exchange, exchange->rank, rows_of(exchange, index));
    chunk->values_send =
        (struct link_send){.kind = PEER_VALUES,
                           .generation = exchange->settings.generation,
                           .sequence = exchange->step << EXCHANGE_CHUNK_BITS | index,
                           .bytes = (const uint8_t *)chunk->values,
                           .size = size};
    exchange_count(&exchange->counters.values_out, size);
    links_send(exchange, owner, stream_of(exchange, index), &chunk->values_send, 0);
}

/* Answers of the owner came: moves its window on and sends what is pushed and in it now. */
static void send_window(struct exchange *exchange, uint32_t owner)
{
    uint32_t count = exchange->participants_count;
    struct participant *to = &exchange->participants[owner];
    uint32_t window = window_of(exchange, owner);
    uint32_t before = to->answered;
    while ((uint64_t)to->answered * count + owner < exchange->chunks &&
           exchange->chunk[to->answered * count + owner].complete) {
        to->answered++;
    }
    for (uint64_t owned = (uint64_t)before + window; owned < (uint64_t)to->answered + window;
         owned++) {
        uint64_t index = owned * count + owner;
        if (index >= exchange->chunks || exchange->state == EXCHANGE_FAILED) {
            return;
        }
        if (exchange->chunk[index].pushed && !exchange->chunk[index].sent) {
            send_values(exchange, (uint32_t)index);
        }
    }
}

void steps_push(struct exchange *exchange, struct chunk *chunk)
{
    uint32_t index = (uint32_t)(chunk - exchange->chunk);
    uint32_t owner = owner_of(exchange, index);
    ASSERT(!chunk->pushed);
    chunk->pushed = true;
    if (owner == exchange->rank) {
        part_came(exchange, index);
        return;
    }
    uint32_t owned = index / exchange->participants_count;
    if (owned < exchange->participants[owner].answered + window_of(exchange, owner)) {
        send_values(exchange, index);
    }
}

/* Where a frame of values belongs, or why it is impossible. */
static int values_place(struct exchange *exchange, uint32_t participant, uint64_t step,
                        uint32_t index, uint32_t size, uint8_t **ret_place, struct err *err)
{
    if (index >= exchange->settings.chunks_max || owner_of(exchange, index) != exchange->rank) {
        return err_set(err, ERR_PROTO, "values of chunk %u came, which is not this node's", index);
    }
    const struct chunk *chunk = &exchange->chunk[index];
    size_t have = *have_of(exchange, index, participant);
    size_t most = values_size(exchange, participant, exchange->settings.chunk_rows_max);
    bool in_step = exchange->begun && step == exchange->step;
    if (in_step) {
        if (index >= exchange->chunks || chunk->folded) {
            return err_set(err, ERR_PROTO, "values of chunk %u came again in step %" PRIu64, index,
                           step);
        }
        most = values_size(exchange, participant, rows_of(exchange, index));
    } else if (exchange->begun && step < exchange->step) {
        return err_set(err, ERR_PROTO, "values of step %" PRIu64 " came in step %" PRIu64, step,
                       exchange->step);
    } else if ((exchange->early && step != exchange->early_step) ||
               (exchange->begun && index < exchange->chunks && !chunk->folded)) {
        return err_set(err, ERR_PROTO,
                       "values of chunk %u of step %" PRIu64
                       " came, more than a step ahead of step %" PRIu64,
                       index, step, exchange->step);
    } else if (!exchange->early) {
        exchange->early = true;
        exchange->early_step = step;
        exchange->early_of = participant;
    }
    if (size == 0 || size > most - have) { /* have is at most `most`. */
        return err_set(err, ERR_PROTO,
                       "%u bytes of values of chunk %u came in step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       size, index, step, most - have);
    }
    if (have == 0) {
        take_slot(exchange, index, participant);
    }
    *ret_place = (uint8_t *)part_of(exchange, index, participant) + have;
    return 0;
}

static int result_place(struct exchange *exchange, uint32_t participant, uint64_t step,
                        uint32_t index, uint32_t size, uint8_t **ret_place, struct err *err)
{
    if (!exchange->begun || step != exchange->step || index >= exchange->chunks ||
        owner_of(exchange, index) != participant || !exchange->chunk[index].sent) {
        return err_set(err, ERR_PROTO,
                       "an answer for chunk %u of step %" PRIu64 " came, which nobody waits for",
                       index, step);
    }
    size_t have = exchange->chunk[index].result_have;
    size_t due = steps_result_size(exchange, rows_of(exchange, index)) - have;
    if (size == 0 || size > due) {
        return err_set(err, ERR_PROTO,
                       "%u bytes of the answer for chunk %u came in step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       size, index, step, due);
    }
    *ret_place = result_of(exchange, index) + have;
    return 0;
}

static int word_place(const struct exchange *exchange, uint32_t participant, uint64_t step,
                      uint32_t index, uint32_t size, struct err *err)
{
    if (!exchange->begun || step != exchange->step || index != 0 || participant != 0 ||
        size != sizeof(uint32_t) || exchange->chunk[0].result_have > 0) {
        return err_set(err, ERR_PROTO, "a directive of %u bytes came for chunk %u of step %" PRIu64,
                       size, index, step);
    }
    return 0;
}

int steps_place(struct exchange *exchange, uint32_t participant, uint32_t stream,
                const struct frame_header *header, uint8_t **ret_place, struct err *err)
{
    uint64_t step = header->sequence >> EXCHANGE_CHUNK_BITS;
    uint32_t index = (uint32_t)(header->sequence & (EXCHANGE_CHUNKS_MAX - 1));
    uint32_t size = header->body_size;
    if (stream_of(exchange, index) != stream) {
        return err_set(err, ERR_PROTO, "chunk %u came on stream %u; it belongs on %u", index,
                       stream, stream_of(exchange, index));
    }
    switch (header->kind) {
    case PEER_VALUES:
        return values_place(exchange, participant, step, index, size, ret_place, err);
    case PEER_RESULT:
        return result_place(exchange, participant, step, index, size, ret_place, err);
    default:
        return word_place(exchange, participant, step, index, size, err);
    }
}

int steps_came(struct exchange *exchange, uint32_t participant, const struct frame_header *header,
               const uint8_t *body, struct err *err)
{
    uint64_t step = header->sequence >> EXCHANGE_CHUNK_BITS;
    uint32_t index = (uint32_t)(header->sequence & (EXCHANGE_CHUNKS_MAX - 1));
    struct chunk *chunk = &exchange->chunk[index];
    exchange->participants[participant].data_ms = uv_now(&exchange->loop);
    if (header->kind == PEER_WORD) {
        memcpy(&chunk->word, body, sizeof(chunk->word));
        return 0;
    }
    if (header->kind == PEER_RESULT) {
        exchange_count(&exchange->counters.results_in, header->body_size);
        chunk->result_have += header->body_size;
        if (chunk->result_have == steps_result_size(exchange, rows_of(exchange, index))) {
            answer_compute(exchange, chunk);
            send_window(exchange, participant);
        }
        return 0;
    }
    size_t *have = have_of(exchange, index, participant);
    exchange_count(&exchange->counters.values_in, header->body_size);
    *have += header->body_size;
    if (!exchange->begun || step != exchange->step) {
        return 0; /* Early: begin looks at it. */
    }
    size_t wanted =
        index < exchange->chunks ? values_size(exchange, participant, rows_of(exchange, index)) : 0;
    if (*have > wanted) { /* It was placed as an early one, and the step began meanwhile. */
        return err_set(err, ERR_PROTO,
                       "%zu bytes of values of chunk %u came in step %" PRIu64
                       " where %zu are due; all must cut the step alike",
                       *have, index, step, wanted);
    }
    if (*have == wanted) {
        part_came(exchange, index);
    }
    return 0;
}

bool steps_idle(const struct exchange *exchange)
{
    for (uint32_t c = 0; exchange->begun && c < exchange->chunks; c++) {
        if (!exchange->chunk[c].complete) {
            return false;
        }
    }
    return true;
}

bool steps_owes(const struct exchange *exchange, uint32_t participant, char *text, size_t size)
{
    if (!exchange->begun) {
        return false;
    }
    for (uint32_t c = 0; c < exchange->chunks; c++) {
        const struct chunk *chunk = &exchange->chunk[c];
        const char *what = "forward values";
        size_t have = 0;
        size_t wanted = 0;
        if (owner_of(exchange, c) == exchange->rank && !chunk->folded) {
            have = *have_of(exchange, c, participant);
            wanted = values_size(exchange, participant, rows_of(exchange, c));
        } else if (owner_of(exchange, c) == participant && chunk->pushed && !chunk->complete) {
            what = "result";
            have = chunk->result_have;
            wanted = steps_result_size(exchange, rows_of(exchange, c));
        }
        if (have < wanted) {
            if (text != NULL) {
                (void)snprintf(text, size,
                               "step %" PRIu64 ", %s of chunk %u, %zu of %zu bytes came",
                               exchange->step, what, c, have, wanted);
            }
            return true;
        }
    }
    return false;
}

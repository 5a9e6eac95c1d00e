/* The exchange's functions for other threads: any, and the compute thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/exchange_room.h"

/* ---------------------------------------------------------------- any thread */

static void *must(void *memory)
{
    ASSERT(memory != NULL); /* A message of some hundred bytes. */
    return memory;
}

void exchange_adopt(struct exchange *exchange, const struct peer_incoming *incoming)
{
    struct adopt_message *adopt = must(malloc(sizeof(*adopt)));
    ASSERT(!exchange->closing);
    *adopt = (struct adopt_message){.message = {.kind = TO_ADOPT}, .incoming = *incoming};
    mailbox_put(&worker_of_stream(exchange, incoming->hello.stream)->box, &adopt->message);
}

void exchange_cancel(struct exchange *exchange, const char *reason)
{
    struct cancel_message *cancel = must(calloc(1, sizeof(*cancel)));
    cancel->message.kind = TO_CANCEL;
    (void)snprintf(cancel->reason, sizeof(cancel->reason), "%s", reason);
    mailbox_put(&exchange->workers[0].box, &cancel->message); /* It tells the others. */
}

void exchange_direct(struct exchange *exchange, uint32_t bits)
{
    ASSERT(exchange->rank == 0);
    (void)atomic_fetch_or(&exchange->directive, bits);
}

int exchange_gather(struct exchange *exchange, uint64_t step, const double *parameter,
                    const double *accumulator, struct err *err)
{
    bool idle = false;
    if (!atomic_compare_exchange_strong(&exchange->gathering, &idle, true)) {
        return err_set(err, ERR_BUSY, "the slices of an earlier step are still on their way");
    }
    ASSERT(step <= UINT64_MAX >> 1);
    exchange->gather_mail.message.kind = TO_GATHER;
    exchange->gather_mail.step = step;
    exchange->gather_mail.slices[0] = parameter;
    exchange->gather_mail.slices[1] = accumulator;
    mailbox_put(&worker_of_stream(exchange, exchange->settings.streams - 1)->box,
                &exchange->gather_mail.message);
    return 0;
}

void exchange_expect_links(struct exchange *exchange, uint32_t within_ms)
{
    unsigned none = 0;
    ASSERT(within_ms > 0);
    (void)atomic_compare_exchange_strong(&exchange->expect_ms, &none, within_ms);
}

void exchange_stats(const struct exchange *exchange, struct exchange_stats *ret_stats)
{
    *ret_stats = (struct exchange_stats){
        .steps = atomic_load(&exchange->workers[0].counters.steps), /* It begins every step. */
        .pull_wait_ns = atomic_load(&exchange->pull_wait_ns),
        .links_count = (size_t)(exchange->participants_count - 1) * exchange->settings.streams,
        .threads = exchange->workers_count,
    };
    for (uint32_t w = 0; w < exchange->workers_count; w++) {
        const struct exchange_counters *from = &exchange->workers[w].counters;
        ret_stats->values_out += atomic_load(&from->values_out);
        ret_stats->values_in += atomic_load(&from->values_in);
        ret_stats->results_out += atomic_load(&from->results_out);
        ret_stats->results_in += atomic_load(&from->results_in);
        ret_stats->gather_out += atomic_load(&from->gather_out);
        ret_stats->gather_in += atomic_load(&from->gather_in);
        ret_stats->wire_out += atomic_load(&from->wire_out);
        ret_stats->wire_in += atomic_load(&from->wire_in);
        ret_stats->folds += atomic_load(&from->folds);
        ret_stats->fold_ns += atomic_load(&from->fold_ns);
        ret_stats->ahead_max += atomic_load(&from->ahead_max);
        ret_stats->stale_frames += atomic_load(&from->stale_frames);
        ret_stats->refused += atomic_load(&from->refused);
        ret_stats->links_up += atomic_load(&from->links_up);
    }
}

/* ---------------------------------------------------------------- the compute thread */

static void take_answer(struct exchange *exchange, struct message *message)
{
    if (message->kind == EXCHANGE_ENDED) {
        exchange->compute_failure = exchange->failed_answer.err;
        return;
    }
    struct chunk *chunk = OWNER_OF(message, struct chunk, done);
    exchange->compute_arrived[chunk - exchange->chunk] = true;
}

/* 0, or the failure that ended the exchange. */
static int check_alive(struct exchange *exchange, struct err *err)
{
    for (struct message *message = mailbox_take(&exchange->compute_box); message != NULL;
         message = mailbox_take(&exchange->compute_box)) {
        take_answer(exchange, message);
    }
    if (exchange->compute_failure.code != 0) {
        return err_set(err, exchange->compute_failure.code, "%s", exchange->compute_failure.text);
    }
    return 0;
}

int exchange_begin(struct exchange *exchange, uint64_t step, uint64_t rows, uint32_t chunk_rows,
                   struct err *err)
{
    ASSERT(rows > 0);
    ASSERT(chunk_rows > 0);
    ASSERT(chunk_rows <= exchange->settings.chunk_rows_max);
    uint64_t chunks = rows / chunk_rows + (rows % chunk_rows != 0);
    ASSERT(chunks <= exchange->settings.chunks_max);
    ASSERT(step <= EXCHANGE_STEP_MAX);
    ASSERT(!exchange->compute_begun || step > exchange->compute_step);
    if (check_alive(exchange, err) != 0) {
        return err->code;
    }
    ASSERT(exchange->compute_pulled == exchange->compute_chunks);
    exchange->compute_begun = true;
    exchange->compute_step = step;
    exchange->compute_rows = rows;
    exchange->compute_chunk_rows = chunk_rows;
    exchange->compute_chunks = (uint32_t)chunks;
    exchange->compute_pulled = 0;
    memset(exchange->compute_arrived, 0, (size_t)chunks * sizeof(bool));
    atomic_store(&exchange->incomplete, exchange->compute_chunks);
    for (uint32_t w = 0; w < exchange->workers_count; w++) {
        struct worker *worker = &exchange->workers[w];
        /* A worker that gets no chunk of a step is not told of it: what it was told last may still
         * lie in its box. The first of its chunks is rank 0's on its first stream. */
        if ((uint64_t)w * exchange->participants_count < chunks) {
            worker->begin = (struct begin_message){.message = {.kind = TO_BEGIN},
                                                   .step = step,
                                                   .rows = rows,
                                                   .chunk_rows = chunk_rows};
            mailbox_put(&worker->box, &worker->begin.message);
        }
    }
    return 0;
}

int exchange_push(struct exchange *exchange, uint64_t step, uint32_t chunk, const double *values,
                  struct err *err)
{
    ASSERT(exchange->compute_begun);
    ASSERT(step == exchange->compute_step);
    ASSERT(chunk < exchange->compute_chunks);
    if (check_alive(exchange, err) != 0) {
        return err->code;
    }
    exchange->chunk[chunk].values = values;
    exchange->chunk[chunk].push.kind = TO_PUSH;
    mailbox_put(&steps_worker(exchange, chunk)->box, &exchange->chunk[chunk].push);
    return 0;
}

int exchange_pull(struct exchange *exchange, uint64_t step, uint32_t chunk,
                  const float **ret_residual, const double **ret_panel_losses,
                  uint32_t *ret_directive, struct err *err)
{
    ASSERT(exchange->compute_begun);
    ASSERT(step == exchange->compute_step);
    ASSERT(chunk < exchange->compute_chunks);
    bool alive = check_alive(exchange, err) == 0;
    if (alive && !exchange->compute_arrived[chunk]) {
        uint64_t start_ns = clock_now_ns();
        while (!exchange->compute_arrived[chunk] && exchange->compute_failure.code == 0) {
            /* No end of its own: the workers' deadlines end it. */
            take_answer(exchange, mailbox_wait(&exchange->compute_box, UINT64_MAX));
        }
        exchange_count(&exchange->pull_wait_ns, clock_now_ns() - start_ns);
    }
    if (!exchange->compute_arrived[chunk]) { /* What came before the end counts. */
        return check_alive(exchange, err);
    }
    uint32_t rows = steps_chunk_rows(exchange->compute_rows, exchange->compute_chunk_rows, chunk);
    size_t panels =
        ((size_t)rows + exchange->settings.panel_rows - 1) / exchange->settings.panel_rows;
    const uint8_t *result = exchange->results + (size_t)chunk * exchange->result_size_max;
    *ret_panel_losses = (const double *)(const void *)result;
    *ret_residual = (const float *)(const void *)(result + panels * sizeof(double));
    if (ret_directive != NULL) {
        *ret_directive = chunk == 0 ? exchange->chunk[0].word : 0;
    }
    exchange->compute_pulled++;
    return 0;
}

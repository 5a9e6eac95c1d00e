#include "learn/learn.h"

#include "numerics/lane.h"

#define CHUNK_PANELS_MAX       16
#define CHUNKS_PER_PARTICIPANT 4

int learn_schedule_init(struct learn_schedule *schedule, uint64_t rows, uint64_t batch_rows,
                        uint64_t steps, uint32_t participants, struct err *err)
{
    if (rows == 0 || rows > UINT32_MAX) {
        return err_set(err, ERR_JOB, "%llu training rows; give 1 to %u", (unsigned long long)rows,
                       UINT32_MAX);
    }
    if (steps == 0) {
        return err_set(err, ERR_JOB, "steps = 0; give at least 1");
    }
    if (participants == 0 || participants > LEARN_PARTICIPANTS_MAX) {
        return err_set(err, ERR_JOB, "%u participants; give 1 to %d", participants,
                       LEARN_PARTICIPANTS_MAX);
    }
    if (batch_rows == 0 || batch_rows > rows) {
        batch_rows = rows;
    }
    size_t panels = panels_of((size_t)batch_rows);
    size_t chunk_panels =
        participants == 1 ? panels : panels / ((size_t)participants * CHUNKS_PER_PARTICIPANT);
    chunk_panels = chunk_panels < 1 ? 1 : chunk_panels;
    chunk_panels = chunk_panels > CHUNK_PANELS_MAX ? CHUNK_PANELS_MAX : chunk_panels;
    *schedule = (struct learn_schedule){
        .rows = rows,
        .batch_rows = batch_rows,
        .batches_count = (rows + batch_rows - 1) / batch_rows,
        .steps = steps,
        .chunk_rows = (uint32_t)(chunk_panels * PANEL_ROWS),
        .chunks_max = (uint32_t)((panels + chunk_panels - 1) / chunk_panels),
    };
    schedule->window_rows = (uint64_t)schedule->chunks_max * schedule->chunk_rows;
    schedule->windows_count = (rows + schedule->window_rows - 1) / schedule->window_rows;
    return 0;
}

uint64_t learn_steps_of_passes(uint64_t rows, uint64_t batch_rows, uint64_t passes)
{
    if (rows == 0) {
        return 0;
    }
    if (batch_rows == 0 || batch_rows > rows) {
        batch_rows = rows;
    }
    uint64_t batches = (rows + batch_rows - 1) / batch_rows;
    return passes > UINT64_MAX / batches ? 0 : passes * batches;
}

void learn_batch(const struct learn_schedule *schedule, uint64_t step,
                 struct session_batch *ret_batch)
{
    bool evaluate = step >= schedule->steps;
    uint64_t stride = evaluate ? schedule->window_rows : schedule->batch_rows;
    uint64_t index = evaluate ? step - schedule->steps : step % schedule->batches_count;
    if (evaluate && index >= schedule->windows_count) { /* the penalty's single row */
        *ret_batch = (struct session_batch){.step = step, .rows_count = 1, .evaluate = true};
        return;
    }
    uint64_t left = schedule->rows - index * stride;
    *ret_batch = (struct session_batch){.step = step,
                                        .row_first = index * stride,
                                        .rows_count = left < stride ? left : stride,
                                        .evaluate = evaluate};
}

uint32_t learn_chunks_count(const struct learn_schedule *schedule, uint64_t step)
{
    struct session_batch batch;
    learn_batch(schedule, step, &batch);
    return (uint32_t)((batch.rows_count + schedule->chunk_rows - 1) / schedule->chunk_rows);
}

uint32_t learn_chunk_rows(const struct learn_schedule *schedule, uint64_t step, uint32_t chunk)
{
    struct session_batch batch;
    learn_batch(schedule, step, &batch);
    uint64_t first = (uint64_t)chunk * schedule->chunk_rows;
    uint64_t left = first < batch.rows_count ? batch.rows_count - first : 0;
    return left < schedule->chunk_rows ? (uint32_t)left : schedule->chunk_rows;
}

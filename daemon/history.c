/* Losses and counters of the jobs that this daemon saw. Bounded: checkpoint/losses.h thins a job's
 * losses; the oldest job's go when there are many. A run says its losses all at once where it
 * starts and at each capture, so that what was left out between two reports is there again. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/core.h"

struct history *history_find(const struct daemon *daemon, uint64_t job)
{
    for (struct history *history = daemon->histories; history != NULL; history = history->next) {
        if (history->job == job) {
            return history;
        }
    }
    return NULL;
}

static void drop_oldest(struct daemon *daemon)
{
    size_t count = 0;
    for (struct history **at = &daemon->histories; *at != NULL; at = &(*at)->next) {
        if (++count == HISTORIES_MAX) {
            struct history *oldest = *at;
            *at = NULL;
            ASSERT(oldest->next == NULL);
            free(oldest);
            return;
        }
    }
}

struct history *history_of(struct daemon *daemon, uint64_t job)
{
    struct history *history = history_find(daemon, job);
    if (history != NULL) {
        return history;
    }
    drop_oldest(daemon);
    history = calloc(1, sizeof(*history));
    ASSERT(history != NULL);
    history->job = job;
    for (int i = 0; i < FACTS_PHASES; i++) {
        history->phases[i] = (struct histogram)HISTOGRAM_STEP;
    }
    history->next = daemon->histories;
    daemon->histories = history;
    return history;
}

static void find_first(struct history *history)
{
    const struct losses *losses = &history->losses;
    if (losses->count > 0 && losses->steps[0] == 1) {
        history->has_first = true;
        history->first_loss = losses->values[0];
    }
}

void history_put(struct history *history, const struct facts_point *point, uint64_t stepped_ms)
{
    history->version++;
    history->progress_wall_ms = clock_wall_ms() - (int64_t)(clock_now_ms() - stepped_ms);
    losses_put(&history->losses, point->step, point->loss);
    find_first(history);
}

void history_take(struct history *history, const struct losses *losses)
{
    history->version++;
    history->losses = *losses;
    history->has_first = false;
    find_first(history);
}

void history_add(struct history *history, uint64_t steps, uint64_t rows,
                 struct histogram phases[FACTS_PHASES])
{
    uint64_t now = clock_now_ms();
    history->version++;
    history->steps_done += steps;
    history->rows_done += rows;
    if (now - history->recent_ms[1] >= 1000) {
        history->recent_ms[0] = history->recent_ms[1];
        history->recent_rows[0] = history->recent_rows[1];
        history->recent_ms[1] = now;
        history->recent_rows[1] = history->rows_done;
    }
    for (int i = 0; i < FACTS_PHASES; i++) {
        for (int k = 0; k <= HISTOGRAM_BUCKETS; k++) {
            history->phases[i].counts[k] += phases[i].counts[k];
        }
        history->phases[i].sum += phases[i].sum;
        phases[i] = (struct histogram)HISTOGRAM_STEP;
    }
}

double history_rows_per_s(const struct history *history)
{
    uint64_t now = clock_now_ms();
    uint64_t since = history->recent_ms[0] != 0 ? history->recent_ms[0] : history->recent_ms[1];
    uint64_t rows = history->recent_ms[0] != 0 ? history->recent_rows[0] : history->recent_rows[1];
    if (since == 0 || now - since < 100 || now - history->recent_ms[1] > 10000) {
        return 0.0;
    }
    return (double)(history->rows_done - rows) * 1e3 / (double)(now - since);
}

size_t history_get(const struct history *history, uint64_t after, struct facts_point *points,
                   size_t points_max)
{
    const struct losses *losses = &history->losses;
    size_t first = 0;
    while (first < losses->count && losses->steps[first] <= after) {
        first++;
    }
    size_t count = losses->count - first;
    if (count == 0 || points_max == 0) {
        return 0;
    }
    size_t every = (count + points_max - 1) / points_max;
    size_t written = 0;
    for (size_t i = first; i < losses->count && written < points_max; i += every) {
        points[written++] = (struct facts_point){losses->steps[i], losses->values[i]};
    }
    points[written - 1] = (struct facts_point){losses->steps[losses->count - 1],
                                               losses->values[losses->count - 1]}; /* always */
    return written;
}

void history_free(struct daemon *daemon)
{
    while (daemon->histories != NULL) {
        struct history *history = daemon->histories;
        daemon->histories = history->next;
        free(history);
    }
}

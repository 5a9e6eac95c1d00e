/* Losses and counters of the jobs that this daemon saw. Bounded: when a job's points are full,
 * every other one goes and the stride doubles; the oldest job's go when there are many. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/core.h"

#define HISTORIES_MAX 32

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
    history->stride = 1;
    for (int i = 0; i < FACTS_PHASES; i++) {
        history->phases[i] = (struct histogram)HISTOGRAM_STEP;
    }
    history->next = daemon->histories;
    daemon->histories = history;
    return history;
}

void history_put(struct history *history, const struct facts_point *point, uint64_t stepped_ms)
{
    history->version++;
    history->progress_wall_ms = clock_wall_ms() - (int64_t)(clock_now_ms() - stepped_ms);
    if (point->step == 1) {
        history->has_first = true;
        history->first_loss = point->loss;
    }
    /* A new generation does steps again: what was behind them goes. */
    while (history->points_count > 0 &&
           history->points[history->points_count - 1].step >= point->step) {
        history->points_count--;
    }
    if (history->points_count == FACTS_LOSSES_MAX) {
        size_t kept = 0;
        for (size_t i = 0; i < history->points_count; i += 2) {
            history->points[kept++] = history->points[i];
        }
        history->points_count = kept;
        history->stride *= 2;
    }
    if (history->points_count > 0 &&
        point->step < history->points[history->points_count - 1].step + history->stride) {
        return;
    }
    history->points[history->points_count++] = *point;
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
    size_t first = 0;
    while (first < history->points_count && history->points[first].step <= after) {
        first++;
    }
    size_t count = history->points_count - first;
    if (count == 0 || points_max == 0) {
        return 0;
    }
    size_t every = (count + points_max - 1) / points_max;
    size_t written = 0;
    for (size_t i = first; i < history->points_count && written < points_max; i += every) {
        points[written++] = history->points[i];
    }
    points[written - 1] = history->points[history->points_count - 1]; /* The newest one, always. */
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

#include "tests/bench/exchange_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

struct spread { /* of the rounds */
    double median, low, high;
};

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

double report_median(double *values, size_t count)
{
    ASSERT(count > 0);
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static struct spread spread_of(double *values, size_t count)
{
    double median = report_median(values, count);
    return (struct spread){median, values[count / 4], values[count - 1 - count / 4]};
}

/* Seconds of processor time of a process for a GB of SIZE, of all processes in that round. */
static double processor_s_gb(const struct report *report, size_t size, uint32_t round,
                             enum report_side which)
{
    double spent_s = 0;
    double gb = 0;
    for (uint32_t p = 0; p < report->processes; p++) {
        const struct report_block *block = &report->at[p][size][round].blocks[which];
        spent_s += block->processor_s;
        gb += (double)block->steps * (double)report->rows[size] * 8e-9;
    }
    return spent_s / gb;
}

/* Bytes that a process sends for a byte of SIZE. */
static double sent_of(const struct report *report, size_t size, enum report_side which)
{
    double sent = 0;
    double bytes = 0;
    for (uint32_t p = 0; p < report->processes; p++) {
        for (uint32_t round = 0; round < report->rounds_count; round++) {
            const struct report_block *block = &report->at[p][size][round].blocks[which];
            sent += (double)block->sent;
            bytes += (double)block->steps * (double)report->rows[size] * 8.0;
        }
    }
    return sent / bytes;
}

static double median_s_gb(const struct report *report, size_t size, enum report_side which)
{
    double values[REPORT_ROUNDS_MAX];
    for (uint32_t round = 0; round < report->rounds_count; round++) {
        values[round] = processor_s_gb(report, size, round, which);
    }
    return report_median(values, report->rounds_count);
}

static void print_size(uint64_t size)
{
    if (size % (1U << 20) == 0) {
        (void)printf("%6" PRIu64 " MiB", size >> 20);
    } else {
        (void)printf("%6.0f KiB", (double)size / 1024.0);
    }
}

void report_print_side(const struct report *report, enum report_side which)
{
    (void)printf("%s, %u streams a pair, %u exchange threads\n",
                 which == REPORT_TLS ? "over TLS 1.3" : "plain text", report->streams[which],
                 report->threads[which]);
    for (size_t s = 0; s < report->sizes_count; s++) {
        double median_ms = report->median_ms[which][s];
        print_size(report->rows[s] * 8);
        (void)printf("  %9.3f ms median  %9.3f ms best  %6.2f GB/s  %5.2f CPU s/GB  "
                     "%5.2f bytes sent a byte  %" PRIu64 " steps\n",
                     median_ms, report->best_ms[which][s],
                     (double)report->rows[s] * 8e-6 / median_ms, median_s_gb(report, s, which),
                     sent_of(report, s, which), report->steps[which][s]);
    }
}

static double aes_of(const struct report *report, size_t size, uint32_t round, bool far)
{
    double sum = 0;
    for (uint32_t p = 0; p < report->processes; p++) {
        const struct report_round *at = &report->at[p][size][round];
        sum += far ? at->aes_far_s_gb : at->aes_near_s_gb;
    }
    return sum / report->processes;
}

static void print_tls_size(const struct report *report, size_t size)
{
    double keeps[REPORT_ROUNDS_MAX];
    double adds[REPORT_ROUNDS_MAX];
    double near[REPORT_ROUNDS_MAX];
    double far[REPORT_ROUNDS_MAX];
    double over_near[REPORT_ROUNDS_MAX];
    double over_far[REPORT_ROUNDS_MAX];
    uint32_t rounds = report->rounds_count;
    double sent = sent_of(report, size, REPORT_TLS); /* A process opens as many as it seals. */
    for (uint32_t r = 0; r < rounds; r++) {
        const struct report_block *blocks = report->at[0][size][r].blocks;
        keeps[r] = 100.0 * blocks[REPORT_PLAIN].median_ms / blocks[REPORT_TLS].median_ms;
        adds[r] = (processor_s_gb(report, size, r, REPORT_TLS) -
                   processor_s_gb(report, size, r, REPORT_PLAIN)) /
                  sent;
        near[r] = aes_of(report, size, r, false);
        far[r] = aes_of(report, size, r, true);
        over_near[r] = 100.0 * (adds[r] / near[r] - 1.0);
        over_far[r] = 100.0 * (adds[r] / far[r] - 1.0);
    }
    struct spread kept = spread_of(keeps, rounds);
    struct spread added = spread_of(adds, rounds);
    struct spread over = spread_of(over_near, rounds);
    struct spread over_memory = spread_of(over_far, rounds);
    print_size(report->rows[size] * 8);
    (void)printf("  TLS keeps %5.1f %% (%.0f to %.0f) of the throughput; adds %.3f (%.3f to %.3f) "
                 "CPU s/GB sealed and opened, AES-128-GCM alone %.3f in the cache and %.3f from "
                 "memory: %+.0f %% (%+.0f to %+.0f) and %+.0f %% (%+.0f to %+.0f)\n",
                 kept.median, kept.low, kept.high, added.median, added.low, added.high,
                 report_median(near, rounds), report_median(far, rounds), over.median, over.low,
                 over.high, over_memory.median, over_memory.low, over_memory.high);
}

void report_print_tls(const struct report *report)
{
    (void)printf("TLS beside plain text, medians (and quartiles) of %u rounds\n",
                 report->rounds_count);
    for (size_t s = 0; s < report->sizes_count; s++) {
        print_tls_size(report, s);
    }
}

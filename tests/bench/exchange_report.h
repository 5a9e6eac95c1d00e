/* What bench_exchange has measured, in memory that its processes share, and how it is printed. */
#ifndef COPPELIUS_TESTS_BENCH_EXCHANGE_REPORT_H
#define COPPELIUS_TESTS_BENCH_EXCHANGE_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "tests/bench/exchange_side.h"

#define REPORT_SIZES_MAX  16
#define REPORT_ROUNDS_MAX 64

enum report_side { REPORT_PLAIN, REPORT_TLS, REPORT_SIDES };

struct report_block { /* of one process, side and round */
    double processor_s, median_ms;
    uint64_t steps, sent;
};

struct report_round {
    struct report_block blocks[REPORT_SIDES];
    double aes_near_s_gb, aes_far_s_gb; /* 0: not measured */
};

struct report {
    uint32_t processes, rounds_count;
    size_t sizes_count;
    uint64_t rows[REPORT_SIZES_MAX];
    /* Of rank 0. */
    uint32_t streams[REPORT_SIDES], threads[REPORT_SIDES];
    uint64_t steps[REPORT_SIDES][REPORT_SIZES_MAX];
    double median_ms[REPORT_SIDES][REPORT_SIZES_MAX], best_ms[REPORT_SIDES][REPORT_SIZES_MAX];
    /* Each process writes its own. */
    struct report_round at[SIDE_PROCESSES_MAX][REPORT_SIZES_MAX][REPORT_ROUNDS_MAX];
};

double report_median(double *values, size_t count); /* 1 or more; puts them in order */
void report_print_side(const struct report *report, enum report_side which);
void report_print_tls(const struct report *report);

#endif

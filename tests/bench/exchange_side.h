/* A mesh and an exchange between processes of this machine, in plain text or over TLS: what
 * bench_exchange measures, one of each kind in a process.
 *
 * Thread: the loop's, but side_step (the compute thread's). */
#ifndef COPPELIUS_TESTS_BENCH_EXCHANGE_SIDE_H
#define COPPELIUS_TESTS_BENCH_EXCHANGE_SIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "peer/peer.h"

#define SIDE_PROCESSES_MAX 16
#define SIDE_PANEL_ROWS    2048

struct side_settings { /* of both sides */
    uint32_t processes, rank;
    uint32_t streams, threads; /* 0: as the exchange decides by itself */
    uint32_t chunk_rows_max;
    uint32_t chunks_max;
    enum exchange_pumps pumps;
};

struct side {
    const struct side_settings *settings;
    uint16_t ports[SIDE_PROCESSES_MAX]; /* of the processes; by side_find_ports */
    struct trust *trust;                /* NULL: plain text. Owned */
    char names[SIDE_PROCESSES_MAX][8];
    char addresses[SIDE_PROCESSES_MAX][32];
    struct mesh *mesh;
    struct exchange *exchange;
    uint64_t step; /* the last one */
    void (*on_ready)(struct side *side);
};

/* Ports of its own; before the processes part. */
void side_find_ports(struct side *side, uint32_t processes);
/* The other members but ports and trust are set here. An error ends the process. */
void side_open(struct side *side, const struct side_settings *settings, uv_loop_t *loop,
               void (*on_ready)(struct side *side));
/* One step of so many rows; whether rank 0 has said that it is the last one of its block, which it
 * does by `last`. verify: the answers are looked at. */
bool side_step(struct side *side, uint64_t rows, uint32_t chunk_rows, const double *values,
               bool last, bool verify);
void side_close(struct side *side); /* When the compute thread has ended. */
void side_done(struct side *side);  /* When the loop has. */

#endif

#include "tests/bench/exchange_side.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/lib/ports.h"

#define WORD_LAST 1

static void check(const struct side *side, int code, const struct err *err)
{
    if (code != 0) {
        (void)fprintf(stderr, "bench_exchange: process %u: %s\n", side->settings->rank, err->text);
        _exit(1);
    }
}

void side_find_ports(struct side *side, uint32_t processes)
{
    ASSERT(processes <= SIDE_PROCESSES_MAX);
    for (uint32_t p = 0; p < processes; p++) {
        side->ports[p] = test_port();
    }
}

/* ---------------------------------------------------------------- callbacks */

static int finish(void *context, uint64_t step, uint32_t chunk, uint32_t rows, const double *z,
                  float *residual, double *panel_losses, struct err *err)
{
    (void)context;
    (void)step;
    (void)chunk;
    (void)err;
    for (uint32_t i = 0; i < rows; i++) {
        residual[i] = (float)z[i];
    }
    for (uint32_t p = 0; p < (rows + SIDE_PANEL_ROWS - 1) / SIDE_PANEL_ROWS; p++) {
        panel_losses[p] = z[p * SIDE_PANEL_ROWS];
    }
    return 0;
}

static void on_exchange_ready(void *context)
{
    struct side *side = context;
    side->on_ready(side);
}

static void on_failed(void *context, uint32_t culprit, const struct err *err)
{
    (void)culprit;
    check(context, err->code, err);
}

static void on_bulk(void *context, const struct peer_incoming *incoming)
{
    struct side *side = context;
    struct peer_incoming copy = *incoming;
    if (side->exchange == NULL) {
        peer_refuse(&copy, ERR_BUSY, "not yet");
    } else {
        exchange_adopt(side->exchange, &copy);
    }
}

static void on_up(void *context, uint32_t node_id, uint64_t incarnation)
{
    (void)context;
    (void)node_id;
    (void)incarnation;
}

static void on_down(void *context, uint32_t node_id, const char *reason)
{
    (void)context;
    (void)node_id;
    (void)reason;
}

static void on_message(void *context, uint32_t node_id, uint16_t kind, const uint8_t *bytes,
                       size_t size)
{
    (void)context;
    (void)node_id;
    (void)kind;
    (void)bytes;
    (void)size;
}

/* ---------------------------------------------------------------- life */

void side_open(struct side *side, const struct side_settings *settings, uv_loop_t *loop,
               void (*on_ready)(struct side *side))
{
    struct err err = {0};
    struct mesh_peer peers[SIDE_PROCESSES_MAX];
    struct exchange_participant participants[SIDE_PROCESSES_MAX];
    side->settings = settings;
    side->on_ready = on_ready;
    for (uint32_t p = 0; p < settings->processes; p++) {
        (void)snprintf(side->names[p], sizeof(side->names[p]), "p%u", p % SIDE_PROCESSES_MAX);
        (void)snprintf(side->addresses[p], sizeof(side->addresses[p]), "127.0.0.1:%u",
                       side->ports[p]);
        peers[p] = (struct mesh_peer){
            .node_id = p + 1, .name = side->names[p], .address = side->addresses[p]};
        participants[p] = (struct exchange_participant){.node_id = p + 1,
                                                        .incarnation = 1,
                                                        .name = side->names[p],
                                                        .address = side->addresses[p],
                                                        .first = p,
                                                        .end = p + 1};
    }
    struct mesh_settings mesh = {.cluster = "bench",
                                 .name = side->names[settings->rank],
                                 .node_id = settings->rank + 1,
                                 .incarnation = 1,
                                 .listen = side->addresses[settings->rank],
                                 .peers = peers,
                                 .peers_count = settings->processes,
                                 .trust = side->trust,
                                 .context = side,
                                 .on_up = on_up,
                                 .on_down = on_down,
                                 .on_message = on_message,
                                 .on_bulk = on_bulk};
    struct exchange_settings exchange = {.cluster = "bench",
                                         .job = 1,
                                         .generation = 1,
                                         .policy = "f32-products-f64-accumulation-v1",
                                         .trust = side->trust,
                                         .pumps = settings->pumps,
                                         .participants = participants,
                                         .participants_count = settings->processes,
                                         .rank = settings->rank,
                                         .streams = settings->streams,
                                         .threads = settings->threads,
                                         .chunk_rows_max = settings->chunk_rows_max,
                                         .chunks_max = settings->chunks_max,
                                         .panel_rows = SIDE_PANEL_ROWS,
                                         .finish = finish,
                                         .context = side,
                                         .on_ready = on_exchange_ready,
                                         .on_failed = on_failed};
    check(side, mesh_open(&mesh, loop, &side->mesh, &err), &err);
    check(side, exchange_open(&exchange, loop, &side->exchange, &err), &err);
}

static void on_exchange_closed(void *context)
{
    struct side *side = context;
    mesh_close(side->mesh, NULL, NULL);
}

void side_close(struct side *side)
{
    exchange_close(side->exchange, on_exchange_closed, side);
}

void side_done(struct side *side)
{
    trust_free(side->trust);
    side->trust = NULL;
}

/* ---------------------------------------------------------------- a step */

bool side_step(struct side *side, uint64_t rows, uint32_t chunk_rows, const double *values,
               bool last, bool verify)
{
    struct err err = {0};
    uint32_t word = 0;
    uint64_t step = ++side->step;
    uint32_t chunks = (uint32_t)((rows + chunk_rows - 1) / chunk_rows);
    if (last) { /* Its values are not pushed: it is in this step's answer. */
        exchange_direct(side->exchange, WORD_LAST);
    }
    check(side, exchange_begin(side->exchange, step, rows, chunk_rows, &err), &err);
    for (uint32_t c = 0; c < chunks; c++) {
        check(side, exchange_push(side->exchange, step, c, values + (uint64_t)c * chunk_rows, &err),
              &err);
    }
    for (uint32_t c = 0; c < chunks; c++) {
        const float *residual = NULL;
        const double *losses = NULL;
        uint32_t bits = 0;
        check(side, exchange_pull(side->exchange, step, c, &residual, &losses, &bits, &err), &err);
        word |= bits;
        uint64_t first = (uint64_t)c * chunk_rows;
        uint64_t count = rows - first < chunk_rows ? rows - first : chunk_rows;
        for (uint64_t i = 0; verify && i < count; i++) {
            ASSERT(residual[i] ==
                   (float)(side->settings->processes * (double)((first + i) % 1024)));
        }
    }
    return (word & WORD_LAST) != 0;
}

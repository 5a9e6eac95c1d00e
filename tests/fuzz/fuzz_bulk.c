/* Whatever two peers send on their bulk links, in whatever order, while this node computes as its
 * contract says: every byte goes where there is room for it, impossible frames end the exchange
 * with a sentence, and a chunk is folded only when all of its parts are there.
 *
 * No sockets and no threads: the input is a list of operations on an exchange of three whose links
 * take all that is sent. Byte 0: this node's rank. Then records {u8 operation, u8 a, u16 b}:
 *   operation % 8   0: begin the next step with b % ROWS + 1 rows   1: push chunk a
 *                   2..7: of peer (operation / 8) % 2: the kinds VALUES, RESULT, WORD, GATHER, BYE,
 *                   ALIVE with b as its size, a as the chunk, the step as by operation / 16
 * A frame is placed at once and ends at the peer's next record, so that others come between. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "peer/exchange_room.h"

#define NODES      3
#define CHUNK_ROWS 32
#define CHUNKS     5
#define ROWS       (CHUNK_ROWS * CHUNKS)
#define PANEL_ROWS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct frame_in_work {
    bool open;
    struct frame_header header;
    uint8_t *place;
    uint8_t buffer[FRAME_LIMIT_CONTROL / 16];
};

static struct exchange exchange;
static struct worker worker; /* its only one */
static struct bulk bulks[NODES];
static struct bulk_slot slots[NODES];
static struct frame_in_work work[NODES];
static double values[CHUNKS][CHUNK_ROWS * 16];

static int finish(void *context, uint64_t step, uint32_t chunk, uint32_t rows, const double *z,
                  float *residual, double *panel_losses, struct err *err)
{
    (void)context;
    (void)step;
    (void)err;
    ASSERT(exchange.chunk[chunk].pushed);
    ASSERT(exchange.chunk[chunk].parts_missing == 0);
    for (uint32_t i = 0; i < rows; i++) {
        residual[i] = (float)z[i];
        panel_losses[i / PANEL_ROWS] = z[i];
    }
    return 0;
}

static void set_up(uint32_t rank)
{
    struct err err = {0};
    static struct participant participants[NODES];
    const uint64_t bounds[NODES + 1] = {0, 3, 8, 11};
    memset(&exchange, 0, sizeof(exchange));
    memset(&worker, 0, sizeof(worker));
    memset(participants, 0, sizeof(participants));
    memset(work, 0, sizeof(work));
    memset(slots, 0, sizeof(slots));
    exchange.settings.streams = 1;
    exchange.settings.generation = 1;
    exchange.settings.chunk_rows_max = CHUNK_ROWS;
    exchange.settings.chunks_max = CHUNKS;
    exchange.settings.panel_rows = PANEL_ROWS;
    exchange.settings.finish = finish;
    worker.state = EXCHANGE_READY;
    exchange.rank = rank;
    exchange.participants = participants;
    exchange.participants_count = NODES;
    exchange.coordinates_end = bounds[NODES];
    exchange.slots = slots;
    exchange.workers = &worker;
    exchange.workers_count = 1;
    ASSERT(pthread_mutex_init(&exchange.lock, NULL) == 0);
    worker.exchange = &exchange;
    ASSERT(pthread_mutex_init(&worker.step_lock, NULL) == 0);
    worker.held_last = &worker.held;
    ASSERT(uv_loop_init(&worker.loop) == 0);
    ASSERT(uv_idle_init(&worker.loop, &exchange.gather.copying) == 0);
    mailbox_init(&exchange.compute_box);
    mailbox_init(&exchange.loop_box);
    ASSERT(fold_plan_init_bounds(&exchange.plan, bounds, NODES, &err) == 0);
    for (uint32_t p = 0; p < NODES; p++) {
        struct node nodes[NODES_MAX];
        participants[p].node_id = p + 1;
        participants[p].first = bounds[p];
        participants[p].end = bounds[p + 1];
        participants[p].nodes_count = nodes_cover(bounds[p], bounds[p + 1], nodes);
        memset(&bulks[p], 0, sizeof(bulks[p]));
        bulks[p].worker = &worker;
        bulks[p].participant = p;
        bulks[p].state = BULK_UP;
        bulks[p].link.state = LINK_ENDED; /* Takes what is sent, and answers. */
        bulks[p].bye.kind = PEER_BYE;     /* Says none. */
        slots[p].bulk = p == rank ? NULL : &bulks[p];
    }
    ASSERT(steps_open(&exchange, &err) == 0);
    ASSERT(steps_open_worker(&worker, &err) == 0);
    ASSERT(gather_open(&exchange, &err) == 0);
}

static void tear_down(void)
{
    for (struct message *news = mailbox_take(&exchange.loop_box); news != NULL;
         news = mailbox_take(&exchange.loop_box)) {
        if (news->kind == NEWS_GATHERED) {
            struct gathered_message *gathered = OWNER_OF(news, struct gathered_message, message);
            free(gathered->vectors[0]);
            free(gathered->vectors[1]);
            free(gathered);
        }
    }
    uv_close((uv_handle_t *)&exchange.gather.copying, NULL);
    ASSERT(uv_run(&worker.loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&worker.loop) == 0);
    while (mailbox_take(&exchange.compute_box) != NULL) {
    }
    mailbox_done(&exchange.compute_box);
    mailbox_done(&exchange.loop_box);
    steps_done_worker(&worker);
    steps_done(&exchange);
    ASSERT(pthread_mutex_destroy(&worker.step_lock) == 0);
    ASSERT(pthread_mutex_destroy(&exchange.lock) == 0);
    gather_done(&exchange);
    fold_plan_done(&exchange.plan);
}

static bool step_is_over(void)
{
    for (uint32_t c = 0; c < worker.chunks; c++) {
        if (!exchange.chunk[c].complete) {
            return false;
        }
    }
    return true;
}

static void begin(uint64_t rows)
{
    struct begin_message mail = {.step = worker.step + 1, .rows = rows, .chunk_rows = CHUNK_ROWS};
    if (step_is_over()) {
        steps_answer(&worker); /* Compute begins only when it has every answer. */
        while (mailbox_take(&exchange.compute_box) != NULL) {
        }
        steps_begin(&worker, &mail);
    }
}

static void push(uint32_t chunk)
{
    if (worker.begun && chunk < worker.chunks && !exchange.chunk[chunk].pushed) {
        exchange.chunk[chunk].values = values[chunk];
        steps_push(&worker, &exchange.chunk[chunk]);
    }
}

static void fail(uint32_t peer, struct err *err)
{
    ASSERT(err->code < 0);
    ASSERT(err->text[0] != '\0');
    exchange_fail(&worker, peer, err);
}

static void finish_frame(uint32_t peer)
{
    struct frame_in_work *at = &work[peer];
    struct err err = {0};
    if (at->open) {
        at->open = false;
        memset(at->place, 3, at->header.body_size);
        if (links_bulk_ops.on_frame(&bulks[peer].link, &at->header, at->place, &err) != 0) {
            fail(peer, &err);
        }
    }
}

static void frame(uint32_t peer, uint16_t kind, uint64_t step, uint32_t chunk, uint32_t body_size)
{
    struct frame_in_work *at = &work[peer];
    struct err err = {0};
    finish_frame(peer);
    if (worker.state != EXCHANGE_READY) {
        return;
    }
    at->header = (struct frame_header){.body_size = body_size,
                                       .kind = kind,
                                       .generation = 1,
                                       .sequence = kind == PEER_GATHER ? step << 1 | (chunk & 1U)
                                                                       : step << 24 | chunk};
    at->place = NULL;
    if (links_bulk_ops.place(&bulks[peer].link, &at->header, &at->place, &err) != 0) {
        fail(peer, &err);
        return;
    }
    if (at->place == NULL) {
        at->place = at->buffer;
    }
    at->open = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint16_t kinds[6] = {PEER_VALUES, PEER_RESULT, PEER_WORD,
                                      PEER_GATHER, PEER_BYE,    PEER_ALIVE};
    if (size == 0) {
        return 0;
    }
    set_up(data[0] % NODES);
    for (size_t at = 1; at + 4 <= size && worker.state == EXCHANGE_READY; at += 4) {
        uint32_t operation = data[at];
        uint32_t a = data[at + 1];
        uint32_t b = (uint32_t)data[at + 2] | (uint32_t)data[at + 3] << 8;
        uint32_t peer = (exchange.rank + 1 + operation / 8 % 2) % NODES;
        uint64_t step = worker.step + operation / 16 % 4;
        if (operation % 8 == 0) {
            begin(b % ROWS + 1);
        } else if (operation % 8 == 1) {
            push(a % CHUNKS);
        } else {
            frame(peer, kinds[operation % 8 - 2], step, a, b);
        }
    }
    for (uint32_t p = 0; p < NODES; p++) {
        finish_frame(p);
    }
    ASSERT(worker.state == EXCHANGE_READY || exchange.failure.text[0] != '\0');
    tear_down();
    return 0;
}

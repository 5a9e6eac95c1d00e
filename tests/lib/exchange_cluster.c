#include "tests/lib/exchange_cluster.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rand.h"
#include "numerics/dyadic.h"
#include "numerics/nodes.h"
#include "numerics/product.h"
#include "tests/lib/ports.h"

static double term(uint64_t step, uint64_t row, uint64_t coordinate)
{
    struct rand rand = {step * 1000003U + row * 10007U + coordinate};
    uint64_t draw = rand_next(&rand);
    double value = (double)(draw >> 11) * 0x1p-53 - 0.5;
    return value * (double)(1U << (draw & 15)); /* Of many sizes: the order shows. */
}

uint64_t cluster_bound(const struct cluster_settings *settings, uint32_t rank)
{
    return settings->coordinates * rank / settings->nodes;
}

double cluster_slice_value(int which, uint64_t coordinate)
{
    return (double)(coordinate * 2 + (uint64_t)which) + 0.25;
}

static double node_value(struct node node, uint64_t step, uint64_t row)
{
    if (node.level == 0) {
        return term(step, row, node.index);
    }
    struct node left = {.index = node.index * 2, .level = node.level - 1};
    struct node right = {.index = node.index * 2 + 1, .level = node.level - 1};
    return node_value(left, step, row) + node_value(right, step, row);
}

size_t cluster_values(const struct cluster_settings *settings, uint32_t rank, uint64_t step,
                      uint64_t first_row, uint32_t rows, double *values)
{
    struct node nodes[NODES_MAX];
    size_t count =
        nodes_cover(cluster_bound(settings, rank), cluster_bound(settings, rank + 1), nodes);
    for (size_t n = 0; n < count; n++) {
        for (uint32_t i = 0; i < rows; i++) {
            values[n * rows + i] = node_value(nodes[n], step, first_row + i);
        }
    }
    return count;
}

static void finish_rows(uint64_t first_row, uint32_t rows, const double *z, float *residual,
                        double *panel_losses)
{
    for (uint32_t i = 0; i < rows; i++) {
        residual[i] = (float)(z[i] - (double)(first_row + i));
        if (i % CLUSTER_PANEL_ROWS == 0) {
            panel_losses[i / CLUSTER_PANEL_ROWS] = 0.0;
        }
        panel_losses[i / CLUSTER_PANEL_ROWS] += z[i] * z[i];
    }
}

static int finish(void *context, uint64_t step, uint32_t chunk, uint32_t rows, const double *z,
                  float *residual, double *panel_losses, struct err *err)
{
    const struct cluster_node *node = context;
    const struct cluster_settings *settings = &node->cluster->settings;
    if (step == settings->fail_finish_at && (chunk == 0 || settings->fail_finish_everywhere)) {
        return err_set(err, ERR_DIVERGED, "step 3: the loss is not finite");
    }
    finish_rows((uint64_t)chunk * settings->chunk_rows, rows, z, residual, panel_losses);
    return 0;
}

void cluster_expected(const struct cluster_settings *settings, struct cluster_digests *ret_digests)
{
    struct sha256 residuals = {0};
    struct sha256 losses = {0};
    sha256_init(&residuals);
    sha256_init(&losses);
    for (size_t s = 0; s < settings->steps_count; s++) {
        uint64_t rows = settings->steps[s].rows;
        size_t panels = (rows + CLUSTER_PANEL_ROWS - 1) / CLUSTER_PANEL_ROWS;
        double *z = calloc(rows, sizeof(*z));
        float *residual = calloc(rows, sizeof(*residual));
        double *panel_losses = calloc(panels, sizeof(*panel_losses));
        ASSERT(z != NULL);
        ASSERT(residual != NULL);
        ASSERT(panel_losses != NULL);
        for (uint64_t i = 0; i < rows; i++) {
            struct dyadic sum;
            dyadic_start(&sum);
            for (uint64_t j = 0; j < settings->coordinates; j++) {
                dyadic_add(&sum, term(settings->steps[s].step, i, j));
            }
            z[i] = canon(dyadic_root(&sum));
        }
        finish_rows(0, (uint32_t)rows, z, residual, panel_losses);
        sha256_update(&residuals, residual, rows * sizeof(*residual));
        sha256_update(&losses, panel_losses, panels * sizeof(*panel_losses));
        free(z);
        free(residual);
        free(panel_losses);
    }
    sha256_finish(&residuals, ret_digests->residuals);
    sha256_finish(&losses, ret_digests->losses);
}

/* ---------------------------------------------------------------- the compute thread */

static uint32_t chunk_rows_of(const struct cluster_settings *settings, uint64_t rows,
                              uint32_t chunk)
{
    uint64_t first = (uint64_t)chunk * settings->chunk_rows;
    return rows - first < settings->chunk_rows ? (uint32_t)(rows - first) : settings->chunk_rows;
}

/* One step: pushes in a random order and pulls between. What came is copied to the arrays. */
static int run_step(struct cluster_node *node, struct rand *rand, uint64_t step, uint64_t rows,
                    double **values, float *residual, double *losses, uint32_t *ret_word)
{
    const struct cluster_settings *settings = &node->cluster->settings;
    uint32_t chunks = (uint32_t)((rows + settings->chunk_rows - 1) / settings->chunk_rows);
    uint32_t order[512];
    uint32_t pulls[512];
    uint32_t pushed = 0;
    uint32_t waiting = 0;
    uint32_t pulled = 0;
    ASSERT(chunks <= 512);
    if (exchange_begin(node->exchange, step, rows, settings->chunk_rows, &node->err) != 0) {
        return node->err.code;
    }
    for (uint32_t c = 0; c < chunks; c++) {
        uint32_t other = (uint32_t)rand_below(rand, c + 1);
        order[c] = order[other];
        order[other] = c;
    }
    while (pulled < chunks) {
        /* A pull waits until all have pushed the chunk, and each has an order of its own: pulling
         * before all is pushed could wait in a circle. */
        if (pushed < chunks) {
            uint32_t c = order[pushed++];
            uint64_t first = (uint64_t)c * settings->chunk_rows;
            (void)cluster_values(settings, node->rank, step, first,
                                 chunk_rows_of(settings, rows, c), values[c]);
            if (exchange_push(node->exchange, step, c, values[c], &node->err) != 0) {
                return node->err.code;
            }
            pulls[waiting++] = c;
            continue;
        }
        uint32_t at = (uint32_t)rand_below(rand, waiting);
        uint32_t c = pulls[at];
        pulls[at] = pulls[--waiting];
        const float *got = NULL;
        const double *got_losses = NULL;
        uint32_t word = 0;
        if (exchange_pull(node->exchange, step, c, &got, &got_losses, &word, &node->err) != 0) {
            return node->err.code;
        }
        uint32_t count = chunk_rows_of(settings, rows, c);
        memcpy(residual + (uint64_t)c * settings->chunk_rows, got, count * sizeof(*got));
        memcpy(losses + (uint64_t)c * settings->chunk_rows / CLUSTER_PANEL_ROWS, got_losses,
               ((count + CLUSTER_PANEL_ROWS - 1) / CLUSTER_PANEL_ROWS) * sizeof(*got_losses));
        *ret_word |= word;
        pulled++;
    }
    return 0;
}

static uint32_t chunks_max(const struct cluster_settings *settings)
{
    uint64_t rows_max = 0;
    for (size_t s = 0; s < settings->steps_count; s++) {
        rows_max = settings->steps[s].rows > rows_max ? settings->steps[s].rows : rows_max;
    }
    return (uint32_t)((rows_max + settings->chunk_rows - 1) / settings->chunk_rows);
}

static void *compute(void *context)
{
    struct cluster_node *node = context;
    const struct cluster_settings *settings = &node->cluster->settings;
    struct rand rand = {settings->seed * 31U + node->rank};
    struct sha256 residuals = {0};
    struct sha256 losses = {0};
    double *values[512] = {NULL};
    struct node nodes[NODES_MAX];
    size_t own_nodes = nodes_cover(cluster_bound(settings, node->rank),
                                   cluster_bound(settings, node->rank + 1), nodes);
    for (size_t c = 0; c < chunks_max(settings); c++) {
        values[c] = calloc((size_t)settings->chunk_rows * own_nodes, sizeof(double));
        ASSERT(values[c] != NULL);
    }
    sha256_init(&residuals);
    sha256_init(&losses);
    for (size_t s = 0; s < settings->steps_count && node->err.code == 0; s++) {
        uint64_t rows = settings->steps[s].rows;
        uint64_t step = settings->steps[s].step;
        if (step == settings->stop_at && node->rank == settings->stop_node) {
            break;
        }
        if (settings->pause_us > 0) {
            (void)usleep((useconds_t)rand_below(&rand, settings->pause_us));
        }
        float *residual = calloc(rows, sizeof(*residual));
        double *panel_losses = calloc(rows, sizeof(*panel_losses));
        ASSERT(residual != NULL);
        ASSERT(panel_losses != NULL);
        if (run_step(node, &rand, step, rows, values, residual, panel_losses, &node->words[s]) ==
            0) {
            node->steps_done++;
            sha256_update(&residuals, residual, rows * sizeof(*residual));
            sha256_update(&losses, panel_losses,
                          (rows + CLUSTER_PANEL_ROWS - 1) / CLUSTER_PANEL_ROWS *
                              sizeof(*panel_losses));
            if (step == settings->gather_at) {
                ASSERT(exchange_gather(node->exchange, step, node->slices[0], node->slices[1],
                                       &node->err) == 0);
            }
        }
        free(residual);
        free(panel_losses);
    }
    sha256_finish(&residuals, node->digests.residuals);
    sha256_finish(&losses, node->digests.losses);
    for (size_t c = 0; c < chunks_max(settings); c++) {
        free(values[c]);
    }
    atomic_store(&node->done, true);
    return NULL;
}

/* ---------------------------------------------------------------- the loop */

static void on_up(void *context, uint32_t node_id, uint64_t incarnation)
{
    struct cluster_node *node = context;
    (void)node_id;
    (void)incarnation;
    node->ups++;
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

static void on_bulk(void *context, const struct peer_incoming *incoming)
{
    struct cluster_node *node = context;
    struct peer_incoming copy = *incoming;
    if (node->exchange == NULL) {
        peer_refuse(&copy, ERR_BUSY, "not yet");
    } else {
        exchange_adopt(node->exchange, &copy);
    }
}

static void on_ready(void *context)
{
    struct cluster_node *node = context;
    node->ready++;
}

static void on_failed(void *context, uint32_t culprit, const struct err *err)
{
    struct cluster_node *node = context;
    node->failed++;
    node->failed_ms = clock_now_ms();
    node->culprit = culprit;
    node->failure = *err;
}

static void on_gathered(void *context, uint64_t step, double *parameter, double *accumulator,
                        size_t count)
{
    struct cluster_node *node = context;
    node->gathered++;
    node->gathered_step = step;
    sha256_of(parameter, count * sizeof(double), node->gathered_digest[0]);
    sha256_of(accumulator, count * sizeof(double), node->gathered_digest[1]);
    free(parameter);
    free(accumulator);
}

static void on_slices_sent(void *context, uint64_t step)
{
    struct cluster_node *node = context;
    (void)step;
    node->slices_sent++;
}

static bool by_hand(const struct cluster *cluster, uint32_t rank)
{
    return (cluster->settings.played_by_hand >> rank & 1U) != 0;
}

void cluster_open(struct cluster *cluster, const struct cluster_settings *settings)
{
    struct mesh_peer peers[CLUSTER_NODES_MAX];
    char real[CLUSTER_NODES_MAX][32];
    memset(cluster, 0, sizeof(*cluster));
    cluster->settings = *settings;
    ASSERT(settings->nodes <= CLUSTER_NODES_MAX);
    ASSERT(uv_loop_init(&cluster->loop) == 0);
    for (uint32_t i = 0; i < settings->nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        uint16_t port = test_port();
        (void)snprintf(real[i], sizeof(real[i]), "127.0.0.1:%u", port);
        if (settings->delay_us_max > 0 || settings->proxied) {
            node->proxy = delay_proxy_new(port, settings->delay_us_max, settings->seed + i);
            port = delay_proxy_port(node->proxy);
        }
        node->cluster = cluster;
        node->rank = i;
        (void)snprintf(node->name, sizeof(node->name), "n%u", i + 1);
        (void)snprintf(node->address, sizeof(node->address), "127.0.0.1:%u", port);
        peers[i] =
            (struct mesh_peer){.node_id = i + 1, .name = node->name, .address = node->address};
        if (settings->secure) {
            char bundle[64];
            struct err err = {0};
            if (i == 0) {
                test_folder_open(&cluster->folder);
                trust_make_authority(&cluster->folder, "ca", "test");
            }
            (void)snprintf(bundle, sizeof(bundle), "ca-%s", node->name);
            trust_make_bundle(&cluster->folder, "ca", "test", TRUST_NODE, node->name);
            ASSERT(trust_open_bundle(&cluster->folder, bundle, 0, &node->trust, &err) == 0);
        }
        uint64_t first = cluster_bound(settings, i);
        uint64_t end = cluster_bound(settings, i + 1);
        for (int which = 0; which < 2; which++) {
            node->slices[which] = calloc(end - first, sizeof(double));
            ASSERT(node->slices[which] != NULL);
            for (uint64_t j = first; j < end; j++) {
                node->slices[which][j - first] = cluster_slice_value(which, j);
            }
        }
    }
    for (uint32_t i = 0; i < settings->nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        struct err err = {0};
        struct mesh_settings mesh = {.cluster = "test",
                                     .name = node->name,
                                     .node_id = i + 1,
                                     .incarnation = i + 1,
                                     .listen = real[i],
                                     .peers = peers,
                                     .peers_count = settings->nodes,
                                     .context = node,
                                     .on_up = on_up,
                                     .on_down = on_down,
                                     .on_message = on_message,
                                     .trust = node->trust,
                                     .on_bulk = on_bulk};
        if (!by_hand(cluster, i)) {
            ASSERT(mesh_open(&mesh, &cluster->loop, &node->mesh, &err) == 0);
        }
    }
}

void cluster_start(struct cluster *cluster)
{
    const struct cluster_settings *settings = &cluster->settings;
    struct exchange_participant participants[CLUSTER_NODES_MAX];
    for (uint32_t i = 0; i < settings->nodes; i++) {
        participants[i] = (struct exchange_participant){.node_id = i + 1,
                                                        .incarnation = i + 1,
                                                        .name = cluster->nodes[i].name,
                                                        .address = cluster->nodes[i].address,
                                                        .first = cluster_bound(settings, i),
                                                        .end = cluster_bound(settings, i + 1)};
    }
    for (uint32_t i = 0; i < settings->nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        struct err err = {0};
        struct exchange_settings exchange = {
            .cluster = "test",
            .job = 7,
            .generation = 3,
            .identity = {1, 2, 3},
            .policy = "test-policy",
            .trust = node->trust,
            .pumps = settings->pumps ? EXCHANGE_PUMPS_YES : EXCHANGE_PUMPS_NO,
            .participants = participants,
            .participants_count = settings->nodes,
            .rank = i,
            .streams = settings->streams,
            .threads = settings->threads + (settings->mixed ? i : 0),
            .chunk_rows_max = settings->chunk_rows,
            .chunks_max = chunks_max(settings),
            .panel_rows = CLUSTER_PANEL_ROWS,
            .window_size = settings->window_size,
            .connect_timeout_ms = settings->connect_timeout_ms,
            .silence_ms = settings->silence_ms,
            .progress_ms = settings->progress_ms,
            .finish = finish,
            .finish_context = node,
            .context = node,
            .on_ready = on_ready,
            .on_failed = on_failed,
            .on_gathered = on_gathered,
            .on_slices_sent = on_slices_sent,
        };
        if (by_hand(cluster, i)) {
            atomic_store(&node->done, true);
            continue;
        }
        if (cluster->tweak != NULL) {
            cluster->tweak(i, &exchange);
        }
        ASSERT(exchange_open(&exchange, &cluster->loop, &node->exchange, &err) == 0);
        node->computing = true;
        ASSERT(pthread_create(&node->compute, NULL, compute, node) == 0);
    }
}

static void on_nothing(uv_timer_t *timer)
{
    (void)timer;
}

static bool all_done(const struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->settings.nodes; i++) {
        if (!atomic_load(&cluster->nodes[i].done)) {
            return false;
        }
    }
    return true;
}

static bool run_until(struct cluster *cluster, const int *counter, int wanted, uint64_t timeout_ms)
{
    uint64_t end_ms = clock_now_ms() + timeout_ms;
    uv_timer_t timer;
    ASSERT(uv_timer_init(&cluster->loop, &timer) == 0);
    ASSERT(uv_timer_start(&timer, on_nothing, 2, 2) == 0);
    while ((counter != NULL ? *counter < wanted : !all_done(cluster)) && clock_now_ms() < end_ms) {
        (void)uv_run(&cluster->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    (void)uv_run(&cluster->loop, UV_RUN_NOWAIT);
    return counter != NULL ? *counter >= wanted : all_done(cluster);
}

bool cluster_run(struct cluster *cluster, const int *counter, int wanted, uint64_t timeout_ms)
{
    return run_until(cluster, counter, wanted, timeout_ms);
}

bool cluster_run_done(struct cluster *cluster, uint64_t timeout_ms)
{
    return run_until(cluster, NULL, 0, timeout_ms);
}

static void on_closed(void *context)
{
    struct cluster_node *node = context;
    node->closed++;
    node->exchange = NULL;
}

void cluster_close(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->settings.nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        if (node->computing) {
            if (!atomic_load(&node->done)) {
                exchange_cancel(node->exchange, "the test ends");
            }
            ASSERT(pthread_join(node->compute, NULL) == 0);
            node->computing = false;
        }
    }
    for (uint32_t i = 0; i < cluster->settings.nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        if (node->exchange != NULL) {
            exchange_stats(node->exchange, &node->stats);
            exchange_close(node->exchange, on_closed, node);
        }
    }
    for (uint32_t i = 0; i < cluster->settings.nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        if (node->exchange != NULL) {
            ASSERT(cluster_run(cluster, &node->closed, 1, 10000));
        }
        if (node->mesh != NULL) {
            mesh_close(node->mesh, NULL, NULL);
        }
    }
    ASSERT(uv_run(&cluster->loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&cluster->loop) == 0);
    for (uint32_t i = 0; i < cluster->settings.nodes; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        if (node->proxy != NULL) {
            delay_proxy_free(node->proxy);
        }
        trust_free(node->trust);
        free(node->slices[0]);
        free(node->slices[1]);
    }
    if (cluster->settings.secure) {
        test_folder_close(&cluster->folder);
    }
}

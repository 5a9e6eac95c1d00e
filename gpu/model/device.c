#include "gpu/model/device.h"

#include <stdio.h>
#include <string.h>

#include "gpu/model/attention_tiles.h"
#include "gpu/model/tiles.h"

#define FLAT_THREADS     256
#define FLAT_BLOCKS      8    /* of a multiprocessor, for images whose grid strides */
#define SUM_ROOT_THREADS 1024 /* of the only block that adds up leaves */
#define NORM_WARPS       4
#define SCATTER_LEAVES   256
#define TRANSPOSE_TILE   64
#define QUERY_BLOCK      64 /* rows of a block of attention */

static const struct {
    uint32_t m;
    uint32_t n;
    uint32_t stages;
    uint32_t warps;
} tiles[MMA_TILES_COUNT] = {
#define TILE(number, m, n, stages, warps_m, warps_n) {m, n, stages, (warps_m) * (warps_n)},
    MODEL_TILES(TILE)
#undef TILE
};

struct attention_candidate {
    uint32_t head;
    uint32_t groups;
    uint32_t step;
    uint32_t stages;
};

#define CANDIDATE(number, head, groups, step, stages, blocks, more, fewer) \
    {head, groups, step, stages},
static const struct attention_candidate forward_candidates[] = {FORWARD_CANDIDATES(CANDIDATE)};
static const struct attention_candidate query_candidates[] = {QUERY_CANDIDATES(CANDIDATE)};
static const struct attention_candidate key_candidates[] = {KEY_CANDIDATES(CANDIDATE)};
#undef CANDIDATE

/* The images of attention on sm_90a. */
static const struct hopper_attention {
    const char *name;
    const char *entry;
    const struct attention_candidate *candidates;
    int count;
    int choices[2];   /* the fastest for a head of 64, and of 128 */
    uint32_t own;     /* operands of the own side */
    uint32_t vectors; /* f32 vectors of a step */
    uint32_t boxes;
    uint32_t operands[MODEL_MAPS_MAX]; /* that the boxes walk */
} hopper_attention[] = {
    {"attention-forward",
     "hopper_forward",
     forward_candidates,
     FORWARD_CANDIDATES_COUNT,
     {FORWARD_CHOICE_64, FORWARD_CHOICE_128},
     1,
     0,
     3,
     {0, 1, 2}},
    {"attention-query",
     "hopper_query",
     query_candidates,
     QUERY_CANDIDATES_COUNT,
     {QUERY_CHOICE_64, QUERY_CHOICE_128},
     2,
     0,
     4,
     {0, 1, 2, 4}},
    {"attention-key",
     "hopper_key",
     key_candidates,
     KEY_CANDIDATES_COUNT,
     {KEY_CHOICE_64, KEY_CHOICE_128},
     2,
     2,
     4,
     {0, 1, 2, 3}},
};

static const struct {
    uint32_t m;
    uint32_t n;
    uint32_t stages;
    uint32_t groups;
    int mode;
    uint32_t cluster_m;
    uint32_t cluster_n;
} hopper_tiles[MODEL_TILES_COUNT - MMA_TILES_COUNT] = {
#define TILE(number, m, n, stages, groups, mode, cluster_m, cluster_n) \
    {m, n, stages, groups, mode, cluster_m, cluster_n},
    HOPPER_TILES(TILE)
#undef TILE
};

struct plan {
    const char *name;
    const struct model_launch *launch;
    unsigned multiprocessors;
    struct model_kernel *kernels;
    size_t count;
};

static uint32_t parts(uint64_t count, uint64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

static void put(struct plan *plan, const char *entry, uint32_t x, uint32_t y, uint32_t threads)
{
    struct model_kernel *kernel = &plan->kernels[plan->count++];
    *kernel = (struct model_kernel){.grid = {x, y, 1}, .threads = threads};
    (void)snprintf(kernel->entry, sizeof(kernel->entry), "%s", entry);
    for (char *at = kernel->entry; *at != '\0'; at++) {
        *at = *at == '-' ? '_' : *at;
    }
}

/* Each kernel of an image comes early (where that was measured to be faster: a grid that fills the
 * GPU once loses its evenness where others already wait). */
static void come_early(struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        plan->kernels[i].early = true;
    }
}

/* A grid that strides over `items`, one a thread. */
static void put_strided(struct plan *plan, uint64_t items)
{
    uint64_t blocks = (items + FLAT_THREADS - 1) / FLAT_THREADS;
    uint64_t most = (uint64_t)plan->multiprocessors * FLAT_BLOCKS;
    put(plan, plan->name, (uint32_t)(blocks < most ? blocks : most), 1, FLAT_THREADS);
}

static bool one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

/* -- groups of images; each says whether the image is its own -----------------------------------
 */

static bool plan_flat(struct plan *plan)
{
    static const char *const strided[] = {"random-normal", "adamw", NULL};
    static const char *const quads[] = {"fill", "copy",  "cast-down", "cast-up",
                                        "add",  "scale", NULL};
    const struct model_launch *launch = plan->launch;
    if (one_of(plan->name, strided)) {
        put_strided(plan, (launch->count + 3) / 4 + 1);
    } else if (one_of(plan->name, quads)) { /* and one thread at least for what is no quad */
        put(plan, plan->name, parts(launch->count / 4 + 1, FLAT_THREADS * MODEL_AHEAD), 1,
            FLAT_THREADS);
    } else if (strcmp(plan->name, "gated-gelu-forward") == 0) {
        put(plan, plan->name,
            parts((uint64_t)launch->rows * launch->shape.feed / 8, 2 * FLAT_THREADS), 1,
            FLAT_THREADS);
    } else if (strcmp(plan->name, "gated-gelu-backward") == 0) {
        put_strided(plan, (uint64_t)launch->rows * launch->shape.feed / 8);
    } else if (strcmp(plan->name, "loss-sum") == 0) {
        put(plan, "loss_leaf", parts(launch->count, MODEL_SUM_LEAF * MODEL_SUM_LEAVES), 1,
            FLAT_THREADS);
        put(plan, "loss_root", 1, 1, SUM_ROOT_THREADS);
        come_early(plan);
    } else if (strcmp(plan->name, "gradient-norm") == 0) {
        put(plan, "norm_leaf", parts(launch->count, MODEL_SUM_LEAF * MODEL_SUM_LEAVES), 1,
            FLAT_THREADS);
        put(plan, "norm_root", 1, 1, SUM_ROOT_THREADS);
        come_early(plan);
    }
    return plan->count != 0;
}

static bool plan_rows(struct plan *plan)
{
    static const char *const blocks[] = {"argmax", "cross-entropy", "cross-entropy-backward", NULL};
    static const char *const warps[] = {"layernorm-forward", "layernorm-backward", NULL};
    const uint32_t rows = plan->launch->rows;
    const uint32_t width = plan->launch->shape.width;
    if (one_of(plan->name, blocks)) {
        put(plan, plan->name, rows, 1, 256);
    } else if (one_of(plan->name, warps)) {
        put(plan, plan->name, parts(rows, NORM_WARPS), 1, NORM_WARPS * 32);
    } else if (strcmp(plan->name, "layernorm-parameters") == 0) {
        put(plan, "layernorm_leaf", parts(rows, MODEL_NORM_LEAF), parts(width, MODEL_NORM_COLUMNS),
            128);
        put(plan, "layernorm_root", parts(2 * (uint64_t)width, 32), 1, 1024);
    } else if (strcmp(plan->name, "gather") == 0) {
        put(plan, plan->name, parts(rows, 4), 1, 128);
    } else if (strcmp(plan->name, "loss-target-gather") == 0) {
        put(plan, plan->name, parts(rows, 256), 1, 256);
    } else if (strcmp(plan->name, "embedding-scatter") == 0) {
        const uint32_t leaves = parts(rows, MODEL_SCATTER_LEAF);
        put(plan, "scatter_order", leaves, 1, MODEL_SCATTER_LEAF);
        put(plan, "scatter_leaf", parts(rows, MODEL_SCATTER_PLACES), 1, 128);
        put(plan, "scatter_root", parts(plan->launch->shape.vocabulary, MODEL_SCATTER_TOKENS), 1,
            MODEL_SCATTER_TOKENS * 32);
        plan->kernels[plan->count - 1].shared_bytes =
            MODEL_SCATTER_TOKENS *
            (MODEL_SCATTER_LEVELS(leaves) * 32 * 16 + leaves * MODEL_SCATTER_SHORT * 4);
        come_early(plan);
    }
    return plan->count != 0;
}

static bool plan_sequences(struct plan *plan)
{
    static const char *const octets[] = {"value-transpose", "head-to-token", "token-to-head", NULL};
    static const char *const scores[] = {"softmax-forward", "softmax-backward", NULL};
    const struct model_shape *shape = &plan->launch->shape;
    const uint64_t tokens = (uint64_t)shape->sequences * shape->length;
    if (one_of(plan->name, octets)) {
        put(plan, plan->name, parts(tokens * shape->width / 8, FLAT_THREADS * MODEL_AHEAD), 1,
            FLAT_THREADS);
    } else if (one_of(plan->name, scores)) {
        /* A warp a row, kept in registers: rows of up to 1024, or of up to 4096. */
        char entry[IMAGE_NAME_SIZE];
        (void)snprintf(entry, sizeof(entry), "%s-%d", plan->name,
                       shape->length <= 1024 ? 1024 : 4096);
        put(plan, entry, parts(tokens * shape->heads, MODEL_SOFTMAX_ROWS), 1,
            MODEL_SOFTMAX_ROWS * 32);
    } else if (strcmp(plan->name, "rotary-table") == 0) {
        put_strided(plan, (uint64_t)shape->length * shape->head / 2);
    } else if (strcmp(plan->name, "qk-rope") == 0) {
        put_strided(plan, tokens * (shape->head / 2 / 8));
    } else if (strcmp(plan->name, "inverse-rope-qkv") == 0) {
        put_strided(plan, 3 * tokens * (shape->width / 2 / 8));
    }
    return plan->count != 0;
}

bool model_tile_serves(int tile, const struct model_launch *launch)
{
    if (tile < 0 || tile >= MODEL_TILES_COUNT) {
        return false;
    }
    if (tile < MMA_TILES_COUNT) {
        return launch->split <= 1 && launch->m % tiles[tile].m == 0 &&
               launch->n % tiles[tile].n == 0 && launch->k % TILE_K == 0;
    }
    const int i = tile - MMA_TILES_COUNT;
    if (hopper_tiles[i].mode == HOPPER_RESIDUAL &&
        (launch->add == 0 || launch->half_out != 0 || launch->split > 1)) {
        return false;
    }
    return launch->split <= launch->k / HOPPER_K && launch->k % HOPPER_K == 0 &&
           launch->m % (hopper_tiles[i].m * hopper_tiles[i].cluster_m) == 0 &&
           launch->n % (hopper_tiles[i].n * hopper_tiles[i].cluster_n) == 0;
}

/* The operand's matrix and the box of it that one of `slices` blocks of a cluster copies. */
static struct model_box operand_box(uint32_t operand, bool by_columns, uint32_t count, uint32_t k,
                                    uint32_t tile, uint32_t slices)
{
    return by_columns ? (struct model_box){operand, count, k, HOPPER_K, HOPPER_K / slices}
                      : (struct model_box){operand, k, count, HOPPER_K, tile / slices};
}

/* Of a matrix that C has the shape of, written or read in pieces of 64 rows; f32 goes as pairs of
 * halves. */
static struct model_box output_box(uint32_t operand, const struct model_launch *launch, bool wide)
{
    return (struct model_box){operand, launch->n * (wide ? 2 : 1), launch->m, HOPPER_K, HOPPER_K};
}

static void plan_hopper(struct plan *plan, const char *entry, int i)
{
    const struct model_launch *launch = plan->launch;
    const uint32_t m = hopper_tiles[i].m;
    const uint32_t n = hopper_tiles[i].n;
    const uint32_t cluster = hopper_tiles[i].cluster_m * hopper_tiles[i].cluster_n;
    const uint32_t parts_of_k = launch->split > 1 ? launch->split : 1;
    const uint32_t shared =
        HOPPER_SHARED(m, n, hopper_tiles[i].stages, hopper_tiles[i].groups, hopper_tiles[i].mode);
    const uint32_t room = plan->multiprocessors * (shared <= HOPPER_SHARED_HALF ? 2 : 1) / cluster;
    const uint32_t units = launch->m / m * (launch->n / n) / cluster * parts_of_k;
    put(plan, entry, (units < room ? units : room) * cluster, 1,
        (hopper_tiles[i].groups + 1) * 128);
    struct model_kernel *kernel = &plan->kernels[plan->count - 1];
    kernel->shared_bytes = shared;
    kernel->early = true;
    kernel->boxes_count = 2;
    kernel->boxes[0] =
        operand_box(0, launch->a_columns != 0, launch->m, launch->k, m, hopper_tiles[i].cluster_n);
    kernel->boxes[1] =
        operand_box(1, launch->b_columns != 0, launch->n, launch->k, n, hopper_tiles[i].cluster_m);
    if (hopper_tiles[i].mode == HOPPER_RESIDUAL) {
        kernel->boxes[kernel->boxes_count++] = output_box(2, launch, true);
        kernel->boxes[kernel->boxes_count++] = output_box(3, launch, true);
    } else if (launch->half_out != 0) {
        kernel->boxes[kernel->boxes_count++] = output_box(4, launch, false);
    }
    if (launch->split > 1) {
        put(plan, "product_sum", parts((uint64_t)launch->m * launch->n, FLAT_THREADS * 4), 1,
            FLAT_THREADS);
        plan->kernels[plan->count - 1].early = true;
    }
}

static int plan_product(struct plan *plan, int tile, struct err *err)
{
    const struct model_launch *launch = plan->launch;
    if (tile == MODEL_TILE_NONE) {
        return err_set(err, ERR_DEVICE, "device image '%s': no tile was chosen for it", plan->name);
    }
    if (!model_tile_serves(tile, launch)) {
        return err_set(err, ERR_DEVICE, "device image '%s': tile %d does not serve %u x %u x %u",
                       plan->name, tile, launch->m, launch->n, launch->k);
    }
    char entry[IMAGE_NAME_SIZE];
    (void)snprintf(entry, sizeof(entry), "product_%s%d",
                   launch->a_columns   ? "cc"
                   : launch->b_columns ? "rc"
                                       : "rr",
                   tile);
    if (tile >= MMA_TILES_COUNT) {
        plan_hopper(plan, entry, tile - MMA_TILES_COUNT);
        return 0;
    }
    put(plan, entry, launch->m / tiles[tile].m * (launch->n / tiles[tile].n), 1,
        tiles[tile].warps * 32);
    plan->kernels[0].shared_bytes =
        (tiles[tile].m + tiles[tile].n) * TILE_K * 2 * tiles[tile].stages;
    return 0;
}

static const struct hopper_attention *find_hopper(const char *name)
{
    for (size_t i = 0; i < sizeof(hopper_attention) / sizeof(hopper_attention[0]); i++) {
        if (strcmp(hopper_attention[i].name, name) == 0) {
            return &hopper_attention[i];
        }
    }
    return NULL;
}

bool model_attention_serves(const char *name, int tile, const struct model_launch *launch)
{
    const struct hopper_attention *image = find_hopper(name);
    return image != NULL && tile >= 0 && tile < image->count &&
           image->candidates[tile].head == launch->shape.head && launch->shape.length % 128 == 0;
}

int model_attention_choice(int architecture, const char *name, const struct model_launch *launch)
{
    const struct hopper_attention *image = find_hopper(name);
    if (image == NULL || architecture != 90) {
        return MODEL_TILE_NONE;
    }
    const int choice = image->choices[launch->shape.head == 64 ? 0 : 1];
    return model_attention_serves(name, choice, launch) ? choice : MODEL_TILE_NONE;
}

static int plan_hopper_attention(struct plan *plan, int tile, struct err *err)
{
    const struct model_shape *shape = &plan->launch->shape;
    const struct hopper_attention *image = find_hopper(plan->name);
    if (!model_attention_serves(plan->name, tile, plan->launch)) {
        return err_set(err, ERR_DEVICE,
                       "device image '%s': candidate %d does not serve head %u, length %u",
                       plan->name, tile, shape->head, shape->length);
    }
    const struct attention_candidate *candidate = &image->candidates[tile];
    char entry[IMAGE_NAME_SIZE];
    (void)snprintf(entry, sizeof(entry), "%s%d", image->entry, tile);
    const uint32_t tiles_of_rows = parts(shape->length, 64ULL * candidate->groups);
    put(plan, entry, (tiles_of_rows + 1) / 2, shape->sequences * shape->heads,
        candidate->groups * 128 + 128);
    struct model_kernel *kernel = &plan->kernels[0];
    kernel->boxes_count = image->boxes;
    for (uint32_t i = 0; i < image->boxes; i++) {
        kernel->boxes[i] =
            (struct model_box){image->operands[i], shape->head,
                               (uint64_t)shape->sequences * shape->heads * shape->length, 64, 64};
    }
    /* The own side's tiles, two of each, and the ring, all at multiples of 1024. */
    const uint32_t row = 2 * shape->head;
    const uint32_t vectors = parts(4ULL * image->vectors * candidate->step, 1024) * 1024;
    kernel->shared_bytes = 2 * image->own * candidate->groups * 64 * row +
                           candidate->stages * (2 * candidate->step * row + vectors) + 1024;
    return 0;
}

static int plan_attention(struct plan *plan, int tile, struct err *err)
{
    const struct model_shape *shape = &plan->launch->shape;
    if (tile != MODEL_TILE_NONE) {
        return plan_hopper_attention(plan, tile, err);
    }
    if (shape->head % 64 != 0 || shape->head > 256) {
        return err_set(err, ERR_DEVICE, "device image '%s': head = %u; it serves 64, 128, 192, 256",
                       plan->name, shape->head);
    }
    if (shape->length % QUERY_BLOCK != 0) {
        return err_set(err, ERR_DEVICE, "device image '%s': length = %u; it serves multiples of %d",
                       plan->name, shape->length, QUERY_BLOCK);
    }
    char entry[IMAGE_NAME_SIZE];
    (void)snprintf(entry, sizeof(entry), "%s%u", plan->name, shape->head);
    put(plan, entry, shape->length / QUERY_BLOCK, shape->sequences * shape->heads, 128);
    /* The block's own rows (queries; and dout, or values) and two stages of two tiles. */
    const uint32_t own = strcmp(plan->name, "attention-forward") == 0 ? 1 : 2;
    plan->kernels[0].shared_bytes = (own + 4) * QUERY_BLOCK * shape->head * 2;
    return 0;
}

static int plan_transpose(struct plan *plan, struct err *err)
{
    const struct model_launch *launch = plan->launch;
    if (launch->m % TRANSPOSE_TILE != 0 || launch->n % TRANSPOSE_TILE != 0) {
        return err_set(err, ERR_DEVICE, "device image '%s': it serves multiples of %d", plan->name,
                       TRANSPOSE_TILE);
    }
    const uint64_t tiles_count =
        (uint64_t)launch->groups * (launch->m / TRANSPOSE_TILE) * (launch->n / TRANSPOSE_TILE);
    put(plan, "transpose", parts(tiles_count, MODEL_TRANSPOSE_TILES), 1, FLAT_THREADS);
    return 0;
}

int model_device_plan(const char *name, const struct model_launch *launch, int tile,
                      unsigned multiprocessors, struct model_kernel ret[MODEL_STAGES_MAX],
                      size_t *ret_count, struct err *err)
{
    const struct model_image *image;
    int status = model_image_find(name, NULL, &image, err);
    if (status != 0) {
        return status;
    }
    struct model_kernel kernels[MODEL_STAGES_MAX];
    struct plan plan = {name, launch, multiprocessors, kernels, 0};
    if (strcmp(image->name, "tiled") == 0) {
        status = plan_product(&plan, tile, err);
    } else if (strcmp(image->name, "transpose") == 0) {
        status = plan_transpose(&plan, err);
    } else if (strncmp(name, "attention-", 10) == 0) {
        status = plan_attention(&plan, tile, err);
    } else if (strcmp(name, "adamw") == 0 && launch->count % 4 != 0) {
        status = err_set(err, ERR_DEVICE, "device image 'adamw': %llu elements are not whole quads",
                         (unsigned long long)launch->count);
    } else if (strcmp(name, "embedding-scatter") == 0 &&
               launch->rows > SCATTER_LEAVES * MODEL_SCATTER_LEAF) {
        status = err_set(err, ERR_DEVICE, "device image '%s': %u rows; it serves %d", name,
                         launch->rows, SCATTER_LEAVES * MODEL_SCATTER_LEAF);
    } else if (strcmp(image->operands[0].name, "tokens") != 0 &&
               (uint64_t)launch->shape.sequences * launch->shape.length * launch->shape.width / 4 >
                   UINT32_MAX) {
        status = err_set(err, ERR_DEVICE,
                         "device image '%s': %u x %u positions of width %u are more than it counts",
                         name, launch->shape.sequences, launch->shape.length, launch->shape.width);
    } else if (!plan_flat(&plan) && !plan_rows(&plan) && !plan_sequences(&plan)) {
        status = err_set(err, ERR_DEVICE, "device image '%s' has no GPU kernel yet", name);
    }
    if (status != 0) {
        return status;
    }
    memcpy(ret, kernels, plan.count * sizeof(*kernels));
    *ret_count = plan.count;
    return 0;
}

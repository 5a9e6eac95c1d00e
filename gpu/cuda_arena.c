/* What a session keeps on the GPU, and in which form: one allocation of named regions, and the
 * pinned memory beside it.
 *
 * Dense: "tiles" for the fused step where this node owns everything, the matrix is narrow enough
 * and batches begin at panels; else "columns". Sparse: entries by row and by panel. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cuda.h"
#include "numerics/lane.h"

static uint64_t up_to(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Shared memory of a block of the fused step: a tile a team, and the stacks. */
static uint64_t fused_shared(uint64_t row_floats, unsigned team)
{
    return FUSED_THREADS / team * (PANEL_ROWS / PANEL_LANES) * row_floats * sizeof(float) +
           (uint64_t)FUSED_LEVELS * FUSED_THREADS * 4 * sizeof(double);
}

static void choose_form(struct cuda_device *cuda)
{
    const struct session_shape *shape = &cuda->shape;
    const struct session_plan *plan = &shape->plan;
    cuda->outside = NO_COLUMN;
    if (plan->storage == SESSION_CSC) {
        cuda->form = FORM_SPARSE;
        return;
    }
    cuda->form = FORM_COLUMNS;
    bool panels = plan->batch_rows % PANEL_ROWS == 0 || plan->batch_rows == plan->rows;
    if (!plan->whole || !panels || shape->columns == 0 || shape->columns > CUDA_FUSED_COLUMNS) {
        return;
    }
    cuda->team = 32;
    while ((uint64_t)cuda->team * 4 < shape->columns) {
        cuda->team *= 2;
    }
    bool full = plan->intercept && shape->columns == (uint64_t)cuda->team * 4;
    cuda->row_floats = up_to(full ? shape->columns : shape->coordinates, 4);
    bool small = shape->coordinates <= CUDA_SMALL_COORDINATES &&
                 plan->batch_rows <= CUDA_SMALL_ROWS && shape->window_rows <= 2 * CUDA_SMALL_ROWS;
    /* The fused step needs Hopper's bulk copies; its static shared memory is below 6 KiB. */
    bool fused = cuda->capability >= 90 &&
                 fused_shared(cuda->row_floats, cuda->team) + 6144 <= cuda->shared_max;
    if (small || fused) {
        cuda->form = FORM_TILES;
        cuda->small = small;
        cuda->outside = full ? shape->columns : NO_COLUMN;
    }
}

int cuda_load(struct session_device *device, const struct session_shape *shape,
              struct images *images, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    cuda->shape = *shape;
    choose_form(cuda);
    int code = cuda_images_load(cuda, images, err);
    if (code != 0) {
        return code;
    }
    if (cuda->form == FORM_TILES && !cuda->small) {
        enum cuda_kernel kernel = cuda->team == 32    ? KERNEL_FUSED_32
                                  : cuda->team == 64  ? KERNEL_FUSED_64
                                  : cuda->team == 128 ? KERNEL_FUSED_128
                                                      : KERNEL_FUSED_256;
        CUDA_TRY(cuda,
                 cuFuncSetAttribute(cuda->kernels[kernel], CU_FUNCTION_DYNAMIC_SHARED_MAX,
                                    (int)fused_shared(cuda->row_floats, cuda->team)),
                 "giving the fused step its shared memory");
    }
    return 0;
}

/* How the columns of the forward pass are dealt to warps: pieces of canonical nodes, about as many
 * as a block has warps, at most 128 columns each. */
static void deal_segments(struct cuda_device *cuda)
{
    const struct session_shape *shape = &cuda->shape;
    unsigned level_max = shape->coordinates <= 16 ? 2 : 4;
    while (level_max >= 4 && level_max < 7 && shape->coordinates >> level_max >= 8) {
        level_max++;
    }
    cuda->level_max = level_max;
    cuda->levels = 1;
    cuda->segments_count = 0;
    for (size_t n = 0; n < shape->nodes_count; n++) {
        unsigned level = shape->nodes[n].level;
        cuda->levels = level + 1 > cuda->levels ? level + 1 : cuda->levels;
        cuda->segments_count += level > level_max ? (uint64_t)1 << (level - level_max) : 1;
    }
    cuda->column_warps = 1;
    while (cuda->column_warps < 8 && cuda->column_warps < cuda->segments_count) {
        cuda->column_warps *= 2;
    }
}

struct plan_of_region {
    const char *name;
    uint64_t bytes;
    cu_pointer *at;
};

#define REGIONS_MAX 32

/* The one list of regions: for the arena's table, and again for the addresses. */
static size_t list_regions(struct cuda_device *cuda, struct plan_of_region *list)
{
    const struct session_shape *shape = &cuda->shape;
    const struct session_plan *plan = &shape->plan;
    uint64_t vector = shape->coordinates * sizeof(double);
    uint64_t parts = cuda->panels_max * (cuda->form == FORM_TILES ? UNITS_A_PANEL : 1);
    uint64_t rows = cuda->panels_max * PANEL_ROWS;
    uint64_t w32 =
        shape->coordinates + 16 > CUDA_W32_COUNT ? shape->coordinates + 16 : CUDA_W32_COUNT;
    size_t n = 0;
#define REGION(label, size, member)                          \
    list[n++] = (struct plan_of_region)                      \
    {                                                        \
        .name = label, .bytes = size, .at = &cuda->at.member \
    }
    if (cuda->form == FORM_COLUMNS) {
        REGION("columns", cuda->ld * shape->columns * sizeof(float), matrix);
        REGION("segments", cuda->segments_count * sizeof(struct segment), segments);
    } else if (cuda->form == FORM_TILES) {
        uint64_t panels = panels_of(plan->rows);
        REGION("tiles", panels * PANEL_ROWS * cuda->row_floats * sizeof(float), matrix);
        REGION("unit_losses", parts * sizeof(double), unit_losses);
        REGION("stage", cuda->stage_size, stage);
    } else {
        uint64_t slices = cuda->stored_panels * cuda->slices_a_panel;
        uint64_t ones = plan->intercept ? plan->rows : 0;
        REGION("panel_entries", plan->entries * 8, matrix);
        REGION("panel_slices", slices * 8, panel_slices);
        REGION("panel_order", slices * SLICE * 4, panel_order);
        REGION("panel_lengths", slices * SLICE * 4, panel_lengths);
        REGION("row_entries", (plan->entries + ones) * 8, matrix_rows);
        REGION("row_slices", cuda->row_slices_count * 8, row_slices);
        REGION("row_order", cuda->row_slices_count * SLICE * 4, row_order);
        REGION("row_lengths", cuda->row_slices_count * SLICE * 4, row_lengths);
    }
    if (plan->whole) {
        REGION("targets", panels_of(plan->rows) * PANEL_ROWS * sizeof(double), targets);
    }
    REGION("parameter", vector, parameter);
    REGION("accumulator", vector, accumulator);
    REGION("parameter32", w32 * sizeof(float), w32);
    REGION("values", shape->nodes_count * shape->window_rows * sizeof(double), values);
    REGION("residual", plan->whole ? rows * sizeof(double) : 0, residual);
    REGION("residual32", rows * sizeof(float), residual32);
    REGION("partials", parts * cuda->stride * sizeof(double), partials);
    REGION("scratch", (uint64_t)CUDA_SPLITS_MAX * cuda->stride * sizeof(double), scratch);
    REGION("tickets", (shape->coordinates / UPDATE_COLUMNS + 1) * 8, tickets);
    REGION("node_ends", shape->nodes_count * 8, node_ends);
    REGION("state", sizeof(struct step_state), state);
    REGION("issues", sizeof(uint64_t), issues);
    REGION("captured_parameter", vector, captured_parameter);
    REGION("captured_accumulator", vector, captured_accumulator);
    REGION("captured_issues", sizeof(uint64_t), captured_issues);
#undef REGION
    ASSERT(n <= REGIONS_MAX);
    return n;
}

int cuda_layout(struct session_device *device, const struct session_shape *shape,
                struct arena *arena, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    cuda->ld = up_to(shape->plan.rows, 4) + 4;
    cuda->stride = up_to(shape->coordinates, 4) + 4;
    cuda->panels_max = panels_of(shape->window_rows);
    cuda->panels_a_batch = panels_of(shape->plan.batch_rows);
    cuda->stored_panels = shape->batches_count * cuda->panels_a_batch;
    cuda->slices_a_panel = up_to(shape->columns, SLICE) / SLICE;
    bool panels =
        shape->plan.batch_rows % PANEL_ROWS == 0 || shape->plan.batch_rows == shape->plan.rows;
    cuda->window = panels ? PANEL_ROWS : SLICE;
    cuda->row_slices_count = up_to(shape->plan.rows, cuda->window) / SLICE;
    if (shape->plan.storage == SESSION_CSC && shape->coordinates > ENTRY_COLUMNS) {
        return err_set(
            err, ERR_JOB,
            "session: %llu sparse coordinates on one GPU; it takes %llu: give more nodes",
            (unsigned long long)shape->coordinates, (unsigned long long)ENTRY_COLUMNS);
    }
    /* At least a panel of 1024 columns; no more than a small matrix needs. */
    uint64_t matrix_bytes = up_to(shape->plan.entries * 8, (uint64_t)8 << 20);
    cuda->stage_size = matrix_bytes == 0               ? (size_t)8 << 20
                       : matrix_bytes < CUDA_STAGE_MAX ? (size_t)matrix_bytes
                                                       : CUDA_STAGE_MAX;
    deal_segments(cuda);
    struct plan_of_region list[REGIONS_MAX];
    size_t count = list_regions(cuda, list);
    for (size_t i = 0; i < count; i++) {
        if (list[i].bytes > ARENA_BYTES_MAX) {
            return err_set(err, ERR_NOMEM, "session: region '%s' would take %llu GiB", list[i].name,
                           (unsigned long long)(list[i].bytes >> 30));
        }
        int code = arena_add(arena, list[i].name, list[i].bytes, 256, err);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

static int make_events(struct cuda_device *cuda, struct err *err)
{
    cu_event **lists[3] = {&cuda->forwarded, &cuda->copied, &cuda->uploaded};
    unsigned flags = CU_EVENT_NO_TIMING | CU_EVENT_BLOCKING;
    for (int l = 0; l < 3; l++) {
        *lists[l] = calloc(cuda->shape.chunks_max, sizeof(cu_event));
        if (*lists[l] == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for the events of %u chunks",
                           cuda->shape.chunks_max);
        }
        for (uint32_t c = 0; c < cuda->shape.chunks_max; c++) {
            CUDA_TRY(cuda, cuEventCreate(&(*lists[l])[c], flags), "making an event");
        }
    }
    CUDA_TRY(cuda, cuEventCreate(&cuda->staged[0], flags), "making an event");
    CUDA_TRY(cuda, cuEventCreate(&cuda->staged[1], flags), "making an event");
    CUDA_TRY(cuda, cuEventCreate(&cuda->captured, flags), "making an event");
    CUDA_TRY(cuda, cuStreamCreate(&cuda->work, CU_STREAM_NON_BLOCKING), "making a stream");
    CUDA_TRY(cuda, cuStreamCreate(&cuda->down, CU_STREAM_NON_BLOCKING), "making a stream");
    CUDA_TRY(cuda, cuStreamCreate(&cuda->up, CU_STREAM_NON_BLOCKING), "making a stream");
    return 0;
}

static int pin(struct cuda_device *cuda, void **ret_memory, size_t bytes, unsigned flags,
               struct err *err)
{
    void *memory = NULL;
    bytes = bytes == 0 ? 1 : bytes;
    CUDA_TRY(cuda, cuMemHostAlloc(&memory, bytes, flags), "allocating pinned memory on the host");
    memset(memory, 0, bytes);
    *ret_memory = memory;
    return 0;
}

/* What steps in parts need on the host; a session that owns everything seldom takes any. */
int cuda_pin_parts(struct cuda_device *cuda, struct err *err)
{
    const struct session_shape *shape = &cuda->shape;
    void *memory = NULL;
    if (cuda->host_values == NULL) {
        int code =
            pin(cuda, &memory, shape->nodes_count * shape->window_rows * sizeof(double), 0, err);
        if (code != 0) {
            return code;
        }
        cuda->host_values = memory;
    }
    if (cuda->host_residual == NULL) {
        int code = pin(cuda, &memory, cuda->panels_max * PANEL_ROWS * sizeof(float), 0, err);
        if (code != 0) {
            return code;
        }
        cuda->host_residual = memory;
    }
    return 0;
}

static int make_pinned(struct cuda_device *cuda, struct err *err)
{
    void *memory[5] = {NULL};
    const struct {
        size_t bytes;
        unsigned flags;
    } need[5] = {
        {cuda->stage_size, 0},
        {cuda->stage_size, 0},
        {CUDA_LOCAL_DEPTH * cuda->panels_max * sizeof(double), CU_HOST_DEVICE_MAP},
        {CUDA_LOCAL_DEPTH * sizeof(struct step_result), CU_HOST_DEVICE_MAP},
        {sizeof(struct step_state), 0},
    };
    int code = 0;
    for (int i = 0; i < 5 && code == 0; i++) {
        code = pin(cuda, &memory[i], need[i].bytes, need[i].flags, err);
    }
    cuda->staging[0] = memory[0];
    cuda->staging[1] = memory[1];
    cuda->host_losses = memory[2];
    cuda->results = memory[3];
    cuda->host_state = memory[4];
    if (code != 0) {
        return code;
    }
    CUDA_TRY(cuda, cuMemHostGetDevicePointer_v2(&cuda->device_losses, cuda->host_losses, 0),
             "mapping pinned memory");
    CUDA_TRY(cuda, cuMemHostGetDevicePointer_v2(&cuda->device_results, cuda->results, 0),
             "mapping pinned memory");
    return cuda->shape.plan.whole ? 0 : cuda_pin_parts(cuda, err);
}

int cuda_allocate(struct session_device *device, const struct arena *arena, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    ASSERT(arena->certified);
    cu_result result = cuda->driver->cuMemAlloc_v2(&cuda->arena, arena->bytes);
    if (result != 0) {
        cuda->arena = 0;
        (void)cuda_check(cuda->driver, result, "allocating the arena", err);
        return err_prefix(err, "%llu MiB on %s: ", (unsigned long long)(arena->bytes >> 20) + 1,
                          cuda->name);
    }
    ASSERT(cuda->arena % ARENA_BASE_ALIGNMENT == 0 || cuda->arena % 256 == 0);
    cuda->arena_bytes = arena->bytes;
    struct plan_of_region list[REGIONS_MAX];
    size_t count = list_regions(cuda, list);
    for (size_t i = 0; i < count; i++) {
        const struct arena_region *region = arena_find(arena, list[i].name);
        ASSERT(region != NULL && region->bytes == list[i].bytes);
        *list[i].at = cuda->arena + region->offset;
    }
    int code = make_events(cuda, err);
    code = code != 0 ? code : make_pinned(cuda, err);
    if (code != 0) {
        return code;
    }
    /* Zeros everywhere: state, padding, tickets. */
    CUDA_TRY(cuda, cuMemsetD8Async(cuda->arena, 0, arena->bytes, cuda->work), "clearing the arena");
    CUDA_TRY(cuda, cuStreamSynchronize(cuda->work), "clearing the arena");
    return 0;
}

void cuda_deallocate(struct cuda_device *cuda)
{
    const struct cuda_driver *driver = cuda->driver;
    cu_stream *streams[3] = {&cuda->work, &cuda->down, &cuda->up};
    for (int i = 0; i < 3; i++) {
        if (*streams[i] != NULL) {
            (void)driver->cuStreamSynchronize(*streams[i]); /* a failed device says so at once */
        }
    }
    if (cuda->graph != NULL) {
        (void)driver->cuGraphExecDestroy(cuda->graph);
    }
    cu_event *lists[3] = {cuda->forwarded, cuda->copied, cuda->uploaded};
    for (int l = 0; l < 3; l++) {
        for (uint32_t c = 0; lists[l] != NULL && c < cuda->shape.chunks_max; c++) {
            if (lists[l][c] != NULL) {
                (void)driver->cuEventDestroy_v2(lists[l][c]);
            }
        }
        free(lists[l]);
    }
    cu_event single[3] = {cuda->staged[0], cuda->staged[1], cuda->captured};
    for (int i = 0; i < 3; i++) {
        if (single[i] != NULL) {
            (void)driver->cuEventDestroy_v2(single[i]);
        }
        if (*streams[i] != NULL) {
            (void)driver->cuStreamDestroy_v2(*streams[i]);
        }
    }
    void *memory[7] = {cuda->staging[0],  cuda->staging[1], cuda->host_values, cuda->host_residual,
                       cuda->host_losses, cuda->results,    cuda->host_state};
    for (int i = 0; i < 7; i++) {
        if (memory[i] != NULL) {
            (void)driver->cuMemFreeHost(memory[i]);
        }
    }
    if (cuda->arena != 0) {
        (void)driver->cuMemFree_v2(cuda->arena);
    }
}

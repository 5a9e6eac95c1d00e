#include "gpu/model/bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rand.h"
#include "gpu/gpu.h"
#include "gpu/model/blobs.h"
#include "gpu/model/half.h"
#include "gpu/model/maps.h"
#include "gpu/model/tiles.h"

#define FILE_MAX       (64U << 20)
#define COLD_BYTES     320.0e6 /* of all sets: several times the L2 */
#define ROUNDS         5       /* at most */
#define FINALS         5       /* candidates that are measured again, */
#define FINAL_TURNS    3       /* in turns */
#define CANDIDATES_MAX 256
#define ROUND_FLOPS    1.5e12 /* so much work in a round, about 3 ms, */
#define ROUND_LEAST    20     /* and so many launches at least */
#define RANDOM_COUNT   5000011
#define SPLIT_BYTES    (64U << 20)

#define TRY(call)         \
    do {                  \
        int code_ = call; \
        if (code_ != 0) { \
            return code_; \
        }                 \
    } while (0)
#define ASK(call, doing) TRY(cuda_check(bench->driver, bench->driver->call, doing, err))

/* -- opening ----------------------------------------------------------------------------------- */

static int load_bytes(struct model_bench *bench, const struct cuda_blob *blob, cu_module *ret,
                      struct err *err)
{
    return cuda_check(bench->driver,
                      bench->driver->cuModuleLoadDataEx(ret, blob->bytes, 0, NULL, NULL),
                      blob->name, err);
}

/* A file of the folder, or of those inside the program. */
static int load(struct model_bench *bench, const char *folder, enum model_file file, cu_module *ret,
                struct err *err)
{
    if (folder == NULL) {
        const struct cuda_blob *blob = NULL;
        TRY(model_blob_find(file, bench->half, &blob, err));
        return load_bytes(bench, blob, ret, err);
    }
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s_%s.fatbin", folder, model_files[file],
                   bench->half == MODEL_HALF_FP16 ? "fp16" : "bf16");
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        return err_set(err, ERR_NOT_FOUND, "no kernels '%s': build the target model_images", path);
    }
    unsigned char *image = malloc(FILE_MAX);
    ASSERT(image != NULL);
    size_t size = fread(image, 1, FILE_MAX, stream);
    (void)fclose(stream);
    const struct cuda_blob blob = {path, image, image + size};
    int code = cuda_blob_check(&blob, err);
    code = code != 0 ? code : load_bytes(bench, &blob, ret, err);
    free(image);
    return code;
}

/* Random numbers from a period that divides no size, doubled over and over. */
static int fill(struct model_bench *bench, cu_pointer to, uint64_t bytes, const void *from,
                uint64_t from_bytes, struct err *err)
{
    ASK(cuMemcpyHtoDAsync_v2(to, from, from_bytes, bench->stream), "copying operands");
    for (uint64_t done = from_bytes; done < bytes;) {
        uint64_t size = bytes - done < done ? bytes - done : done;
        ASK(cuMemcpyDtoDAsync_v2(to + done, to, size, bench->stream), "copying operands");
        done += size;
    }
    ASK(cuStreamSynchronize(bench->stream), "copying operands");
    return 0;
}

static int fill_all(struct model_bench *bench, struct err *err)
{
    uint16_t *halves = malloc(RANDOM_COUNT * sizeof(*halves));
    float *floats = malloc(RANDOM_COUNT * sizeof(*floats));
    ASSERT(halves != NULL && floats != NULL);
    struct rand rand = {1};
    for (size_t i = 0; i < RANDOM_COUNT; i++) { /* about normal: eight uniform bytes */
        uint64_t bits = rand_next(&rand);
        int sum = -1020;
        for (int byte = 0; byte < 8; byte++) {
            sum += (int)(bits >> (8 * byte) & 255U);
        }
        floats[i] = (float)sum / 209.0F;
        halves[i] =
            bench->half == MODEL_HALF_FP16 ? half_to_fp16(floats[i]) : half_to_bf16(floats[i]);
    }
    int code = fill(bench, bench->a, MODEL_BENCH_A, halves, RANDOM_COUNT * sizeof(*halves), err);
    code = code != 0 ? code
                     : fill(bench, bench->b, MODEL_BENCH_B, halves + 1,
                            (RANDOM_COUNT - 1) * sizeof(*halves), err);
    code = code != 0
               ? code
               : fill(bench, bench->c, MODEL_BENCH_C, floats, RANDOM_COUNT * sizeof(*floats), err);
    free(halves);
    free(floats);
    return code;
}

int model_bench_open(struct model_bench *bench, const char *folder, enum model_half half,
                     struct err *err)
{
    memset(bench, 0, sizeof(*bench));
    bench->half = half;
    bench->rounds = ROUNDS;
    TRY(cuda_driver_get(&bench->driver, err));
    cu_device device;
    cu_context context;
    int major = 0;
    int minor = 0;
    int multiprocessors = 0;
    ASK(cuDeviceGet(&device, 0), "taking device 0");
    ASK(cuDevicePrimaryCtxRetain(&context, device), "making a context");
    ASK(cuCtxSetCurrent(context), "using the context");
    ASK(cuDeviceGetAttribute(&multiprocessors, CU_ATTRIBUTE_MULTIPROCESSORS, device),
        "asking for multiprocessors");
    ASK(cuDeviceGetAttribute(&major, CU_ATTRIBUTE_CAPABILITY_MAJOR, device), "asking what it can");
    ASK(cuDeviceGetAttribute(&minor, CU_ATTRIBUTE_CAPABILITY_MINOR, device), "asking what it can");
    bench->multiprocessors = (unsigned)multiprocessors;
    bench->architecture = major * 10 + minor;
    TRY(load(bench, folder, MODEL_FILE_PRODUCT, &bench->modules[0], err));
    if (bench->architecture == 90) {
        TRY(load(bench, folder, MODEL_FILE_PRODUCT_WGMMA, &bench->modules[1], err));
    }
    ASK(cuStreamCreate(&bench->stream, CU_STREAM_NON_BLOCKING), "making a stream");
    ASK(cuMemAlloc_v2(&bench->a, MODEL_BENCH_A), "taking memory for operands");
    ASK(cuMemAlloc_v2(&bench->b, MODEL_BENCH_B), "taking memory for operands");
    ASK(cuMemAlloc_v2(&bench->c, MODEL_BENCH_C), "taking memory for operands");
    return fill_all(bench, err);
}

void model_bench_close(struct model_bench *bench)
{
    const cu_pointer pointers[] = {bench->a, bench->b, bench->c};
    for (int i = 0; i < 3; i++) {
        if (pointers[i] != 0) {
            (void)bench->driver->cuMemFree_v2(pointers[i]);
        }
    }
    if (bench->stream != NULL) {
        (void)bench->driver->cuStreamDestroy_v2(bench->stream);
    }
    for (int i = 0; i < 2; i++) {
        if (bench->modules[i] != NULL) {
            (void)bench->driver->cuModuleUnload(bench->modules[i]);
        }
    }
    memset(bench, 0, sizeof(*bench));
}

/* -- a product --------------------------------------------------------------------------------- */

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 1023) / 1024 * 1024;
}

static void *operand(cu_pointer pointer)
{
    return (void *)(uintptr_t)pointer; /* NOLINT(performance-no-int-to-ptr) */
}

static int find_functions(struct model_bench *bench, struct model_bench_run *run, int tile,
                          struct err *err)
{
    for (size_t i = 0; i < run->kernels_count; i++) {
        char entry[IMAGE_NAME_SIZE + 8];
        const struct model_kernel *kernel = &run->kernels[i];
        (void)snprintf(entry, sizeof(entry), "%s_%s", kernel->entry,
                       bench->half == MODEL_HALF_FP16 ? "fp16" : "bf16");
        ASK(cuModuleGetFunction(&run->functions[i], bench->modules[tile >= MMA_TILES_COUNT], entry),
            entry);
        if (kernel->shared_bytes > 48 * 1024) {
            ASK(cuFuncSetAttribute(run->functions[i], CU_FUNCTION_DYNAMIC_SHARED_MAX,
                                   (int)kernel->shared_bytes),
                entry);
        }
    }
    return 0;
}

int model_bench_prepare(struct model_bench *bench, const char *name, uint32_t sequences, int tile,
                        uint32_t split, struct model_bench_run *ret_run, struct err *err)
{
    struct model_bench_run *run = ret_run;
    struct model_launch *l = &run->launch;
    const struct model_image *image;
    memset(run, 0, sizeof(*run));
    TRY(model_image_find(name, l, &image, err));
    model_launch_sequences(l, sequences);
    l->half_out = l->add == 0 && l->a_columns == 0;
    l->split = split;
    if (tile >= MMA_TILES_COUNT && bench->modules[1] == NULL) {
        return err_set(err, ERR_DEVICE, "tile %d is for sm_90", tile);
    }
    TRY(model_device_plan(name, l, tile, bench->multiprocessors, run->kernels, &run->kernels_count,
                          err));
    TRY(find_functions(bench, run, tile, err));
    const uint64_t elements = (uint64_t)l->m * l->n;
    const uint64_t a = padded((uint64_t)l->m * l->k * 2);
    const uint64_t b = padded((uint64_t)l->n * l->k * 2);
    run->r_bytes = l->add != 0 ? padded(elements * 4) : 0;
    run->c_bytes = padded(elements * (l->half_out != 0 ? 2 : 4));
    run->parts_bytes = split > 1 ? padded(elements * 4 * split) : 0;
    const uint64_t output = run->r_bytes + run->c_bytes;
    run->sets = (unsigned)(COLD_BYTES / (double)(a + b + output)) + 2;
    run->sets = run->sets < MODEL_BENCH_SETS_MAX ? run->sets : MODEL_BENCH_SETS_MAX;
    while (run->sets > 0 && (run->sets * a > MODEL_BENCH_A || run->sets * b > MODEL_BENCH_B ||
                             run->sets * output + run->parts_bytes > MODEL_BENCH_C)) {
        run->sets--;
    }
    if (run->sets == 0) {
        return err_set(err, ERR_NOMEM, "'%s' at %u sequences is larger than the memory for it",
                       name, sequences);
    }
    for (unsigned set = 0; set < run->sets; set++) {
        struct model_arguments *arguments = &run->arguments[set];
        const cu_pointer out = bench->c + run->parts_bytes + set * output;
        arguments->launch = *l;
        arguments->operand[0] = operand(bench->a + set * a);
        arguments->operand[1] = operand(bench->b + set * b);
        arguments->operand[2] = operand(out);
        arguments->operand[l->half_out != 0 ? 4 : 3] = operand(out + run->r_bytes);
        arguments->operand[5] = operand(bench->c);
        TRY(model_maps_make(bench->driver, &run->kernels[0], arguments, bench->half,
                            &run->maps[set], err));
    }
    return 0;
}

int model_bench_own_start(void *context, unsigned set, struct err *err)
{
    struct model_bench *bench = ((struct model_bench_own *)context)->bench;
    struct model_bench_run *run = ((struct model_bench_own *)context)->run;
    for (size_t i = 0; i < run->kernels_count; i++) {
        TRY(model_kernel_launch(bench->driver, run->functions[i], &run->kernels[i],
                                &run->arguments[set], &run->maps[set], bench->stream, err));
    }
    return 0;
}

static int rounds(struct model_bench *bench, cu_graph_exec exec, unsigned repeat, float *times,
                  struct err *err)
{
    cu_event from = NULL;
    cu_event to = NULL;
    ASK(cuEventCreate(&from, 0), "making an event");
    ASK(cuEventCreate(&to, 0), "making an event");
    for (int round = -1; round < (int)bench->rounds; round++) {
        ASK(cuEventRecord(from, bench->stream), "timing");
        for (unsigned i = 0; i < repeat; i++) {
            ASK(cuGraphLaunch(exec, bench->stream), "launching a graph");
        }
        ASK(cuEventRecord(to, bench->stream), "timing");
        ASK(cuStreamSynchronize(bench->stream), "timing");
        ASK(cuEventElapsedTime(&times[round < 0 ? 0 : round], from, to), "timing");
    }
    ASK(cuEventDestroy_v2(from), "timing");
    ASK(cuEventDestroy_v2(to), "timing");
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const float *x = a;
    const float *y = b;
    return *x < *y ? -1 : *x > *y;
}

int model_bench_time(struct model_bench *bench, const struct model_bench_run *run,
                     model_bench_start *start, void *context, double *ret_microseconds,
                     struct err *err)
{
    cu_graph graph;
    cu_graph_exec exec;
    for (unsigned set = 0; set < run->sets; set++) { /* what is loaded at the first call */
        TRY(start(context, set, err));
    }
    ASK(cuStreamSynchronize(bench->stream), "running it once");
    ASK(cuStreamBeginCapture_v2(bench->stream, CU_CAPTURE_THREAD_LOCAL), "making a graph");
    for (unsigned set = 0; set < run->sets; set++) {
        TRY(start(context, set, err));
    }
    ASK(cuStreamEndCapture(bench->stream, &graph), "making a graph");
    ASK(cuGraphInstantiateWithFlags(&exec, graph, 0), "making a graph");
    const double flops = 2.0 * run->launch.m * run->launch.n * (double)run->launch.k;
    double launches = ROUND_FLOPS / flops;
    launches = launches > ROUND_LEAST ? launches : ROUND_LEAST;
    launches = launches < 1000 ? launches : 1000;
    const unsigned repeat = (unsigned)(launches / run->sets) + 1;
    float times[ROUNDS];
    int code = rounds(bench, exec, repeat, times, err);
    (void)bench->driver->cuGraphExecDestroy(exec);
    (void)bench->driver->cuGraphDestroy(graph);
    if (code == 0) {
        qsort(times, bench->rounds, sizeof(times[0]), by_size);
        *ret_microseconds = (double)times[bench->rounds / 2] * 1e3 / repeat / run->sets;
    }
    return code;
}

int model_bench_choice(struct model_bench *bench, struct model_bench_run *run, int tile,
                       struct model_choice *ret_choice, struct err *err)
{
    struct model_bench_own own = {bench, run};
    struct model_choice *choice = ret_choice;
    int registers = 0;
    int local = 0;
    int shared = 0;
    int blocks = 0;
    *choice = (struct model_choice){.tile = tile, .split = run->launch.split};
    TRY(model_bench_time(bench, run, model_bench_own_start, &own, &choice->microseconds, err));
    cu_function function = run->functions[0];
    const struct model_kernel *kernel = &run->kernels[0];
    ASK(cuFuncGetAttribute(&registers, CU_FUNCTION_REGISTERS, function), "asking for registers");
    ASK(cuFuncGetAttribute(&local, CU_FUNCTION_LOCAL_BYTES, function), "asking for local memory");
    ASK(cuFuncGetAttribute(&shared, CU_FUNCTION_SHARED_BYTES, function), "asking for memory");
    ASK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, (int)kernel->threads,
                                                    kernel->shared_bytes),
        "asking for occupancy");
    choice->tflops =
        2.0 * run->launch.m * run->launch.n * (double)run->launch.k / choice->microseconds / 1e6;
    choice->registers = (uint32_t)registers;
    choice->local_bytes = (uint32_t)local;
    choice->shared_bytes = (uint32_t)shared + kernel->shared_bytes;
    choice->blocks = (uint32_t)blocks;
    return 0;
}

/* -- all of them ------------------------------------------------------------------------------- */

struct candidates {
    struct model_choice choice[CANDIDATES_MAX];
    size_t count;
};

static int by_time(const void *a, const void *b)
{
    const struct model_choice *x = a;
    const struct model_choice *y = b;
    return x->microseconds < y->microseconds ? -1 : x->microseconds > y->microseconds;
}

/* Every candidate that serves, in every number of parts that may be. */
static int find_candidates(const struct model_bench *bench, const char *name, uint32_t sequences,
                           struct candidates *ret, struct err *err)
{
    static const uint32_t splits[] = {1, 2, 3, 4, 5, 6, 8, 11, 16};
    /* All of one family, whose candidates agree to the bit: the choice may differ by m. */
    const int first = bench->modules[1] != NULL ? MMA_TILES_COUNT : 0;
    const int end = bench->modules[1] != NULL ? MODEL_TILES_COUNT : MMA_TILES_COUNT;
    struct model_launch launch = {0};
    const struct model_image *image;
    TRY(model_image_find(name, &launch, &image, err));
    model_launch_sequences(&launch, sequences);
    launch.half_out = launch.add == 0 && launch.a_columns == 0;
    ret->count = 0;
    for (int tile = first; tile < end; tile++) {
        for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
            launch.split = splits[i];
            /* Only a sum over the tokens may be split: a row of C must not depend on m. And there
             * are parts that would be more to write than they could make good. */
            bool may =
                splits[i] == 1 || (launch.a_columns != 0 &&
                                   (uint64_t)splits[i] * launch.m * launch.n * 4 <= SPLIT_BYTES);
            if (may && model_tile_serves(tile, &launch)) {
                ASSERT(ret->count < CANDIDATES_MAX);
                ret->choice[ret->count++] = (struct model_choice){.tile = tile, .split = splits[i]};
            }
        }
    }
    return ret->count != 0 ? 0 : err_set(err, ERR_DEVICE, "no candidate serves '%s'", name);
}

static int time_candidate(struct model_bench *bench, const char *name, uint32_t sequences,
                          struct model_bench_run *run, struct model_choice *choice, FILE *log,
                          struct err *err)
{
    char line[256];
    TRY(model_bench_prepare(bench, name, sequences, choice->tile, choice->split, run, err));
    TRY(model_bench_choice(bench, run, choice->tile, choice, err));
    (void)model_choice_line(choice, bench->architecture, name, sequences, line, sizeof(line));
    if (log != NULL) {
        (void)fputs(line, log);
    }
    return 0;
}

/* All once, quickly; then those near the fastest several times in turns, for the GPU is faster
 * while it is cool: the fastest median. */
static int measure(struct model_bench *bench, const char *name, uint32_t sequences, FILE *log,
                   struct model_choice *ret_best, struct err *err)
{
    static struct candidates all; /* one thread */
    static struct model_bench_run run;
    TRY(find_candidates(bench, name, sequences, &all, err));
    bench->rounds = 2;
    for (size_t i = 0; i < all.count; i++) {
        TRY(time_candidate(bench, name, sequences, &run, &all.choice[i], log, err));
    }
    bench->rounds = ROUNDS;
    qsort(all.choice, all.count, sizeof(all.choice[0]), by_time);
    struct model_choice times[FINALS][FINAL_TURNS];
    size_t finals = 0;
    while (finals < FINALS && finals < all.count &&
           all.choice[finals].microseconds <= 1.15 * all.choice[0].microseconds) {
        finals++;
    }
    for (int turn = 0; turn < FINAL_TURNS; turn++) {
        for (size_t i = 0; i < finals; i++) {
            times[i][turn] = all.choice[i];
            TRY(time_candidate(bench, name, sequences, &run, &times[i][turn], log, err));
        }
    }
    for (size_t i = 0; i < finals; i++) {
        qsort(times[i], FINAL_TURNS, sizeof(times[i][0]), by_time);
        const struct model_choice *median = &times[i][FINAL_TURNS / 2];
        if (i == 0 || median->microseconds < ret_best->microseconds) {
            *ret_best = *median;
        }
    }
    return 0;
}

int model_bench_tiles(struct model_bench *bench, FILE *table, FILE *log, struct err *err)
{
    static const uint32_t sequences[] = {1, 16, 64};
    const struct model_shape shape = {1, 1024, 512, 8, 64, 1408, 12288};
    struct model_name names[MODEL_PRODUCTS_MAX];
    size_t count = model_products(&shape, names);
    for (size_t i = 0; i < count; i++) {
        for (size_t s = 0; s < 3; s++) {
            struct model_choice best;
            char line[256];
            TRY(measure(bench, names[i].text, sequences[s], log, &best, err));
            (void)model_choice_line(&best, bench->architecture, names[i].text, sequences[s], line,
                                    sizeof(line));
            (void)fputs(line, table);
            (void)fflush(table);
        }
    }
    return 0;
}

int gpu_bench_tiles(const char *folder, FILE *table, FILE *log, struct err *err)
{
    struct model_bench bench;
    int code = model_bench_open(&bench, folder, MODEL_HALF_BF16, err);
    code = code != 0 ? code : model_bench_tiles(&bench, table, log, err);
    model_bench_close(&bench);
    return code;
}

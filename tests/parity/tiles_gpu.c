/* The language model's products on the GPU, some candidates a process, against an oracle and
 * cuBLAS.
 *
 *   tiles_gpu micro FOLDER                      which descriptors a wgmma takes
 *   tiles_gpu run FOLDER CUBLAS SEQUENCES TILE[:SPLIT]…
 *   tiles_gpu run-fp16 …                        the same in fp16
 *   tiles_gpu check …                           no times and few runs, for compute-sanitizer
 *   tiles_gpu session FOLDER SEQUENCES          by name through the GPU's session, all images
 * loaded tiles_gpu table FOLDER TABLE LOG            measures the table of choices
 *
 * FOLDER holds the fatbins of the targets model_images and tiles_check; "-" takes the images inside
 * the program, and tiles_check's beside it or where a build puts them. CUBLAS is the library's
 * path, or "-"; SEQUENCES as 1,16,64; TILE[:SPLIT] may be "chosen", the committed choice, or
 * "chosen=TABLE". run: for each product that the candidate serves, the error of 256 elements
 * against binary64 and of all elements against cuBLAS, the same bits in 30 runs, and times beside
 * cuBLAS's, with C in the half type, and doing the same (C in f32 where ours is, + C where ours
 * adds R). Exits 1 after a failure, 77 where there is no GPU. */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "gpu/model/bench.h"
#include "gpu/model/gpu_session.h"
#include "gpu/model/half.h"
#include "gpu/model/maps.h"
#include "gpu/model/tiles.h"

enum { SPOTS = 256, NORM_BLOCKS = 264, REPEATS = 30 };

static struct model_bench bench;
static unsigned failures;
static bool timed = true;

static void must(cu_result result, const char *doing)
{
    struct err err = {0};
    if (cuda_check(bench.driver, result, doing, &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        exit(1);
    }
}

static void must_err(int code, const struct err *err)
{
    if (code != 0) {
        (void)printf("FAILED %s\n", err->text);
        exit(1);
    }
}

static cu_module load(const char *folder, const char *name)
{
    char path[PATH_MAX];
    FILE *file;
    if (strcmp(folder, "-") != 0) {
        (void)snprintf(path, sizeof(path), "%s/%s.fatbin", folder, name);
        file = fopen(path, "rb");
    } else {
        char own[PATH_MAX - 128] = "";
        ASSERT(readlink("/proc/self/exe", own, sizeof(own) - 1) > 0);
        *strrchr(own, '/') = '\0';
        (void)snprintf(path, sizeof(path), "%s/%s.fatbin", own, name);
        file = fopen(path, "rb");
        if (file == NULL) {
            (void)snprintf(path, sizeof(path), "%s/../../gpu/model/kernels/%s.fatbin", own, name);
            file = fopen(path, "rb");
        }
    }
    if (file == NULL) {
        (void)printf("skipped: no file %s\n", path);
        exit(77);
    }
    char *image = malloc(64 << 20);
    ASSERT(image != NULL);
    size_t size = fread(image, 1, 64 << 20, file);
    ASSERT(size > 0);
    (void)fclose(file);
    cu_module module;
    must(bench.driver->cuModuleLoadDataEx(&module, image, 0, NULL, NULL), path);
    free(image);
    return module;
}

static cu_function function(cu_module module, const char *entry)
{
    cu_function found;
    must(bench.driver->cuModuleGetFunction(&found, module, entry), entry);
    return found;
}

static void call(cu_function f, unsigned grid, unsigned threads, unsigned shared, cu_stream stream,
                 void **parameters)
{
    must(bench.driver->cuLaunchKernel(f, grid, 1, 1, threads, 1, 1, shared, stream, parameters,
                                      NULL),
         "launching");
}

static cu_pointer alloc(uint64_t bytes)
{
    cu_pointer pointer;
    must(bench.driver->cuMemAlloc_v2(&pointer, bytes), "allocating");
    return pointer;
}

static void *as_operand(cu_pointer pointer)
{
    return (void *)(uintptr_t)pointer; /* NOLINT(performance-no-int-to-ptr) */
}

/* -- micro ------------------------------------------------------------------------------------- */

struct micro {
    uint32_t a_leading, a_stride, a_step, b_leading, b_stride, b_step, a_index, b_index, k;
};

static void micro(const char *folder)
{
    enum { M = 256, N = 384, K = 192, BN = 128 };
    cu_module module = load(folder, "tiles_check_bf16");
    cu_pointer a = alloc(M * K * 2);
    cu_pointer b = alloc(N * K * 2);
    cu_pointer out = alloc(64 * BN * 4);
    static uint16_t host_a[M * K];
    static uint16_t host_b[N * K];
    static float host_out[64 * BN];
    uint64_t count = M * K;
    uint64_t seed = 1;
    void *fill_a[] = {&a, &count, &seed};
    call(function(module, "fill_halves"), 32, 256, 0, NULL, fill_a);
    count = N * K;
    seed = 2;
    void *fill_b[] = {&b, &count, &seed};
    call(function(module, "fill_halves"), 32, 256, 0, NULL, fill_b);
    must(bench.driver->cuMemcpyDtoHAsync_v2(host_a, a, sizeof(host_a), NULL), "copying");
    must(bench.driver->cuMemcpyDtoHAsync_v2(host_b, b, sizeof(host_b), NULL), "copying");
    must(bench.driver->cuStreamSynchronize(NULL), "filling");
    /* leading, stride, step of A and B by rows, then by columns in several readings */
    static const uint32_t by_rows[][3] = {{16, 1024, 32}, {0, 1024, 32}};
    static const uint32_t by_columns[][3] = {
        {8192, 1024, 2048}, {1024, 8192, 2048}, {8192, 128, 2048}, {8192, 2048, 2048},
        {1024, 1024, 2048}, {8192, 1024, 32},   {1024, 8192, 32},  {2048, 1024, 2048}};
    static const char *const names[] = {"micro_rr", "micro_rc", "micro_cc"};
    for (int pattern = 0; pattern < 3; pattern++) {
        cu_function f = function(module, names[pattern]);
        must(bench.driver->cuFuncSetAttribute(f, CU_FUNCTION_DYNAMIC_SHARED_MAX, 64 << 10),
             "shared");
        for (int variant = 0; variant < (pattern == 0 ? 2 : 8); variant++) {
            const uint32_t *va =
                pattern == 2 ? by_columns[variant] : by_rows[pattern == 0 ? variant : 0];
            const uint32_t *vb = pattern == 0 ? by_rows[variant] : by_columns[variant];
            struct micro m = {va[0], va[1], va[2], vb[0], vb[1], vb[2], 64, 128, 64};
            struct model_kernel kernel = {.boxes_count = 2};
            kernel.boxes[0] = pattern == 2 ? (struct model_box){0, M, K, 64, 64}
                                           : (struct model_box){0, K, M, 64, 64};
            kernel.boxes[1] = pattern != 0 ? (struct model_box){1, N, K, 64, 64}
                                           : (struct model_box){1, K, N, 64, BN};
            struct model_arguments arguments = {.operand = {as_operand(a), as_operand(b)}};
            _Alignas(64) struct model_maps maps;
            struct err err = {0};
            must_err(
                model_maps_make(bench.driver, &kernel, &arguments, MODEL_HALF_BF16, &maps, &err),
                &err);
            must(bench.driver->cuMemsetD8Async(out, 0xff, sizeof(host_out), NULL), "poisoning");
            void *parameters[] = {&out, &maps, &m};
            call(f, 1, 128, 48 << 10, NULL, parameters);
            must(bench.driver->cuMemcpyDtoHAsync_v2(host_out, out, sizeof(host_out), NULL),
                 "copying");
            must(bench.driver->cuStreamSynchronize(NULL), names[pattern]);
            double difference = 0.0;
            double size = 0.0;
            for (int i = 0; i < 64; i++) {
                for (int j = 0; j < BN; j++) {
                    double sum = 0.0;
                    for (int k = 64; k < 128; k++) {
                        double x = (double)half_from_bf16(pattern == 2 ? host_a[k * M + 64 + i]
                                                                       : host_a[(64 + i) * K + k]);
                        double y = half_from_bf16(pattern != 0 ? host_b[k * N + 128 + j]
                                                               : host_b[(128 + j) * K + k]);
                        sum += x * y;
                    }
                    double d = (double)host_out[i * BN + j] - sum;
                    difference += d * d;
                    size += sum * sum;
                }
            }
            double error = sqrt(difference / size);
            (void)printf("%s %s a %u %u %u b %u %u %u: error %.3g\n",
                         error < 1e-5 ? "RIGHT" : "wrong", names[pattern], va[0], va[1], va[2],
                         vb[0], vb[1], vb[2], error);
            (void)fflush(stdout);
        }
    }
}

/* -- cuBLAS ------------------------------------------------------------------------------------ */

typedef int blas_create(void **handle);
typedef int blas_stream(void *handle, cu_stream stream);
typedef int blas_workspace(void *handle, void *room, size_t size);
typedef int blas_gemm(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                      const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                      const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
static blas_gemm *gemm;
static void *blas;

/* dlsym() gives functions as a data pointer; POSIX lets them be copied. */
static void symbol(void *library, const char *name, void *ret_function, size_t size)
{
    void *found = dlsym(library, name);
    ASSERT(found != NULL && size == sizeof(found));
    memcpy(ret_function, &found, size);
}

static void open_blas(const char *path, cu_stream stream)
{
    void *library = strcmp(path, "-") == 0 ? NULL : dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        (void)printf("no cuBLAS: %s\n", strcmp(path, "-") == 0 ? "not asked for" : dlerror());
        return;
    }
    blas_create *create;
    blas_stream *set_stream;
    blas_workspace *set_workspace;
    symbol(library, "cublasCreate_v2", &create, sizeof(create));
    symbol(library, "cublasSetStream_v2", &set_stream, sizeof(set_stream));
    symbol(library, "cublasSetWorkspace_v2", &set_workspace, sizeof(set_workspace));
    symbol(library, "cublasGemmEx", &gemm, sizeof(gemm));
    if (create(&blas) != 0 || set_stream(blas, stream) != 0 ||
        set_workspace(blas, as_operand(alloc(64 << 20)), 64 << 20) != 0) {
        (void)printf("no cuBLAS: it cannot be made ready\n");
        gemm = NULL;
    }
}

/* C = A B (+ C) through cuBLAS, which stores by columns: C^T = B^T A^T. */
static void blas_product(const struct model_launch *l, void *a, void *b, void *c, bool half,
                         bool add)
{
    const float one = 1.0F;
    const float beta = add ? 1.0F : 0.0F;
    enum { N = 0, T = 1, FP16 = 2, BF16 = 14, F32 = 0, COMPUTE_F32 = 68, DEFAULT = -1 };
    const int kind = bench.half == MODEL_HALF_FP16 ? FP16 : BF16;
    int code = gemm(blas, l->b_columns ? N : T, l->a_columns ? T : N, (int)l->n, (int)l->m,
                    (int)l->k, &one, b, kind, (int)(l->b_columns ? l->n : l->k), a, kind,
                    (int)(l->a_columns ? l->m : l->k), &beta, c, half ? kind : F32, (int)l->n,
                    COMPUTE_F32, DEFAULT);
    if (code != 0) {
        (void)printf("FAILED cublasGemmEx: %d\n", code);
        exit(1);
    }
}

/* -- runs -------------------------------------------------------------------------------------- */

static cu_module checks;
static cu_pointer room; /* of the checks' results */
static double *host;

static void *output(const struct model_bench_run *run, unsigned set)
{
    return run->arguments[set].operand[run->launch.half_out != 0 ? 4 : 3];
}

struct blas_run {
    const struct model_bench_run *run;
    bool half;
    bool add;
};

static int start_blas(void *context, unsigned set, struct err *err)
{
    (void)err;
    const struct blas_run *one = context;
    void *const *operand = one->run->arguments[set].operand;
    blas_product(&one->run->launch, operand[0], operand[1], output(one->run, set), one->half,
                 one->add);
    return 0;
}

static double time_blas(const struct model_bench_run *run, bool half, bool add)
{
    struct blas_run one = {run, half, add};
    struct err err = {0};
    double microseconds = NAN;
    if (gemm != NULL) {
        must_err(model_bench_time(&bench, run, start_blas, &one, &microseconds, &err), &err);
    }
    return microseconds;
}

static uint64_t digest(const struct model_bench_run *run, uint64_t elements)
{
    void *c = output(run, 0);
    uint64_t words = elements / (run->launch.half_out != 0 ? 2 : 1);
    must(bench.driver->cuMemsetD8Async(room, 0, 8, bench.stream), "digest");
    void *parameters[] = {&c, &words, &room};
    call(function(checks, "digest"), NORM_BLOCKS, 256, 0, bench.stream, parameters);
    must(bench.driver->cuMemcpyDtoHAsync_v2(host, room, 8, bench.stream), "digest");
    must(bench.driver->cuStreamSynchronize(bench.stream), "digest");
    uint64_t value;
    memcpy(&value, host, 8);
    return value;
}

/* sqrt of the sum of x over the sum of y, of (x, y); spots: of (exact, found). */
static double relative(unsigned count, bool spots)
{
    must(bench.driver->cuMemcpyDtoHAsync_v2(host, room, count * 16ULL, bench.stream), "checking");
    must(bench.driver->cuStreamSynchronize(bench.stream), "checking");
    double difference = 0.0;
    double size = 0.0;
    for (unsigned i = 0; i < count; i++) {
        double x = host[2 * i];
        double y = host[2 * i + 1];
        difference += spots ? (x - y) * (x - y) : x;
        size += spots ? x * x : y;
    }
    return sqrt(difference / size);
}

/* Of all elements, against cuBLAS in f32; negative where there is no room for its C. */
static double error_of_all(struct model_bench_run *run)
{
    const struct model_launch *l = &run->launch;
    struct model_arguments *arguments = &run->arguments[0];
    const uint64_t bytes = (uint64_t)l->m * l->n * 4;
    const uint64_t own = run->parts_bytes + run->r_bytes + run->c_bytes;
    if (gemm == NULL || bytes + own > MODEL_BENCH_C) {
        return -1.0;
    }
    cu_pointer other = bench.c + own;
    if (l->add != 0) {
        must(bench.driver->cuMemcpyDtoDAsync_v2(other, (cu_pointer)(uintptr_t)arguments->operand[2],
                                                bytes, bench.stream),
             "copying R");
    }
    blas_product(l, arguments->operand[0], arguments->operand[1], as_operand(other), false,
                 l->add != 0);
    void *parameters[] = {arguments, &other, &room};
    call(function(checks, "norms"), NORM_BLOCKS, 256, 0, bench.stream, parameters);
    return relative(NORM_BLOCKS, false);
}

/* Prints the errors; counts a failure. */
static void check(struct model_bench_run *run, const char *name, int tile)
{
    const struct model_launch *l = &run->launch;
    const uint64_t elements = (uint64_t)l->m * l->n;
    struct model_bench_own own = {&bench, run};
    struct err err = {0};
    uint64_t first = 0;
    bool same = true;
    for (int i = 0; i < (timed ? REPEATS : 2); i++) {
        must(bench.driver->cuMemsetD8Async((cu_pointer)(uintptr_t)output(run, 0), 0xff,
                                           run->c_bytes, bench.stream),
             "poisoning");
        must_err(model_bench_own_start(&own, 0, &err), &err);
        uint64_t now = digest(run, elements);
        same = same && (i == 0 || now == first);
        first = now;
    }
    uint64_t seed = 5;
    void *spots[] = {&run->arguments[0], &room, &seed};
    call(function(checks, "spots"), SPOTS, 256, 0, bench.stream, spots);
    double spot = relative(SPOTS, true);
    double all = error_of_all(run);
    double most = l->half_out ? 4e-3 : 1e-3; /* rounding of C; truncation along k */
    bool right = spot < most && all < most && same;
    failures += right ? 0 : 1;
    uint64_t rows = digest(run, l->a_columns ? elements : 1024ULL * l->n);
    (void)printf("%s %s tile %d split %u: spots %.2g all %.2g digests %s rows %016llx\n",
                 right ? "PASS" : "FAIL", name, tile, l->split, spot, all, same ? "one" : "MANY",
                 (unsigned long long)rows);
}

static void run_product(const char *name, int tile, uint32_t split, uint32_t sequences)
{
    static struct model_bench_run run;
    struct model_choice choice;
    struct err err = {0};
    must_err(model_bench_prepare(&bench, name, sequences, tile, split, &run, &err), &err);
    check(&run, name, tile); /* first: what timing leaves in R and C is no matter */
    if (!timed) {
        return;
    }
    must_err(model_bench_choice(&bench, &run, tile, &choice, &err), &err);
    double own = choice.microseconds;
    double half = time_blas(&run, true, false);
    double like = run.launch.half_out ? half : time_blas(&run, false, run.launch.add != 0);
    must_err(model_bench_choice(&bench, &run, tile, &choice, &err), &err);
    own = choice.microseconds < own ? choice.microseconds : own;
    double flops = 2.0 * run.launch.m * run.launch.n * (double)run.launch.k;
    (void)printf(
        "TIME %u %-30s %2d:%-2u %8.1f us %4.0f TF  cublas %8.1f %4.0f like %8.1f  ratio %.3f "
        "like %.3f\n",
        sequences, name, tile, split, own, flops / own / 1e6, half, flops / half / 1e6, like,
        half / own, like / own);
    (void)fflush(stdout);
}

/* The product with the candidate, where it serves; "chosen": with the
 * committed choice, "chosen=FILE" with the one of a table. */
static void run_one(const char *name, const char *candidate, uint32_t sequences)
{
    struct model_launch launch = {0};
    struct model_choice choice;
    const struct model_image *image;
    struct err err = {0};
    must_err(model_image_find(name, &launch, &image, &err), &err);
    model_launch_sequences(&launch, sequences);
    launch.half_out = launch.add == 0 && launch.a_columns == 0;
    if (strncmp(candidate, "chosen", 6) == 0) {
        static struct model_choices own; /* of one file for the whole run */
        if (candidate[6] == '=' && own.text == NULL) {
            must_err(model_choices_init(&own, candidate + 7, &err), &err);
        }
        must_err(
            model_choice_find(&own, bench.architecture, name, sequences, &launch, &choice, &err),
            &err);
        run_product(name, choice.tile, choice.split, sequences);
        return;
    }
    const char *colon = strchr(candidate, ':');
    int tile = (int)strtol(candidate, NULL, 10);
    launch.split = colon != NULL ? (uint32_t)strtoul(colon + 1, NULL, 10) : 1;
    if (model_tile_serves(tile, &launch) && (launch.split == 1 || launch.a_columns != 0)) {
        run_product(name, tile, launch.split, sequences);
    }
}

static void open_checks(const char *folder)
{
    checks = load(folder, bench.half == MODEL_HALF_FP16 ? "tiles_check_fp16" : "tiles_check_bf16");
    room = alloc(1 << 20);
    host = malloc(1 << 20);
    ASSERT(host != NULL);
}

static void run_all(char **words, int count)
{
    const struct model_shape shape = {1, 1024, 512, 8, 64, 1408, 12288};
    struct model_name names[MODEL_PRODUCTS_MAX];
    size_t products = model_products(&shape, names);
    open_blas(words[3], bench.stream);
    open_checks(words[2]);
    for (int i = 5; i < count; i++) {
        for (const char *at = words[4]; *at != '\0';) {
            char *end;
            uint32_t sequences = (uint32_t)strtoul(at, &end, 10);
            for (size_t p = 0; p < products; p++) {
                run_one(names[p].text, words[i], sequences);
            }
            at = *end == ',' ? end + 1 : end;
        }
    }
}

/* A product by its name alone, with the committed choice, gives the bits of the bench's launch.
 */
static void launch_by_name(struct model_gpu *gpu, const char *name, const struct model_shape *shape)
{
    static struct model_bench_run run;
    struct model_launch launch = {.shape = *shape};
    struct model_choice choice;
    const struct model_image *image;
    struct err err = {0};
    must_err(model_image_find(name, &launch, &image, &err), &err);
    model_launch_sequences(&launch, shape->sequences);
    launch.half_out = launch.add == 0 && launch.a_columns == 0;
    must_err(
        model_choice_find(NULL, bench.architecture, name, shape->sequences, &launch, &choice, &err),
        &err);
    must_err(
        model_bench_prepare(&bench, name, shape->sequences, choice.tile, choice.split, &run, &err),
        &err);
    struct model_bench_own own = {&bench, &run};
    const uint64_t elements = (uint64_t)launch.m * launch.n;
    must_err(model_bench_own_start(&own, 0, &err), &err);
    uint64_t expected = digest(&run, elements);
    must(bench.driver->cuMemsetD8Async((cu_pointer)(uintptr_t)output(&run, 0), 0xff, run.c_bytes,
                                       bench.stream),
         "poisoning");
    struct model_launch asked = {.shape = *shape, .half_out = launch.half_out};
    void *operands[6];
    memcpy(operands, run.arguments[0].operand, sizeof(operands));
    operands[2] = launch.add != 0 ? operands[2] : NULL;
    operands[5] = choice.split > 1 ? operands[5] : NULL;
    must_err(model_gpu_launch(gpu, name, &asked, MODEL_TILE_NONE, operands, 6, bench.stream, &err),
             &err);
    bool same = digest(&run, elements) == expected;
    failures += same ? 0 : 1;
    (void)printf("%s session %u %s tile %d split %u\n", same ? "PASS" : "FAIL", shape->sequences,
                 name, choice.tile, choice.split);
}

static void run_session(const char *folder, uint32_t sequences)
{
    const struct model_shape shape = {sequences, 1024, 512, 8, 64, 1408, 12288};
    struct model_name names[MODEL_PRODUCTS_MAX];
    struct model_gpu *gpu = NULL;
    struct err err = {0};
    size_t products = model_products(&shape, names);
    open_checks(folder);
    must_err(model_gpu_open(bench.driver, 0, folder, NULL, bench.half, &gpu, &err), &err);
    for (size_t p = 0; p < products; p++) {
        launch_by_name(gpu, names[p].text, &shape);
    }
    model_gpu_close(gpu);
}

static void measure_table(char **words)
{
    struct err err = {0};
    FILE *table = fopen(words[3], "w");
    FILE *log = fopen(words[4], "w");
    ASSERT(table != NULL && log != NULL);
    must_err(model_bench_tiles(&bench, table, log, &err), &err);
    (void)fclose(table);
    (void)fclose(log);
}

int main(int count, char **words)
{
    struct err err = {0};
    if (count < 3) {
        (void)printf(
            "skipped: micro FOLDER, run FOLDER CUBLAS SEQUENCES TILE[:SPLIT]... or table\n");
        return 77;
    }
    timed = strcmp(words[1], "check") != 0;
    const bool fp16 = strcmp(words[1], "run-fp16") == 0;
    const char *folder = strcmp(words[2], "-") == 0 ? NULL : words[2]; /* inside the program */
    if (model_bench_open(&bench, folder, fp16 ? MODEL_HALF_FP16 : MODEL_HALF_BF16, &err) != 0) {
        (void)printf("skipped: %s\n", err.text);
        return 77;
    }
    if (strcmp(words[1], "micro") == 0) {
        micro(words[2]);
    } else if (strcmp(words[1], "table") == 0 && count == 5) {
        measure_table(words);
    } else if (strcmp(words[1], "session") == 0 && count == 4) {
        run_session(words[2], (uint32_t)strtoul(words[3], NULL, 10));
    } else if (count > 5) {
        run_all(words, count);
    }
    model_bench_close(&bench);
    return failures == 0 ? 0 : 1;
}

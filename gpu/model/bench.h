/* Times the candidates of the products on a GPU, for the table of choices and for who compares them
 * with others. Takes device memory for operands, MODEL_BENCH_A + _B + _C bytes. One thread. */
#ifndef COPPELIUS_GPU_MODEL_BENCH_H
#define COPPELIUS_GPU_MODEL_BENCH_H

#include <stdio.h>

#include "gpu/cuda_driver.h"
#include "gpu/model/choices.h"

#define MODEL_BENCH_A        (3ULL << 30)
#define MODEL_BENCH_B        (2ULL << 30)
#define MODEL_BENCH_C        (7ULL << 30) /* and R, and the parts of split products */
#define MODEL_BENCH_SETS_MAX 40

struct model_bench {
    const struct cuda_driver *driver;
    enum model_half half;
    int architecture; /* 90 for sm_90 */
    unsigned multiprocessors;
    unsigned rounds; /* whose median model_bench_time() takes */
    cu_stream stream;
    cu_module modules[2]; /* of mma.sync, of wgmma (NULL but on sm_90) */
    cu_pointer a;
    cu_pointer b;
    cu_pointer c;
};

/* Takes device 0 and makes its context the thread's; loads FOLDER/product_bf16.fatbin and, on
 * sm_90, FOLDER/product_wgmma_bf16.fatbin (or _fp16), as the target model_images makes them, or
 * those inside the program (folder NULL); fills the operands with random numbers. ERR_DEVICE,
 * ERR_NOMEM, ERR_NOT_FOUND say what is missing. What was taken is given back by
 * model_bench_close(), after a failure too. */
int model_bench_open(struct model_bench *bench, const char *folder, enum model_half half,
                     struct err *err);
void model_bench_close(struct model_bench *bench);

/* A product with the operands of several launches, so many that together they exceed the L2. */
struct model_bench_run {
    struct model_launch launch;
    struct model_kernel kernels[MODEL_STAGES_MAX];
    cu_function functions[MODEL_STAGES_MAX];
    size_t kernels_count;
    unsigned sets;
    struct model_arguments arguments[MODEL_BENCH_SETS_MAX];
    struct model_maps maps[MODEL_BENCH_SETS_MAX]; /* of the first kernel */
    uint64_t r_bytes;                             /* of an operand of one launch, as laid out */
    uint64_t c_bytes;
    uint64_t parts_bytes; /* at the start of the bench's c, shared by all */
};

/* C in the half type where the model wants it so (no R, and no weight gradient), else in f32. */
int model_bench_prepare(struct model_bench *bench, const char *name, uint32_t sequences, int tile,
                        uint32_t split, struct model_bench_run *ret_run, struct err *err);

/* Enqueues one launch with the operands of a set on the bench's stream. */
typedef int model_bench_start(void *context, unsigned set, struct err *err);
struct model_bench_own { /* the context of model_bench_own_start */
    struct model_bench *bench;
    struct model_bench_run *run;
};
int model_bench_own_start(void *context, unsigned set, struct err *err);

/* Median microseconds of a launch, from a graph that goes round the sets. */
int model_bench_time(struct model_bench *bench, const struct model_bench_run *run,
                     model_bench_start *start, void *context, double *ret_microseconds,
                     struct err *err);
/* The candidate's time and resources. */
int model_bench_choice(struct model_bench *bench, struct model_bench_run *run, int tile,
                       struct model_choice *ret_choice, struct err *err);

/* Every product of the Coppelius shape at 1, 16 and 64 sequences with every candidate that serves:
 * the fastest ones to `table`, all to `log` (NULL: not wanted). */
int model_bench_tiles(struct model_bench *bench, FILE *table, FILE *log, struct err *err);

#endif

/* The same bits on the GPU: random jobs on the CPU's session, then on GPU sessions (one node, two
 * to four that share the GPU, mixed with the CPU), dense and CSC, in parts and as local steps.
 * Losses of every step, the objective, parameters and accumulators are compared byte for byte.
 *
 *   parity_gpu [CASES [FIRST_SEED [ELEMENTS_MAX]]]
 *
 * Exits 77, saying why, where there is no GPU, or this build has no kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "numerics/product.h"
#include "tests/lib/cluster.h"

struct job {
    struct cluster_job cluster;
    size_t rows, columns, coordinates;
    float *dense;
    uint64_t *starts;
    uint32_t *row;
    float *value;
    double *targets;
};

struct outcome {
    int code;
    struct err err;
    struct cluster_result result;
};

static double uniform(struct rand *rand)
{
    return (double)(rand_next(rand) >> 11) / 9007199254740992.0 * 2.0 - 1.0;
}

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL) {
        (void)fprintf(stderr, "no memory\n");
        exit(1);
    }
    return memory;
}

/* Values of every kind that a file can hold; whole columns of a kind. */
static float draw(struct rand *rand, unsigned kind)
{
    switch (kind) {
    case 0:
        return rand_below(rand, 100) == 0 ? (float)uniform(rand) : 0.0F; /* 1 % */
    case 1:
        return rand_below(rand, 10) == 0 ? (float)uniform(rand) : 0.0F;
    case 2:
        return (float)(uniform(rand) * 0x1p-130); /* subnormal or nearly so */
    case 3:
        return 0.0F;
    case 4:
        return 1.5F;
    case 5:
        return (float)(uniform(rand) * 0x1p60);
    default:
        return (float)uniform(rand);
    }
}

static size_t spread(struct rand *rand, size_t most)
{
    unsigned bits = 0;
    while (most >> (bits + 1) != 0) {
        bits++;
    }
    size_t top = (size_t)1 << rand_below(rand, bits + 1);
    size_t value = top + (size_t)rand_below(rand, top);
    return value < most ? value : most;
}

static void make(struct job *job, uint64_t seed, size_t elements_max)
{
    struct rand rand = {seed};
    memset(job, 0, sizeof(*job));
    size_t rows = spread(&rand, 300000);
    size_t columns = spread(&rand, rand_below(&rand, 8) == 0 ? 1500 : 700);
    if (seed % 16 == 1) { /* the widths where the forms of the matrix change */
        static const size_t widths[] = {1,   2,   31,  63,  64,  126,  127,  128,
                                        129, 255, 256, 257, 512, 1023, 1024, 1025};
        columns = widths[rand_below(&rand, sizeof(widths) / sizeof(widths[0]))];
    }
    rows = rows * columns > elements_max ? elements_max / columns : rows;
    unsigned kinds = rand_below(&rand, 3) == 0 ? 6 : 0; /* 0: all of the plain kind */
    bool thin = rand_below(&rand, 3) == 0;
    job->rows = rows;
    job->columns = columns;
    job->dense = room(rows * columns, sizeof(float));
    job->starts = room(columns + 1, sizeof(uint64_t));
    job->row = room(rows * columns, sizeof(uint32_t));
    job->value = room(rows * columns, sizeof(float));
    job->targets = room(rows, sizeof(double));
    uint64_t entries = 0;
    for (size_t j = 0; j < columns; j++) {
        unsigned kind = thin ? (unsigned)rand_below(&rand, 2) : 6;
        kind = kinds != 0 ? (unsigned)rand_below(&rand, kinds) : kind;
        job->starts[j] = entries;
        for (size_t i = 0; i < rows; i++) {
            float value = draw(&rand, kind);
            job->dense[j * rows + i] = value;
            if (value != 0.0F) {
                job->row[entries] = (uint32_t)i;
                job->value[entries] = value;
                entries++;
            }
        }
    }
    job->starts[columns] = entries;
    for (size_t i = 0; i < rows; i++) {
        job->targets[i] = uniform(&rand) * 3.0;
    }
    struct cluster_job *c = &job->cluster;
    c->dense = (struct session_matrix){.storage = SESSION_DENSE,
                                       .rows = rows,
                                       .columns = columns,
                                       .dense = job->dense,
                                       .stride = rows};
    c->csc = (struct session_matrix){.storage = SESSION_CSC,
                                     .rows = rows,
                                     .columns = columns,
                                     .starts = job->starts,
                                     .row = job->row,
                                     .value = job->value};
    c->targets = job->targets;
    c->intercept = rand_below(&rand, 4) != 0;
    c->rate = kinds != 0 ? 0x1p-130 : 0.01;
    c->decay = 0.9;
    c->l2 = rand_below(&rand, 2) == 0 ? 0.0 : 0.01;
    switch (rand_below(&rand, 4)) { /* all rows, whole panels, any remainder */
    case 0:
        c->batch = 0;
        break;
    case 1:
        c->batch = 2048 * (1 + rand_below(&rand, 4));
        c->batch = c->batch > rows ? 0 : c->batch;
        break;
    default:
        c->batch = 1 + rand_below(&rand, rows);
        break;
    }
    c->steps = 1 + rand_below(&rand, 6);
    job->coordinates = columns + (c->intercept ? 1 : 0);
}

static void free_job(struct job *job)
{
    free(job->dense);
    free(job->starts);
    free(job->row);
    free(job->value);
    free(job->targets);
}

static struct outcome run(const struct job *job)
{
    struct outcome o;
    memset(&o, 0, sizeof(o));
    o.result.parameter = room(job->coordinates, sizeof(double));
    o.result.accumulator = room(job->coordinates, sizeof(double));
    o.result.losses = room(job->cluster.steps, sizeof(double));
    o.code = cluster_run(&job->cluster, &o.result, &o.err);
    return o;
}

static void free_outcome(struct outcome *o)
{
    free(o->result.parameter);
    free(o->result.accumulator);
    free(o->result.losses);
}

static bool same(const struct job *job, const struct outcome *a, const struct outcome *b)
{
    if (a->code != b->code) {
        return false;
    }
    if (a->code != 0) {
        return strcmp(a->err.text, b->err.text) == 0;
    }
    size_t vector = job->coordinates * sizeof(double);
    return memcmp(a->result.losses, b->result.losses, job->cluster.steps * sizeof(double)) == 0 &&
           memcmp(&a->result.objective, &b->result.objective, sizeof(double)) == 0 &&
           memcmp(a->result.parameter, b->result.parameter, vector) == 0 &&
           memcmp(a->result.accumulator, b->result.accumulator, vector) == 0;
}

static void tell(const struct job *job, uint64_t seed, const char *way, const struct outcome *cpu,
                 const struct outcome *gpu)
{
    const struct cluster_job *c = &job->cluster;
    (void)printf("DIFFERS seed %llu: %zu x %zu, intercept %d, batch %llu, steps %llu, l2 %g, %s\n",
                 (unsigned long long)seed, job->rows, job->columns, c->intercept,
                 (unsigned long long)c->batch, (unsigned long long)c->steps, c->l2, way);
    (void)printf("  cpu: %d %s\n  gpu: %d %s\n", cpu->code, cpu->err.text, gpu->code,
                 gpu->err.text);
    for (size_t s = 0; cpu->code == 0 && gpu->code == 0 && s < c->steps; s++) {
        (void)printf("  loss %zu: %a %a\n", s, cpu->result.losses[s], gpu->result.losses[s]);
    }
    for (size_t j = 0; cpu->code == 0 && gpu->code == 0 && j < job->coordinates; j++) {
        if (memcmp(&cpu->result.parameter[j], &gpu->result.parameter[j], sizeof(double)) != 0) {
            (void)printf("  parameter %zu: %a %a\n", j, cpu->result.parameter[j],
                         gpu->result.parameter[j]);
            break;
        }
    }
    (void)printf("  objective %a %a\n", cpu->result.objective, gpu->result.objective);
}

/* One way to compute the job on GPUs. mask: which nodes are the CPU's. */
static unsigned check(struct job *job, uint64_t seed, const struct outcome *cpu, uint32_t nodes,
                      unsigned mask, enum session_storage storage)
{
    char way[64];
    if (nodes > job->coordinates) {
        return 0;
    }
    (void)snprintf(way, sizeof(way), "%u nodes (cpu mask %x), %s", nodes, mask,
                   storage == SESSION_DENSE ? "dense" : "csc");
    job->cluster.nodes = nodes;
    job->cluster.storage = storage;
    job->cluster.device = "auto";
    for (uint32_t n = 0; n < nodes; n++) {
        job->cluster.backend[n] =
            (mask >> n & 1) != 0 ? session_backend_cpu() : session_backend_cuda();
    }
    struct outcome gpu = run(job);
    bool good = same(job, cpu, &gpu);
    if (!good) {
        tell(job, seed, way, cpu, &gpu);
    }
    free_outcome(&gpu);
    return good ? 0 : 1;
}

static unsigned predict(struct job *job, uint64_t seed, const double *parameter)
{
    double *here = room(job->rows, sizeof(double));
    double *there = room(job->rows, sizeof(double));
    struct session_settings cpu = {.device = "cpu", .threads = 8};
    struct session_settings gpu = {.device = "auto", .share = true};
    struct err err = {0};
    unsigned bad = 0;
    for (int form = 0; form < 2; form++) {
        const struct session_matrix *matrix = form == 0 ? &job->cluster.dense : &job->cluster.csc;
        int code = learn_predict(&cpu, matrix, job->cluster.intercept, parameter, here, &err);
        code = code != 0
                   ? code
                   : learn_predict(&gpu, matrix, job->cluster.intercept, parameter, there, &err);
        if (code != 0 || memcmp(here, there, job->rows * sizeof(double)) != 0) {
            (void)printf("DIFFERS prediction of seed %llu, form %d: %s\n", (unsigned long long)seed,
                         form, err.text);
            bad = 1;
        }
    }
    free(here);
    free(there);
    return bad;
}

/* Holds the GPU's context over all cases, and says whether there is a GPU. */
static struct session *hold(void)
{
    struct session_settings settings = {.device = "auto", .share = true};
    struct session_plan plan = {.coordinate_end = 1,
                                .intercept = true,
                                .rows = 1,
                                .batch_rows = 1,
                                .chunk_rows = 2048,
                                .issues_max = 1};
    struct session *session = NULL;
    struct err err = {0};
    int code = session_new(&settings, NULL, &session, &err);
    code = code != 0 ? code : session_admit(session, &plan, &err);
    code = code != 0 ? code : session_bind(session, &err);
    if (code != 0) {
        (void)printf("skipped: %s\n", err.text);
        exit(77);
    }
    char text[BINDING_TEXT_SIZE];
    binding_print(session_binding(session), text);
    (void)printf("%s, %s\n", session_binding(session)->device, text);
    return session;
}

int main(int argc, char **argv)
{
    unsigned long cases = argc > 1 ? strtoul(argv[1], NULL, 10) : 200;
    uint64_t first_seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    size_t elements_max = argc > 3 ? strtoul(argv[3], NULL, 10) : (size_t)30000000;
    struct session *holder = hold();
    unsigned bad = 0;
    unsigned ways = 0;
    unsigned diverged = 0;
    for (uint64_t seed = first_seed; seed < first_seed + cases; seed++) {
        struct job job;
        struct rand rand = {seed + 77};
        make(&job, seed, elements_max);
        job.cluster.nodes = 1;
        job.cluster.threads = 8;
        job.cluster.storage = SESSION_DENSE;
        struct outcome cpu = run(&job);
        diverged += cpu.code != 0;
        uint32_t nodes = 2 + (uint32_t)rand_below(&rand, 3);
        enum session_storage storage = rand_below(&rand, 2) == 0 ? SESSION_DENSE : SESSION_CSC;
        unsigned mask = 1 + (unsigned)rand_below(&rand, (1U << nodes) - 2);
        unsigned wrong = check(&job, seed, &cpu, 1, 0, SESSION_DENSE);
        wrong += check(&job, seed, &cpu, 1, 0, SESSION_CSC);
        wrong += check(&job, seed, &cpu, nodes, 0, storage);
        wrong += check(&job, seed, &cpu, nodes, mask,
                       storage == SESSION_DENSE ? SESSION_CSC : SESSION_DENSE);
        ways += 4;
        if (cpu.code == 0 && seed % 8 == 0) {
            wrong += predict(&job, seed, cpu.result.parameter);
            ways += 2;
        }
        bad += wrong;
        free_outcome(&cpu);
        free_job(&job);
        if (bad > 20) {
            (void)printf("too many: stopping at seed %llu\n", (unsigned long long)seed);
            break;
        }
        (void)fflush(stdout);
    }
    session_free(holder);
    (void)printf("%lu cases (%u diverged on both), %u ways, %u differ\n", cases, diverged, ways,
                 bad);
    return bad != 0;
}

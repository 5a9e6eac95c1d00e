#include "gpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "numerics/product.h"

#define SMALL_PAGE ((size_t)4096)
#define HUGE_PAGE  ((size_t)2 << 20)
#define HUGE_ARENA ((size_t)16 << 20) /* from this size on huge pages are asked for */

/* -- bind and load ----------------------------------------------------------------------------- */

/* The machine's memory, or the control group's where that is less. */
static int cpu_memory(const struct session_settings *settings, uint64_t *ret_bytes, struct err *err)
{
    (void)settings;
    (void)err;
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_size = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page_size > 0 ? (uint64_t)pages * (uint64_t)page_size : 0;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file != NULL) {
        char text[32] = "";
        if (fgets(text, sizeof(text), file) != NULL && text[0] >= '0' && text[0] <= '9') {
            uint64_t limit = strtoull(text, NULL, 10);
            bytes = limit != 0 && (bytes == 0 || limit < bytes) ? limit : bytes;
        }
        (void)fclose(file);
    }
    *ret_bytes = bytes;
    return 0;
}

static int cpu_bind(const struct session_settings *settings, struct session_device **ret_device,
                    struct session_binding *ret_binding, uint64_t *ret_memory_bytes,
                    struct err *err)
{
    const char *name = settings->isa != NULL ? settings->isa : getenv("COPPELIUS_CPU");
    const struct cpu_isa *isa = NULL;
    int code = cpu_isa_find(name, &isa, err);
    if (code == 0 && settings->threads > CPU_THREADS_MAX) {
        code = err_set(err, ERR_CONFIG, "threads = %u; the most is %d", settings->threads,
                       CPU_THREADS_MAX);
    }
    if (code == 0) {
        code = cpu_memory(settings, ret_memory_bytes, err);
    }
    if (code != 0) {
        return code;
    }
    struct cpu_device *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a CPU session");
    }
    unsigned threads = settings->threads != 0 ? settings->threads : cpu_threads_available();
    code = cpu_pool_init(&cpu->pool, threads, err);
    if (code != 0) {
        free(cpu);
        return code;
    }
    cpu->isa = isa;
    cpu->device =
        (struct session_device){.backend = session_backend_cpu(), .lookahead = 0, .local_depth = 1};
    binding_of_cpu(isa->name, threads, ret_binding);
    *ret_device = &cpu->device;
    return 0;
}

/* The names under which the loops are launched. */
static const char *const image_forward = "dense-forward";
static const char *const image_backward = "dense-backward";
static const char *const image_root = "lane-root";

static int cpu_load(struct session_device *device, const struct session_shape *shape,
                    struct images *images, struct err *err)
{
    (void)shape;
    struct cpu_device *cpu = cpu_of(device);
    const struct {
        const char *name;
        image_function *function;
    } owned[] = {
        {image_forward, (image_function *)cpu->isa->forward},
        {image_backward, (image_function *)cpu->isa->backward},
        {image_root, (image_function *)cpu->isa->root},
    };
    const struct image *found[3] = {NULL};
    for (size_t i = 0; i < 3; i++) {
        int code = images_register(images, owned[i].name, owned[i].function, NULL, NULL, err);
        if (code == 0) {
            code = images_find(images, owned[i].name, &found[i], err);
        }
        if (code != 0) {
            return code;
        }
    }
    cpu->forward = (cpu_forward_fn *)found[0]->function;
    cpu->backward = (cpu_backward_fn *)found[1]->function;
    cpu->root = (cpu_root_fn *)found[2]->function;
    return 0;
}

/* -- memory and state ---------------------------------------------------------------------------
 */

static int cpu_allocate(struct session_device *device, const struct arena *arena, struct err *err)
{
    struct cpu_device *cpu = cpu_of(device);
    /* Whole huge pages, and room to begin at one: the passes stream through the arena. */
    size_t page = arena->bytes >= HUGE_ARENA ? HUGE_PAGE : SMALL_PAGE;
    size_t bytes = ((size_t)arena->bytes + page - 1) / page * page;
    size_t mapped = bytes + page;
    char *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return err_set(err, ERR_DEVICE, "cpu: no %zu MiB of memory for the session",
                       (mapped >> 20) + 1);
    }
    cpu->mapped = memory;
    cpu->mapped_bytes = mapped;
    cpu->base = memory + ((page - ((uintptr_t)memory & (page - 1))) & (page - 1));
    cpu->base_bytes = bytes;
    if (page == HUGE_PAGE) {
        (void)madvise(cpu->base, cpu->base_bytes, MADV_HUGEPAGE); /* a hint: slower without */
    }
    cpu_layout_pointers(cpu, arena);
    if (cpu->shape.plan.whole) {
        return fold_plan_init(&cpu->fold, cpu->shape.nodes, cpu->shape.nodes_count, err);
    }
    return 0;
}

static int cpu_seed(struct session_device *device, const struct session_seed *seed, struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    size_t vector = (size_t)cpu->shape.coordinates * sizeof(double);
    memset(cpu->issues, 0, 2 * sizeof(uint64_t));
    memset(cpu->parameter, 0, vector);
    memset(cpu->accumulator, 0, vector);
    if (seed->parameter != NULL) {
        memcpy(cpu->parameter, seed->parameter, vector);
    }
    if (seed->accumulator != NULL) {
        memcpy(cpu->accumulator, seed->accumulator, vector);
    }
    for (uint64_t j = 0; j < cpu->shape.coordinates; j++) {
        cpu->weights[j] = rn32(cpu->parameter[j]);
    }
    if (seed->targets != NULL) {
        memcpy(cpu->targets, seed->targets, (size_t)cpu->shape.plan.rows * sizeof(double));
    }
    atomic_store(&cpu->fault_row, UINT64_MAX);
    atomic_store(&cpu->fault_coordinate, UINT64_MAX);
    if (seed->matrix->storage == SESSION_DENSE) {
        cpu_dense_seed(cpu, seed->matrix);
    } else {
        cpu_sparse_seed(cpu, seed->matrix);
    }
    return 0;
}

static int cpu_capture(struct session_device *device, struct err *err)
{
    struct cpu_device *cpu = cpu_of(device);
    int code = cpu_fence(device, err);
    if (code == 0) {
        size_t vector = (size_t)cpu->shape.coordinates * sizeof(double);
        memcpy(cpu->captured_parameter, cpu->parameter, vector);
        memcpy(cpu->captured_accumulator, cpu->accumulator, vector);
        cpu->issues[1] = cpu->issues[0];
    }
    return code;
}

static int cpu_capture_read(struct session_device *device, double *parameter, double *accumulator,
                            uint64_t *ret_issues, struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    size_t vector = (size_t)cpu->shape.coordinates * sizeof(double);
    memcpy(parameter, cpu->captured_parameter, vector);
    memcpy(accumulator, cpu->captured_accumulator, vector);
    *ret_issues = cpu->issues[1];
    return 0;
}

static void cpu_release(struct session_device *device)
{
    struct cpu_device *cpu = cpu_of(device);
    cpu_pool_done(&cpu->pool);
    fold_plan_done(&cpu->fold);
    if (cpu->mapped != NULL) {
        (void)munmap(cpu->mapped, cpu->mapped_bytes);
    }
    free(cpu);
}

static const struct session_backend backend = {
    .name = "cpu",
    .memory = cpu_memory,
    .bind = cpu_bind,
    .load = cpu_load,
    .layout = cpu_layout,
    .allocate = cpu_allocate,
    .seed = cpu_seed,
    .step_begin = cpu_step_begin,
    .forward = cpu_forward,
    .forward_wait = cpu_forward_wait,
    .backward = cpu_backward,
    .update = cpu_update,
    .fence = cpu_fence,
    .local_step = cpu_local_step,
    .local_wait = cpu_local_wait,
    .capture = cpu_capture,
    .capture_read = cpu_capture_read,
    .release = cpu_release,
};

const struct session_backend *session_backend_cpu(void)
{
    return &backend;
}

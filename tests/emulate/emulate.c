#include "tests/emulate/emulate.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "base/assert.h"

enum {
    KERNELS_MAX = 256,
    THREADS_MAX = 1024,
    WARP = 32,
    STACK_SIZE = 64 * 1024,
    SHARED_MAX = 228 * 1024,
    COPIES_MAX = 512,
};

static struct {
    const char *entry;
    emulated_kernel *kernel;
} kernels[KERNELS_MAX];
static unsigned kernels_count;

struct emulated_index emulate_thread;
struct emulated_index emulate_block;
struct emulated_index emulate_grid;
_Alignas(128) uint8_t emulate_shared[SHARED_MAX];

enum fiber_state { RUNS, WAITS_WARP, WAITS_BLOCK, ENDED };

struct copy {
    uint32_t to;
    const void *from;
};

struct fiber {
    ucontext_t context;
    enum fiber_state state;
    /* Copies under way, oldest first; groups[] are their ends, up to `committed`. */
    struct copy copies[COPIES_MAX];
    unsigned copies_count;
    unsigned group_ends[COPIES_MAX];
    unsigned groups_count;
};

static struct fiber fibers[THREADS_MAX];
static uint8_t stacks[THREADS_MAX][STACK_SIZE];
static ucontext_t scheduler;
static emulated_kernel *running;
static const struct model_arguments *running_args;
static uint32_t exchanged[2][THREADS_MAX / WARP][WARP][16];
static unsigned exchange_turn[THREADS_MAX];

void emulate_register(const char *entry, emulated_kernel *kernel)
{
    ASSERT(kernels_count < KERNELS_MAX);
    kernels[kernels_count].entry = entry;
    kernels[kernels_count].kernel = kernel;
    kernels_count++;
}

static void give_way(enum fiber_state state)
{
    struct fiber *fiber = &fibers[emulate_thread.x];
    fiber->state = state;
    ASSERT(swapcontext(&fiber->context, &scheduler) == 0);
}

void emulate_block_barrier(void)
{
    give_way(WAITS_BLOCK);
}

/* Two buffers in turn: who is at the next exchange cannot overwrite what others still read, since
 * all of the warp must have come there before anyone goes on to the one behind it. */
const uint32_t (*emulate_exchange(const uint32_t *words, unsigned count))[16]
{
    const unsigned thread = emulate_thread.x;
    const unsigned turn = exchange_turn[thread]++ % 2;
    memcpy(exchanged[turn][thread / WARP][thread % WARP], words, count * sizeof(*words));
    give_way(WAITS_WARP);
    return (const uint32_t(*)[16])exchanged[turn][thread / WARP];
}

void emulate_copy(uint32_t to, const void *from)
{
    struct fiber *fiber = &fibers[emulate_thread.x];
    ASSERT(to % 16 == 0);
    ASSERT((uintptr_t)from % 16 == 0);
    ASSERT(fiber->copies_count < COPIES_MAX);
    fiber->copies[fiber->copies_count++] = (struct copy){to, from};
}

void emulate_copy_commit(void)
{
    struct fiber *fiber = &fibers[emulate_thread.x];
    ASSERT(fiber->groups_count < COPIES_MAX);
    fiber->group_ends[fiber->groups_count++] = fiber->copies_count;
}

/* Copies happen as late as they may: who reads without waiting reads poison. */
void emulate_copy_wait(unsigned left)
{
    struct fiber *fiber = &fibers[emulate_thread.x];
    if (fiber->groups_count <= left) {
        return;
    }
    const unsigned groups = fiber->groups_count - left;
    const unsigned copies = fiber->group_ends[groups - 1];
    for (unsigned i = 0; i < copies; i++) {
        memcpy(emulate_shared + fiber->copies[i].to, fiber->copies[i].from, 16);
    }
    memmove(fiber->copies, fiber->copies + copies,
            (fiber->copies_count - copies) * sizeof(fiber->copies[0]));
    fiber->copies_count -= copies;
    for (unsigned i = 0; i < left; i++) {
        fiber->group_ends[i] = fiber->group_ends[i + groups] - copies;
    }
    fiber->groups_count = left;
}

static void enter(void)
{
    running(running_args);
    fibers[emulate_thread.x].state = ENDED;
    ASSERT(setcontext(&scheduler) == 0);
}

/* Wakes first .. end - 1 where all that have not ended are in `state`; says whether any was. */
static bool wake(uint32_t first, uint32_t end, enum fiber_state state)
{
    bool any = false;
    for (uint32_t i = first; i < end; i++) {
        if (fibers[i].state != state && fibers[i].state != ENDED) {
            return false;
        }
        any = any || fibers[i].state == state;
    }
    for (uint32_t i = first; any && i < end; i++) {
        if (fibers[i].state == state) {
            fibers[i].state = RUNS;
        }
    }
    return any;
}

static void prepare(struct fiber *fiber, uint8_t *stack)
{
    fiber->state = RUNS;
    fiber->copies_count = 0;
    fiber->groups_count = 0;
    ASSERT(getcontext(&fiber->context) == 0);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = STACK_SIZE;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, enter, 0);
}

static void run_block(uint32_t threads)
{
    memset(emulate_shared, 0xFF, sizeof(emulate_shared));
    memset(exchange_turn, 0, sizeof(exchange_turn));
    for (uint32_t i = 0; i < threads; i++) {
        prepare(&fibers[i], stacks[i]);
    }
    for (;;) {
        for (uint32_t i = 0; i < threads; i++) {
            if (fibers[i].state == RUNS) {
                emulate_thread.x = i;
                ASSERT(swapcontext(&scheduler, &fibers[i].context) == 0);
            }
        }
        bool moved = false;
        for (uint32_t first = 0; first < threads; first += WARP) {
            moved = wake(first, first + WARP, WAITS_WARP) || moved;
        }
        moved = moved || wake(0, threads, WAITS_BLOCK);
        if (!moved) {
            break;
        }
    }
    for (uint32_t i = 0; i < threads; i++) {
        ASSERT(fibers[i].state == ENDED); /* else a barrier that some threads never reach */
    }
}

int emulate_launch(const char *entry, const uint32_t grid[3], uint32_t threads,
                   uint32_t shared_bytes, const struct model_arguments *args)
{
    running = NULL;
    for (unsigned i = 0; i < kernels_count; i++) {
        if (strcmp(kernels[i].entry, entry) == 0) {
            running = kernels[i].kernel;
        }
    }
    if (running == NULL) {
        return -1;
    }
    ASSERT(threads % WARP == 0);
    ASSERT(threads <= THREADS_MAX);
    ASSERT(shared_bytes <= SHARED_MAX);
    running_args = args;
    emulate_grid = (struct emulated_index){grid[0], grid[1], grid[2]};
    for (uint32_t z = 0; z < grid[2]; z++) {
        for (uint32_t y = 0; y < grid[1]; y++) {
            for (uint32_t x = 0; x < grid[0]; x++) {
                emulate_block = (struct emulated_index){x, y, z};
                run_block(threads);
            }
        }
    }
    return 0;
}

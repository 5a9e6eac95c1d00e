#include "gpu/cpu_pool.h"

#include <sched.h>
#include <string.h>

#include "base/assert.h"

/* Some ten microseconds: more would take the processor from others that share it. */
#define SPINS 200

unsigned cpu_threads_available(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 1;
    }
    int count = CPU_COUNT(&set);
    return count < 1 ? 1 : count > CPU_THREADS_MAX ? CPU_THREADS_MAX : (unsigned)count;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void work(struct cpu_pool *pool, unsigned worker)
{
    for (;;) {
        size_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->items_count) {
            return;
        }
        pool->run(pool->context, item, worker);
    }
}

/* Waits for a job other than the one seen; false at the end. */
static bool await(struct cpu_pool *pool, unsigned *seen)
{
    for (unsigned spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&pool->job, memory_order_acquire) != *seen) {
            break;
        }
        relax();
    }
    (void)pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->job, memory_order_acquire) == *seen && !pool->stopping) {
        (void)pthread_cond_wait(&pool->wake, &pool->lock);
    }
    bool stopping = pool->stopping;
    *seen = atomic_load_explicit(&pool->job, memory_order_acquire);
    (void)pthread_mutex_unlock(&pool->lock);
    return !stopping;
}

static void *worker_main(void *argument)
{
    struct cpu_pool *pool = argument;
    unsigned worker = 1 + atomic_fetch_add(&pool->numbered, 1);
    unsigned seen = 0;
    while (await(pool, &seen)) {
        work(pool, worker);
        if (atomic_fetch_sub_explicit(&pool->inside, 1, memory_order_acq_rel) == 1) {
            (void)pthread_mutex_lock(&pool->lock);
            (void)pthread_cond_signal(&pool->done);
            (void)pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

int cpu_pool_init(struct cpu_pool *pool, unsigned threads, struct err *err)
{
    ASSERT(threads >= 1);
    ASSERT(threads <= CPU_THREADS_MAX);
    memset(pool, 0, sizeof(*pool));
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    (void)pthread_cond_init(&pool->done, NULL);
    pool->threads = threads;
    while (pool->started + 1 < threads) {
        int status = pthread_create(&pool->workers[pool->started], NULL, worker_main, pool);
        if (status != 0) {
            (void)err_set(err, ERR_DEVICE, "cpu: worker %u of %u did not start: %s",
                          pool->started + 1, threads - 1, err_errno(status));
            cpu_pool_done(pool);
            return ERR_DEVICE;
        }
        pool->started++;
    }
    return 0;
}

void cpu_pool_done(struct cpu_pool *pool)
{
    if (pool->threads == 0) {
        return;
    }
    (void)pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->started; i++) {
        (void)pthread_join(pool->workers[i], NULL);
    }
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_mutex_destroy(&pool->lock);
    pool->threads = 0;
    pool->started = 0;
}

void cpu_pool_run(struct cpu_pool *pool, cpu_item_fn *run, void *context, size_t items_count,
                  bool small)
{
    if (pool->started == 0 || items_count <= 1 || small) {
        for (size_t item = 0; item < items_count; item++) {
            run(context, item, 0);
        }
        return;
    }
    pool->run = run;
    pool->context = context;
    pool->items_count = items_count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->inside, pool->started, memory_order_relaxed);
    (void)pthread_mutex_lock(&pool->lock);
    (void)atomic_fetch_add_explicit(&pool->job, 1, memory_order_release);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
    work(pool, 0);
    for (unsigned spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&pool->inside, memory_order_acquire) == 0) {
            return;
        }
        relax();
    }
    (void)pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->inside, memory_order_acquire) != 0) {
        (void)pthread_cond_wait(&pool->done, &pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->lock);
}

/* A small pool for one compute thread: it and threads - 1 workers share the items of one job at a
 * time. Items are claimed in order, whoever is free takes the next; nothing that is computed may
 * depend on who that was. Workers sleep between jobs (after a short spin). */
#ifndef COPPELIUS_GPU_CPU_POOL_H
#define COPPELIUS_GPU_CPU_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define CPU_THREADS_MAX 256

/* worker: 0 .. threads - 1, for scratch memory. */
typedef void cpu_item_fn(void *context, size_t item, unsigned worker);

struct cpu_pool {
    unsigned threads; /* the caller is one of them */
    unsigned started; /* workers that run */
    pthread_t workers[CPU_THREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a job is there, or the end */
    pthread_cond_t done; /* the last worker left the job */
    bool stopping;
    cpu_item_fn *run; /* the job; written before `job` moves on */
    void *context;
    size_t items_count;
    atomic_size_t next;   /* item */
    atomic_uint job;      /* number of the job; workers wait for it to move */
    atomic_uint inside;   /* workers that may still touch the job */
    atomic_uint numbered; /* gives each worker its number */
};

/* The process' processors, at most CPU_THREADS_MAX, at least 1. */
unsigned cpu_threads_available(void);

int cpu_pool_init(struct cpu_pool *pool, unsigned threads, struct err *err);
void cpu_pool_done(struct cpu_pool *pool);
/* Runs items 0 .. items_count - 1 and returns when all are done. With one thread, or one item, or
 * small = true, they run here, in order. */
void cpu_pool_run(struct cpu_pool *pool, cpu_item_fn *run, void *context, size_t items_count,
                  bool small);

#endif

#include "peer/pump.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"

#define PARTS_MAX  16
#define SLICE_SIZE (64U << 10) /* sealed between two looks at whether the job is to be settled */
#define READS      8

enum job_state { JOB_IDLE, JOB_POSTED, JOB_WORKING, JOB_DONE };

struct job {
    enum job_state state;
    struct iovec parts[PARTS_MAX];
    int parts_count;
    size_t size, done;
    struct err err; /* code 0: none */
};

struct pump {
    struct transport inner; /* the thread's */
    int event_fd, wake_fd;
    pthread_t thread;
    atomic_bool signalled; /* event_fd is readable */
    atomic_bool settling;  /* the write is to end at the next slice */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t rested; /* the write is not WORKING any more */
    struct job reads, writes;
    bool sleeping, stopping, shut;
    bool fresh; /* something was posted that the thread has not looked at */
};

/* ---------------------------------------------------------------- the thread */

static void tell(struct pump *pump)
{
    uint64_t one = 1;
    if (!atomic_exchange(&pump->signalled, true)) {
        ASSERT(write(pump->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    }
}

/* The parts of the job behind its first `done` bytes, at most `most` of them. */
static int rest_of(const struct job *job, size_t most, struct iovec *parts)
{
    size_t skip = job->done;
    int count = 0;
    for (int i = 0; i < job->parts_count && most > 0; i++) {
        size_t cut = skip < job->parts[i].iov_len ? skip : job->parts[i].iov_len;
        size_t left = job->parts[i].iov_len - cut;
        left = left < most ? left : most;
        skip -= cut;
        if (left > 0) {
            parts[count++] = (struct iovec){(uint8_t *)job->parts[i].iov_base + cut, left};
            most -= left;
        }
    }
    return count;
}

/* Whether the job has ended. */
static bool work_on_write(struct pump *pump)
{
    struct job *job = &pump->writes;
    struct iovec parts[PARTS_MAX];
    while (job->done < job->size && !atomic_load(&pump->settling)) {
        int count = rest_of(job, SLICE_SIZE, parts);
        ssize_t taken = pump->inner.ops->write(&pump->inner, parts, count, &job->err);
        if (taken <= 0) {
            return taken < 0;
        }
        job->done += (size_t)taken;
    }
    return true;
}

static bool work_on_read(struct pump *pump)
{
    struct job *job = &pump->reads;
    pump->inner.reads_left = READS;
    ssize_t got = pump->inner.ops->read(&pump->inner, job->parts, job->parts_count, &job->err);
    job->done = got > 0 ? (size_t)got : 0;
    return got != 0;
}

static void end_work(struct pump *pump, struct job *job, bool ended)
{
    pthread_mutex_lock(&pump->lock);
    ASSERT(job->state == JOB_WORKING);
    job->state = ended ? JOB_DONE : JOB_POSTED;
    if (job == &pump->writes) {
        ASSERT(pthread_cond_signal(&pump->rested) == 0);
    }
    pthread_mutex_unlock(&pump->lock);
    if (ended) {
        tell(pump);
    }
}

/* Until the socket can do what the jobs want, or the holder has something new. */
static void rest(struct pump *pump)
{
    struct pollfd polled[2] = {{.fd = pump->wake_fd, .events = POLLIN}, {.fd = -1}};
    uint64_t count = 0;
    pthread_mutex_lock(&pump->lock);
    if (pump->fresh) { /* What TLS holds already, poll does not know of. */
        pthread_mutex_unlock(&pump->lock);
        return;
    }
    short events = pump->reads.state == JOB_POSTED ? POLLIN : 0;
    if (pump->writes.state == JOB_POSTED || pump->inner.ops->wants_write(&pump->inner)) {
        events |= POLLOUT;
    }
    pump->sleeping = true;
    pthread_mutex_unlock(&pump->lock);
    polled[1].fd = events != 0 ? pump->inner.fd : -1; /* Else its end would wake in a circle. */
    polled[1].events = events;
    int got = poll(polled, 2, -1);
    ASSERT(got > 0 || errno == EINTR);
    pthread_mutex_lock(&pump->lock);
    pump->sleeping = false;
    pthread_mutex_unlock(&pump->lock);
    if (got > 0 && polled[0].revents != 0) {
        ASSERT(read(pump->wake_fd, &count, sizeof(count)) == (ssize_t)sizeof(count));
    }
}

/* The next thing to do; false: the end. */
static bool take_work(struct pump *pump, bool *ret_writes, bool *ret_reads, bool *ret_shut)
{
    pthread_mutex_lock(&pump->lock);
    bool go_on = !pump->stopping;
    *ret_writes = go_on && pump->writes.state == JOB_POSTED && !atomic_load(&pump->settling);
    *ret_reads = go_on && pump->reads.state == JOB_POSTED;
    *ret_shut = pump->shut;
    pump->shut = false;
    pump->fresh = false;
    if (*ret_writes) {
        pump->writes.state = JOB_WORKING;
    }
    if (*ret_reads) {
        pump->reads.state = JOB_WORKING;
    }
    pthread_mutex_unlock(&pump->lock);
    return go_on;
}

static void *pump_main(void *context)
{
    struct pump *pump = context;
    struct err err = {0};
    bool writes = false;
    bool reads = false;
    bool shut = false;
    while (take_work(pump, &writes, &reads, &shut)) {
        bool moved = shut;
        if (shut) {
            pump->inner.ops->shut(&pump->inner);
        }
        if (writes) {
            size_t before = pump->writes.done;
            bool ended = work_on_write(pump);
            moved |= ended || pump->writes.done > before;
            end_work(pump, &pump->writes, ended);
        } else if (pump->inner.ops->wants_write(&pump->inner)) {
            (void)pump->inner.ops->write(&pump->inner, NULL, 0, &err); /* The reader finds it. */
        }
        if (reads) {
            bool ended = work_on_read(pump);
            moved |= ended;
            end_work(pump, &pump->reads, ended);
        }
        if (!moved) {
            rest(pump);
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- the holder */

/* Under the lock, which is let go. */
static void post(struct pump *pump, struct job *job, const struct iovec *parts, int parts_count)
{
    ASSERT(parts_count <= PARTS_MAX);
    memcpy(job->parts, parts, (size_t)parts_count * sizeof(*parts));
    job->parts_count = parts_count;
    job->size = 0;
    for (int i = 0; i < parts_count; i++) {
        job->size += parts[i].iov_len;
    }
    job->done = 0;
    job->err = (struct err){0};
    job->state = JOB_POSTED;
    pump->fresh = true;
    bool wake = pump->sleeping;
    pthread_mutex_unlock(&pump->lock);
    uint64_t one = 1;
    if (wake) {
        ASSERT(write(pump->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    }
}

/* What became of the job that was posted, or posts it. */
static ssize_t ask(struct pump *pump, struct job *job, const struct iovec *parts, int parts_count,
                   struct err *err)
{
    pthread_mutex_lock(&pump->lock);
    if (job->state == JOB_IDLE && parts_count > 0) {
        post(pump, job, parts, parts_count);
        return 0;
    }
    ssize_t done = 0;
    if (job->state == JOB_DONE) {
        done = (ssize_t)job->done;
        if (done == 0 && job->err.code != 0) {
            *err = job->err; /* Stays: it is broken for good. */
            done = -1;
        } else {
            job->state = JOB_IDLE;
        }
    }
    pthread_mutex_unlock(&pump->lock);
    return done;
}

static ssize_t pump_read(struct transport *transport, const struct iovec *parts, int parts_count,
                         struct err *err)
{
    struct pump *pump = transport->state;
    uint64_t count = 0;
    /* In this order, and the jobs are looked at behind both: what is done before the store is seen
     * then, what is done after it is told anew. The other way round a word could be read away and
     * `signalled` stay true: nothing would ever be told again. */
    ssize_t got = read(pump->event_fd, &count, sizeof(count));
    ASSERT(got == (ssize_t)sizeof(count) || errno == EAGAIN);
    atomic_store(&pump->signalled, false);
    return ask(pump, &pump->reads, parts, parts_count, err);
}

static ssize_t pump_write(struct transport *transport, const struct iovec *parts, int parts_count,
                          struct err *err)
{
    struct pump *pump = transport->state;
    return ask(pump, &pump->writes, parts, parts_count, err);
}

static ssize_t pump_settle(struct transport *transport)
{
    struct pump *pump = transport->state;
    pthread_mutex_lock(&pump->lock);
    atomic_store(&pump->settling, true);
    while (pump->writes.state == JOB_WORKING) {
        ASSERT(pthread_cond_wait(&pump->rested, &pump->lock) == 0);
    }
    ssize_t done = 0;
    if (pump->writes.state != JOB_IDLE) {
        done = (ssize_t)pump->writes.done;
        pump->writes.state = pump->writes.err.code != 0 ? JOB_DONE : JOB_IDLE;
        pump->writes.done = 0;
    }
    atomic_store(&pump->settling, false);
    pthread_mutex_unlock(&pump->lock);
    return done;
}

static bool pump_is_busy(const struct transport *transport)
{
    (void)transport;
    return true;
}

static bool pump_wants_write(const struct transport *transport)
{
    (void)transport;
    return false; /* The thread sees to it. */
}

static bool pump_is_ready(const struct transport *transport)
{
    (void)transport;
    return true;
}

static void pump_shut(struct transport *transport)
{
    struct pump *pump = transport->state;
    uint64_t one = 1;
    pthread_mutex_lock(&pump->lock);
    pump->shut = true;
    pump->fresh = true;
    bool wake = pump->sleeping;
    pthread_mutex_unlock(&pump->lock);
    if (wake) {
        ASSERT(write(pump->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    }
}

static void free_pump(struct pump *pump)
{
    if (pump->event_fd >= 0) {
        (void)close(pump->event_fd);
    }
    if (pump->wake_fd >= 0) {
        (void)close(pump->wake_fd);
    }
    ASSERT(pthread_mutex_destroy(&pump->lock) == 0);
    ASSERT(pthread_cond_destroy(&pump->rested) == 0);
    free(pump);
}

static void pump_done(struct transport *transport)
{
    struct pump *pump = transport->state;
    uint64_t one = 1;
    pthread_mutex_lock(&pump->lock);
    pump->stopping = true;
    pump->fresh = true;
    atomic_store(&pump->settling, true);
    pthread_mutex_unlock(&pump->lock);
    ASSERT(write(pump->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    ASSERT(pthread_join(pump->thread, NULL) == 0);
    transport_close(&pump->inner);
    pump->event_fd = -1; /* The transport's descriptor: the caller's to close. */
    free_pump(pump);
}

int transport_pump(struct transport *transport, struct err *err)
{
    static const struct transport_ops ops = {.read = pump_read,
                                             .write = pump_write,
                                             .wants_write = pump_wants_write,
                                             .is_ready = pump_is_ready,
                                             .is_busy = pump_is_busy,
                                             .settle = pump_settle,
                                             .shut = pump_shut,
                                             .done = pump_done};
    struct pump *pump = calloc(1, sizeof(*pump));
    if (pump == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a connection's thread");
    }
    ASSERT(transport->ops->is_ready(transport));
    ASSERT(pthread_mutex_init(&pump->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&pump->rested, NULL) == 0);
    pump->inner = *transport;
    /* Readable from the start: the holder's first read posts the first job. */
    atomic_store(&pump->signalled, true);
    pump->event_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    pump->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = pump->event_fd < 0 || pump->wake_fd < 0
                     ? errno
                     : pthread_create(&pump->thread, NULL, pump_main, pump);
    if (failed != 0) {
        free_pump(pump);
        return err_set(err, ERR_NOMEM, "no thread for a connection: %s", err_errno(failed));
    }
    *transport = (struct transport){.ops = &ops,
                                    .fd = pump->event_fd,
                                    .socket = pump->inner.socket,
                                    .sealed = pump->inner.sealed,
                                    .state = pump};
    return 0;
}

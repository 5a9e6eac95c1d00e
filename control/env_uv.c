#include "control/env_uv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/rand.h"

#define TICK_MS 10U

enum mail_kind {
    MAIL_WRITE,   /* to the writer: a control_write; back: it is durable */
    MAIL_FAILED,  /* back: it is not, uv->error says why */
    MAIL_DROPPED, /* back: the writer was told to stop before it */
    MAIL_STOP,    /* to the writer */
};

struct control_uv {
    struct control *control;
    struct control_uv_callbacks callbacks;
    uv_timer_t timer;
    struct mailbox to_loop;   /* what the writer did */
    struct mailbox to_writer; /* what it is to do */
    struct message stop;
    pthread_t writer;
    atomic_bool stopping;
    struct err error;   /* the writer's, handed over by MAIL_FAILED */
    struct err failure; /* the one that is reported */
    bool failed;
    bool closing;
    unsigned handles_open;
    struct control_uv_stats stats;
    void (*on_closed)(void *context);
    void *closed_context;
};

static struct control_write *write_of(struct message *message)
{
    return OWNER_OF(message, struct control_write, message);
}

/* --- the writer's thread -----------------------------------------------------------------------
 */
static void run_chain(struct control_uv *uv, struct control_write *first)
{
    enum mail_kind kind = MAIL_DROPPED;
    uint64_t start_ns = clock_now_ns();
    if (!atomic_load(&uv->stopping)) {
        kind = control_write_run(first, &uv->error) == 0 ? MAIL_WRITE : MAIL_FAILED;
        if (kind == MAIL_FAILED) {
            atomic_store(&uv->stopping, true); /* nothing may be written behind it */
        }
    }
    uint64_t spent_ns = clock_now_ns() - start_ns;
    while (first != NULL) {
        struct control_write *next = first->next;
        first->next = NULL;
        first->message.kind = (int)kind;
        first->spent_ns = next == NULL ? spent_ns : 0;
        mailbox_put(&uv->to_loop, &first->message);
        first = next;
    }
}

static void *writer_main(void *context)
{
    struct control_uv *uv = context;
    bool stop = false;
    while (!stop) {
        struct control_write *first = NULL;
        struct control_write **last = &first;
        struct message *message = mailbox_wait(&uv->to_writer, UINT64_MAX);
        for (; message != NULL; message = mailbox_take(&uv->to_writer)) {
            if (message->kind == MAIL_STOP) {
                stop = true;
                continue;
            }
            *last = write_of(message);
            last = &(*last)->next;
        }
        if (first != NULL) {
            run_chain(uv, first); /* All that waited share a sync. */
        }
    }
    return NULL;
}

/* --- the loop's thread -------------------------------------------------------------------------
 */
static uint64_t env_now_ms(void *context)
{
    (void)context;
    return clock_now_ms();
}

static uint64_t env_random(void *context)
{
    (void)context;
    return rand_entropy();
}

static void env_send(void *context, uint32_t to, const uint8_t *bytes, size_t size)
{
    struct control_uv *uv = context;
    uv->callbacks.send(uv->callbacks.context, to, bytes, size);
}

static void env_persist(void *context, struct control_write *write)
{
    struct control_uv *uv = context;
    write->message.kind = MAIL_WRITE;
    uv->stats.queue_length++;
    mailbox_put(&uv->to_writer, &write->message);
}

static void env_applied(void *context, uint64_t index)
{
    struct control_uv *uv = context;
    if (uv->callbacks.on_applied != NULL) {
        uv->callbacks.on_applied(uv->callbacks.context, index);
    }
}

/* Outside of all calls of control, so that the owner may close everything in there. */
static void on_report(uv_timer_t *timer)
{
    struct control_uv *uv = OWNER_OF(timer, struct control_uv, timer);
    if (!uv->closing) {
        uv->callbacks.on_failed(uv->callbacks.context, &uv->failure);
    }
}

static void env_failed(void *context, const struct err *err)
{
    struct control_uv *uv = context;
    if (!uv->failed) {
        uv->failed = true;
        uv->failure = *err;
        control_fail(uv->control);
        ASSERT(uv_timer_start(&uv->timer, on_report, 0, 0) == 0); /* in place of the ticks */
    }
}

static void on_written(struct control_uv *uv, struct message *message)
{
    struct control_write *write = write_of(message);
    uint64_t spent_ns = write->spent_ns;
    uv->stats.queue_length--;
    if (message->kind == MAIL_FAILED && !uv->failed) {
        env_failed(uv, &uv->error);
    }
    if (message->kind != MAIL_WRITE || uv->failed || uv->closing) {
        control_write_free(write);
        return;
    }
    if (spent_ns > 0) {
        unsigned bucket = 0;
        while (bucket < CONTROL_UV_SYNC_BUCKETS && spent_ns > UINT64_C(500000) << bucket) {
            bucket++;
        }
        uv->stats.sync_counts[bucket]++;
        uv->stats.syncs++;
        uv->stats.sync_ns_last = spent_ns;
        uv->stats.sync_ns_total += spent_ns;
        uv->stats.sync_ns_max = spent_ns > uv->stats.sync_ns_max ? spent_ns : uv->stats.sync_ns_max;
    }
    control_persisted(uv->control, write);
}

static void on_mail(struct mailbox *box)
{
    struct control_uv *uv = OWNER_OF(box, struct control_uv, to_loop);
    for (struct message *message = mailbox_take(box); message != NULL;
         message = mailbox_take(box)) {
        on_written(uv, message);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct control_uv *uv = OWNER_OF(timer, struct control_uv, timer);
    if (!uv->failed && !uv->closing) {
        control_tick(uv->control);
    }
}

/* --- life --------------------------------------------------------------------------------------
 */
static void on_half_closed(struct control_uv *uv)
{
    ASSERT(uv->handles_open > 0);
    if (--uv->handles_open > 0) {
        return;
    }
    void (*on_closed)(void *context) = uv->on_closed;
    void *context = uv->closed_context;
    mailbox_done(&uv->to_writer);
    free(uv);
    if (on_closed != NULL) {
        on_closed(context);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_half_closed(OWNER_OF(handle, struct control_uv, timer));
}

static void on_mailbox_closed(struct mailbox *box)
{
    on_half_closed(OWNER_OF(box, struct control_uv, to_loop));
}

static int start_thread(struct control_uv *uv, uv_loop_t *loop, struct err *err)
{
    int status = mailbox_open(&uv->to_loop, loop, on_mail);
    if (status != 0) {
        return err_set(err, ERR_INTERNAL, "the log writer's mailbox: %s", uv_strerror(status));
    }
    status = pthread_create(&uv->writer, NULL, writer_main, uv);
    if (status != 0) {
        mailbox_close(&uv->to_loop, NULL); /* Needs the loop once more; the process is ending. */
        return err_set(err, ERR_INTERNAL, "the log writer's thread: %s", err_errno(status));
    }
    return 0;
}

int control_uv_open(uv_loop_t *loop, const struct control_settings *settings,
                    const struct control_fsm *fsm, const struct control_uv_callbacks *callbacks,
                    struct fs *fs, struct control_uv **ret_uv, bool *ret_fresh, struct err *err)
{
    struct control_uv *uv = calloc(1, sizeof(*uv));
    ASSERT(uv != NULL);
    uv->callbacks = *callbacks;
    atomic_init(&uv->stopping, false);
    struct control_env env = {
        .context = uv,
        .now_ms = env_now_ms,
        .random = env_random,
        .send = env_send,
        .persist = env_persist,
        .applied = env_applied,
        .failed = env_failed,
    };
    int code = control_open(settings, fsm, &env, fs, &uv->control, ret_fresh, err);
    if (code == 0) {
        mailbox_init(&uv->to_writer);
        code = start_thread(uv, loop, err);
        if (code != 0) {
            mailbox_done(&uv->to_writer);
            control_free(uv->control);
            return code; /* uv's mailbox may still be closing: its memory is left to it */
        }
    }
    if (code != 0) {
        free(uv);
        return code;
    }
    ASSERT(uv_timer_init(loop, &uv->timer) == 0);
    ASSERT(uv_timer_start(&uv->timer, on_tick, TICK_MS, TICK_MS) == 0);
    uv->handles_open = 2;
    *ret_uv = uv;
    return 0;
}

struct control *control_uv_control(struct control_uv *uv)
{
    return uv->control;
}

void control_uv_stats(const struct control_uv *uv, struct control_uv_stats *ret_stats)
{
    *ret_stats = uv->stats;
}

void control_uv_close(struct control_uv *uv, void (*on_closed)(void *context), void *context)
{
    ASSERT(!uv->closing);
    uv->closing = true;
    uv->on_closed = on_closed;
    uv->closed_context = context;
    atomic_store(&uv->stopping, true);
    uv->stop.kind = MAIL_STOP;
    mailbox_put(&uv->to_writer, &uv->stop);
    ASSERT(pthread_join(uv->writer, NULL) == 0);
    for (struct message *message = mailbox_take(&uv->to_loop); message != NULL;
         message = mailbox_take(&uv->to_loop)) {
        control_write_free(write_of(message));
    }
    ASSERT(mailbox_take(&uv->to_writer) == NULL); /* The stop came last. */
    control_free(uv->control);
    uv->control = NULL;
    uv_close((uv_handle_t *)&uv->timer, on_timer_closed);
    mailbox_close(&uv->to_loop, on_mailbox_closed);
}

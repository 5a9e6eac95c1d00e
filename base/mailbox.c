#include "base/mailbox.h"

#include "base/assert.h"
#include "base/clock.h"

static void init_list(struct mailbox *box)
{
    ASSERT(pthread_mutex_init(&box->lock, NULL) == 0);
    clock_condition_init(&box->filled);
    box->first = NULL;
    box->last = &box->first;
    box->on_mail = NULL;
    box->on_closed = NULL;
    box->on_loop = false;
}

void mailbox_init(struct mailbox *box)
{
    init_list(box);
}

void mailbox_done(struct mailbox *box)
{
    ASSERT(!box->on_loop);
    ASSERT(pthread_cond_destroy(&box->filled) == 0);
    ASSERT(pthread_mutex_destroy(&box->lock) == 0);
}

static void on_async(uv_async_t *async)
{
    struct mailbox *box = OWNER_OF(async, struct mailbox, async);
    box->on_mail(box);
}

int mailbox_open(struct mailbox *box, uv_loop_t *loop, void (*on_mail)(struct mailbox *box))
{
    init_list(box);
    int status = uv_async_init(loop, &box->async, on_async);
    if (status != 0) {
        mailbox_done(box);
        return status;
    }
    box->on_mail = on_mail;
    box->on_loop = true;
    return 0;
}

static void on_async_closed(uv_handle_t *handle)
{
    struct mailbox *box = OWNER_OF(handle, struct mailbox, async);
    box->on_loop = false;
    mailbox_done(box);
    if (box->on_closed != NULL) {
        box->on_closed(box); /* May free the box: touch nothing after. */
    }
}

void mailbox_close(struct mailbox *box, void (*on_closed)(struct mailbox *box))
{
    ASSERT(box->on_loop);
    box->on_closed = on_closed;
    uv_close((uv_handle_t *)&box->async, on_async_closed);
}

void mailbox_put(struct mailbox *box, struct message *message)
{
    message->next = NULL;
    ASSERT(pthread_mutex_lock(&box->lock) == 0);
    *box->last = message;
    box->last = &message->next;
    if (box->on_loop) {
        ASSERT(uv_async_send(&box->async) == 0);
    } else {
        ASSERT(pthread_cond_signal(&box->filled) == 0);
    }
    ASSERT(pthread_mutex_unlock(&box->lock) == 0);
}

void mailbox_put_all(struct mailbox *box, struct message *first)
{
    if (first == NULL) {
        return;
    }
    ASSERT(pthread_mutex_lock(&box->lock) == 0);
    *box->last = first;
    while (*box->last != NULL) {
        box->last = &(*box->last)->next;
    }
    bool on_loop = box->on_loop;
    ASSERT(pthread_mutex_unlock(&box->lock) == 0);
    if (on_loop) {
        ASSERT(uv_async_send(&box->async) == 0);
    } else {
        ASSERT(pthread_cond_signal(&box->filled) == 0);
    }
}

static struct message *take_locked(struct mailbox *box)
{
    struct message *message = box->first;
    if (message != NULL) {
        box->first = message->next;
        if (box->first == NULL) {
            box->last = &box->first;
        }
        message->next = NULL;
    }
    return message;
}

struct message *mailbox_take(struct mailbox *box)
{
    ASSERT(pthread_mutex_lock(&box->lock) == 0);
    struct message *message = take_locked(box);
    ASSERT(pthread_mutex_unlock(&box->lock) == 0);
    return message;
}

struct message *mailbox_wait(struct mailbox *box, uint64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000U),
                                .tv_nsec = (long)(deadline_ns % 1000000000U)};
    ASSERT(pthread_mutex_lock(&box->lock) == 0);
    int status = 0;
    while (box->first == NULL && status == 0) {
        status = deadline_ns == UINT64_MAX
                     ? pthread_cond_wait(&box->filled, &box->lock)
                     : pthread_cond_timedwait(&box->filled, &box->lock, &deadline);
    }
    struct message *message = take_locked(box);
    ASSERT(pthread_mutex_unlock(&box->lock) == 0);
    return message;
}

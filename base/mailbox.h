/* Messages between threads: a locked list, and a wake.
 *
 * A message is embedded in whatever it carries, and belongs with all it points to to whoever holds
 * it: the putter until mailbox_put(), the taker after mailbox_take(). Two kinds of receiver: a
 * libuv loop (mailbox_open; on_mail comes on that loop, and puts may share one wake: drain the
 * list) and a plain thread that waits (mailbox_init; mailbox_wait). */
#ifndef COPPELIUS_BASE_MAILBOX_H
#define COPPELIUS_BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct message {
    struct message *next;
    int kind; /* the receiver's enum */
};

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct message *first; /* under lock, as is the rest down to here */
    struct message **last;
    uv_async_t async; /* only where opened on a loop */
    bool on_loop;
    void (*on_mail)(struct mailbox *box);
    void (*on_closed)(struct mailbox *box);
};

/* For a thread that waits. */
void mailbox_init(struct mailbox *box);
void mailbox_done(struct mailbox *box);

/* For a loop; call on that loop's thread. After mailbox_close() no put may come; on_closed (may be
 * NULL) comes on the loop and ends the box' life. Messages left are the owner's: take them first.
 */
int mailbox_open(struct mailbox *box, uv_loop_t *loop, void (*on_mail)(struct mailbox *box));
void mailbox_close(struct mailbox *box, void (*on_closed)(struct mailbox *box));

/* Any thread. Takes the message; never blocks but for the list's lock. */
void mailbox_put(struct mailbox *box, struct message *message);
/* A list of messages, linked by next, with one lock and one wake. The box outlives the call: the
 * waker is told when the lock is free again, so that a receiver does not wake only to wait for it.
 */
void mailbox_put_all(struct mailbox *box, struct message *first);
/* The oldest message or NULL; the receiver's thread. */
struct message *mailbox_take(struct mailbox *box);
/* Waits for a message until clock_now_ns() reaches the deadline; NULL then. UINT64_MAX: no end. */
struct message *mailbox_wait(struct mailbox *box, uint64_t deadline_ns);

#endif

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mailbox.h"
#include "tests/lib/unit.h"

#define PUTS 2000

static void *put_many(void *context)
{
    for (int i = 0; i < PUTS; i++) {
        struct message *message = malloc(sizeof(*message));
        ck_assert_ptr_nonnull(message);
        message->kind = i;
        mailbox_put(context, message);
    }
    return NULL;
}

START_TEST(a_waiting_thread_gets_every_message_in_order)
{
    struct mailbox box;
    pthread_t thread;
    mailbox_init(&box);
    ck_assert_int_eq(pthread_create(&thread, NULL, put_many, &box), 0);
    for (int i = 0; i < PUTS; i++) {
        struct message *message = mailbox_wait(&box, UINT64_MAX);
        ck_assert_int_eq(message->kind, i);
        free(message);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_ptr_null(mailbox_wait(&box, clock_now_ns() + 1000000U));
    mailbox_done(&box);
}
END_TEST

static void *put_lists(void *context)
{
    struct mailbox *box = context;
    for (int i = 0; i < PUTS; i += 4) {
        struct message *first = NULL;
        for (int k = i + 3; k >= i; k--) {
            struct message *message = calloc(1, sizeof(*message));
            ck_assert_ptr_nonnull(message);
            message->kind = k;
            message->next = first;
            first = message;
        }
        mailbox_put_all(box, first);
        mailbox_put_all(box, NULL);
    }
    return NULL;
}

START_TEST(lists_and_single_messages_keep_their_order)
{
    struct mailbox box;
    pthread_t thread;
    mailbox_init(&box);
    ck_assert_int_eq(pthread_create(&thread, NULL, put_lists, &box), 0);
    for (int i = 0; i < PUTS / 4 * 4; i++) {
        struct message *message = mailbox_wait(&box, UINT64_MAX);
        ck_assert_int_eq(message->kind, i);
        ck_assert_ptr_null(message->next);
        free(message);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    struct message single = {.kind = PUTS};
    mailbox_put(&box, &single);
    ck_assert_ptr_eq(mailbox_take(&box), &single);
    ck_assert_ptr_null(mailbox_take(&box));
    mailbox_done(&box);
}
END_TEST

static int taken;

static void on_mail(struct mailbox *box)
{
    for (struct message *message = mailbox_take(box); message != NULL;
         message = mailbox_take(box)) {
        ck_assert_int_eq(message->kind, taken);
        free(message);
        taken++;
    }
    if (taken == PUTS) {
        mailbox_close(box, NULL);
    }
}

START_TEST(a_loop_drains_what_shares_one_wake)
{
    uv_loop_t loop;
    struct mailbox box;
    pthread_t thread;
    taken = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(mailbox_open(&box, &loop, on_mail), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, put_many, &box), 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(taken, PUTS);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("mailbox");
    TCase *tcase = tcase_create("mailbox");
    tcase_add_test(tcase, a_waiting_thread_gets_every_message_in_order);
    tcase_add_test(tcase, lists_and_single_messages_keep_their_order);
    tcase_add_test(tcase, a_loop_drains_what_shares_one_wake);
    suite_add_tcase(suite, tcase);
    return suite;
}

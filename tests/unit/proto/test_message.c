#include <stdlib.h>
#include <string.h>

#include <ctl.pb-c.h>
#include <peer.pb-c.h>

#include "proto/message.h"
#include "tests/lib/unit.h"

START_TEST(a_request_travels_in_a_frame)
{
    struct buf out = BUF_NONE;
    struct err err = {0};
    struct frame frame;
    size_t used = 0;
    ProtobufCMessage *read = NULL;
    Ctl__JobName name;
    ctl__job_name__init(&name);
    Ctl__Request request;
    ctl__request__init(&request);
    char *iris = strdup("iris");
    name.job = iris;
    request.id = 7;
    request.ask_case = CTL__REQUEST__ASK_JOB_SHOW;
    request.job_show = &name;
    ck_assert_int_eq(message_frame(&out, FRAME_REQUEST, 0, 1, &request.base, FRAME_LIMIT_CTL, &err),
                     0);
    ck_assert_int_eq(frame_parse(out.bytes, out.size, FRAME_LIMIT_CTL, &frame, &used, &err), 0);
    ck_assert_uint_eq(frame.kind, FRAME_REQUEST);
    ck_assert_int_eq(
        message_unpack(&ctl__request__descriptor, frame.body, frame.body_size, &read, &err), 0);
    const Ctl__Request *got = (const Ctl__Request *)(const void *)read;
    ck_assert_uint_eq(got->id, 7);
    ck_assert_int_eq((int)got->ask_case, (int)CTL__REQUEST__ASK_JOB_SHOW);
    ck_assert_str_eq(got->job_show->job, "iris");
    message_free(read);
    free(iris);
    buf_done(&out);
}
END_TEST

START_TEST(bytes_that_are_no_message_are_refused)
{
    struct err err = {0};
    ProtobufCMessage *read = NULL;
    const uint8_t bytes[] = {0x12, 0x7f, 'x'};
    ck_assert_int_eq(message_unpack(&peer__hello__descriptor, bytes, 3, &read, &err), ERR_PROTO);
    ck_assert_str_eq(err.text, "3 bytes came that are no peer.Hello message");
    ck_assert_ptr_null(read);
}
END_TEST

START_TEST(a_message_of_a_million_small_things_is_refused)
{
    struct err err = {0};
    struct buf inner = BUF_NONE;
    struct buf bytes = BUF_NONE;
    ProtobufCMessage *read = NULL;
    for (int i = 0; i < 200000; i++) { /* Submit.overrides = "" each */
        buf_put_u8(&inner, 0x2a);
        buf_put_u8(&inner, 0);
    }
    buf_put_u8(&bytes, 0x12); /* Request.submit, 400000 bytes */
    buf_put_u8(&bytes, 0x80 | (400000 & 0x7f));
    buf_put_u8(&bytes, 0x80 | ((400000 >> 7) & 0x7f));
    buf_put_u8(&bytes, 400000 >> 14);
    buf_put(&bytes, inner.bytes, inner.size);
    ck_assert_int_eq(
        message_unpack(&ctl__request__descriptor, bytes.bytes, bytes.size, &read, &err), ERR_PROTO);
    buf_done(&inner);
    buf_done(&bytes);
}
END_TEST

START_TEST(a_message_over_the_limit_is_not_sent)
{
    struct err err = {0};
    struct buf out = BUF_NONE;
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    uint8_t data[100] = {0};
    reply.data.data = data;
    reply.data.len = sizeof(data);
    ck_assert_int_eq(message_frame(&out, FRAME_REPLY, 0, 0, &reply.base, 50, &err), ERR_PROTO);
    ck_assert_str_eq(err.text, "a Reply of 102 bytes is too long to send; the most is 50");
    ck_assert_uint_eq(out.size, 0);
    buf_done(&out);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("message");
    TCase *tcase = tcase_create("message");
    tcase_add_test(tcase, a_request_travels_in_a_frame);
    tcase_add_test(tcase, bytes_that_are_no_message_are_refused);
    tcase_add_test(tcase, a_message_of_a_million_small_things_is_refused);
    tcase_add_test(tcase, a_message_over_the_limit_is_not_sent);
    suite_add_tcase(suite, tcase);
    return suite;
}

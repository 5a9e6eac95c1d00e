#include <string.h>

#include "proto/frame.h"
#include "tests/lib/unit.h"

static const uint8_t body[] = "coppelius";

static struct frame sample(void)
{
    return (struct frame){.kind = 17,
                          .flags = 3,
                          .generation = 0x1122334455667788U,
                          .sequence = 42,
                          .body = body,
                          .body_size = sizeof(body)};
}

START_TEST(a_written_frame_is_read_back)
{
    struct buf out = BUF_NONE;
    struct err err = {0};
    struct frame written = sample();
    struct frame read;
    size_t used = 0;
    frame_write(&out, &written);
    buf_put_u8(&out, 0xee); /* the next frame's first byte */
    ck_assert_int_eq(frame_parse(out.bytes, out.size, FRAME_LIMIT_CONTROL, &read, &used, &err), 0);
    ck_assert_uint_eq(used, FRAME_HEADER_SIZE + sizeof(body));
    ck_assert_uint_eq(read.kind, 17);
    ck_assert_uint_eq(read.flags, 3);
    ck_assert_uint_eq(read.generation, 0x1122334455667788U);
    ck_assert_uint_eq(read.sequence, 42);
    ck_assert_uint_eq(read.body_size, sizeof(body));
    ck_assert_int_eq(memcmp(read.body, body, sizeof(body)), 0);
    buf_done(&out);
}
END_TEST

START_TEST(an_empty_body_is_a_frame)
{
    struct buf out = BUF_NONE;
    struct err err = {0};
    struct frame written = {.kind = 20};
    struct frame read;
    size_t used = 0;
    frame_write(&out, &written);
    ck_assert_uint_eq(out.size, FRAME_HEADER_SIZE);
    ck_assert_int_eq(frame_parse(out.bytes, out.size, 0, &read, &used, &err), 0);
    ck_assert_uint_eq(used, FRAME_HEADER_SIZE);
    ck_assert_uint_eq(read.body_size, 0);
    buf_done(&out);
}
END_TEST

START_TEST(the_layout_is_the_documented_one)
{
    struct buf out = BUF_NONE;
    struct frame written = sample();
    frame_write(&out, &written);
    static const uint8_t head[24] = {10,   0,    0,    0,    17, 0, 3, 0, 0x88, 0x77, 0x66, 0x55,
                                     0x44, 0x33, 0x22, 0x11, 42, 0, 0, 0, 0,    0,    0,    0};
    ck_assert_int_eq(memcmp(out.bytes, head, sizeof(head)), 0);
    buf_done(&out);
}
END_TEST

START_TEST(every_prefix_asks_for_more)
{
    struct buf out = BUF_NONE;
    struct err err = {0};
    struct frame written = sample();
    struct frame read;
    frame_write(&out, &written);
    for (size_t size = 0; size < out.size; size++) {
        size_t used = 99;
        ck_assert_int_eq(frame_parse(out.bytes, size, FRAME_LIMIT_CONTROL, &read, &used, &err), 0);
        ck_assert_uint_eq(used, 0);
    }
    buf_done(&out);
}
END_TEST

START_TEST(every_flipped_bit_is_found)
{
    struct buf out = BUF_NONE;
    struct frame written = sample();
    struct frame read;
    frame_write(&out, &written);
    for (size_t bit = 0; bit < 8 * out.size; bit++) {
        struct err err = {0};
        size_t used = 0;
        out.bytes[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        int code = frame_parse(out.bytes, out.size, FRAME_LIMIT_CONTROL, &read, &used, &err);
        ck_assert(code == ERR_PROTO || used == 0); /* a longer length waits for more bytes */
        out.bytes[bit / 8] ^= (uint8_t)(1U << (bit % 8));
    }
    buf_done(&out);
}
END_TEST

START_TEST(a_body_over_the_limit_is_refused_by_its_first_four_bytes)
{
    struct err err = {0};
    struct frame read;
    size_t used = 0;
    const uint8_t bytes[] = {1, 0, 0x10, 0}; /* 1 MiB + 1 */
    ck_assert_int_eq(frame_parse(bytes, 4, FRAME_LIMIT_CONTROL, &read, &used, &err), ERR_PROTO);
    ck_assert_str_eq(err.text, "a frame of 1048577 bytes came; the most here is 1048576");
    ck_assert_int_eq(frame_parse(bytes, 4, FRAME_LIMIT_BULK, &read, &used, &err), 0);
}
END_TEST

START_TEST(a_header_made_of_parts_is_that_of_the_whole)
{
    struct buf out = BUF_NONE;
    struct err err = {0};
    struct frame written = sample();
    uint8_t header[FRAME_HEADER_SIZE];
    struct frame_header read;
    struct frame_part parts[] = {{body, 4}, {NULL, 0}, {body + 4, sizeof(body) - 4}};
    frame_write(&out, &written);
    frame_header_make(header, 17, 3, 0x1122334455667788U, 42, parts, 3);
    ck_assert_int_eq(memcmp(header, out.bytes, sizeof(header)), 0);
    ck_assert_int_eq(frame_header_read(header, FRAME_LIMIT_BULK, &read, &err), 0);
    ck_assert_uint_eq(read.body_size, sizeof(body));
    ck_assert_int_eq(frame_header_check(header, body, sizeof(body), &err), 0);
    ck_assert_int_eq(frame_header_read(header, 5, &read, &err), ERR_PROTO);
    buf_done(&out);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("frame");
    TCase *tcase = tcase_create("frame");
    tcase_add_test(tcase, a_written_frame_is_read_back);
    tcase_add_test(tcase, an_empty_body_is_a_frame);
    tcase_add_test(tcase, the_layout_is_the_documented_one);
    tcase_add_test(tcase, every_prefix_asks_for_more);
    tcase_add_test(tcase, every_flipped_bit_is_found);
    tcase_add_test(tcase, a_body_over_the_limit_is_refused_by_its_first_four_bytes);
    tcase_add_test(tcase, a_header_made_of_parts_is_that_of_the_whole);
    suite_add_tcase(suite, tcase);
    return suite;
}

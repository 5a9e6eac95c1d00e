#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/rand.h"
#include "tests/lib/unit.h"

START_TEST(what_is_put_is_read_back)
{
    struct buf buf = BUF_NONE;
    buf_put_u8(&buf, 7);
    buf_put_u16(&buf, 0x1234);
    buf_put_u32(&buf, 0xdeadbeefU);
    buf_put_u64(&buf, 0x0123456789abcdefU);
    buf_put_f64(&buf, -0.1);
    buf_put_text(&buf, "iris");
    struct reader reader = {buf.bytes, buf.size, false};
    char text[5];
    ck_assert_uint_eq(read_u8(&reader), 7);
    ck_assert_uint_eq(read_u16(&reader), 0x1234);
    ck_assert_uint_eq(read_u32(&reader), 0xdeadbeefU);
    ck_assert_uint_eq(read_u64(&reader), 0x0123456789abcdefU);
    ck_assert(read_f64(&reader) == -0.1);
    read_text(&reader, text, sizeof(text));
    ck_assert_str_eq(text, "iris");
    ck_assert(!reader.failed);
    ck_assert_uint_eq(reader.size, 0);
    buf_done(&buf);
}
END_TEST

START_TEST(reading_past_the_end_fails_and_gives_zeros)
{
    const uint8_t bytes[] = {5, 0, 0, 0, 'a'};
    struct reader reader = {bytes, sizeof(bytes), false};
    char text[16];
    read_text(&reader, text, sizeof(text));
    ck_assert(reader.failed);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(read_u64(&reader), 0);
}
END_TEST

START_TEST(digests_are_the_published_ones)
{
    uint8_t digest[SHA256_SIZE];
    uint8_t back[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    sha256_of("abc", 3, digest);
    sha256_hex(digest, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_int_eq(sha256_from_hex(hex, back), 0);
    ck_assert_int_eq(memcmp(digest, back, SHA256_SIZE), 0);
    hex[3] = 'g';
    ck_assert_int_eq(sha256_from_hex(hex, back), -1);
}
END_TEST

START_TEST(random_draws_are_those_of_the_reference)
{
    struct rand rand = {7}; /* SplitMix64 from 7 by numerics/reference.py's draw() */
    ck_assert_uint_eq(rand_next(&rand), 0x63cbe1e459320dd7U);
    for (int i = 0; i < 1000; i++) {
        ck_assert_uint_lt(rand_below(&rand, 3), 3);
    }
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("buf");
    TCase *tcase = tcase_create("buf");
    tcase_add_test(tcase, what_is_put_is_read_back);
    tcase_add_test(tcase, reading_past_the_end_fails_and_gives_zeros);
    tcase_add_test(tcase, digests_are_the_published_ones);
    tcase_add_test(tcase, random_draws_are_those_of_the_reference);
    suite_add_tcase(suite, tcase);
    return suite;
}

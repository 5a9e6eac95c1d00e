#include "checkpoint/shard.h"

#include <unistd.h>

#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

static struct test_folder folder;

static void setup(void)
{
    test_folder_open(&folder);
}

static void teardown(void)
{
    test_folder_close(&folder);
}

static const double parameter[3] = {1.5, -0.0, 5e-324};
static const double accumulator[3] = {2.5, 1e300, -1.0};
static const double mean[3] = {3.5, 0.0, 9.0};
static const double scale[3] = {1.0, 2.0, 4.0};
static const struct losses losses = {
    .stride = 1, .count = 2, .steps = {99, 100}, .values = {0.5, -0.0}};
static const char *const columns[3] = {"plain", "with \"quotes\" and \\", "\xc3\xbc\n\xff"};

static void content_of(struct shard_content *content, bool all)
{
    *content = (struct shard_content){.parameter = parameter, .accumulator = accumulator};
    (void)snprintf(content->about.job, sizeof(content->about.job), "california");
    (void)snprintf(content->about.node, sizeof(content->about.node), "a");
    (void)snprintf(content->about.policy, sizeof(content->about.policy), "p-v1");
    content->about.identity[0] = 0xab;
    content->about.epoch = 12;
    content->about.step = 100;
    content->about.generation = 3;
    content->about.rank = 1;
    content->about.ranks = 3;
    content->about.first = 4;
    content->about.end = 7;
    content->about.coordinates = 10;
    if (all) {
        content->mean = mean;
        content->scale = scale;
        content->columns = columns;
        content->losses = &losses;
    }
}

START_TEST(what_is_written_is_read_bit_for_bit)
{
    for (int all = 0; all < 2; all++) {
        struct shard_content content;
        struct shard shard = SHARD_NONE;
        struct err err = {0};
        uint8_t digest[SHA256_SIZE];
        uint64_t size = 0;
        const char *name = all == 1 ? "all" : "few";
        content_of(&content, all == 1);
        ck_assert_int_eq(shard_write(folder.fs, name, &content, digest, &size, &err), 0);
        ck_assert_int_eq(shard_read(folder.fs, name, digest, &shard, &err), 0);
        ck_assert_mem_eq(&shard.about, &content.about, sizeof(shard.about));
        ck_assert_mem_eq(shard.parameter, parameter, sizeof(parameter));
        ck_assert_mem_eq(shard.accumulator, accumulator, sizeof(accumulator));
        ck_assert_uint_eq(shard.size, size);
        ck_assert_mem_eq(shard.sha256, digest, SHA256_SIZE);
        if (all == 1) {
            ck_assert_mem_eq(shard.mean, mean, sizeof(mean));
            ck_assert_mem_eq(shard.scale, scale, sizeof(scale));
            ck_assert_ptr_nonnull(shard.losses);
            ck_assert_mem_eq(shard.losses, &losses, sizeof(losses));
            ck_assert_str_eq(shard.columns[1], columns[1]);
            ck_assert_str_eq(shard.columns[2], "\xc3\xbc\n\xef\xbf\xbd");
        } else {
            ck_assert_ptr_null(shard.mean);
            ck_assert_ptr_null(shard.columns);
            ck_assert_ptr_null(shard.losses);
        }
        struct losses *alone = NULL;
        ck_assert_int_eq(shard_read_losses(folder.fs, name, &alone, &err), 0);
        ck_assert((alone != NULL) == (all == 1));
        if (alone != NULL) {
            ck_assert_mem_eq(alone, &losses, sizeof(losses));
        }
        free(alone);
        shard_done(&shard);
        shard_done(&shard);
        ck_assert_int_eq(shard_write(folder.fs, name, &content, digest, &size, &err), ERR_DISK);
    }
}
END_TEST

START_TEST(the_same_content_gives_the_same_bytes_and_8_byte_tensors)
{
    struct shard_content content;
    struct err err = {0};
    uint8_t digests[2][SHA256_SIZE];
    uint64_t size = 0;
    content_of(&content, true);
    ck_assert_int_eq(shard_write(folder.fs, "1", &content, digests[0], &size, &err), 0);
    ck_assert_int_eq(shard_write(folder.fs, "2", &content, digests[1], &size, &err), 0);
    ck_assert_mem_eq(digests[0], digests[1], SHA256_SIZE);
    ck_assert_uint_eq(size % 8, 0);
}
END_TEST

START_TEST(every_flipped_byte_is_found_and_the_shard_named)
{
    struct shard_content content;
    struct err err = {0};
    uint8_t digest[SHA256_SIZE];
    uint64_t size = 0;
    content_of(&content, true);
    ck_assert_int_eq(shard_write(folder.fs, "s", &content, digest, &size, &err), 0);
    for (uint64_t at = 0; at < size; at++) {
        struct shard shard = SHARD_NONE;
        test_folder_flip(&folder, "s", (long)at);
        ck_assert_int_eq(shard_read(folder.fs, "s", digest, &shard, &err), ERR_DAMAGED);
        ck_assert(strncmp(err.text, "shard 's': ", 11) == 0);
        (void)shard_read(folder.fs, "s", NULL, &shard, &err); /* must not break either */
        shard_done(&shard);
        struct losses *alone = NULL;
        if (shard_read_losses(folder.fs, "s", &alone, &err) == 0) {
            ck_assert_mem_eq(alone, &losses, sizeof(losses)); /* The byte was elsewhere. */
        } else {
            ck_assert_int_eq(err.code, ERR_DAMAGED);
            ck_assert(at < size - sizeof(losses.steps[0]) * 4 ||
                      strstr(err.text, "losses") != NULL);
        }
        ck_assert((alone == NULL) || at < size - sizeof(losses.steps[0]) * 4);
        free(alone);
        test_folder_flip(&folder, "s", (long)at);
    }
}
END_TEST

START_TEST(every_cut_is_refused)
{
    struct shard_content content;
    struct err err = {0};
    uint8_t digest[SHA256_SIZE];
    uint64_t size = 0;
    content_of(&content, true);
    ck_assert_int_eq(shard_write(folder.fs, "s", &content, digest, &size, &err), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/s", folder.path);
    while (size > 0) {
        struct shard shard = SHARD_NONE;
        ck_assert_int_eq(truncate(path, (off_t)--size), 0);
        ck_assert_int_eq(shard_read(folder.fs, "s", NULL, &shard, &err), ERR_DAMAGED);
        struct losses *alone = NULL;
        ck_assert_int_eq(shard_read_losses(folder.fs, "s", &alone, &err), ERR_DAMAGED);
    }
}
END_TEST

START_TEST(a_symbolic_link_is_not_followed)
{
    struct shard_content content;
    struct shard shard = SHARD_NONE;
    struct err err = {0};
    uint8_t digest[SHA256_SIZE];
    uint64_t size = 0;
    char path[128];
    content_of(&content, false);
    ck_assert_int_eq(shard_write(folder.fs, "s", &content, digest, &size, &err), 0);
    (void)snprintf(path, sizeof(path), "%s/link", folder.path);
    ck_assert_int_eq(symlink("s", path), 0);
    ck_assert_int_eq(shard_read(folder.fs, "link", NULL, &shard, &err), ERR_DAMAGED);
}
END_TEST

/* Headers that promise what the file does not have, or that lie about where it is. */
static int parse(const char *metadata, const char *tensors, uint64_t data_size, struct err *err)
{
    struct buf text = BUF_NONE;
    struct buf bytes = BUF_NONE;
    struct shard shard = SHARD_NONE;
    struct shard_layout layout = {0};
    buf_print(&text, "{\"__metadata__\":{%s},%s}", metadata, tensors);
    buf_put_u64(&bytes, text.size);
    buf_put(&bytes, text.bytes, text.size);
    int code =
        shard_parse_header(bytes.bytes, bytes.size, bytes.size + data_size, &shard, &layout, err);
    shard_done(&shard);
    buf_done(&text);
    buf_done(&bytes);
    return code;
}

#define METADATA                                                                                \
    "\"format\":\"coppelius-shard-1\",\"job\":\"j\",\"identity\":\"00000000000000000000000000"  \
    "00000000000000000000000000000000000000\",\"policy\":\"p\",\"epoch\":\"1\",\"step\":\"2\"," \
    "\"generation\":\"3\",\"partition\":\"1 of 1\",\"node\":\"a\",\"coordinates\":\"2\""
#define T(name, type, n, from, to) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" n "],\"data_offsets\":[" from "," to "]}"
#define GOOD                              \
    T("parameter", "F64", "2", "0", "16") \
    "," T("accumulator", "F64", "2", "16", "32") "," T("coordinates", "I64", "2", "32", "48")
#define SHA                                 \
    ",\"losses_sha256\":\"0000000000000000" \
    "000000000000000000000000000000000000000000000000\""
#define LOSSES(steps, values) \
    GOOD "," T("loss_steps", "I64", steps, "48", "56") "," T("losses", "F64", values, "56", "64")

START_TEST(hostile_headers_are_refused_before_anything_is_allocated)
{
    static const struct {
        const char *metadata, *tensors;
        uint64_t data_size;
        const char *text;
    } cases[] = {
        {METADATA, GOOD, 48, NULL},
        {METADATA, GOOD, 56, "the header is wrong: data_offsets"}, /* bytes behind the last */
        {METADATA, GOOD, 40, "the header is wrong: coordinates"},
        {METADATA, GOOD ",\"x\":1", 48, "the header is wrong: an unknown key"},
        {METADATA, GOOD "," T("parameter", "F64", "2", "0", "16"), 48,
         "the header is no JSON object without duplicate keys"},
        {METADATA,
         T("parameter", "F64", "2305843009213693952", "0", "16") "," T(
             "accumulator", "F64", "2", "16", "32") "," T("coordinates", "I64", "2", "32", "48"),
         48, "the header is wrong: parameter"},
        {METADATA,
         T("parameter", "F64", "2", "0", "16") "," T("accumulator", "F64", "2", "0", "16") "," T(
             "coordinates", "I64", "2", "16", "32"),
         32, "the header is wrong: data_offsets"}, /* overlapping */
        {METADATA,
         T("parameter", "F64", "2", "8", "24") "," T("accumulator", "F64", "2", "24", "40") "," T(
             "coordinates", "I64", "2", "40", "56"),
         56, "the header is wrong: data_offsets"}, /* a gap */
        {METADATA,
         T("parameter", "F64", "2", "-1", "15") "," T("accumulator", "F64", "2", "16", "32") "," T(
             "coordinates", "I64", "2", "32", "48"),
         48, "the header is wrong: parameter"},
        {METADATA,
         T("parameter", "F32", "4", "0", "16") "," T("accumulator", "F64", "2", "16", "32") "," T(
             "coordinates", "I64", "2", "32", "48"),
         48, "the header is wrong: parameter"},
        {METADATA ",\"more\":\"1\"", GOOD, 48, "the header is wrong: an unknown key"},
        {METADATA ",\"columns\":\"[\\\"only one\\\"]\"", GOOD, 48, "the header is wrong: columns"},
        {METADATA ",\"columns\":3", GOOD, 48, "the header is wrong: columns"},
        {METADATA SHA, LOSSES("1", "1"), 64, NULL},
        {METADATA, LOSSES("1", "1"), 64, "the header is wrong: losses"}, /* no digest */
        {METADATA SHA, GOOD, 48, "the header is wrong: losses"},
        {METADATA SHA, GOOD "," T("losses", "F64", "1", "48", "56"), 56,
         "the header is wrong: losses"},
        {METADATA SHA, LOSSES("2", "1"), 64, "the header is wrong: loss_steps"},
        {METADATA SHA,
         GOOD "," T("loss_steps", "I64", "1", "48", "56") "," T("losses", "F64", "2", "56", "72"),
         72, "the header is wrong: losses"},
        {METADATA SHA,
         GOOD "," T("loss_steps", "I64", "0", "48", "48") "," T("losses", "F64", "0", "48", "48"),
         48, "the header is wrong: losses"},
        {METADATA SHA,
         GOOD "," T("loss_steps", "I64", "4097", "48", "32824") "," T("losses", "F64", "4097",
                                                                      "32824", "65600"),
         65600, "the header is wrong: losses"}, /* too many */
        {METADATA ",\"losses_sha256\":\"00\"", LOSSES("1", "1"), 64,
         "the header is wrong: losses_sha256"},
        {"\"format\":\"pt\"", GOOD, 48, "the header is wrong: job"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int code = parse(cases[i].metadata, cases[i].tensors, cases[i].data_size, &err);
        ck_assert_msg((code == 0) == (cases[i].text == NULL), "case %zu: %s", i, err.text);
        ck_assert_str_eq(err.text, cases[i].text == NULL ? "" : cases[i].text);
    }
}
END_TEST

START_TEST(a_huge_header_is_refused_by_the_files_size)
{
    struct shard shard = SHARD_NONE;
    struct err err = {0};
    static const uint8_t bytes[16] = {0, 0, 0, 5, 0, 0, 0, 0, '{', '}'};
    ck_assert_int_eq(fs_create(folder.fs, "s", bytes, sizeof(bytes), &err), 0);
    ck_assert_int_eq(shard_read(folder.fs, "s", NULL, &shard, &err), ERR_DAMAGED);
    ck_assert_str_eq(err.text, "shard 's': its header would have 83886080 bytes, the file has 16");
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("shard");
    TCase *tests = tcase_create("shard");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, what_is_written_is_read_bit_for_bit);
    tcase_add_test(tests, the_same_content_gives_the_same_bytes_and_8_byte_tensors);
    tcase_add_test(tests, every_flipped_byte_is_found_and_the_shard_named);
    tcase_add_test(tests, every_cut_is_refused);
    tcase_add_test(tests, a_symbolic_link_is_not_followed);
    tcase_add_test(tests, hostile_headers_are_refused_before_anything_is_allocated);
    tcase_add_test(tests, a_huge_header_is_refused_by_the_files_size);
    suite_add_tcase(suite, tests);
    return suite;
}

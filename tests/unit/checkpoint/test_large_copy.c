/* A shard of some megabytes, written past the page cache and copied by several threads: whole, gone
 * on with after a break, refused where it is another. */
#include "checkpoint/checkpoint.h"

#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

#define COUNT    600000U /* coordinates: 9.6 MB */
#define NO_BREAK UINT64_MAX

static struct test_folder folder;
static struct agent_action action;
static struct agent_result result;
static uint8_t *shard; /* its bytes */
static uint64_t shard_size;
static uint8_t shard_sha256[SHA256_SIZE];
static uint64_t asked;  /* the first offset that was asked for */
static uint64_t breaks; /* the source ends there */
static bool spoil;

static void prepare(enum agent_kind kind, const char *where)
{
    action = (struct agent_action){.kind = kind, .job = 1, .epoch = 1};
    (void)snprintf(action.folder, sizeof(action.folder), "%s", where);
    checkpoint_shard_name(0, 1, action.shard);
    action.size = shard_size;
    memcpy(action.sha256, shard_sha256, SHA256_SIZE);
}

static void setup(void)
{
    double *vectors = malloc(2 * COUNT * sizeof(double));
    struct shard_content content = {.parameter = vectors, .accumulator = vectors + COUNT};
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    char path[FOLDER_PATH_SIZE + MANIFEST_TEXT_SIZE];
    ck_assert_ptr_nonnull(vectors);
    for (size_t i = 0; i < 2 * COUNT; i++) {
        vectors[i] = (double)i / 3;
    }
    content.about.ranks = 1;
    content.about.end = COUNT;
    content.about.coordinates = COUNT;
    test_folder_open(&folder);
    prepare(AGENT_STAGE, "jobs/1-own");
    agent_execute(folder.fs, &action, &content, &result);
    ck_assert_msg(result.code == 0, "%s", result.err.text);
    shard_size = result.size;
    memcpy(shard_sha256, result.sha256, SHA256_SIZE);
    (void)snprintf(path, sizeof(path), "jobs/1-own/staging/epoch-00000001/%s", action.shard);
    ck_assert_int_eq(fs_read_all(folder.fs, path, shard_size, &bytes, &err), 0);
    ck_assert_uint_eq(bytes.size, shard_size);
    shard = bytes.bytes;
    asked = NO_BREAK;
    breaks = NO_BREAK;
    spoil = false;
    free(vectors);
}

static void teardown(void)
{
    free(shard);
    test_folder_close(&folder);
}

static int on_read(void *context, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    (void)context;
    asked = offset < asked ? offset : asked;
    if (offset + size > breaks) {
        return err_set(err, ERR_PEER, "the holder is gone");
    }
    ck_assert_uint_le(offset + size, shard_size);
    memcpy(bytes, shard + offset, size);
    if (spoil && offset > 0) {
        *(uint8_t *)bytes ^= 1;
    }
    return 0;
}

static void copy(void)
{
    struct agent_source source = {NULL, on_read};
    prepare(AGENT_COPY, "jobs/2-copy");
    asked = NO_BREAK;
    agent_execute_copy(folder.fs, &action, &source, &result);
}

static void check_copy(void)
{
    uint8_t digest[SHA256_SIZE];
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    char path[FOLDER_PATH_SIZE + MANIFEST_TEXT_SIZE];
    ck_assert_msg(result.code == 0, "%s", result.err.text);
    (void)snprintf(path, sizeof(path), "jobs/2-copy/staging/epoch-00000001/%s", action.shard);
    ck_assert_int_eq(fs_read_all(folder.fs, path, shard_size, &bytes, &err), 0);
    sha256_of(bytes.bytes, bytes.size, digest);
    ck_assert_int_eq(memcmp(digest, shard_sha256, SHA256_SIZE), 0);
    buf_done(&bytes);
}

START_TEST(the_bytes_and_their_digest_are_those_of_the_shard)
{
    uint8_t digest[SHA256_SIZE];
    sha256_of(shard, shard_size, digest);
    ck_assert_int_eq(memcmp(digest, shard_sha256, SHA256_SIZE), 0);
    copy();
    ck_assert_uint_eq(asked, 0);
    check_copy();
}
END_TEST

START_TEST(a_broken_copy_is_gone_on_with_where_it_was)
{
    breaks = 6U << 20;
    copy();
    ck_assert_int_eq(result.code, ERR_PEER);
    ck_assert_str_eq(result.err.text, "the holder is gone");
    breaks = NO_BREAK;
    copy();
    ck_assert_uint_eq(asked, 6U << 20);
    check_copy();
}
END_TEST

START_TEST(other_bytes_are_refused_and_begun_anew)
{
    spoil = true;
    copy();
    ck_assert_int_eq(result.code, ERR_DAMAGED);
    spoil = false;
    copy();
    ck_assert_uint_eq(asked, 0);
    check_copy();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("large_copy");
    TCase *tcase = tcase_create("large_copy");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_bytes_and_their_digest_are_those_of_the_shard);
    tcase_add_test(tcase, a_broken_copy_is_gone_on_with_where_it_was);
    tcase_add_test(tcase, other_bytes_are_refused_and_begun_anew);
    suite_add_tcase(suite, tcase);
    return suite;
}

#include "checkpoint/manifest.h"

#include <unistd.h>

#include "checkpoint/folder.h"
#include "tests/lib/agreed.h"
#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

static void make(struct manifest *m)
{
    struct state state;
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 50, false);
    manifest_of_state(&state, state_job(&state, 1), state_newest_epoch(state_job(&state, 1)), m);
    state_done(&state);
}

START_TEST(a_manifest_is_read_as_it_was_written)
{
    struct manifest m;
    struct manifest got;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    make(&m);
    ck_assert_uint_eq(m.coordinates, 10);
    ck_assert_str_eq(m.shards[2].node, "c");
    ck_assert_str_eq(m.shards[0].file, "shard-00001-of-00003.safetensors");
    manifest_write(&m, &bytes);
    ck_assert_int_eq(manifest_parse(bytes.bytes, bytes.size, &got, &err), 0);
    ck_assert_mem_eq(&m, &got, sizeof(m));
    for (size_t size = 0; size + 1 < bytes.size; size++) { /* all but the last line feed */
        ck_assert_int_eq(manifest_parse(bytes.bytes, size, &got, &err), ERR_DAMAGED);
    }
    buf_done(&bytes);
}
END_TEST

START_TEST(a_loss_that_is_no_number_is_kept_too)
{
    struct manifest m;
    struct manifest got;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    make(&m);
    m.loss_bits = UINT64_C(0x7ff0000000000000);
    manifest_write(&m, &bytes);
    ck_assert_int_eq(manifest_parse(bytes.bytes, bytes.size, &got, &err), 0);
    ck_assert_uint_eq(got.loss_bits, m.loss_bits);
    buf_done(&bytes);
}
END_TEST

/* The manifest with one place changed. */
static void refuse(const char *from, const char *to, const char *text)
{
    struct manifest m;
    struct buf bytes = BUF_NONE;
    struct buf changed = BUF_NONE;
    struct err err = {0};
    make(&m);
    manifest_write(&m, &bytes);
    buf_put_u8(&bytes, 0);
    char *at = strstr((char *)bytes.bytes, from);
    ck_assert_ptr_nonnull(at);
    buf_put(&changed, bytes.bytes, (size_t)(at - (char *)bytes.bytes));
    buf_put(&changed, to, strlen(to));
    buf_put(&changed, at + strlen(from), strlen(at + strlen(from)));
    ck_assert_int_eq(manifest_parse(changed.bytes, changed.size, &m, &err), ERR_DAMAGED);
    ck_assert_str_eq(err.text, text);
    buf_done(&bytes);
    buf_done(&changed);
}

START_TEST(what_no_node_writes_is_refused_and_named)
{
    refuse("shard-00002-of-00003.safetensors", "../../../../etc/passwd",
           "the manifest is wrong: file");
    refuse("shard-00002-of-00003.safetensors", "shard-00001-of-00003.safetensors",
           "the manifest is wrong: file");
    refuse("\"first\": 3", "\"first\": 4", "the manifest is wrong: first");
    refuse("\"coordinates\": 10", "\"coordinates\": 11", "the manifest is wrong: coordinates");
    refuse("\"epoch\": 1", "\"epoch\": -1", "the manifest is wrong: epoch");
    refuse("\"schema\": 1", "\"schema\": 2", "the manifest is wrong: schema");
    refuse("\"step\": 50", "\"step\": 50, \"other\": 1", "the manifest is wrong: an unknown key");
    refuse("\"loss_hex\": \"0x1p-1\"", "\"loss_hex\": \"0.5\"", "the manifest is wrong: loss_hex");
    refuse("\"step\": 50", "\"step\": 50, \"step\": 50",
           "the manifest is no JSON: line 9: duplicate object key near '\"step\"'");
}
END_TEST

START_TEST(sums_are_what_sha256sum_reads)
{
    struct test_folder folder;
    struct buf bytes = BUF_NONE;
    struct sums_line lines[4];
    struct err err = {0};
    uint8_t digest[SHA256_SIZE];
    size_t count = 0;
    char command[256];
    test_folder_open(&folder);
    sha256_of("abc", 3, digest);
    sums_put(&bytes, "manifest.json", digest);
    sums_put(&bytes, "shard-00001-of-00001.safetensors", digest);
    ck_assert_int_eq(sums_parse(bytes.bytes, bytes.size, lines, 4, &count, &err), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(lines[1].name, "shard-00001-of-00001.safetensors");
    ck_assert_int_eq(sums_parse(bytes.bytes, bytes.size, lines, 1, &count, &err), ERR_DAMAGED);
    ck_assert_str_eq(err.text, "SHA256SUMS: line 2 is wrong");
    ck_assert_int_eq(sums_parse(bytes.bytes, bytes.size - 1, lines, 4, &count, &err), ERR_DAMAGED);
    ck_assert_int_eq(fs_create(folder.fs, "manifest.json", "abc", 3, &err), 0);
    ck_assert_int_eq(fs_create(folder.fs, "shard-00001-of-00001.safetensors", "abc", 3, &err), 0);
    ck_assert_int_eq(fs_create(folder.fs, "SHA256SUMS", bytes.bytes, bytes.size, &err), 0);
    (void)snprintf(command, sizeof(command), "cd %s && sha256sum --strict -c SHA256SUMS >/dev/null",
                   folder.path);
    ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c) */
    buf_done(&bytes);
    test_folder_close(&folder);
}
END_TEST

START_TEST(names_are_plain_and_epochs_have_one_spelling)
{
    static const char *const bad[] = {"",        ".",   "..",  "a/b",     "../a",
                                      ".hidden", "a b", "a\n", "\xc3\xbc"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(!checkpoint_name_is_plain(bad[i]), "%s", bad[i]);
    }
    ck_assert(checkpoint_name_is_plain("manifest.json"));
    ck_assert_uint_eq(checkpoint_epoch_of_name("epoch-00000012"), 12);
    ck_assert_uint_eq(checkpoint_epoch_of_name("epoch-123456789"), 123456789);
    ck_assert_uint_eq(checkpoint_epoch_of_name("epoch-012345678"), 0);
    ck_assert_uint_eq(checkpoint_epoch_of_name("epoch-12"), 0);
    ck_assert_uint_eq(checkpoint_epoch_of_name("epoch-00000000"), 0);
    ck_assert_uint_eq(checkpoint_epoch_of_name("epoch-00000012/.."), 0);
    struct state state;
    char path[FOLDER_PATH_SIZE];
    agreed_init(&state, 1);
    (void)agreed_submit(&state, 2, "../../x y");
    checkpoint_job_folder(state_job(&state, 2), path);
    ck_assert_str_eq(path, "jobs/2-.._.._x_y");
    state_done(&state);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tests = tcase_create("manifest");
    tcase_add_test(tests, a_manifest_is_read_as_it_was_written);
    tcase_add_test(tests, a_loss_that_is_no_number_is_kept_too);
    tcase_add_test(tests, what_no_node_writes_is_refused_and_named);
    tcase_add_test(tests, sums_are_what_sha256sum_reads);
    tcase_add_test(tests, names_are_plain_and_epochs_have_one_spelling);
    suite_add_tcase(suite, tests);
    return suite;
}

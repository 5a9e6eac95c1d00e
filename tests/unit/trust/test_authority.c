/* The authority's folder, tokens, and renewal. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"
#include "trust/proof.h"

static struct test_folder folder;
static struct trust *host_trust;
static char authority[256];
static struct err err;

static void setup(void)
{
    static const char *const names[] = {"a"};
    err = (struct err){0};
    trust_open_nodes(&folder, "test", names, 1, &host_trust);
    trust_file(&folder, "ca", authority);
}

static void teardown(void)
{
    trust_free(host_trust);
    test_folder_close(&folder);
}

#define SAYS(wanted) ck_assert_msg(strstr(err.text, (wanted)) != NULL, "said: '%s'", err.text)

static unsigned mode_of(const char *name)
{
    char path[300];
    struct stat stat_of;
    (void)snprintf(path, sizeof(path), "%s/%s", folder.path, name);
    ck_assert_int_eq(stat(path, &stat_of), 0);
    return stat_of.st_mode & 0777;
}

START_TEST(secrets_are_for_their_owner_alone)
{
    char text[TOKEN_TEXT_SIZE];
    ck_assert_int_eq(token_make(authority, 60, 1, text, &err), 0);
    ck_assert_uint_eq(mode_of("ca/ca.key"), 0600);
    ck_assert_uint_eq(mode_of("ca/tokens"), 0600);
    ck_assert_uint_eq(mode_of("ca-a/node.key"), 0600);
    ck_assert_uint_eq(mode_of("ca/ca.crt"), 0644);
    ck_assert_uint_eq(mode_of("ca") & 0077, 0);
}
END_TEST

START_TEST(an_authority_is_never_overwritten)
{
    ck_assert_int_eq(authority_make(authority, "test", AUTHORITY_P256, &err), ERR_STATE);
    SAYS("it was left as it is");
}
END_TEST

START_TEST(ed25519_serves_as_well)
{
    struct trust_identity identity = {.kind = TRUST_NODE, .cluster = "ed", .name = "a"};
    char path[256];
    char output[300];
    struct trust *trust = NULL;
    trust_file(&folder, "ed", path);
    (void)snprintf(output, sizeof(output), "%s-a", path);
    ck_assert_int_eq(authority_make(path, "ed", AUTHORITY_ED25519, &err), 0);
    ck_assert_int_eq(authority_bundle(path, &identity, 0, AUTHORITY_ED25519, output, &err), 0);
    ck_assert_msg(trust_open_bundle(&folder, "ed-a", 0, &trust, &err) == 0, "%s", err.text);
    trust_free(trust);
}
END_TEST

START_TEST(without_its_key_nothing_is_signed)
{
    struct trust_identity identity = {.kind = TRUST_NODE, .cluster = "test", .name = "x"};
    char path[300];
    char output[300];
    trust_file(&folder, "ca/ca.key", path);
    trust_file(&folder, "x", output);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(authority_bundle(authority, &identity, 0, AUTHORITY_P256, output, &err),
                     ERR_NOT_FOUND);
    SAYS("is not here; run this where it is");
}
END_TEST

START_TEST(names_that_could_mean_something_else_are_refused)
{
    static const char *const names[] = {"", "a b", "a,DNS:b", "../a", "-a", "a/b", "a\nb"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct trust_identity identity = {.kind = TRUST_NODE, .cluster = "test"};
        char output[300];
        trust_file(&folder, "out", output);
        (void)snprintf(identity.name, sizeof(identity.name), "%s", names[i]);
        ck_assert_int_eq(authority_bundle(authority, &identity, 0, AUTHORITY_P256, output, &err),
                         ERR_USAGE);
    }
}
END_TEST

START_TEST(a_token_is_read_back_and_its_uses_are_counted)
{
    char text[TOKEN_TEXT_SIZE];
    struct token token;
    struct token_verifier kept;
    struct token_verifier made;
    ck_assert_int_eq(token_make(authority, 60, 2, text, &err), 0);
    ck_assert_int_eq(token_parse(text, &token, &err), 0);
    proof_verifier(token.secret, &made);
    ck_assert_int_eq(token_find(authority, token.id, &kept, &err), 0);
    ck_assert_int_eq(memcmp(&kept, &made, sizeof(kept)), 0);
    ck_assert_int_eq(token_take(authority, token.id, &kept, 1, &err), 0);
    ck_assert_int_eq(token_take(authority, token.id, &kept, 1, &err), 0);
    ck_assert_int_eq(token_take(authority, token.id, &kept, 1, &err), ERR_AUTH);
    SAYS("used up");
    ck_assert_int_eq(token_find(authority, token.id, &kept, &err), ERR_AUTH);
    SAYS("used up");
    ck_assert_int_eq(token_take(authority, token.id, &kept, -1, &err), 0);
    ck_assert_int_eq(token_take(authority, token.id, &kept, 1, &err), 0);
    made.joiner[3] ^= 1; /* another token under that id meanwhile */
    ck_assert_int_eq(token_take(authority, token.id, &made, -1, &err), ERR_AUTH);
    SAYS("no such token");
    ck_assert_int_eq(token_find(authority, "AAAAAAAAAAAA", &kept, &err), ERR_AUTH);
    SAYS("no such token");
}
END_TEST

START_TEST(tokens_of_an_earlier_version_are_void_and_in_nobodys_way)
{
    static const char before[] =
        "AAAAAAAAAAAA aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 99999999999 "
        "3\n";
    char path[300];
    char text[TOKEN_TEXT_SIZE];
    struct token token;
    struct token_verifier kept;
    struct buf bytes = BUF_NONE;
    (void)snprintf(path, sizeof(path), "%s/tokens", authority);
    buf_print(&bytes, "%s", before);
    ck_assert_int_eq(authority_write(path, /* secret= */ true, &bytes, &err), 0);
    ck_assert_int_eq(token_find(authority, "AAAAAAAAAAAA", &kept, &err), ERR_AUTH);
    ck_assert_int_eq(token_make(authority, 60, 1, text, &err), 0);
    ck_assert_int_eq(token_parse(text, &token, &err), 0);
    ck_assert_int_eq(token_find(authority, token.id, &kept, &err), 0);
    text[3] = '1';
    ck_assert_int_eq(token_parse(text, &token, &err), ERR_USAGE);
    SAYS("of an earlier version");
    buf_print(&bytes, "something else\n");
    ck_assert_int_eq(authority_write(path, /* secret= */ true, &bytes, &err), 0);
    ck_assert_int_eq(token_find(authority, token.id, &kept, &err), ERR_DAMAGED);
    SAYS("a line that is no token");
    buf_done(&bytes);
}
END_TEST

START_TEST(what_is_no_token_is_said_to_be_none)
{
    static const char *const texts[] = {"", "cpl2", "cpl2...", "cpl3.a.b.c",
                                        "cpl2.short.id.secret"};
    struct token token;
    char text[TOKEN_TEXT_SIZE];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ck_assert_int_eq(token_parse(texts[i], &token, &err), ERR_USAGE);
    }
    ck_assert_int_eq(token_make(authority, 60, 1, text, &err), 0);
    for (size_t cut = 0; cut < strlen(text); cut++) {
        char part[TOKEN_TEXT_SIZE];
        (void)snprintf(part, sizeof(part), "%.*s", (int)cut, text);
        ck_assert_int_eq(token_parse(part, &token, &err), ERR_USAGE);
    }
}
END_TEST

static struct token some_token(unsigned uses)
{
    char text[TOKEN_TEXT_SIZE];
    struct token token = {.id = ""};
    ck_assert_int_eq(token_make(authority, 60, uses, text, &err), 0);
    ck_assert_int_eq(token_parse(text, &token, &err), 0);
    return token;
}

START_TEST(a_folder_that_everybody_may_write_to_is_no_authority)
{
    struct token token = some_token(1);
    struct token_verifier verifier;
    char text[TOKEN_TEXT_SIZE];
    ck_assert_int_eq(chmod(authority, 0777), 0);
    ck_assert_int_eq(token_find(authority, token.id, &verifier, &err), ERR_CONFIG);
    SAYS("others may write to the folder (mode 777)");
    ck_assert_int_eq(token_make(authority, 60, 1, text, &err), ERR_CONFIG);
    ck_assert_int_eq(chmod(authority, 0700), 0);
    ck_assert_int_eq(token_find(authority, token.id, &verifier, &err), 0);
}
END_TEST

/* ---- renewal ---- */

/* A certificate of the key that is in use (of another where `other`), for so many days. */
static void sign_for(unsigned days, bool other, struct buf *certificate)
{
    struct trust_identity identity = {.kind = TRUST_NODE, .cluster = "test", .name = "a"};
    struct buf request = BUF_NONE;
    struct buf key = BUF_NONE;
    struct buf ca = BUF_NONE;
    buf_clear(certificate);
    ck_assert_int_eq(other ? authority_new_key(AUTHORITY_P256, &key, &request, &err)
                           : trust_request(host_trust, &request, &err),
                     0);
    ck_assert_int_eq(authority_sign(authority, &identity, days, request.bytes, request.size,
                                    certificate, &ca, &err),
                     0);
    authority_wipe(&key);
    buf_done(&request);
    buf_done(&ca);
}

static void replace_refused(const struct buf *certificate, const char *text)
{
    char path[256];
    struct stat before;
    struct stat after;
    trust_file(&folder, "ca-a/node.crt", path);
    ck_assert_int_eq(stat(path, &before), 0);
    ck_assert_int_eq(trust_replace(host_trust, certificate, &err), ERR_CONFIG);
    SAYS(text);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino); /* not even written and put back */
}

START_TEST(what_another_node_sends_as_a_renewal_is_checked_before_it_is_written)
{
    struct buf certificate = BUF_NONE;
    struct trust_identity before;
    struct trust_identity after;
    trust_self(host_trust, &before);
    sign_for(60, false, &certificate);
    ck_assert_msg(trust_replace(host_trust, &certificate, &err) == 0, "%s", err.text);
    trust_self(host_trust, &after);
    ck_assert_int_gt(after.not_after, before.not_after);
    sign_for(1, false, &certificate); /* an older one, shown again */
    replace_refused(&certificate, "ends before the one in use");
    sign_for(90, true, &certificate);
    replace_refused(&certificate, "is not the key of");
    buf_clear(&certificate);
    buf_print(&certificate, "no certificate");
    replace_refused(&certificate, "no PEM certificate");
    buf_clear(&certificate); /* as an empty frame */
    replace_refused(&certificate, "no PEM certificate");
    struct buf none = BUF_NONE;
    replace_refused(&none, "no PEM certificate");
    ck_assert_int_eq(authority_check_request(none.bytes, none.size, &err), ERR_PROTO);
    buf_done(&certificate);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("authority");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_test(claims, secrets_are_for_their_owner_alone);
    tcase_add_test(claims, an_authority_is_never_overwritten);
    tcase_add_test(claims, ed25519_serves_as_well);
    tcase_add_test(claims, without_its_key_nothing_is_signed);
    tcase_add_test(claims, names_that_could_mean_something_else_are_refused);
    tcase_add_test(claims, a_token_is_read_back_and_its_uses_are_counted);
    tcase_add_test(claims, what_is_no_token_is_said_to_be_none);
    tcase_add_test(claims, tokens_of_an_earlier_version_are_void_and_in_nobodys_way);
    tcase_add_test(claims, a_folder_that_everybody_may_write_to_is_no_authority);
    tcase_add_test(claims, what_another_node_sends_as_a_renewal_is_checked_before_it_is_written);
    suite_add_tcase(suite, claims);
    return suite;
}

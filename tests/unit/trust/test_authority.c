/* The authority's folder, tokens, and joining over a socket pair. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"
#include "trust/join.h"

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
    ck_assert_int_eq(token_make(authority, 60, 2, text, &err), 0);
    ck_assert_int_eq(token_parse(text, &token, &err), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 0, &err), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), ERR_AUTH);
    SAYS("used up");
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, -1, &err), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), 0);
    token.secret[3] = token.secret[3] == 'A' ? 'B' : 'A';
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 0, &err), ERR_AUTH);
    SAYS("no such token");
}
END_TEST

START_TEST(what_is_no_token_is_said_to_be_none)
{
    static const char *const texts[] = {"", "cpl1", "cpl1...", "cpl2.a.b.c",
                                        "cpl1.short.id.secret"};
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

/* ---- joining ---- */

struct hosting {
    int fd;
    int admits; /* calls */
    bool refuse;
    struct join_wish wish;
    struct err err;
};

static int admit(void *context, const struct join_wish *wish, struct buf *members, struct err *why)
{
    struct hosting *hosting = context;
    hosting->admits++;
    if (hosting->refuse) {
        return err_set(why, ERR_STATE, "node '%s' is not wanted", wish->name);
    }
    buf_print(members, "1 a 10.0.0.1:7620 trainer\n");
    return 0;
}

static void *host(void *context)
{
    struct hosting *hosting = context;
    struct join_host with = {authority, "test", hosting, admit};
    struct tls *tls = NULL;
    if (tls_accept(host_trust, hosting->fd, true, &tls, &hosting->err) == 0) {
        (void)join_serve(tls, hosting->fd, &with, clock_now_ms() + 10000, &hosting->wish,
                         &hosting->err);
        tls_free(tls);
    }
    (void)shutdown(hosting->fd, SHUT_RDWR);
    return NULL;
}

static int join(struct hosting *hosting, const struct token *token, const char *name,
                struct join_answer *answer)
{
    struct join_wish wish = {.address = "10.0.0.2:7620", .role = "trainer"};
    struct buf key = BUF_NONE;
    struct buf request = BUF_NONE;
    pthread_t thread;
    int pair[2];
    (void)snprintf(wish.name, sizeof(wish.name), "%s", name);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    hosting->fd = pair[1];
    ck_assert_int_eq(authority_new_key(AUTHORITY_P256, &key, &request, &err), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, host, hosting), 0);
    int code = join_ask(pair[0], token, &wish, request.bytes, request.size, clock_now_ms() + 10000,
                        answer, &err);
    (void)shutdown(pair[0], SHUT_RDWR);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    authority_wipe(&key);
    buf_done(&request);
    return code;
}

static struct token some_token(unsigned uses)
{
    char text[TOKEN_TEXT_SIZE];
    struct token token = {.id = ""};
    ck_assert_int_eq(token_make(authority, 60, uses, text, &err), 0);
    ck_assert_int_eq(token_parse(text, &token, &err), 0);
    return token;
}

START_TEST(a_joiner_gets_its_certificate_and_the_members)
{
    struct hosting hosting = {.fd = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    ck_assert_msg(join(&hosting, &token, "b", &answer) == 0, "%s / %s", err.text, hosting.err.text);
    ck_assert_str_eq(answer.cluster, "test");
    ck_assert_str_eq(hosting.wish.name, "b");
    ck_assert_str_eq(hosting.wish.address, "10.0.0.2:7620");
    ck_assert_uint_gt(answer.certificate.size, 300);
    ck_assert_uint_gt(answer.ca.size, 300);
    ck_assert_uint_eq(answer.members.size, strlen("1 a 10.0.0.1:7620 trainer\n"));
    join_answer_done(&answer);
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), ERR_AUTH);
    SAYS("used up");
    ck_assert_int_eq(hosting.admits, 1);
}
END_TEST

START_TEST(the_secret_is_not_shown_to_another_authority)
{
    struct hosting hosting = {.fd = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    token.pin[7] ^= 1;
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), ERR_AUTH);
    SAYS("does not show the authority that the token pins");
    ck_assert_int_ne(hosting.err.code, 0); /* it read no token: the handshake broke */
    ck_assert_int_eq(hosting.admits, 0);
    token.pin[7] ^= 1;
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), 0); /* unused */
}
END_TEST

START_TEST(a_use_is_given_back_where_the_cluster_refuses)
{
    struct hosting hosting = {.fd = -1, .refuse = true};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), ERR_STATE);
    SAYS("node 'b' is not wanted");
    hosting.refuse = false;
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), 0);
    join_answer_done(&answer);
}
END_TEST

START_TEST(a_wish_with_an_odd_name_is_refused_before_the_cluster_is_asked)
{
    struct hosting hosting = {.fd = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    ck_assert_int_eq(join(&hosting, &token, "b/../a", &answer), ERR_PROTO);
    SAYS("a malformed wish to join came");
    ck_assert_int_eq(hosting.admits, 0);
}
END_TEST

START_TEST(who_shows_no_token_does_not_keep_the_place)
{
    struct hosting hosting = {.fd = -1};
    struct token token = some_token(1);
    struct tls *tls = NULL;
    struct iovec none = {NULL, 0};
    pthread_t thread;
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    hosting.fd = pair[1];
    ck_assert_int_eq(tls_dial_pinned(pair[0], token.pin, &tls, &err), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, host, &hosting), 0);
    uint64_t began_ms = clock_now_ms();
    while (!tls_is_open(tls) && clock_now_ms() - began_ms < 60000) {
        unsigned reads = 10;
        ck_assert_int_eq(tls_read(tls, &none, 1, &reads, &err), 0);
        (void)usleep(1000);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0); /* and now it says nothing */
    ck_assert_int_eq(hosting.err.code, ERR_TIMEOUT);
    ck_assert_uint_lt(clock_now_ms() - began_ms, 9500); /* the whole may take 10 s */
    ck_assert_int_eq(hosting.admits, 0);
    tls_free(tls);
    (void)close(pair[0]);
    (void)close(pair[1]);
}
END_TEST

START_TEST(a_folder_that_everybody_may_write_to_is_no_authority)
{
    struct token token = some_token(1);
    char text[TOKEN_TEXT_SIZE];
    ck_assert_int_eq(chmod(authority, 0777), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), ERR_CONFIG);
    SAYS("may be written by everybody");
    ck_assert_int_eq(token_make(authority, 60, 1, text, &err), ERR_CONFIG);
    ck_assert_int_eq(chmod(authority, 0700), 0);
    ck_assert_int_eq(token_redeem(authority, token.id, token.secret, 1, &err), 0);
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
    tcase_add_test(claims, a_joiner_gets_its_certificate_and_the_members);
    tcase_add_test(claims, the_secret_is_not_shown_to_another_authority);
    tcase_add_test(claims, a_use_is_given_back_where_the_cluster_refuses);
    tcase_add_test(claims, a_wish_with_an_odd_name_is_refused_before_the_cluster_is_asked);
    tcase_add_test(claims, who_shows_no_token_does_not_keep_the_place);
    tcase_add_test(claims, a_folder_that_everybody_may_write_to_is_no_authority);
    tcase_add_test(claims, what_another_node_sends_as_a_renewal_is_checked_before_it_is_written);
    suite_add_tcase(suite, claims);
    return suite;
}

/* Joining: over a socket pair, through a member between, with what does not fit. */
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"
#include "trust/join_room.h"

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

START_TEST(proofs_hold_in_their_own_scene_only)
{
    struct proof_scene scenes[5];
    struct token_verifier verifier;
    struct token_verifier other;
    uint8_t host[PROOF_HOST_SIZE];
    uint8_t joiner[PROOF_JOINER_SIZE];
    proof_verifier("secret", &verifier);
    proof_verifier("secreT", &other);
    for (size_t i = 0; i < 5; i++) {
        scenes[i] = (struct proof_scene){.id = "id", .cluster = "c", .host = "h"};
    }
    scenes[1].exporter[31] ^= 1;
    scenes[2].id = "ie";
    scenes[3].cluster = "ch"; /* the same letters, cut elsewhere */
    scenes[3].host = "";
    scenes[4].host = "g";
    proof_of_host(&verifier, &scenes[0], host);
    proof_of_joiner("secret", &scenes[0], "wish", 4, joiner);
    ck_assert(proof_check_joiner(&verifier, &scenes[0], "wish", 4, joiner));
    ck_assert(!proof_check_joiner(&other, &scenes[0], "wish", 4, joiner));
    ck_assert(!proof_check_joiner(&verifier, &scenes[0], "wisH", 4, joiner));
    ck_assert(!proof_check_joiner(&verifier, &scenes[0], "wis", 3, joiner));
    for (size_t i = 1; i < 5; i++) {
        uint8_t elsewhere[PROOF_HOST_SIZE];
        proof_of_host(&verifier, &scenes[i], elsewhere);
        ck_assert_int_ne(memcmp(host, elsewhere, sizeof(host)), 0);
        ck_assert(!proof_check_joiner(&verifier, &scenes[i], "wish", 4, joiner));
    }
    joiner[5] ^= 1;
    ck_assert(!proof_check_joiner(&verifier, &scenes[0], "wish", 4, joiner));
}
END_TEST

struct hosting {
    int fd;
    const char *folder; /* of the authority; NULL: ours */
    int admits;         /* calls */
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
    struct join_host with = {hosting->folder != NULL ? hosting->folder : authority, "test", hosting,
                             admit};
    struct tls *tls = NULL;
    if (tls_accept(host_trust, hosting->fd, true, &tls, &hosting->err) == 0) {
        (void)join_serve(tls, hosting->fd, &with, clock_now_ms() + 100000, &hosting->wish,
                         &hosting->err);
        tls_free(tls);
    }
    (void)shutdown(hosting->fd, SHUT_RDWR);
    return NULL;
}

static void make_request(struct buf *request)
{
    struct buf key = BUF_NONE;
    ck_assert_int_eq(authority_new_key(AUTHORITY_P256, &key, request, &err), 0);
    authority_wipe(&key);
}

static int join_with(struct hosting *hosting, const struct token *token, const char *name,
                     const struct buf *request, struct join_answer *answer)
{
    struct join_wish wish = {.address = "10.0.0.2:7620", .role = "trainer"};
    pthread_t thread;
    int pair[2];
    (void)snprintf(wish.name, sizeof(wish.name), "%s", name);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    hosting->fd = pair[1];
    ck_assert_int_eq(pthread_create(&thread, NULL, host, hosting), 0);
    int code = join_ask(pair[0], token, &wish, request->bytes, request->size,
                        clock_now_ms() + 100000, answer, &err);
    (void)shutdown(pair[0], SHUT_RDWR);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return code;
}

static int join(struct hosting *hosting, const struct token *token, const char *name,
                struct join_answer *answer)
{
    struct buf request = BUF_NONE;
    make_request(&request);
    int code = join_with(hosting, token, name, &request, answer);
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

static void is_unused(const struct token *token)
{
    struct token_verifier verifier;
    ck_assert_int_eq(token_find(authority, token->id, &verifier, &err), 0);
}

START_TEST(another_authority_hears_nothing)
{
    struct hosting hosting = {.fd = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    token.pin[7] ^= 1;
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), ERR_AUTH);
    SAYS("does not show the authority that the token pins");
    ck_assert_int_ne(hosting.err.code, 0); /* it read no token: the handshake broke */
    ck_assert_int_eq(hosting.admits, 0);
    is_unused(&token);
}
END_TEST

/* Who has a certificate of the pinned authority, and a token of the same id, but not this one. */
START_TEST(a_member_that_is_not_the_issuer_learns_nothing)
{
    char other[300];
    char path[320];
    struct hosting hosting = {.fd = -1, .folder = other};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    struct buf line = BUF_NONE;
    char hex[SHA256_HEX_SIZE];
    struct token_verifier guessed;
    trust_file(&folder, "mine", other);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/tokens", other);
    proof_verifier("a guess", &guessed);
    buf_print(&line, "%s ", token.id);
    sha256_hex(guessed.host, hex);
    buf_print(&line, "%s ", hex);
    sha256_hex(guessed.joiner, hex);
    buf_print(&line, "%s 99999999999 1\n", hex);
    ck_assert_int_eq(authority_write(path, /* secret= */ true, &line, &err), 0);
    buf_done(&line);
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), ERR_AUTH);
    SAYS("node 'a' answers there");
    SAYS("cannot prove that it knows this token");
    ck_assert_str_eq(hosting.wish.name, ""); /* not even who wants to join */
    ck_assert_int_eq(hosting.admits, 0);
    is_unused(&token);
}
END_TEST

struct relay {
    struct trust *member;
    int near, far;
    uint8_t pin[32];
    size_t forth, back; /* bytes that it saw */
};

static bool pass(struct tls *from, struct tls *to, size_t *count)
{
    uint8_t bytes[1000];
    struct iovec part = {bytes, sizeof(bytes)};
    struct err ignored = {0};
    unsigned reads = 4;
    ssize_t got = tls_read(from, &part, 1, &reads, &ignored);
    part.iov_len = got > 0 ? (size_t)got : 0;
    *count += part.iov_len;
    return got >= 0 && tls_write(to, &part, part.iov_len > 0 ? 1 : 0, &ignored) >= 0;
}

/* A member between: it is the host to the joiner and the joiner to the host, and passes on all that
 * each says. */
static void *relay(void *context)
{
    struct relay *relay = context;
    struct tls *near = NULL;
    struct tls *far = NULL;
    struct err ignored = {0};
    ck_assert_int_eq(tls_accept(relay->member, relay->near, true, &near, &ignored), 0);
    ck_assert_int_eq(tls_dial_pinned(relay->far, relay->pin, &far, &ignored), 0);
    struct talk talks[2] = {{near, relay->near, clock_now_ms() + 100000},
                            {far, relay->far, clock_now_ms() + 100000}};
    ck_assert_int_eq(talk_shake(&talks[0], &ignored), 0);
    ck_assert_int_eq(talk_shake(&talks[1], &ignored), 0);
    while (pass(near, far, &relay->forth) && pass(far, near, &relay->back)) {
        (void)usleep(1000);
    }
    tls_free(near);
    tls_free(far);
    (void)shutdown(relay->near, SHUT_RDWR);
    (void)shutdown(relay->far, SHUT_RDWR);
    return NULL;
}

START_TEST(a_member_between_joiner_and_host_is_of_no_use)
{
    struct hosting hosting = {.fd = -1};
    struct relay between = {.near = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct join_wish wish = {.name = "b", .address = "10.0.0.2:7620", .role = "trainer"};
    struct token token = some_token(1);
    struct buf request = BUF_NONE;
    pthread_t threads[2];
    int pairs[2][2];
    make_request(&request);
    trust_make_bundle(&folder, "ca", "test", TRUST_NODE, "m");
    ck_assert_int_eq(trust_open_bundle(&folder, "ca-m", 0, &between.member, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]), 0);
    }
    hosting.fd = pairs[1][1];
    between.near = pairs[0][1];
    between.far = pairs[1][0];
    memcpy(between.pin, token.pin, sizeof(between.pin));
    ck_assert_int_eq(pthread_create(&threads[0], NULL, host, &hosting), 0);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, relay, &between), 0);
    int code = join_ask(pairs[0][0], &token, &wish, request.bytes, request.size,
                        clock_now_ms() + 100000, &answer, &err);
    (void)shutdown(pairs[0][0], SHUT_RDWR);
    ck_assert_int_eq(pthread_join(threads[1], NULL), 0);
    ck_assert_int_eq(pthread_join(threads[0], NULL), 0);
    ck_assert_int_eq(code, ERR_AUTH);
    SAYS("node 'm' answers there");
    SAYS("cannot prove that it knows this token");
    ck_assert_uint_eq(between.forth, JOIN_FIRST_SIZE); /* the id, and no more */
    ck_assert_uint_gt(between.back, PROOF_HOST_SIZE);  /* the host's proof, of no use elsewhere */
    ck_assert_int_eq(hosting.admits, 0);
    is_unused(&token);
    trust_free(between.member);
    for (size_t i = 0; i < 2; i++) {
        (void)close(pairs[i][0]);
        (void)close(pairs[i][1]);
    }
    buf_done(&request);
}
END_TEST

START_TEST(a_joiner_that_only_has_what_the_authority_keeps_is_refused)
{
    struct hosting hosting = {.fd = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    struct token damaged = token;
    damaged.secret[3] = damaged.secret[3] == 'A' ? 'B' : 'A';
    ck_assert_int_eq(join(&hosting, &damaged, "b", &answer), ERR_AUTH);
    SAYS("cannot prove");
    is_unused(&token);
    /* Past its own check of the host: with the host's key, which the file has, and no signature. */
    struct tls *tls = NULL;
    struct talk talk = {.deadline_ms = clock_now_ms() + 100000};
    struct buf bytes = BUF_NONE;
    pthread_t thread;
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    hosting.fd = pair[1];
    ck_assert_int_eq(pthread_create(&thread, NULL, host, &hosting), 0);
    ck_assert_int_eq(tls_dial_pinned(pair[0], token.pin, &tls, &err), 0);
    talk.tls = tls;
    talk.fd = pair[0];
    buf_put(&bytes, JOIN_MAGIC, 4);
    buf_put(&bytes, token.id, TOKEN_ID_SIZE - 1);
    ck_assert_int_eq(talk_put(&talk, bytes.bytes, bytes.size, &err), 0);
    ck_assert_int_eq(talk_take_message(&talk, JOIN_ANSWER_MAX, &bytes, &err), 0);
    buf_clear(&bytes);
    for (int i = 0; i < 200; i++) {
        buf_put_u8(&bytes, (uint8_t)i);
    }
    ck_assert_int_eq(talk_put_message(&talk, &bytes, &err), 0);
    ck_assert_int_eq(talk_take_message(&talk, JOIN_ANSWER_MAX, &bytes, &err), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(hosting.err.code, ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(hosting.err.text, "does not hold"));
    ck_assert_int_eq(hosting.admits, 0);
    is_unused(&token);
    tls_free(tls);
    (void)close(pair[0]);
    (void)close(pair[1]);
    buf_done(&bytes);
}
END_TEST

START_TEST(a_request_that_cannot_be_signed_costs_no_use)
{
    struct hosting hosting = {.fd = -1};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct token token = some_token(1);
    struct buf request = BUF_NONE;
    make_request(&request);
    request.bytes[request.size - 5] ^= 1; /* in its signature */
    ck_assert_int_eq(join_with(&hosting, &token, "b", &request, &answer), ERR_PROTO);
    SAYS("the request for a certificate is malformed");
    buf_clear(&request);
    for (int i = 0; i < 5000; i++) {
        buf_put_u8(&request, 0x30); /* more than AUTHORITY_REQUEST_MAX */
    }
    ck_assert_int_eq(join_with(&hosting, &token, "b", &request, &answer), ERR_PROTO);
    SAYS("the request for a certificate is malformed");
    while (request.size < JOIN_QUESTION_MAX) {
        buf_put_u8(&request, 0x30);
    }
    ck_assert_int_eq(join_with(&hosting, &token, "b", &request, &answer), ERR_PROTO);
    SAYS("the most is 8192");
    ck_assert_int_eq(hosting.admits, 0);
    ck_assert_int_eq(join(&hosting, &token, "b", &answer), 0); /* the one use is still there */
    join_answer_done(&answer);
    buf_done(&request);
}
END_TEST

START_TEST(what_the_host_answers_is_held_against_what_was_asked)
{
    struct trust_identity identity = {.kind = TRUST_NODE, .cluster = "test", .name = "b"};
    struct join_wish wish = {.name = "b"};
    struct token token = some_token(1);
    struct buf request = BUF_NONE;
    struct buf other = BUF_NONE;
    struct join_answer answer = JOIN_ANSWER_NONE;
    make_request(&request);
    make_request(&other);
    (void)snprintf(answer.cluster, sizeof(answer.cluster), "test");
    ck_assert_int_eq(authority_sign(authority, &identity, 0, request.bytes, request.size,
                                    &answer.certificate, &answer.ca, &err),
                     0);
    ck_assert_int_eq(join_check_answer(&token, &wish, request.bytes, request.size, &answer, &err),
                     0);
    ck_assert_int_eq(join_check_answer(&token, &wish, other.bytes, other.size, &answer, &err),
                     ERR_PROTO);
    wish.name[0] = 'c';
    ck_assert_int_eq(join_check_answer(&token, &wish, request.bytes, request.size, &answer, &err),
                     ERR_PROTO);
    wish.name[0] = 'b';
    token.pin[0] ^= 1;
    ck_assert_int_eq(join_check_answer(&token, &wish, request.bytes, request.size, &answer, &err),
                     ERR_PROTO);
    SAYS("not of the pinned authority");
    token.pin[0] ^= 1;
    struct join_answer part = answer;
    part.ca = (struct buf)BUF_NONE;
    ck_assert_int_eq(join_check_answer(&token, &wish, request.bytes, request.size, &part, &err),
                     ERR_PROTO);
    part.ca = answer.ca;
    part.certificate = (struct buf)BUF_NONE;
    ck_assert_int_eq(join_check_answer(&token, &wish, request.bytes, request.size, &part, &err),
                     ERR_PROTO);
    join_answer_done(&answer);
    buf_done(&request);
    buf_done(&other);
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
    ck_assert_uint_lt(clock_now_ms() - began_ms, 90000); /* the whole may take 100 s */
    ck_assert_int_eq(hosting.admits, 0);
    tls_free(tls);
    (void)close(pair[0]);
    (void)close(pair[1]);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("join");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_test(claims, a_joiner_gets_its_certificate_and_the_members);
    tcase_add_test(claims, proofs_hold_in_their_own_scene_only);
    tcase_add_test(claims, another_authority_hears_nothing);
    tcase_add_test(claims, a_member_that_is_not_the_issuer_learns_nothing);
    tcase_add_test(claims, a_member_between_joiner_and_host_is_of_no_use);
    tcase_add_test(claims, a_joiner_that_only_has_what_the_authority_keeps_is_refused);
    tcase_add_test(claims, a_request_that_cannot_be_signed_costs_no_use);
    tcase_add_test(claims, what_the_host_answers_is_held_against_what_was_asked);
    tcase_add_test(claims, a_use_is_given_back_where_the_cluster_refuses);
    tcase_add_test(claims, a_wish_with_an_odd_name_is_refused_before_the_cluster_is_asked);
    tcase_add_test(claims, who_shows_no_token_does_not_keep_the_place);
    suite_add_tcase(suite, claims);
    return suite;
}

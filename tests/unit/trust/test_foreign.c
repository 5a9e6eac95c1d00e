/* One of ours and OpenSSL's own implementation on the other end: that our records are TLS 1.3's,
 * and what becomes of another side that does what ours never does. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"
#include "trust/issue.h"
#include "trust/pem.h"
#include "trust/trust_room.h"

static struct test_folder folder;
static struct trust *ours;
static X509 *ca;
static EVP_PKEY *ca_key;
static int pair[2];
static struct tls *tls;
static SSL_CTX *context;
static SSL *foreign;
static struct err err;

static void setup(void)
{
    static const char *const names[] = {"b"};
    char path[256];
    err = (struct err){0};
    trust_open_nodes(&folder, "test", names, 1, &ours);
    trust_file(&folder, "ca/ca.crt", path);
    ck_assert_int_eq(pem_certificate("ca", path, &ca, &err), 0);
    trust_file(&folder, "ca/ca.key", path);
    ck_assert_int_eq(pem_key("key", path, &ca_key, &err), 0);
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    context = SSL_CTX_new(TLS_method());
    ASSERT(context != NULL);
    ASSERT(SSL_CTX_set_num_tickets(context, 0) == 1);
}

static void teardown(void)
{
    SSL_free(foreign);
    foreign = NULL;
    SSL_CTX_free(context);
    tls_free(tls);
    tls = NULL;
    (void)close(pair[0]);
    (void)close(pair[1]);
    X509_free(ca);
    EVP_PKEY_free(ca_key);
    ca = NULL;
    ca_key = NULL;
    trust_free(ours);
    test_folder_close(&folder);
}

/* The foreign side's certificate: of node `name`, beginning and ending so many seconds from now. */
static void use_certificate(const char *name, long begins, long ends, bool by_itself)
{
    struct trust_identity identity = {.kind = TRUST_NODE, .cluster = "test"};
    EVP_PKEY *key = NULL;
    X509 *leaf = NULL;
    (void)snprintf(identity.name, sizeof(identity.name), "%s", name);
    ck_assert_int_eq(issue_key(AUTHORITY_P256, &key, &err), 0);
    ck_assert_int_eq(issue_leaf(ca, ca_key, key, &identity, 1, &leaf, &err), 0);
    ASSERT(X509_gmtime_adj(X509_getm_notBefore(leaf), begins) != NULL);
    ASSERT(X509_gmtime_adj(X509_getm_notAfter(leaf), ends) != NULL);
    ASSERT(X509_sign(leaf, by_itself ? key : ca_key, EVP_sha256()) != 0);
    ASSERT(SSL_CTX_use_certificate(context, leaf) == 1);
    ASSERT(SSL_CTX_use_PrivateKey(context, key) == 1);
    X509_free(leaf);
    EVP_PKEY_free(key);
}

static int choose(SSL *ssl, const unsigned char **name, unsigned char *size,
                  const unsigned char *offered, unsigned offered_size, void *unused)
{
    (void)ssl;
    (void)offered_size;
    (void)unused;
    *name = offered + 1;
    *size = offered[0];
    return SSL_TLSEXT_ERR_OK;
}

static void begin(bool foreign_serves)
{
    static const unsigned char alpn[] = "\x0b"
                                        "coppelius/1";
    SSL_CTX_set_alpn_select_cb(context, choose, NULL);
    foreign = SSL_new(context);
    ASSERT(SSL_set_fd(foreign, pair[1]) == 1);
    if (foreign_serves) {
        SSL_set_accept_state(foreign);
        SSL_set_verify(foreign, SSL_VERIFY_PEER, NULL);
        X509_STORE *store = SSL_CTX_get_cert_store(context);
        ASSERT(X509_STORE_add_cert(store, ca) == 1);
        ck_assert_int_eq(tls_dial(ours, pair[0], "a", &tls, &err), 0);
    } else {
        SSL_set_connect_state(foreign);
        ASSERT(SSL_set_alpn_protos(foreign, alpn, sizeof(alpn) - 1) == 0);
        ck_assert_int_eq(tls_accept(ours, pair[0], false, &tls, &err), 0);
    }
}

static ssize_t read_some(void *bytes, size_t size)
{
    struct iovec part = {bytes, size};
    unsigned reads = 100;
    return tls_read(tls, &part, 1, &reads, &err);
}

static void shake(void)
{
    for (int turn = 0; turn < 20 && err.code == 0; turn++) {
        (void)SSL_do_handshake(foreign);
        ERR_clear_error();
        if (!tls_is_open(tls)) {
            (void)read_some(NULL, 0);
        }
    }
}

static void opened(bool foreign_serves)
{
    use_certificate("a", -60, 3600, false);
    begin(foreign_serves);
    shake();
    ck_assert_msg(tls_is_open(tls), "%s", err.text);
    ck_assert_str_eq(tls_peer(tls)->name, "a");
    ck_assert_int_eq(SSL_is_init_finished(foreign), 1);
}

#define SAYS(wanted) ck_assert_msg(strstr(err.text, (wanted)) != NULL, "said: '%s'", err.text)

static void carry_both_ways(size_t size)
{
    uint8_t *bytes = malloc(size);
    uint8_t *got = calloc(1, size);
    size_t sent = 0;
    size_t done = 0;
    ASSERT(bytes != NULL);
    ASSERT(got != NULL);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 31 + i / 251);
    }
    while (done < size) { /* ours to theirs */
        struct iovec part = {bytes + sent, size - sent};
        ssize_t taken = tls_write(tls, &part, 1, &err);
        size_t now = 0;
        ck_assert_int_ge(taken, 0);
        sent += (size_t)taken;
        if (SSL_read_ex(foreign, got + done, size - done, &now) == 1) {
            done += now;
        } else {
            ck_assert_int_eq(SSL_get_error(foreign, 0), SSL_ERROR_WANT_READ);
        }
    }
    ck_assert_int_eq(memcmp(bytes, got, size), 0);
    memset(got, 0, size);
    (void)SSL_set_mode(foreign,
                       SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    for (sent = 0, done = 0; done < size;) { /* and back */
        size_t now = 0;
        if (sent < size && SSL_write_ex(foreign, bytes + sent, size - sent, &now) == 1) {
            sent += now;
        }
        ssize_t read = read_some(got + done, size - done < 70000 ? size - done : 70000);
        ck_assert_msg(read >= 0, "%s", err.text);
        done += (size_t)read;
    }
    ck_assert_int_eq(memcmp(bytes, got, size), 0);
    free(bytes);
    free(got);
}

START_TEST(our_records_are_those_of_tls_1_3_whichever_side_dials)
{
    opened(_i == 0);
    carry_both_ways(1000000);
}
END_TEST

START_TEST(aes_256_with_sha_384_is_spoken_too)
{
    ASSERT(SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") == 1);
    opened(false);
    ck_assert(tls->sha384);
    carry_both_ways(300000);
}
END_TEST

START_TEST(our_new_keys_are_understood_by_others)
{
    opened(_i == 0);
    tls->records_max = 3; /* Else 2^23: AES-GCM's bound is 2^24.5 records of one key. */
    carry_both_ways(1000000);
    ck_assert_uint_le(tls->writes.sequence, 3);
    ck_assert_uint_gt(tls->reads.sequence, 3); /* Their own bound is not ours. */
}
END_TEST

START_TEST(their_key_updates_and_padding_are_understood)
{
    opened(false);
    ASSERT(SSL_set_block_padding(foreign, 512) == 1);
    for (int i = 0; i < 5; i++) {
        /* Asks for ours too: it must be answered, or their next read would fail. */
        ASSERT(SSL_key_update(foreign, SSL_KEY_UPDATE_REQUESTED) == 1);
        carry_both_ways(40000);
    }
}
END_TEST

START_TEST(key_updates_without_end_are_refused)
{
    uint8_t byte = 0;
    opened(false);
    for (int i = 0; i < 100 && err.code == 0; i++) {
        ASSERT(SSL_key_update(foreign, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
        ASSERT(SSL_do_handshake(foreign) == 1);
        (void)read_some(&byte, 1);
    }
    SAYS("key updates came in a row");
}
END_TEST

START_TEST(a_certificate_that_has_expired_or_not_begun_is_named_with_both_times)
{
    if (_i == 0) {
        use_certificate("a", -7200, -60, false);
    } else {
        use_certificate("a", 3600, 7200, false);
    }
    begin(false);
    shake();
    ck_assert_int_eq(err.code, ERR_AUTH);
    SAYS("its certificate (coppelius://test/node/a)");
    SAYS(_i == 0 ? "has expired: it ended 2" : "is not valid yet: it begins 2");
    SAYS("UTC and this machine's clock says 2");
    struct trust_stats stats;
    trust_get_stats(ours, &stats);
    ck_assert_uint_eq(stats.failed_expired, 1);
}
END_TEST

START_TEST(a_certificate_that_signed_itself_is_refused)
{
    use_certificate("a", -60, 3600, true);
    begin(false);
    shake();
    ck_assert_int_eq(err.code, ERR_AUTH);
}
END_TEST

START_TEST(who_shows_no_certificate_is_refused)
{
    begin(false);
    shake();
    SAYS("it shows no certificate");
    ck_assert(!tls_is_open(tls));
}
END_TEST

START_TEST(tls_1_2_is_refused_on_both_sides)
{
    use_certificate("a", -60, 3600, false);
    ASSERT(SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION) == 1);
    begin(_i == 0);
    shake();
    SAYS("it offers no TLS 1.3, which alone is spoken here");
}
END_TEST

START_TEST(another_protocol_inside_is_refused)
{
    static const unsigned char http[] = "\x08"
                                        "http/1.1";
    use_certificate("a", -60, 3600, false);
    begin(false);
    ASSERT(SSL_set_alpn_protos(foreign, http, sizeof(http) - 1) == 0);
    shake();
    ck_assert_int_ne(err.code, 0);
    ck_assert(!tls_is_open(tls));
}
END_TEST

START_TEST(a_server_without_our_protocol_is_refused)
{
    use_certificate("a", -60, 3600, false);
    begin(true);
    SSL_CTX_set_alpn_select_cb(context, NULL, NULL);
    shake();
    SAYS("it speaks TLS, but is no coppeliusd of this version");
}
END_TEST

START_TEST(session_tickets_and_renegotiation_do_not_exist)
{
    uint8_t byte = 0;
    opened(false);
    ck_assert_int_eq(SSL_renegotiate(foreign), 0);
    ERR_clear_error();
    size_t now = 0;
    ck_assert_int_eq(SSL_read_ex(foreign, &byte, 1, &now), 0); /* nothing came behind Finished */
    ck_assert_int_eq(SSL_session_reused(foreign), 0);
    ck_assert_int_eq(SSL_SESSION_has_ticket(SSL_get_session(foreign)), 0);
    teardown();
    setup();
    /* And a server that sends tickets is no server of ours. */
    ASSERT(SSL_CTX_set_num_tickets(context, 2) == 1);
    opened(true);
    ASSERT(SSL_write_ex(foreign, "x", 1, &now) == 1);
    for (int i = 0; i < 10 && err.code == 0; i++) {
        (void)read_some(&byte, 1);
    }
    SAYS("which this protocol does not have");
}
END_TEST

START_TEST(their_goodbye_is_the_end_and_ours_is_understood)
{
    uint8_t byte = 0;
    opened(false);
    ck_assert_int_eq(SSL_shutdown(foreign), 0);
    for (int i = 0; i < 10 && err.code == 0; i++) {
        (void)read_some(&byte, 1);
    }
    ck_assert(tls->goodbye_came);
    tls_shut(tls);
    teardown();
    setup();
    opened(false);
    tls_shut(tls);
    size_t now = 0;
    ck_assert_int_eq(SSL_read_ex(foreign, &byte, 1, &now), 0);
    ck_assert_int_eq(SSL_get_error(foreign, 0), SSL_ERROR_ZERO_RETURN); /* a goodbye, not a cut */
}
END_TEST

/* A HelloRetryRequest lets a dialer say hello twice: the second word counts, for all of it. */
START_TEST(a_second_hello_makes_no_peer_of_a_joiner)
{
    static const unsigned char words[2][18] = {"\x10"
                                               "coppelius-join/2",
                                               "\x0b"
                                               "coppelius/1"};
    static char groups[] = "P-521:X25519"; /* a share that is none of ours comes first */
    bool peer_last = _i == 0;
    ASSERT(SSL_CTX_set1_groups_list(context, groups) == 1);
    foreign = SSL_new(context);
    ASSERT(SSL_set_fd(foreign, pair[1]) == 1);
    SSL_set_connect_state(foreign);
    ck_assert_int_eq(tls_accept(ours, pair[0], true, &tls, &err), 0);
    for (int hello = 0; hello < 2; hello++) {
        const unsigned char *word = words[peer_last == (hello == 1)];
        ASSERT(SSL_set_alpn_protos(foreign, word, 1U + word[0]) == 0);
        (void)SSL_do_handshake(foreign);
        ERR_clear_error();
        (void)read_some(NULL, 0);
    }
    shake();
    if (peer_last) {
        ck_assert(!tls_is_open(tls));
        SAYS("it shows no certificate");
    } else {
        ck_assert_msg(tls_is_open(tls), "%s", err.text);
        ck_assert_int_eq(tls_spoken(tls), TLS_JOIN);
        ck_assert_int_eq(tls_peer(tls)->kind, TRUST_NOBODY);
    }
}
END_TEST

START_TEST(empty_records_between_key_updates_do_not_help)
{
    static const uint8_t update[5] = {24, 0, 0, 1, 0};
    struct tls *dialer = NULL;
    struct err dialer_err = {0};
    struct iovec none = {NULL, 0};
    uint8_t byte = 0;
    ck_assert_int_eq(tls_accept(ours, pair[0], false, &tls, &err), 0);
    ck_assert_int_eq(tls_dial(ours, pair[1], "b", &dialer, &dialer_err), 0);
    for (int turn = 0; turn < 20; turn++) {
        unsigned reads = 10;
        ck_assert_int_eq(tls_read(dialer, &none, 1, &reads, &dialer_err), 0);
        ck_assert_int_eq(read_some(NULL, 0), 0);
    }
    ck_assert(tls_is_open(tls) && tls_is_open(dialer));
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(record_seal_bytes(dialer, RECORD_DATA, "", 0, &dialer_err), 0);
        ck_assert_int_eq(
            record_seal_bytes(dialer, RECORD_HANDSHAKE, update, sizeof(update), &dialer_err), 0);
        ck_assert_int_eq(tls_keys_update(dialer, &dialer->writes, &dialer_err), 0);
    }
    ck_assert_int_eq(tls_flush(dialer, &dialer_err), 0);
    ck_assert_int_eq(read_some(&byte, 1), -1);
    SAYS("key updates came in a row");
    tls_free(dialer);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("foreign");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_loop_test(claims, our_records_are_those_of_tls_1_3_whichever_side_dials, 0, 2);
    tcase_add_test(claims, aes_256_with_sha_384_is_spoken_too);
    tcase_add_loop_test(claims, our_new_keys_are_understood_by_others, 0, 2);
    tcase_add_test(claims, their_key_updates_and_padding_are_understood);
    tcase_add_test(claims, key_updates_without_end_are_refused);
    tcase_add_loop_test(claims,
                        a_certificate_that_has_expired_or_not_begun_is_named_with_both_times, 0, 2);
    tcase_add_test(claims, a_certificate_that_signed_itself_is_refused);
    tcase_add_test(claims, who_shows_no_certificate_is_refused);
    tcase_add_loop_test(claims, tls_1_2_is_refused_on_both_sides, 0, 2);
    tcase_add_test(claims, another_protocol_inside_is_refused);
    tcase_add_test(claims, a_server_without_our_protocol_is_refused);
    tcase_add_test(claims, session_tickets_and_renegotiation_do_not_exist);
    tcase_add_test(claims, their_goodbye_is_the_end_and_ours_is_understood);
    tcase_add_loop_test(claims, a_second_hello_makes_no_peer_of_a_joiner, 0, 2);
    tcase_add_test(claims, empty_records_between_key_updates_do_not_help);
    suite_add_tcase(suite, claims);
    return suite;
}

/* TLS between two of ours, and between one of ours and OpenSSL's own, over socket pairs with a pump
 * between them that moves as many bytes at a time as a test wants. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rand.h"
#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"
#include "trust/issue.h"
#include "trust/pem.h"
#include "trust/trust_room.h"

static struct test_folder folder;
static struct trust *a, *b;    /* nodes of one cluster */
static int ends[2] = {-1, -1}; /* what a (dials) and b (serves) hold */
static int pumps[2] = {-1, -1};
static size_t pump_size; /* bytes at a time */
static struct tls *dialer, *server;
static struct err dialer_err, server_err;

static int nonblocking(int fd)
{
    ASSERT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
    return fd;
}

static void setup(void)
{
    static const char *const names[] = {"a", "b"};
    struct trust *both[2];
    trust_open_nodes(&folder, "test", names, 2, both);
    a = both[0];
    b = both[1];
    for (int i = 0; i < 2; i++) {
        int pair[2];
        ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        ends[i] = nonblocking(pair[0]);
        pumps[i] = nonblocking(pair[1]);
    }
    pump_size = SIZE_MAX;
    dialer_err = (struct err){0};
    server_err = (struct err){0};
}

static void drop(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void teardown(void)
{
    tls_free(dialer);
    tls_free(server);
    dialer = NULL;
    server = NULL;
    for (int i = 0; i < 2; i++) {
        drop(&ends[i]);
        drop(&pumps[i]);
    }
    trust_free(a);
    trust_free(b);
    test_folder_close(&folder);
}

/* Moves what is there both ways, at most pump_size bytes each; false: nothing was there. */
static bool pump(void)
{
    static struct {
        uint8_t bytes[1 << 16];
        size_t first, end;
    } ways[2];
    bool moved = false;
    for (int i = 0; i < 2; i++) {
        if (pumps[i] < 0) {
            continue;
        }
        if (ways[i].first == ways[i].end) {
            size_t most = pump_size < sizeof(ways[i].bytes) ? pump_size : sizeof(ways[i].bytes);
            ssize_t got = recv(pumps[i], ways[i].bytes, most, 0);
            if (got == 0) {
                (void)shutdown(pumps[1 - i], SHUT_WR);
            }
            ways[i].first = 0;
            ways[i].end = got > 0 ? (size_t)got : 0;
        }
        if (ways[i].first < ways[i].end) {
            ssize_t put = send(pumps[1 - i], ways[i].bytes + ways[i].first,
                               ways[i].end - ways[i].first, MSG_NOSIGNAL);
            bool gone = put < 0 && errno != EAGAIN;
            ways[i].first = gone ? ways[i].end : ways[i].first + (put > 0 ? (size_t)put : 0);
            moved |= put > 0;
        }
    }
    return moved;
}

static ssize_t read_some(struct tls *tls, void *bytes, size_t size, struct err *err)
{
    struct iovec part = {bytes, size};
    unsigned reads = 1000;
    return tls_read(tls, &part, 1, &reads, err);
}

static ssize_t write_some(struct tls *tls, const void *bytes, size_t size, struct err *err)
{
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    return tls_write(tls, &part, 1, err);
}

/* Until both are open or one is broken (its sentence is kept). */
static void shake(void)
{
    uint8_t nothing[1];
    for (int turn = 0; turn < 100000; turn++) {
        if (dialer != NULL && dialer_err.code == 0 && !tls_is_open(dialer)) {
            (void)read_some(dialer, nothing, 0, &dialer_err);
        }
        if (server != NULL && server_err.code == 0 && !tls_is_open(server)) {
            (void)read_some(server, nothing, 0, &server_err);
        }
        bool moved = pump();
        bool dialer_done = dialer == NULL || dialer_err.code != 0 || tls_is_open(dialer);
        bool server_done = server == NULL || server_err.code != 0 || tls_is_open(server);
        if (!moved && dialer_done && server_done) {
            return;
        }
        if (!moved && ((dialer == NULL && server_done) || (server == NULL && dialer_done))) {
            return;
        }
    }
    ck_abort_msg("the handshake does not end");
}

static void open_both(const char *node)
{
    ck_assert_int_eq(tls_dial(a, ends[0], node, &dialer, &dialer_err), 0);
    ck_assert_int_eq(tls_accept(b, ends[1], false, &server, &server_err), 0);
    shake();
}

static void opened(void)
{
    open_both("b");
    ck_assert_msg(tls_is_open(dialer), "%s", dialer_err.text);
    ck_assert_msg(tls_is_open(server), "%s", server_err.text);
    ck_assert_str_eq(tls_peer(dialer)->name, "b");
    ck_assert_str_eq(tls_peer(server)->name, "a");
    ck_assert_str_eq(tls_peer(server)->cluster, "test");
    ck_assert_int_eq(tls_peer(server)->kind, TRUST_NODE);
    ck_assert(tls_peer(server)->member);
    ck_assert_int_eq(tls_spoken(server), TLS_PEER);
}

/* After the dialer thinks it is in, the server's refusal is what it reads. */
static void read_refusal(void)
{
    uint8_t byte = 0;
    for (int turn = 0; turn < 1000 && dialer_err.code == 0; turn++) {
        (void)pump();
        (void)read_some(dialer, &byte, 1, &dialer_err);
    }
}

static bool says(const struct err *err, const char *text)
{
    if (strstr(err->text, text) == NULL) {
        (void)fprintf(stderr, "said: '%s'\nwanted: '%s'\n", err->text, text);
        return false;
    }
    return true;
}

/* Sends size bytes one way in writes and reads of random sizes; compares. */
static void carry(struct tls *from, struct tls *to, size_t size, uint64_t seed)
{
    struct rand rand = {seed};
    uint8_t *sent = malloc(size);
    uint8_t *got = calloc(1, size);
    size_t written = 0;
    size_t done = 0;
    struct err err = {0};
    ASSERT(sent != NULL);
    ASSERT(got != NULL);
    for (size_t i = 0; i < size; i++) {
        sent[i] = (uint8_t)rand_next(&rand);
    }
    while (done < size) {
        struct iovec parts[3];
        size_t at = written;
        for (int i = 0; i < 3; i++) { /* empty parts too */
            size_t most = size - at < 40000 ? size - at : 40000;
            size_t now = rand_below(&rand, 4) == 0 ? 0 : (size_t)rand_below(&rand, most + 1);
            parts[i] = (struct iovec){sent + at, now};
            at += now;
        }
        ssize_t taken = tls_write(from, parts, 3, &err);
        ck_assert_msg(taken >= 0, "%s", err.text);
        ck_assert_uint_le(written + (size_t)taken, size);
        written += (size_t)taken;
        (void)pump();
        size_t room = size - done < 50000 ? size - done : 50000;
        size_t first = (size_t)rand_below(&rand, room + 1);
        size_t second = (size_t)rand_below(&rand, room - first + 1);
        struct iovec places[2] = {{got + done, first}, {got + done + first, second}};
        unsigned reads = 1 + (unsigned)rand_below(&rand, 3);
        ssize_t read = tls_read(to, places, 2, &reads, &err);
        ck_assert_msg(read >= 0, "%s", err.text);
        ck_assert_uint_le((size_t)read, first + second);
        done += (size_t)read;
    }
    ck_assert_int_eq(memcmp(sent, got, size), 0);
    free(sent);
    free(got);
}

START_TEST(both_sides_know_each_other_and_carry_bytes_both_ways)
{
    opened();
    carry(dialer, server, 3000000, 1);
    carry(server, dialer, 3000000, 2);
}
END_TEST

START_TEST(a_byte_at_a_time_is_enough)
{
    pump_size = 1;
    opened();
    carry(dialer, server, 5000, 3);
    carry(server, dialer, 5000, 4);
}
END_TEST

START_TEST(keys_are_changed_on_the_way)
{
    trust_free(a);
    struct err err = {0};
    ck_assert_int_eq(trust_open_bundle(&folder, "ca-a", 5, &a, &err), 0);
    opened();
    carry(dialer, server, 2000000, 5); /* some 24 keys */
    ck_assert_uint_lt(dialer->writes.sequence, 7);
    carry(server, dialer, 500000, 6);
}
END_TEST

START_TEST(no_byte_is_given_before_the_other_side_is_known)
{
    /* Whatever comes instead of a handshake: nothing is read, the connection breaks or waits. */
    static const char *const strangers[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x00\x02\x01\x00",
        "\x17\x03\x03\x00\x11zzzzzzzzzzzzzzzzz", "\x15\x03\x03\x00\x02\x01\x00"};
    for (size_t i = 0; i < 4; i++) {
        struct tls *tls = NULL;
        struct err err = {0};
        uint8_t bytes[64];
        int pair[2];
        size_t size = i == 0 ? strlen(strangers[0]) : i == 1 ? 7 : i == 2 ? 22 : 7;
        ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        ck_assert_int_eq(tls_accept(b, nonblocking(pair[0]), false, &tls, &err), 0);
        ASSERT(send(pair[1], strangers[i], size, 0) == (ssize_t)size);
        for (int turn = 0; turn < 3 && err.code == 0; turn++) {
            ck_assert_int_le(read_some(tls, bytes, sizeof(bytes), &err), 0);
        }
        ck_assert(!tls_is_open(tls));
        if (i == 0) {
            ck_assert(says(&err, "it does not speak TLS"));
        }
        tls_free(tls);
        (void)close(pair[0]);
        (void)close(pair[1]);
    }
    struct trust_stats stats;
    trust_get_stats(b, &stats);
    ck_assert_uint_ge(stats.failed_plain, 1);
    ck_assert_uint_eq(stats.handshakes, 0);
    ck_assert_uint_eq(stats.live, 0);
}
END_TEST

START_TEST(a_stranger_cannot_make_it_keep_much)
{
    /* A ClientHello that never ends: records of its length, up to the bound. */
    struct err err = {0};
    uint8_t record[5 + 16384];
    uint8_t byte = 0;
    struct tls *tls = NULL;
    memset(record, 0, sizeof(record));
    memcpy(record, "\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9);
    ck_assert_int_eq(tls_accept(b, ends[1], false, &tls, &err), 0);
    for (int i = 0; i < 8 && err.code == 0; i++) {
        (void)send(pumps[1], record, sizeof(record), MSG_NOSIGNAL);
        (void)read_some(tls, &byte, 1, &err);
    }
    ck_assert_int_ne(err.code, 0);
    ck_assert_uint_le(tls->shaken, TLS_HANDSHAKE_MAX + 4096);
    tls_free(tls);
}
END_TEST

START_TEST(another_authority_is_refused_by_both)
{
    struct err err = {0};
    trust_make_authority(&folder, "other", "test");
    trust_make_bundle(&folder, "other", "test", TRUST_NODE, "a");
    trust_free(a);
    ck_assert_int_eq(trust_open_bundle(&folder, "other-a", 0, &a, &err), 0);
    open_both("b");
    ck_assert(says(&dialer_err, "its certificate (coppelius://test/node/b) was signed by another "
                                "authority ('coppelius authority of test')"));
    ck_assert_int_ne(server_err.code, 0);
    ck_assert(says(&server_err, "it refuses this connection: this side's certificate was signed by "
                                "another authority"));
}
END_TEST

START_TEST(another_node_than_the_one_dialled_is_refused)
{
    open_both("c");
    ck_assert(says(&dialer_err, "node 'b' answers there by its certificate, not 'c'"));
}
END_TEST

START_TEST(another_cluster_of_the_same_authority_is_refused)
{
    /* No authority here signs for two clusters; one made by hand might. */
    (void)snprintf(b->self.cluster, sizeof(b->self.cluster), "third");
    open_both("b");
    ck_assert(says(&server_err, "its certificate is of cluster 'test', and this is 'third'"));
}
END_TEST

START_TEST(a_person_may_dial_and_not_serve)
{
    struct err err = {0};
    trust_make_bundle(&folder, "ca", "test", TRUST_VIEWER, "eve");
    trust_free(a);
    ck_assert_int_eq(trust_open_bundle(&folder, "ca-eve", 0, &a, &err), 0);
    open_both("b");
    ck_assert_int_eq(server_err.code, 0);
    ck_assert_int_eq(tls_peer(server)->kind, TRUST_VIEWER);
    ck_assert_str_eq(tls_peer(server)->name, "eve");
    teardown();
    setup();
    trust_make_bundle(&folder, "ca", "test", TRUST_ADMIN, "eve");
    trust_free(b);
    ck_assert_int_eq(trust_open_bundle(&folder, "ca-eve", 0, &b, &err), 0);
    open_both(NULL);
    ck_assert(says(&dialer_err, "its certificate (coppelius://test/admin/eve) is refused: "
                                "unsuitable certificate purpose"));
}
END_TEST

START_TEST(who_is_no_member_is_out_and_who_is_removed_is_cut)
{
    static const char *const first[] = {"a", "b"};
    static const char *const then[] = {"b"};
    uint8_t byte = 0;
    struct trust_stats stats;
    ck_assert_uint_eq(trust_set_members(b, first, 2), 0);
    opened();
    carry(dialer, server, 1000, 7);
    ck_assert_uint_eq(trust_set_members(b, then, 1), 1);
    ck_assert_int_eq(read_some(server, &byte, 1, &server_err), -1);
    ck_assert(says(&server_err, "node 'a' is no member of the cluster any more"));
    ck_assert_int_eq(server_err.code, ERR_AUTH);
    tls_free(dialer);
    tls_free(server);
    dialer = NULL;
    server = NULL;
    teardown();
    setup();
    /* No member yet: it may come to ask, and whoever takes it sees what it is. */
    ck_assert_uint_eq(trust_set_members(b, then, 1), 0);
    open_both("b");
    ck_assert(tls_is_open(server));
    ck_assert(!tls_peer(server)->member);
    ck_assert_uint_eq(trust_set_members(b, then, 1), 0); /* A guest is not cut for that. */
    teardown();
    setup();
    /* Removed: not even that. And nobody dials who is no member. */
    ck_assert_uint_eq(trust_set_members(b, then, 1), 0);
    trust_set_removed(b, first, 1);
    open_both("b");
    ck_assert(says(&server_err, "node 'a' is no member of cluster 'test'"));
    read_refusal();
    ck_assert(says(&dialer_err, "this node is no member of the cluster, or was removed"));
    trust_get_stats(b, &stats);
    ck_assert_uint_eq(stats.failed_member, 1);
}
END_TEST

START_TEST(a_guest_that_is_removed_is_cut_too)
{
    static const char *const members[] = {"b"};
    static const char *const removed[] = {"a"};
    uint8_t byte = 0;
    ck_assert_uint_eq(trust_set_members(b, members, 1), 0);
    open_both("b");
    ck_assert(tls_is_open(server));
    ck_assert(!tls_peer(server)->member);
    trust_set_removed(b, removed, 1);
    ck_assert_uint_eq(trust_set_members(b, members, 1), 1);
    ck_assert_int_eq(read_some(server, &byte, 1, &server_err), -1);
    ck_assert(says(&server_err, "node 'a' is no member of the cluster any more"));
}
END_TEST

START_TEST(a_persons_connection_ends_with_the_certificate)
{
    struct err err = {0};
    uint8_t byte = 0;
    trust_make_bundle(&folder, "ca", "test", TRUST_ADMIN, "ann");
    trust_free(a);
    ck_assert_int_eq(trust_open_bundle(&folder, "ca-ann", 0, &a, &err), 0);
    open_both("b");
    ck_assert(tls_is_open(server));
    int64_t end = tls_peer(server)->not_after;
    ck_assert_uint_eq(trust_cut_ended(b, end), 0);
    carry(dialer, server, 1000, 3);
    ck_assert_uint_eq(trust_cut_ended(b, end + 1), 1);
    ck_assert_uint_eq(trust_cut_ended(b, end + 1), 0); /* once */
    ck_assert_int_eq(read_some(server, &byte, 1, &server_err), -1);
    ck_assert(says(&server_err, "the certificate of the admin 'ann' has ended"));
    teardown();
    setup();
    opened(); /* of a node: it is renewed, and the member list says who is in */
    ck_assert_uint_eq(trust_cut_ended(b, end + 1000000), 0);
    carry(dialer, server, 1000, 4);
}
END_TEST

START_TEST(a_goodbye_and_a_torn_end_are_told_apart)
{
    uint8_t bytes[10];
    opened();
    ck_assert_int_eq(write_some(dialer, "hello", 5, &dialer_err), 5);
    tls_shut(dialer); /* half-close: the server may still answer */
    for (int i = 0; i < 10; i++) {
        (void)pump();
    }
    ck_assert_int_eq(read_some(server, bytes, 10, &server_err), 5);
    ck_assert_int_eq(read_some(server, bytes, 10, &server_err), -1);
    ck_assert_str_eq(server_err.text, "closed the connection");
    teardown();
    setup();
    opened();
    ck_assert_int_eq(write_some(dialer, "hello", 5, &dialer_err), 5);
    uint8_t record[64];
    ssize_t got = recv(pumps[0], record, sizeof(record), 0);
    ck_assert_int_eq(got, 5 + RECORD_OVERHEAD);
    ASSERT(send(pumps[1], record, (size_t)got - 1, 0) == got - 1);
    (void)shutdown(pumps[1], SHUT_WR); /* a byte is missing */
    ck_assert_int_eq(read_some(server, bytes, 10, &server_err), -1);
    ck_assert(says(&server_err, "closed the connection without a goodbye"));
}
END_TEST

START_TEST(half_closed_the_other_way_still_carries)
{
    opened();
    tls_shut(dialer);
    for (int i = 0; i < 10; i++) {
        (void)pump();
    }
    carry(server, dialer, 100000, 8);
}
END_TEST

START_TEST(a_changed_or_repeated_record_breaks_the_connection)
{
    for (int repeat = 0; repeat < 2; repeat++) {
        uint8_t record[64];
        uint8_t bytes[16];
        opened();
        ck_assert_int_eq(write_some(dialer, "hello", 5, &dialer_err), 5);
        ssize_t got = recv(pumps[0], record, sizeof(record), 0);
        if (repeat) {
            ASSERT(send(pumps[1], record, (size_t)got, 0) == got);
            ck_assert_int_eq(read_some(server, bytes, 16, &server_err), 5);
        } else {
            record[9] ^= 1;
        }
        ASSERT(send(pumps[1], record, (size_t)got, 0) == got);
        ck_assert_int_eq(read_some(server, bytes, 16, &server_err), -1);
        ck_assert(says(&server_err, "a TLS record fails its check"));
        ck_assert_int_eq(read_some(server, bytes, 16, &server_err), -1); /* for good */
        teardown();
        setup();
    }
}
END_TEST

START_TEST(files_that_do_not_fit_are_refused_with_the_file_named)
{
    struct err err = {0};
    struct trust *trust = NULL;
    char ca[256];
    char certificate[256];
    char key[256];
    char other[256];
    trust_file(&folder, "ca-a/ca.crt", ca);
    trust_file(&folder, "ca-a/node.crt", certificate);
    trust_file(&folder, "ca-a/node.key", key);
    trust_file(&folder, "ca-b/node.key", other);
    struct trust_settings settings = {.ca = ca, .certificate = certificate, .key = other};
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "ca-b/node.key' is not the key of tls.certificate '"));
    settings.key = key;
    settings.ca = certificate;
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "ca-a/node.crt' is no authority's certificate"));
    settings.ca = key;
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "has no PEM certificate in it"));
    trust_file(&folder, "empty", other);
    int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    settings.ca = other;
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "has no PEM certificate in it"));
    settings.ca = ca;
    settings.key = other;
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "has no unencrypted PEM key in it"));
    settings.key = key;
    settings.ca = "/nowhere/ca.crt";
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "tls.ca '/nowhere/ca.crt' cannot be read: No such file"));
    settings.ca = ca;
    settings.name = "b";
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "is of the node 'a', and this is the node 'b'"));
    settings.name = "a";
    settings.cluster = "prod";
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "is of cluster 'test', and `cluster` is 'prod'"));
    settings.cluster = "test";
    ASSERT(chmod(key, 0644) == 0);
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "may be read or changed by others (mode 644); run `chmod 600"));
    ASSERT(chmod(key, 0600) == 0);
    trust_make_authority(&folder, "other", "test");
    trust_file(&folder, "other/ca.crt", other);
    settings.ca = other;
    ck_assert_int_eq(trust_open(&settings, &trust, &err), ERR_CONFIG);
    ck_assert(says(&err, "and not by the key of tls.ca '"));
    settings.ca = ca;
    ck_assert_int_eq(trust_open(&settings, &trust, &err), 0);
    trust_free(trust);
}
END_TEST

START_TEST(a_reload_takes_new_files_and_refuses_wrong_ones)
{
    struct err err = {0};
    struct trust_identity before;
    struct trust_identity after;
    struct trust_stats stats;
    uint8_t byte = 0;
    char from[256];
    char to[256];
    trust_self(a, &before);
    trust_make_authority(&folder, "other", "test");
    trust_make_bundle(&folder, "other", "test", TRUST_NODE, "a");
    trust_file(&folder, "other-a/node.crt", from);
    trust_file(&folder, "ca-a/node.crt", to);
    ASSERT(rename(from, to) == 0);
    ck_assert_int_eq(trust_reload(a, &err), ERR_CONFIG);
    opened(); /* with the ones before */
    carry(dialer, server, 1000, 9);
    ck_assert_int_eq(trust_reload(b, &err), 0); /* the same files: those that live go on */
    carry(dialer, server, 1000, 9);
    /* All three of the other authority: what was made under the one before is cut. */
    trust_file(&folder, "other-a/node.key", from);
    trust_file(&folder, "ca-a/node.key", to);
    ASSERT(rename(from, to) == 0);
    trust_file(&folder, "other-a/ca.crt", from);
    trust_file(&folder, "ca-a/ca.crt", to);
    ASSERT(rename(from, to) == 0);
    ck_assert_int_eq(trust_reload(a, &err), 0);
    ck_assert_int_eq(read_some(dialer, &byte, 1, &dialer_err), -1);
    ck_assert(says(&dialer_err, "has another authority since this connection was made"));
    trust_get_stats(a, &stats);
    ck_assert_uint_eq(stats.cut, 1);
    trust_self(a, &after);
    ck_assert_str_eq(after.name, "a");
    tls_free(dialer);
    tls_free(server);
    dialer = NULL;
    server = NULL;
    teardown();
    setup();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("tls");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_test(claims, both_sides_know_each_other_and_carry_bytes_both_ways);
    tcase_add_test(claims, a_byte_at_a_time_is_enough);
    tcase_add_test(claims, keys_are_changed_on_the_way);
    tcase_add_test(claims, no_byte_is_given_before_the_other_side_is_known);
    tcase_add_test(claims, a_stranger_cannot_make_it_keep_much);
    tcase_add_test(claims, another_authority_is_refused_by_both);
    tcase_add_test(claims, another_node_than_the_one_dialled_is_refused);
    tcase_add_test(claims, another_cluster_of_the_same_authority_is_refused);
    tcase_add_test(claims, a_person_may_dial_and_not_serve);
    tcase_add_test(claims, who_is_no_member_is_out_and_who_is_removed_is_cut);
    tcase_add_test(claims, a_guest_that_is_removed_is_cut_too);
    tcase_add_test(claims, a_persons_connection_ends_with_the_certificate);
    tcase_add_test(claims, a_goodbye_and_a_torn_end_are_told_apart);
    tcase_add_test(claims, half_closed_the_other_way_still_carries);
    tcase_add_test(claims, a_changed_or_repeated_record_breaks_the_connection);
    tcase_add_test(claims, files_that_do_not_fit_are_refused_with_the_file_named);
    tcase_add_test(claims, a_reload_takes_new_files_and_refuses_wrong_ones);
    suite_add_tcase(suite, claims);
    return suite;
}

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/link.h"
#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"

#define GENERATION 9
#define BIG        (3U << 20)

/* Two links of one loop, connected over 127.0.0.1. */
struct side {
    struct link link;
    bool direct; /* bodies go to `place` instead of the link's buffer */
    uint8_t *place;
    size_t have;
    int frames, ended, closed, opened;
    uint16_t kinds[64];
    uint64_t sequences[64];
    struct err end;
    int sent, dropped;
    bool close_at_end;
    bool detach_at_frame;
    struct transport detached;
};

static uv_loop_t loop;
static struct side left, right;

static void on_open(struct link *link)
{
    OWNER_OF(link, struct side, link)->opened++;
}

static int place(struct link *link, const struct frame_header *header, uint8_t **ret_place,
                 struct err *err)
{
    struct side *side = OWNER_OF(link, struct side, link);
    if (header->kind == 99) {
        return err_set(err, ERR_PROTO, "kind 99 is not placed");
    }
    if (side->direct) {
        ck_assert_uint_le(side->have + header->body_size, BIG);
        *ret_place = side->place + side->have;
    }
    return 0;
}

static int on_frame(struct link *link, const struct frame_header *header, uint8_t *body,
                    struct err *err)
{
    struct side *side = OWNER_OF(link, struct side, link);
    if (header->kind == 98) {
        return err_set(err, ERR_PROTO, "kind 98 is not wanted");
    }
    ck_assert_uint_eq(header->generation, GENERATION);
    if (side->direct) {
        ck_assert_ptr_eq(body, side->place + side->have);
    } else {
        memcpy(side->place + side->have, body, header->body_size);
    }
    side->have += header->body_size;
    side->kinds[side->frames % 64] = header->kind;
    side->sequences[side->frames % 64] = header->sequence;
    side->frames++;
    if (side->detach_at_frame) {
        side->detached = link_detach(link);
    }
    return 0;
}

static void on_ended(struct link *link, const struct err *err)
{
    struct side *side = OWNER_OF(link, struct side, link);
    side->ended++;
    side->end = *err;
    if (side->close_at_end) {
        link_close(link);
    }
}

static void on_closed(struct link *link)
{
    OWNER_OF(link, struct side, link)->closed++;
}

static const struct link_ops ops = {.on_open = on_open,
                                    .place = place,
                                    .on_frame = on_frame,
                                    .on_ended = on_ended,
                                    .on_closed = on_closed};

static void on_sent(struct link *link, struct link_send *send, bool sent)
{
    struct side *side = OWNER_OF(link, struct side, link);
    (void)send;
    side->sent += sent;
    side->dropped += !sent;
}

static void connect_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
    fds[1] = accept(listener, NULL, NULL);
    ck_assert_int_ge(fds[1], 0);
    (void)close(listener);
}

static int pair[2];
static struct test_folder folder;
static struct trust *trusts[2]; /* NULL: plain text */

static void set_up(void)
{
    struct err err = {0};
    memset(&left, 0, sizeof(left));
    memset(&right, 0, sizeof(right));
    left.place = malloc(BIG + 4096);
    right.place = malloc(BIG + 4096);
    left.close_at_end = true;
    right.close_at_end = true;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    connect_pair(pair);
    struct transport transports[2];
    ck_assert_int_eq(transport_dial(&transports[0], trusts[0], pair[0], "b", &err), 0);
    ck_assert_int_eq(transport_accept(&transports[1], trusts[1], pair[1], false, &err), 0);
    ck_assert_int_eq(link_take(&left.link, &loop, &transports[0], &ops, BIG, &err), 0);
    ck_assert_int_eq(link_take(&right.link, &loop, &transports[1], &ops, BIG, &err), 0);
}

/* The same over TLS. */
static void set_up_secure(void)
{
    static const char *const names[] = {"a", "b"};
    trust_open_nodes(&folder, "test", names, 2, trusts);
    set_up();
}

static void tear_down(void)
{
    link_close(&left.link);
    link_close(&right.link);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(left.closed, 1);
    ck_assert_int_eq(right.closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    free(left.place);
    free(right.place);
}

static void tear_down_secure(void)
{
    tear_down();
    trust_free(trusts[0]);
    trust_free(trusts[1]);
    test_folder_close(&folder);
}

static void run_until(const int *counter, int wanted)
{
    uint64_t end_ms = clock_now_ms() + 60000;
    while (*counter < wanted && clock_now_ms() < end_ms) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert_int_ge(*counter, wanted);
}

static uint8_t *some_bytes(size_t size, uint8_t seed)
{
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 31 + seed + (i >> 9));
    }
    return bytes;
}

static struct link_send send_of(uint16_t kind, uint64_t sequence, const uint8_t *bytes, size_t size)
{
    return (struct link_send){.kind = kind,
                              .generation = GENERATION,
                              .sequence = sequence,
                              .bytes = bytes,
                              .size = size,
                              .on_sent = on_sent};
}

START_TEST(a_large_send_is_cut_and_received_in_place_both_ways)
{
    uint8_t *bytes[2] = {some_bytes(BIG, 1), some_bytes(BIG, 2)};
    struct link_send sends[2] = {send_of(20, 7, bytes[0], BIG), send_of(21, 8, bytes[1], BIG)};
    left.direct = true;
    right.direct = _i == 0;
    left.link.piece_size = LINK_PIECE_SIZE;
    right.link.piece_size = LINK_PIECE_SIZE;
    link_send(&left.link, &sends[0], 0);
    link_send(&right.link, &sends[1], 1);
    run_until(&right.frames, BIG / LINK_PIECE_SIZE);
    run_until(&left.frames, BIG / LINK_PIECE_SIZE);
    ck_assert_mem_eq(right.place, bytes[0], BIG);
    ck_assert_mem_eq(left.place, bytes[1], BIG);
    ck_assert_uint_eq(right.sequences[3], 7);
    ck_assert_int_eq(left.sent, 1);
    ck_assert_int_eq(right.sent, 1);
    ck_assert_uint_eq(left.link.queued_size, 0);
    ck_assert_uint_eq(left.link.bytes_out, BIG + BIG / LINK_PIECE_SIZE * FRAME_HEADER_SIZE);
    ck_assert_uint_eq(right.link.bytes_in, left.link.bytes_out);
    ck_assert_uint_eq(right.link.frames_in, left.link.frames_out);
    free(bytes[0]);
    free(bytes[1]);
}
END_TEST

START_TEST(an_urgent_send_overtakes_a_large_one)
{
    uint8_t *bytes = some_bytes(BIG, 1);
    struct link_send slow = send_of(20, 0, bytes, BIG);
    struct link_send urgent = send_of(21, 0, bytes, 8);
    left.link.piece_size = 65536;
    link_send(&left.link, &slow, 1);
    link_send(&left.link, &urgent, 0);
    run_until(&right.frames, 1 + BIG / 65536);
    int at = 0;
    while (at < 48 && right.kinds[at] != 21) {
        at++;
    }
    ck_assert_int_lt(at, 40);
    ck_assert_int_eq(left.sent, 2);
    free(bytes);
}
END_TEST

START_TEST(empty_and_many_small_frames_keep_their_order)
{
    struct link_send sends[50];
    uint8_t *bytes = some_bytes(64, 3);
    for (size_t i = 0; i < 50; i++) {
        sends[i] = send_of((uint16_t)(20 + i), i, bytes, i % 3 == 0 ? 0 : i);
        link_send(&left.link, &sends[i], 0);
    }
    run_until(&right.frames, 50);
    for (size_t i = 0; i < 50; i++) {
        ck_assert_uint_eq(right.kinds[i], 20 + i);
        ck_assert_uint_eq(right.sequences[i], i);
    }
    ck_assert_int_eq(left.sent, 50);
    free(bytes);
}
END_TEST

START_TEST(end_of_file_is_the_peers_death)
{
    link_close(&left.link);
    run_until(&right.ended, 1);
    ck_assert_int_eq(right.end.code, ERR_PEER);
    ck_assert_str_eq(right.end.text, "closed the connection");
}
END_TEST

START_TEST(closing_answers_what_is_queued)
{
    uint8_t *bytes = some_bytes(BIG, 1);
    struct link_send sends[3] = {send_of(20, 0, bytes, BIG), send_of(21, 0, bytes, BIG),
                                 send_of(22, 0, bytes, 5)};
    link_send(&left.link, &sends[0], 0);
    link_send(&left.link, &sends[1], 1);
    link_send(&left.link, &sends[2], 0);
    link_close(&left.link);
    ck_assert_int_eq(left.sent + left.dropped, 3);
    ck_assert_int_ge(left.dropped, 2);
    struct link_send late = send_of(23, 0, bytes, 5);
    link_send(&left.link, &late, 0);
    ck_assert_int_eq(left.sent + left.dropped, 4);
    ck_assert(!late.queued);
    free(bytes);
}
END_TEST

START_TEST(a_farewell_drops_the_rest_and_is_the_last_word)
{
    uint8_t *bytes = some_bytes(BIG, 1);
    struct link_send rest = send_of(20, 0, bytes, 100);
    struct link_send last = send_of(25, 0, bytes, 9);
    left.link.burst = LINK_BURST; /* As if this turn had written enough: `rest` waits. */
    link_send(&left.link, &rest, 0);
    ck_assert(link_farewell(&left.link, &last));
    ck_assert_int_eq(left.dropped, 1);
    run_until(&right.ended, 1);
    ck_assert_int_eq(right.frames, 1);
    ck_assert_uint_eq(right.kinds[0], 25);
    ck_assert_str_eq(right.end.text, "closed the connection");
    free(bytes);
}
END_TEST

START_TEST(no_farewell_in_the_middle_of_a_frame)
{
    uint8_t *bytes = some_bytes(BIG, 1);
    struct link_send half = send_of(20, 0, bytes, BIG);
    struct link_send last = send_of(25, 0, bytes, 9);
    int small = 4096;
    ck_assert_int_eq(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    link_send(&left.link, &half, 0);
    ck_assert_uint_gt(left.link.out_done, 0);
    ck_assert(!link_farewell(&left.link, &last));
    ck_assert_int_eq(left.dropped, 0);
    ck_assert(!last.queued);
    link_close(&left.link);
    free(bytes);
}
END_TEST

static const struct {
    uint16_t kind;
    size_t size, limit;
    const char *says;
} bad[] = {
    {20, 101, 100, "a frame of 101 bytes came; the most here is 100"},
    {99, 5, 100, "kind 99 is not placed"},
    {98, 5, 100, "kind 98 is not wanted"},
};

START_TEST(what_is_not_wanted_ends_the_link)
{
    uint8_t *bytes = some_bytes(200, 1);
    struct link_send send = send_of(bad[_i].kind, 0, bytes, bad[_i].size);
    right.link.limit = bad[_i].limit;
    link_send(&left.link, &send, 0);
    run_until(&right.ended, 1);
    ck_assert_int_eq(right.end.code, ERR_PROTO);
    ck_assert_str_eq(right.end.text, bad[_i].says);
    run_until(&right.closed, 1);
    ck_assert_ptr_null(right.link.buffer);
    free(bytes);
}
END_TEST

START_TEST(a_detached_descriptor_has_every_byte_behind_the_frame)
{
    uint8_t *bytes = some_bytes(200, 1);
    char rest[256];
    struct link_send first = send_of(20, 0, bytes, 50);
    struct link_send second = send_of(21, 1, bytes, 60);
    right.link.one_frame = true;
    link_send(&left.link, &first, 0);
    link_send(&left.link, &second, 0);
    right.detach_at_frame = true;
    run_until(&right.frames, 1);
    ck_assert_int_eq(right.frames, 1);
    ck_assert_int_eq(recv(right.detached.fd, rest, sizeof(rest), 0), FRAME_HEADER_SIZE + 60);
    transport_close(&right.detached);
    free(bytes);
}
END_TEST

START_TEST(a_refused_dial_ends_with_the_reason)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static struct side dialler;
    struct err err = {0};
    memset(&dialler, 0, sizeof(dialler));
    dialler.close_at_end = true;
    struct link_target target = {&address, NULL, "x"};
    if (link_dial(&dialler.link, &loop, &target, &ops, 100, &err) == 0) {
        run_until(&dialler.closed, 1);
        err = dialler.end;
    }
    ck_assert_int_eq(err.code, ERR_REACH);
    ck_assert_str_eq(err.text, "Connection refused");
    ck_assert_int_eq(dialler.opened, 0);
}
END_TEST

/* ---------------------------------------------------------------- the seam */

/* A transport that changes every byte and moves few at a time, as TLS would. */
static ssize_t odd_read(struct transport *transport, const struct iovec *parts, int parts_count,
                        struct err *err)
{
    size_t total = 0;
    for (int p = 0; p < parts_count; p++) {
        uint8_t *bytes = parts[p].iov_base;
        for (size_t at = 0; at < parts[p].iov_len;) {
            size_t now = parts[p].iov_len - at < 7 ? parts[p].iov_len - at : 7;
            ssize_t got = recv(transport->fd, bytes + at, now, 0);
            if (got == 0) {
                (void)err_set(err, ERR_PEER, "closed the connection");
                return total > 0 ? (ssize_t)total : -1;
            }
            if (got < 0) {
                return (ssize_t)total;
            }
            for (size_t i = 0; i < (size_t)got; i++) {
                bytes[at + i] ^= 0x5A;
            }
            at += (size_t)got;
            total += (size_t)got;
        }
    }
    return (ssize_t)total;
}

static ssize_t odd_write(struct transport *transport, const struct iovec *parts, int parts_count,
                         struct err *err)
{
    uint8_t bytes[5];
    (void)err;
    for (int p = 0; p < parts_count; p++) {
        size_t now = parts[p].iov_len < 5 ? parts[p].iov_len : 5;
        for (size_t i = 0; i < now; i++) {
            bytes[i] = ((const uint8_t *)parts[p].iov_base)[i] ^ 0x5A;
        }
        if (now > 0) {
            ssize_t sent = send(transport->fd, bytes, now, MSG_NOSIGNAL);
            return sent > 0 ? sent : 0;
        }
    }
    return 0;
}

static bool odd_is_ready(const struct transport *transport)
{
    (void)transport;
    return true;
}

static bool odd_wants_write(const struct transport *transport)
{
    (void)transport;
    return false;
}

static void odd_shut(struct transport *transport)
{
    (void)shutdown(transport->fd, SHUT_WR);
}

static void odd_done(struct transport *transport)
{
    *(int *)transport->state += 1;
}

START_TEST(the_seam_bears_a_transport_that_changes_and_cuts_everything)
{
    static const struct transport_ops odd = {.read = odd_read,
                                             .write = odd_write,
                                             .wants_write = odd_wants_write,
                                             .is_ready = odd_is_ready,
                                             .shut = odd_shut,
                                             .done = odd_done};
    int done = 0;
    uint8_t *bytes = some_bytes(5000, 1);
    struct link_send sends[3] = {send_of(20, 0, bytes, 5000), send_of(21, 1, bytes, 0),
                                 send_of(22, 2, bytes, 77)};
    left.link.transport.ops = &odd;
    left.link.transport.state = &done;
    right.link.transport.ops = &odd;
    right.link.transport.state = &done;
    left.link.piece_size = 1000;
    for (int i = 0; i < 3; i++) {
        link_send(&left.link, &sends[i], 0);
    }
    run_until(&right.frames, 7);
    ck_assert_mem_eq(right.place, bytes, 5000);
    ck_assert_mem_eq(right.place + 5000, bytes, 77);
    ck_assert_int_eq(left.sent, 3);
    link_close(&left.link);
    run_until(&right.ended, 1);
    run_until(&done, 2);
    free(bytes);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("link");
    TCase *tcase = tcase_create("link");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, a_large_send_is_cut_and_received_in_place_both_ways, 0, 2);
    tcase_add_test(tcase, an_urgent_send_overtakes_a_large_one);
    tcase_add_test(tcase, empty_and_many_small_frames_keep_their_order);
    tcase_add_test(tcase, end_of_file_is_the_peers_death);
    tcase_add_test(tcase, closing_answers_what_is_queued);
    tcase_add_test(tcase, a_farewell_drops_the_rest_and_is_the_last_word);
    tcase_add_test(tcase, no_farewell_in_the_middle_of_a_frame);
    tcase_add_loop_test(tcase, what_is_not_wanted_ends_the_link, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tcase, a_detached_descriptor_has_every_byte_behind_the_frame);
    tcase_add_test(tcase, a_refused_dial_ends_with_the_reason);
    tcase_add_test(tcase, the_seam_bears_a_transport_that_changes_and_cuts_everything);
    suite_add_tcase(suite, tcase);
    TCase *secure = tcase_create("secure");
    tcase_set_timeout(secure, 120);
    tcase_add_checked_fixture(secure, set_up_secure, tear_down_secure);
    tcase_add_loop_test(secure, a_large_send_is_cut_and_received_in_place_both_ways, 0, 2);
    tcase_add_test(secure, an_urgent_send_overtakes_a_large_one);
    tcase_add_test(secure, empty_and_many_small_frames_keep_their_order);
    tcase_add_test(secure, closing_answers_what_is_queued);
    suite_add_tcase(suite, secure);
    return suite;
}

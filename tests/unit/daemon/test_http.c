#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/http.h"
#include "tests/lib/unit.h"

static uv_loop_t loop;
static struct http *http;

static unsigned on_answer(void *context, enum http_path path, bool verbose, bool openmetrics,
                          struct buf *body)
{
    (void)context;
    buf_print(body, "%s%s%s\n", http_path_text(path), verbose ? " verbose" : "",
              openmetrics ? " openmetrics" : "");
    return path == HTTP_READYZ ? 503 : 200;
}

static void start(const char *token)
{
    struct err err = {0};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct http_settings settings = {.answer = on_answer};
    settings.listen.sin_family = AF_INET;
    settings.listen.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)snprintf(settings.token, sizeof(settings.token), "%s", token);
    int status = http_open(&loop, &settings, &http, &err);
    ck_assert_msg(status == 0, "%s", err.text);
}

static void stop(void)
{
    http_close(http, NULL, NULL);
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0) {
    }
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* At least so long, and so many turns: on a busy machine a turn may take long. */
static void turn_for(uint64_t ms)
{
    uint64_t end = clock_now_ms() + ms;
    for (uint64_t turns = 0; clock_now_ms() < end || turns < ms; turns++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(500);
    }
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(http_port(http)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Reads while the loop turns, until the end of the connection (true) or ms, and as many turns, are
 * over. */
static bool hear(int fd, char *text, size_t capacity, uint64_t ms)
{
    uint64_t end = clock_now_ms() + ms;
    size_t size = 0;
    text[0] = '\0';
    for (uint64_t turns = 0; clock_now_ms() < end || turns < (ms < 1000 ? ms : 1000); turns++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t got = recv(fd, text + size, capacity - 1 - size, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            return true;
        }
        if (got > 0) {
            size += (size_t)got;
            text[size] = '\0';
        }
        (void)usleep(500);
    }
    return false;
}

/* Sends, hears; says whether the connection was closed within 300 ms. */
static bool ask(const char *request, char *reply, size_t capacity)
{
    int fd = dial();
    size_t size = strlen(request);
    ck_assert_int_eq(send(fd, request, size, MSG_NOSIGNAL), (ssize_t)size);
    bool closed = hear(fd, reply, capacity, 300);
    (void)close(fd);
    turn_for(5);
    return closed;
}

#define STATUS(reply, code) \
    ck_assert_msg(strncmp((reply), "HTTP/1.1 " code " ", 13) == 0, "not %s: %.80s", code, (reply))

START_TEST(answers_and_keeps_the_connection)
{
    char reply[8192];
    start("");
    ck_assert(!ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply)));
    STATUS(reply, "200");
    ck_assert_ptr_nonnull(strstr(reply, "text/plain; version=0.0.4"));
    ck_assert_ptr_nonnull(strstr(reply, "\r\n\r\n/metrics\n"));
    (void)ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n",
              reply, sizeof(reply));
    ck_assert_ptr_nonnull(strstr(reply, "\r\n\r\n/metrics openmetrics\n"));
    (void)ask("GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "503");
    ck_assert_ptr_nonnull(strstr(reply, "/readyz verbose\n"));
    (void)ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "200");
    (void)ask("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "200");
    ck_assert_ptr_null(strstr(reply, "<html"));
    (void)ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    ck_assert_ptr_nonnull(strstr(reply, "<html"));
    ck_assert_ptr_nonnull(strstr(reply, "Content-Security-Policy: default-src 'none'"));
    ck_assert_ptr_null(strstr(reply, "http://")); /* No external resources. */
    ck_assert_uint_eq(http_stats(http)->requests[HTTP_METRICS][0], 2);
    stop();
}
END_TEST

static const struct {
    const char *request;
    const char *code;
} refused[] = {
    {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "405"},
    {"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
    {"GET /metrics HTTP/1.1\r\n\r\n", "400"},
    {"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"},
    {"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "413"},
    {"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "501"},
    {"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
     "501"},
    {"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
    {"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
};

START_TEST(refuses_and_closes)
{
    char reply[8192];
    start("");
    bool closed = ask(refused[_i].request, reply, sizeof(reply));
    ck_assert_msg(strlen(reply) > 12 && strncmp(reply + 9, refused[_i].code, 3) == 0,
                  "not %s: %.60s", refused[_i].code, reply);
    ck_assert(closed);
    ck_assert_ptr_null(strstr(reply + 9, "HTTP/1.1 200")); /* Nothing behind it is answered. */
    stop();
}
END_TEST

START_TEST(a_head_over_8_kib_is_refused)
{
    char reply[8192];
    char *request = calloc(1, 20000);
    start("");
    int size = snprintf(request, 20000, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ");
    memset(request + size, 'a', 8200);
    memcpy(request + size + 8200, "\r\n\r\n", 5);
    ck_assert(ask(request, reply, sizeof(reply)));
    STATUS(reply, "431");
    memset(request + size, 'a', 16000); /* More than the pool: the library's own refusal. */
    memcpy(request + size + 16000, "\r\n\r\n", 5);
    ck_assert(ask(request, reply, sizeof(reply)));
    ck_assert_ptr_null(strstr(reply, " 200 "));
    memset(request + size, 'a', 4000);
    memcpy(request + size + 4000, "\r\n\r\n", 5);
    (void)ask(request, reply, sizeof(reply));
    STATUS(reply, "200");
    free(request);
    stop();
}
END_TEST

START_TEST(garbage_gets_no_answer_of_ours)
{
    char reply[8192];
    start("");
    ck_assert(ask("\x16\x03\x01 hello\r\nHost: x\r\n\r\n", reply, sizeof(reply)));
    ck_assert_ptr_null(strstr(reply, " 200 "));
    stop();
}
END_TEST

START_TEST(a_silent_client_is_cut_after_five_seconds)
{
    char reply[8192];
    start("");
    int fd = dial();
    uint64_t began_ms = clock_now_ms();
    ck_assert_int_eq(send(fd, "GET /met", 8, MSG_NOSIGNAL), 8);
    ck_assert(hear(fd, reply, sizeof(reply), 50000));
    uint64_t took_ms = clock_now_ms() - began_ms;
    ck_assert_uint_ge(took_ms, 4000);
    (void)close(fd);
    stop();
}
END_TEST

START_TEST(a_client_that_drips_is_cut_too)
{
    char reply[8192];
    start("");
    int fd = dial();
    bool closed = false;
    for (unsigned i = 0; i < 100 && !closed; i++) {
        (void)send(fd, i == 0 ? "GET /metrics HTTP/1.1\r\nX: " : "a", i == 0 ? 26 : 1,
                   MSG_NOSIGNAL);
        closed = hear(fd, reply, sizeof(reply), 500);
    }
    ck_assert(closed);
    (void)close(fd);
    stop();
}
END_TEST

START_TEST(of_64_connections_the_oldest_makes_way_for_the_next)
{
    char reply[8192];
    int fds[HTTP_CONNECTIONS_MAX];
    start("");
    for (unsigned i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        fds[i] = dial();
        turn_for(1);
    }
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    int late = dial(); /* The oldest makes way. */
    ck_assert_int_gt(send(late, request, sizeof(request) - 1, MSG_NOSIGNAL), 0);
    ck_assert(hear(late, reply, sizeof(reply), 50000));
    STATUS(reply, "200");
    ck_assert(hear(fds[0], reply, sizeof(reply), 50000)); /* It was ended. */
    (void)close(fds[0]);
    (void)close(late);
    for (unsigned i = 1; i < HTTP_CONNECTIONS_MAX; i++) {
        (void)close(fds[i]);
    }
    turn_for(20);
    (void)ask(request, reply, sizeof(reply));
    STATUS(reply, "200");
    stop();
}
END_TEST

START_TEST(the_token_guards_what_tells_something)
{
    char reply[8192];
    start("0123456789abcdef");
    (void)ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "401");
    (void)ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdeX\r\n\r\n",
              reply, sizeof(reply));
    STATUS(reply, "401");
    (void)ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcde\r\n\r\n",
              reply, sizeof(reply));
    STATUS(reply, "401");
    (void)ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
              reply, sizeof(reply));
    STATUS(reply, "200");
    (void)ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "200");
    (void)ask("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "503"); /* on_answer's, and no 401 */
    (void)ask("GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n", reply, sizeof(reply));
    STATUS(reply, "401");
    http_set_token(http, "another-token-of-16");
    (void)ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
              reply, sizeof(reply));
    STATUS(reply, "401");
    stop();
}
END_TEST

START_TEST(a_taken_port_is_one_sentence)
{
    start("");
    struct err err = {0};
    struct http *second = NULL;
    struct http_settings settings = {.answer = on_answer};
    settings.listen.sin_family = AF_INET;
    settings.listen.sin_port = htons(http_port(http));
    settings.listen.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(http_open(&loop, &settings, &second, &err), ERR_CONFIG);
    char want[256];
    (void)snprintf(
        want, sizeof(want),
        "http.listen: port %u of 127.0.0.1 is taken by another program; stop it (`ss -ltnp "
        "'sport = :%u'` names it) or set another http.listen",
        http_port(http), http_port(http));
    ck_assert_str_eq(err.text, want);
    settings.listen.sin_addr.s_addr = htonl(0xC6336401); /* 198.51.100.1, for documentation only. */
    settings.listen.sin_port = 0;
    ck_assert_int_eq(http_open(&loop, &settings, &second, &err), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "198.51.100.1 is no address of this machine"));
    stop();
}
END_TEST

START_TEST(a_token_file_must_be_private_and_long)
{
    char path[] = "token-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    char token[HTTP_TOKEN_MAX];
    struct err err = {0};
    ck_assert_int_eq(write(fd, "short\n", 6), 6);
    ck_assert_int_eq(http_token_read(path, token, &err), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "16 to 255 visible ASCII characters"));
    ck_assert_int_eq(pwrite(fd, "0123456789abcdef\r\n", 18, 0), 18);
    ck_assert_int_eq(http_token_read(path, token, &err), 0);
    ck_assert_str_eq(token, "0123456789abcdef");
    ck_assert_int_eq(fchmod(fd, 0644), 0);
    ck_assert_int_eq(http_token_read(path, token, &err), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "may be read or changed by others"));
    (void)close(fd);
    (void)unlink(path);
    ck_assert_int_eq(http_token_read(path, token, &err), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "openssl rand -hex 32"));
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("http");
    TCase *tcase = tcase_create("window");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, answers_and_keeps_the_connection);
    tcase_add_loop_test(tcase, refuses_and_closes, 0, (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tcase, a_head_over_8_kib_is_refused);
    tcase_add_test(tcase, garbage_gets_no_answer_of_ours);
    tcase_add_test(tcase, a_silent_client_is_cut_after_five_seconds);
    tcase_add_test(tcase, a_client_that_drips_is_cut_too);
    tcase_add_test(tcase, of_64_connections_the_oldest_makes_way_for_the_next);
    tcase_add_test(tcase, the_token_guards_what_tells_something);
    tcase_add_test(tcase, a_taken_port_is_one_sentence);
    tcase_add_test(tcase, a_token_file_must_be_private_and_long);
    suite_add_tcase(suite, tcase);
    return suite;
}

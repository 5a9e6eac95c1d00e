/* Whatever bytes come to the HTTP port, in pieces of the size that the first byte says: every
 * answer is one of the codes that we give, nothing that asks for a token is told to who does not
 * have it, nothing but GET and HEAD reaches the daemon's answers, and the connection is gone
 * afterwards. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/http.h"
#include "dial.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKEN  "0123456789abcdef"
#define ANSWER "the-daemon-said"

static uv_loop_t loop;
static struct http *http;
static unsigned answered;

static unsigned on_answer(void *context, enum http_path path, bool verbose, bool openmetrics,
                          struct buf *body)
{
    (void)context;
    (void)verbose;
    ASSERT(path == HTTP_METRICS || path == HTTP_READYZ || path == HTTP_STATUS ||
           path == HTTP_TARGETS);
    ASSERT(!openmetrics || path == HTTP_METRICS);
    answered += path != HTTP_READYZ;
    buf_print(body, "%s\n", path == HTTP_READYZ ? "ready" : ANSWER);
    return 200;
}

static void turn(unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void done(void)
{
    http_close(http, NULL, NULL);
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0) {
    }
    ASSERT(uv_loop_close(&loop) == 0);
}

static void begin(void)
{
    struct err err = {0};
    struct http_settings settings = {.token = TOKEN, .answer = on_answer};
    settings.listen.sin_family = AF_INET;
    settings.listen.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(uv_loop_init(&loop) == 0);
    ASSERT(http_open(&loop, &settings, &http, &err) == 0);
    ASSERT(atexit(done) == 0);
    turn(2);
}

static size_t hear(int fd, char *out, size_t size)
{
    size_t heard = 0;
    for (;;) {
        ssize_t got = recv(fd, out + heard, size - heard, MSG_DONTWAIT);
        if (got <= 0) {
            return heard;
        }
        heard += (size_t)got;
    }
}

static uint64_t counted(void)
{
    uint64_t sum = 0;
    for (unsigned path = 0; path < HTTP_PATHS; path++) {
        for (unsigned code = 0; code < HTTP_CODES; code++) {
            sum += http_stats(http)->requests[path][code];
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char out[1U << 18];
    if (size < 2 || size > 32768) {
        return 0;
    }
    if (http == NULL) {
        begin();
    }
    size_t piece = data[0] % 4 == 0 ? size : 1U + data[0] * 8U;
    bool knows = memmem(data, size, TOKEN, strlen(TOKEN)) != NULL;
    bool gets = memmem(data, size, "GET", 3) != NULL || memmem(data, size, "HEAD", 4) != NULL;
    uint64_t before = counted();
    answered = 0;
    int fd = dial(http_port(http));
    turn(2);
    size_t heard = 0;
    for (size_t at = 1; at < size; at += piece) {
        size_t now = size - at < piece ? size - at : piece;
        if (send(fd, data + at, now, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            break;
        }
        turn(2);
        heard += hear(fd, out + heard, sizeof(out) - 1 - heard);
    }
    (void)shutdown(fd, SHUT_WR);
    turn(4);
    heard += hear(fd, out + heard, sizeof(out) - 1 - heard);
    out[heard] = '\0';
    ASSERT(heard == 0 || strncmp(out, "HTTP/1.", 7) == 0);
    ASSERT(knows || answered == 0);
    ASSERT(gets || memmem(out, heard, "HTTP/1.1 200", 12) == NULL);
    ASSERT(knows || memmem(out, heard, ANSWER, strlen(ANSWER)) == NULL);
    ASSERT(counted() - before <= size); /* A request has more than a byte. */
    (void)close(fd);
    turn(2);
    return 0;
}

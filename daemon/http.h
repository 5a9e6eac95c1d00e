/* The daemon's window for people and Prometheus: GET and HEAD on a port of its own, nothing else.
 *
 *   /metrics          the exposition; OpenMetrics where Accept asks for it
 *   /healthz /livez   200 while the loop turns
 *   /readyz           200 where every check is ok, else 503; ?verbose: a line a check
 *   /api/v1/status    JSON, what the page shows
 *   /api/v1/targets   JSON, Prometheus' HTTP service discovery: every member's address
 *   / /page.js /page.css   the status page, static
 *
 * Nothing can be changed through it. libmicrohttpd parses; its epoll descriptor and its timeout
 * are polled by the loop, so every answer is made on the loop. Limits: a head of 8 KiB, 64
 * connections (for one more the oldest request of the address with the most makes way), 5 s without
 * a byte, 10 s for a request as a whole; no body; after every error the connection is closed. Where
 * a token is set, metrics, targets and status need `Authorization: Bearer TOKEN`; health and the
 * empty page do not. */
#ifndef COPPELIUS_DAEMON_HTTP_H
#define COPPELIUS_DAEMON_HTTP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

#define HTTP_HEAD_MAX        8192
#define HTTP_CONNECTIONS_MAX 64
#define HTTP_SOCKETS_MAX     128 /* with those that are being ended */
#define HTTP_IDLE_S          5
#define HTTP_REQUEST_MS      10000
#define HTTP_TOKEN_MAX       256

#define HTTP_PATH_MAP(X)               \
    X(HTTP_METRICS, "/metrics")        \
    X(HTTP_HEALTHZ, "/healthz")        \
    X(HTTP_LIVEZ, "/livez")            \
    X(HTTP_READYZ, "/readyz")          \
    X(HTTP_STATUS, "/api/v1/status")   \
    X(HTTP_TARGETS, "/api/v1/targets") \
    X(HTTP_PAGE, "/")                  \
    X(HTTP_PAGE_JS, "/page.js")        \
    X(HTTP_PAGE_CSS, "/page.css")

#define HTTP_ENUM(name, path) name,
enum http_path { HTTP_PATH_MAP(HTTP_ENUM) HTTP_OTHER, HTTP_PATHS };
#undef HTTP_ENUM

#define HTTP_CODES 10

struct http_stats {
    uint64_t requests[HTTP_PATHS][HTTP_CODES]; /* by path and http_code() */
};

/* The status code counted at an index below HTTP_CODES. */
unsigned http_code(unsigned index);
const char *http_path_text(enum http_path path); /* "other" for HTTP_OTHER */

/* What a path answers: fills body; returns the status code. The owner's, on the loop. verbose and
 * openmetrics are what the request asked for. Only METRICS, READYZ, STATUS and TARGETS come. */
typedef unsigned http_answer_fn(void *context, enum http_path path, bool verbose, bool openmetrics,
                                struct buf *ret_body);

struct http;

struct http_settings {
    struct sockaddr_in listen;
    char token[HTTP_TOKEN_MAX]; /* "": none is asked for */
    http_answer_fn *answer;
    void *context;
};

/* Binds and listens. ERR_CONFIG with the address and what to do where that is not possible (taken,
 * not this machine's). */
int http_open(uv_loop_t *loop, const struct http_settings *settings, struct http **ret_http,
              struct err *err);
/* Ends every connection; on_closed (may be NULL) comes on the loop, and http is gone then. */
void http_close(struct http *http, void (*on_closed)(void *context), void *context);

/* Another token from now on (SIGHUP). */
void http_set_token(struct http *http, const char *token);
/* The bound port: of use where 0 was asked for. */
uint16_t http_port(const struct http *http);
const struct http_stats *http_stats(const struct http *http);

/* Reads a token file: one line of 16 to 255 visible ASCII characters, not readable by others. */
int http_token_read(const char *path, char token[HTTP_TOKEN_MAX], struct err *err);
/* Takes the same time whatever the bytes are, so that the token cannot be guessed piece by piece.
 */
bool http_token_is(const char *given, const char *token);

#endif

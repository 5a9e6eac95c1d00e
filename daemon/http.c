#include "daemon/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/http_peers.h"
#include "daemon/page.h"

struct http {
    uv_poll_t poll;   /* on libmicrohttpd's epoll descriptor */
    uv_timer_t timer; /* its timeout, and the sweep of slow requests */
    unsigned handles_open;
    bool closing;
    struct MHD_Daemon *daemon;
    uint16_t port;
    struct http_settings settings;
    struct http_stats stats;
    struct http_peers peers;
    void (*on_closed)(void *context);
    void *on_closed_context;
};

static const unsigned codes[HTTP_CODES] = {200, 400, 401, 404, 405, 413, 431, 500, 501, 503};

#define HTTP_TEXT(name, path) [name] = path,
static const char *const paths[HTTP_PATHS] = {HTTP_PATH_MAP(HTTP_TEXT)[HTTP_OTHER] = "other"};
#undef HTTP_TEXT

unsigned http_code(unsigned index)
{
    ASSERT(index < HTTP_CODES);
    return codes[index];
}

const char *http_path_text(enum http_path path)
{
    ASSERT(path < HTTP_PATHS);
    return paths[path];
}

static enum http_path find_path(const char *url)
{
    for (unsigned path = 0; path < HTTP_OTHER; path++) {
        if (strcmp(paths[path], url) == 0) {
            return (enum http_path)path;
        }
    }
    return HTTP_OTHER;
}

static void count(struct http *http, enum http_path path, unsigned code)
{
    for (unsigned i = 0; i < HTTP_CODES; i++) {
        if (codes[i] == code) {
            http->stats.requests[path][i]++;
            return;
        }
    }
    ASSERT(false); /* Every code that is answered is in the list. */
}

/* ?verbose has no value: the lookup answers NULL for it, and for what is absent too. */
static bool is_verbose(struct MHD_Connection *connection)
{
    const char *value = NULL;
    size_t value_size = 0;
    return MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND, "verbose",
                                         strlen("verbose"), &value, &value_size) == MHD_YES;
}

/* Everybody may have the page, which is the same everywhere, and a yes or no; not the reasons. */
static bool may(const struct http *http, struct MHD_Connection *connection, enum http_path path)
{
    bool open_to_all = path == HTTP_HEALTHZ || path == HTTP_LIVEZ || path == HTTP_READYZ ||
                       path == HTTP_PAGE || path == HTTP_PAGE_JS || path == HTTP_PAGE_CSS;
    open_to_all = open_to_all && (path != HTTP_READYZ || !is_verbose(connection));
    if (http->settings.token[0] == '\0' || open_to_all) {
        return true;
    }
    const char *given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    static const char scheme[] = "Bearer ";
    return given != NULL && strncasecmp(given, scheme, sizeof(scheme) - 1) == 0 &&
           http_token_is(given + sizeof(scheme) - 1, http->settings.token);
}

struct head {
    unsigned hosts;
    unsigned lengths;
    bool has_transfer_encoding;
    bool has_body;
};

static enum MHD_Result on_header(void *context, enum MHD_ValueKind kind, const char *key,
                                 const char *value)
{
    (void)kind;
    struct head *head = context;
    head->hosts += strcasecmp(key, MHD_HTTP_HEADER_HOST) == 0;
    head->has_transfer_encoding |= strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    if (strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        head->lengths++;
        head->has_body |= value == NULL || strcmp(value, "0") != 0;
    }
    return MHD_YES;
}

static enum MHD_Result respond(struct http *http, struct MHD_Connection *connection,
                               enum http_path path, unsigned code, const char *type,
                               const void *bytes, size_t size, enum MHD_ResponseMemoryMode mode)
{
    union {
        const void *in;
        void *out;
    } body = {.in = bytes}; /* libmicrohttpd's prototype has no const; it does not write. */
    struct MHD_Response *response = MHD_create_response_from_buffer(size, body.out, mode);
    if (response == NULL) {
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Content-Security-Policy",
                                  "default-src 'none'; script-src 'self'; style-src 'self'; "
                                  "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                                  "frame-ancestors 'none'");
    if (code >= 400 && code != 503) { /* "Not ready" is an answer, no error of the client's. */
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    if (code == 405) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    if (code == 401) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                      "Bearer realm=\"coppeliusd\"");
    }
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    if (result == MHD_YES) {
        count(http, path, code);
    }
    return result;
}

static enum MHD_Result refuse(struct http *http, struct MHD_Connection *connection,
                              enum http_path path, unsigned code, const char *sentence)
{
    return respond(http, connection, path, code, "text/plain; charset=utf-8", sentence,
                   strlen(sentence), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result answer(struct http *http, struct MHD_Connection *connection,
                              enum http_path path)
{
    const struct page_file *file = NULL;
    if (path == HTTP_HEALTHZ || path == HTTP_LIVEZ) {
        return refuse(http, connection, path, 200, "ok\n");
    }
    if (path == HTTP_PAGE) {
        file = &page_html;
    } else if (path == HTTP_PAGE_JS) {
        file = &page_js;
    } else if (path == HTTP_PAGE_CSS) {
        file = &page_css;
    }
    if (file != NULL) {
        return respond(http, connection, path, 200, file->type, file->bytes, page_size(file),
                       MHD_RESPMEM_PERSISTENT);
    }
    bool verbose = is_verbose(connection);
    const char *accept =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    bool openmetrics = path == HTTP_METRICS && accept != NULL &&
                       strstr(accept, "application/openmetrics-text") != NULL;
    struct buf body = BUF_NONE;
    unsigned code =
        http->settings.answer(http->settings.context, path, verbose, openmetrics, &body);
    const char *type = "application/json";
    if (path == HTTP_METRICS) {
        type = openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                           : "text/plain; version=0.0.4; charset=utf-8";
    } else if (path == HTTP_READYZ) {
        type = "text/plain; charset=utf-8";
    }
    enum MHD_Result result =
        respond(http, connection, path, code, type, body.bytes, body.size, MHD_RESPMEM_MUST_COPY);
    buf_done(&body);
    return result;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
    (void)version;
    (void)upload;
    struct http *http = context;
    enum http_path path = find_path(url);
    if (*request != NULL) { /* The second call: the head was found good, and there is no body. */
        if (*upload_size != 0) {
            return MHD_NO;
        }
        return answer(http, connection, path);
    }
    /* The first call. Answering here closes the connection without reading on. */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info != NULL && info->header_size > HTTP_HEAD_MAX) {
        return refuse(http, connection, path, 431, "the head is over 8 KiB\n");
    }
    struct head head = {0};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, &head);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return refuse(http, connection, path, 405,
                      "only GET and HEAD; what changes anything goes through coppeliusctl\n");
    }
    if (head.hosts != 1) {
        return refuse(http, connection, path, 400, "exactly one Host header is due\n");
    }
    if (head.has_transfer_encoding) {
        return refuse(http, connection, path, 501, "no Transfer-Encoding is taken here\n");
    }
    if (head.lengths > 1) {
        return refuse(http, connection, path, 400, "more than one Content-Length\n");
    }
    if (head.has_body) {
        return refuse(http, connection, path, 413, "no body is taken here\n");
    }
    if (path == HTTP_OTHER) {
        return refuse(http, connection, path, 404,
                      "not found; there are /, /metrics, /healthz, /readyz, /api/v1/status and "
                      "/api/v1/targets\n");
    }
    if (!may(http, connection, path)) {
        return refuse(http, connection, path, 401,
                      "a bearer token is due: Authorization: Bearer, then the content of "
                      "http.token_file\n");
    }
    *request = http; /* Any non-NULL: seen. */
    return MHD_YES;
}

static int fd_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    ASSERT(info != NULL);
    return info->connect_fd;
}

static uint32_t address_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct sockaddr_in address = {0};
    if (info != NULL && info->client_addr != NULL && info->client_addr->sa_family == AF_INET) {
        memcpy(&address, info->client_addr, sizeof(address));
    }
    return address.sin_addr.s_addr;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)socket_context;
    struct http *http = context;
    int fd = fd_of(connection);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        http_peers_come(&http->peers, fd, address_of(connection), clock_now_ms());
    } else {
        http_peers_go(&http->peers, fd);
    }
}

static void on_completed(void *context, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode code)
{
    (void)code;
    struct http *http = context;
    *request = NULL;
    http_peers_answered(&http->peers, fd_of(connection), clock_now_ms());
}

static void turn(struct http *http);

static void on_timer(uv_timer_t *timer)
{
    turn(OWNER_OF(timer, struct http, timer));
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    turn(OWNER_OF(poll, struct http, poll));
}

/* Lets libmicrohttpd do what is due, and asks when it is due again. */
static void turn(struct http *http)
{
    http_peers_sweep(&http->peers, clock_now_ms());
    (void)MHD_run(http->daemon);
    MHD_UNSIGNED_LONG_LONG timeout_ms = 1000;
    if (MHD_get_timeout(http->daemon, &timeout_ms) != MHD_YES || timeout_ms > 1000) {
        timeout_ms = 1000; /* The sweep's period. */
    }
    int status = uv_timer_start(&http->timer, on_timer, timeout_ms, /* repeat= */ 0);
    ASSERT(status == 0);
}

static int listen_on(const struct sockaddr_in *address, uint16_t *ret_port, struct err *err)
{
    char text[INET_ADDRSTRLEN];
    ASSERT(inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != NULL);
    unsigned port = ntohs(address->sin_port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return err_set(err, ERR_CONFIG, "http.listen %s:%u: socket: %s", text, port,
                       err_errno(errno));
    }
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
                     sizeof(on)); /* Else TIME_WAIT is "taken". */
    if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
        listen(fd, HTTP_CONNECTIONS_MAX) != 0) {
        int error = errno;
        (void)close(fd);
        if (error == EADDRINUSE) {
            return err_set(err, ERR_CONFIG,
                           "http.listen: port %u of %s is taken by another program; stop it "
                           "(`ss -ltnp 'sport = :%u'` names it) or set another http.listen",
                           port, text, port);
        }
        if (error == EADDRNOTAVAIL) {
            return err_set(err, ERR_CONFIG,
                           "http.listen: %s is no address of this machine; use 127.0.0.1, 0.0.0.0 "
                           "or one that `ip -4 address` shows",
                           text);
        }
        return err_set(err, ERR_CONFIG, "http.listen %s:%u: %s", text, port, err_errno(error));
    }
    struct sockaddr_in bound;
    socklen_t bound_size = sizeof(bound);
    ASSERT(getsockname(fd, (struct sockaddr *)&bound, &bound_size) == 0);
    *ret_port = ntohs(bound.sin_port);
    return fd;
}

int http_open(uv_loop_t *loop, const struct http_settings *settings, struct http **ret_http,
              struct err *err)
{
    ASSERT(settings->answer != NULL);
    uint16_t port = 0;
    int fd = listen_on(&settings->listen, &port, err);
    if (fd < 0) {
        return fd;
    }
    struct http *http = calloc(1, sizeof(*http));
    if (http == NULL) {
        (void)close(fd);
        return err_set(err, ERR_NOMEM, "http: no memory for %zu bytes", sizeof(*http));
    }
    http->settings = *settings;
    http->port = port;
    http_peers_init(&http->peers);
    /* The pool holds the head and, behind it, the response's own head. */
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, /* port= */ 0, NULL, NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_SOCKETS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)HTTP_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEAD_MAX + 4096,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        (void)close(fd);
        free(http);
        return err_set(err, ERR_INTERNAL, "http: libmicrohttpd does not start: %s",
                       err_errno(errno));
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    ASSERT(info != NULL);
    int status = uv_poll_init(loop, &http->poll, info->epoll_fd);
    if (status != 0) {
        MHD_stop_daemon(http->daemon);
        free(http);
        return err_set(err, ERR_INTERNAL, "http: poll: %s", uv_strerror(status));
    }
    status = uv_timer_init(loop, &http->timer);
    ASSERT(status == 0);
    http->handles_open = 2;
    status = uv_poll_start(&http->poll, UV_READABLE, on_poll);
    ASSERT(status == 0);
    status = uv_timer_start(&http->timer, on_timer, 0, /* repeat= */ 0);
    ASSERT(status == 0);
    *ret_http = http;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http *http = handle->data; /* One callback for both: OWNER_OF cannot apply. */
    ASSERT(http->handles_open > 0);
    if (--http->handles_open > 0) {
        return;
    }
    void (*on_closed)(void *) = http->on_closed;
    void *context = http->on_closed_context;
    free(http);
    if (on_closed != NULL) {
        on_closed(context);
    }
}

void http_close(struct http *http, void (*on_closed)(void *context), void *context)
{
    ASSERT(!http->closing);
    http->closing = true;
    http->on_closed = on_closed;
    http->on_closed_context = context;
    (void)uv_poll_stop(&http->poll); /* Before its descriptor goes. */
    MHD_stop_daemon(http->daemon);
    http->daemon = NULL;
    http->poll.data = http;
    http->timer.data = http;
    uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    uv_close((uv_handle_t *)&http->timer, on_handle_closed);
}

void http_set_token(struct http *http, const char *token)
{
    ASSERT(strlen(token) < sizeof(http->settings.token));
    memset(http->settings.token, 0, sizeof(http->settings.token));
    memcpy(http->settings.token, token, strlen(token));
}

uint16_t http_port(const struct http *http)
{
    return http->port;
}

const struct http_stats *http_stats(const struct http *http)
{
    return &http->stats;
}

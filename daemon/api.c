#include "daemon/api.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/api_room.h"

#define GROUPS_MAX 256

static bool is_member(int fd, const char *group, gid_t primary)
{
    char text[4096];
    struct group entry;
    struct group *found = NULL;
    if (getgrnam_r(group, &entry, text, sizeof(text), &found) != 0 || found == NULL) {
        return false;
    }
    if (primary == found->gr_gid) {
        return true;
    }
    gid_t groups[GROUPS_MAX];
    socklen_t size = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) {
        return false;
    }
    for (size_t i = 0; i < size / sizeof(groups[0]); i++) {
        if (groups[i] == found->gr_gid) {
            return true;
        }
    }
    return false;
}

/* ---- room for one more ---- */

static bool is_live(const struct connection *connection)
{
    return connection->state <= CONNECTION_OPEN && connection->refusal == 0;
}

static size_t live_of(const struct api *api, uint64_t source)
{
    size_t count = 0;
    for (const struct connection *at = api->connections; at != NULL; at = at->next) {
        count += is_live(at) && at->source == source;
    }
    return count;
}

/* The one that may go: idle longest, of this source where `only`, else of the source with the
 * most. NULL: all that could go are at work. */
static struct connection *dispensable(struct api *api, uint64_t source, bool only)
{
    struct connection *found = NULL;
    size_t most = 0;
    for (struct connection *at = api->connections; at != NULL; at = at->next) {
        if (!connection_is_idle(at) || (only && at->source != source)) {
            continue;
        }
        size_t count = live_of(api, at->source);
        if (found == NULL || count > most || (count == most && at->idle_ms <= found->idle_ms)) {
            found = at; /* The list has the newest first. */
            most = count;
        }
    }
    return found;
}

/* Whether there is room, made where it must be. */
static bool make_room(struct api *api, uint64_t source)
{
    size_t live = 0;
    for (const struct connection *at = api->connections; at != NULL; at = at->next) {
        live += is_live(at);
    }
    bool crowded = live_of(api, source) >= API_OF_A_SOURCE_MAX;
    if (live < API_CONNECTIONS_MAX && !crowded) {
        return true;
    }
    struct connection *goes = dispensable(api, source, crowded);
    if (goes == NULL) {
        return false;
    }
    connection_close(goes, "idle, and another one came when there was no room");
    return true;
}

bool api_may_log(struct api *api)
{
    uint64_t now_ms = clock_now_ms();
    if (api->logged == 0 || now_ms - api->log_from_ms >= 60000) {
        api->log_from_ms = now_ms;
        api->logged = 0;
    }
    return api->logged++ < API_LOG_MAX;
}

/* Users and addresses are counted apart. */
static uint64_t source_of_user(uid_t user)
{
    return (UINT64_C(1) << 32) | user;
}

static uint64_t source_of_address(const char *from)
{
    char text[INET_ADDRSTRLEN] = "";
    struct in_addr address = {0};
    (void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(from, ":"), from);
    return inet_pton(AF_INET, text, &address) == 1 ? address.s_addr : 0;
}

/* ---- the admin socket ---- */

/* Whether who dialled may command; from gets who it is. */
static bool may(const struct api *api, int fd, char *from, size_t from_size, uint64_t *ret_source)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return false;
    }
    (void)snprintf(from, from_size, "unix:pid=%d,uid=%u", peer.pid, peer.uid);
    *ret_source = source_of_user(peer.uid);
    return peer.uid == 0 || peer.uid == geteuid() || is_member(fd, api->settings.group, peer.gid);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_dialled(uv_stream_t *listener, int status)
{
    struct api *api = OWNER_OF(listener, struct api, listener);
    if (status != 0) {
        return; /* Gone again before it was taken. */
    }
    uv_pipe_t *pipe = malloc(sizeof(*pipe));
    ASSERT(pipe != NULL);
    /* libuv accepts into a handle; the connection object wants the descriptor before it is made. */
    ASSERT(uv_pipe_init(api->loop, pipe, /* ipc= */ 0) == 0);
    uv_os_fd_t fd = -1;
    int copy = -1;
    if (uv_accept(listener, (uv_stream_t *)pipe) == 0 && uv_fileno((uv_handle_t *)pipe, &fd) == 0) {
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    uv_close((uv_handle_t *)pipe, on_pipe_closed);
    if (copy < 0) {
        return;
    }
    if (api->closing || api->stats.connections >= API_SOCKETS_MAX) {
        (void)close(copy); /* Not even a sentence for a flood. */
        return;
    }
    char from[API_FROM_SIZE] = "unix";
    uint64_t source = source_of_user((uid_t)-1);
    bool allowed = may(api, copy, from, sizeof(from), &source);
    bool looks = allowed || api->settings.others_look;
    bool full = looks && !make_room(api, source);
    struct transport transport;
    transport_plain(&transport, copy);
    int flags = fcntl(copy, F_GETFL);
    (void)fcntl(copy, F_SETFL, flags | O_NONBLOCK);
    struct connection *connection =
        connection_open(api, &transport, /* needs_hello= */ true, allowed, from, source);
    if (connection != NULL && full) {
        connection_refuse(connection, ERR_BUSY,
                          "too many connections to this daemon; try again soon");
    } else if (connection != NULL && !looks) {
        char text[320];
        (void)snprintf(
            text, sizeof(text),
            "you may not command this daemon: be root or in the group %s (`usermod -aG %s "
            "USER`, then log in again); `socket_others: look` in its config lets everybody look",
            api->settings.group, api->settings.group);
        connection_refuse(connection, ERR_AUTH, text);
    }
}

/* Somebody answers there: not ours to take. */
static bool is_alive(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return alive;
}

/* /run/coppelius is gone after a reboot, and in a container nobody makes it. One level only; where
 * it cannot be made, bind says why. */
static void make_folder(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    const char *slash = strrchr(path, '/');
    if (slash != NULL && slash != path) {
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        (void)mkdir(folder, 0755);
    }
}

static int listen_on(const char *path, const char *group, bool for_all, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        return err_set(err, ERR_CONFIG,
                       "socket '%s': a path of %zu bytes; a unix socket's may have %zu", path,
                       strlen(path), sizeof(address.sun_path) - 1);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    make_folder(path);
    struct stat stat;
    if (lstat(path, &stat) == 0) {
        if (!S_ISSOCK(stat.st_mode)) {
            return err_set(err, ERR_CONFIG,
                           "socket '%s': a file is there that is no socket; move it away or set "
                           "another socket",
                           path);
        }
        if (is_alive(&address)) {
            return err_set(
                err, ERR_CONFIG,
                "socket '%s': another daemon listens there; stop it or set another socket", path);
        }
        (void)unlink(path); /* Left by a daemon that was killed. */
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(for_all ? 0111 : 0117); /* 0666 or 0660 from the first moment on. */
    int status = fd < 0 ? -1 : bind(fd, (const struct sockaddr *)&address, sizeof(address));
    int error = errno;
    (void)umask(before);
    if (status != 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return err_set(err, ERR_CONFIG,
                       "socket '%s': %s; make its folder, writable for the daemon, or set another "
                       "socket",
                       path, err_errno(error));
    }
    char text[4096];
    struct group entry;
    struct group *found = NULL;
    if (getgrnam_r(group, &entry, text, sizeof(text), &found) == 0 && found != NULL) {
        /* A daemon that is neither root nor in the group cannot: then it serves root and itself. */
        status = chown(path, (uid_t)-1, found->gr_gid);
        if (status != 0) {
            log_debug("ctl.socket", "chown to group %s: %s, ignoring", group, err_errno(errno));
        }
    }
    return fd;
}

int api_open(uv_loop_t *loop, const struct api_settings *settings, struct api **ret_api,
             struct err *err)
{
    int fd = -1;
    if (settings->socket_path[0] != '\0') {
        fd = listen_on(settings->socket_path, settings->group, settings->others_look, err);
        if (fd < 0) {
            return err->code;
        }
    }
    struct api *api = calloc(1, sizeof(*api));
    ASSERT(api != NULL);
    api->loop = loop;
    api->settings = *settings;
    if (api->settings.write_ms == 0) {
        api->settings.write_ms = API_WRITE_MS;
    }
    if (fd >= 0) {
        int status = uv_pipe_init(loop, &api->listener, /* ipc= */ 0);
        ASSERT(status == 0);
        status = uv_pipe_open(&api->listener, fd);
        ASSERT(status == 0); /* A fresh socket of ours. */
        status = uv_listen((uv_stream_t *)&api->listener, 64, on_dialled);
        ASSERT(status == 0);
        api->listening = true;
    }
    *ret_api = api;
    return 0;
}

static void end_if_empty(struct api *api)
{
    if (!api->closing || api->listening || api->connections != NULL) {
        return;
    }
    void (*on_closed)(void *) = api->on_closed;
    void *context = api->on_closed_context;
    free(api);
    if (on_closed != NULL) {
        on_closed(context);
    }
}

void api_forget(struct api *api, struct connection *connection)
{
    struct connection **at = &api->connections;
    while (*at != connection) {
        ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = connection->next;
    ASSERT(api->stats.connections > 0);
    api->stats.connections--;
    end_if_empty(api);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct api *api = OWNER_OF(handle, struct api, listener);
    api->listening = false;
    end_if_empty(api);
}

void api_close(struct api *api, void (*on_closed)(void *context), void *context)
{
    ASSERT(!api->closing);
    api->closing = true;
    api->on_closed = on_closed;
    api->on_closed_context = context;
    struct connection *connection = api->connections;
    while (connection != NULL) {
        struct connection *next = connection->next; /* Closing frees later, never at once. */
        connection_close(connection, NULL);
        connection = next;
    }
    if (api->listening) {
        (void)unlink(api->settings.socket_path);
        uv_close((uv_handle_t *)&api->listener, on_listener_closed);
    } else if (api->connections == NULL) {
        /* Nothing is open, so no callback would come; and the owner must not hear from inside. */
        ASSERT(uv_pipe_init(api->loop, &api->listener, /* ipc= */ 0) == 0);
        api->listening = true;
        uv_close((uv_handle_t *)&api->listener, on_listener_closed);
    }
}

bool api_full(struct api *api, const char *from)
{
    return api->closing || api->stats.connections >= API_SOCKETS_MAX ||
           !make_room(api, source_of_address(from));
}

void api_take(struct api *api, const struct transport *transport, const char *from)
{
    char who[API_FROM_SIZE];
    const struct trust_identity *identity = transport_peer(transport);
    bool may_change = identity == NULL || identity->kind == TRUST_ADMIN;
    ASSERT(!api->closing);
    (void)snprintf(who, sizeof(who), "%s", from);
    if (identity != NULL) {
        (void)snprintf(who, sizeof(who), "%s,%s=%s", from, trust_kind_name(identity->kind),
                       identity->name);
    }
    struct connection *connection = connection_open(api, transport, /* needs_hello= */ false,
                                                    may_change, who, source_of_address(from));
    if (connection != NULL && identity != NULL && identity->kind == TRUST_NODE) {
        (void)snprintf(connection->node, sizeof(connection->node), "%s", identity->name);
        connection->stranger = !identity->member;
    }
}

const struct api_stats *api_stats(const struct api *api)
{
    return &api->stats;
}

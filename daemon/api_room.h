/* What api.c, connection.c and ask.c share. Private. */
#ifndef COPPELIUS_DAEMON_API_ROOM_H
#define COPPELIUS_DAEMON_API_ROOM_H

#include "daemon/api.h"
#include "daemon/connection.h"

struct api {
    uv_loop_t *loop;
    struct api_settings settings;
    struct api_stats stats;
    struct connection *connections;
    uint64_t log_from_ms; /* of the minute whose lines are counted */
    unsigned logged;
    uv_pipe_t listener;
    bool listening; /* the listener is open or being closed */
    bool closing;
    void (*on_closed)(void *context);
    void *on_closed_context;
};

/* Whether what was refused or cut may have a line in the log: API_LOG_MAX a minute. */
bool api_may_log(struct api *api);
/* A connection is gone: its memory is the caller's to free after this call. */
void api_forget(struct api *api, struct connection *connection);

#endif

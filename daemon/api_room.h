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
    uv_pipe_t listener;
    bool listening; /* the listener is open or being closed */
    bool closing;
    void (*on_closed)(void *context);
    void *on_closed_context;
};

/* A connection is gone: its memory is the caller's to free after this call. */
void api_forget(struct api *api, struct connection *connection);

#endif

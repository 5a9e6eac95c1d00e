/* One ctl connection: bytes in and out, HELLO, deadlines. Private to the api.
 *
 *   HELLO -> OPEN -> ENDING                    [connection_welcome, connection_end]
 *   HELLO -> ENDING                            a refusal, no HELLO in time
 *   any -> CLOSED                              [connection_close] gone, slow, nonsense, the daemon
 * stops
 *
 * ENDING: the last bytes are being written, then CLOSED. In CLOSED the object waits for its handles
 * and for the question that is still being worked on (ask.busy); then it frees itself. */
#ifndef COPPELIUS_DAEMON_CONNECTION_H
#define COPPELIUS_DAEMON_CONNECTION_H

#include <uv.h>

#include "base/buf.h"
#include "daemon/api.h"
#include "daemon/ask.h"

enum connection_state { CONNECTION_HELLO, CONNECTION_OPEN, CONNECTION_ENDING, CONNECTION_CLOSED };

struct connection {
    struct connection *next; /* of the api's list */
    struct api *api;
    enum connection_state state;
    struct transport transport; /* plain on the unix socket */
    bool may_change;            /* else it may only look */
    bool local;                 /* it came through the admin socket */
    bool stranger;              /* a node that is no member: it may ask to become one */
    char node[FACTS_NAME_SIZE]; /* the name in a node's certificate; "" for people and plain text */
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles_open;
    bool reading;
    bool writing;
    size_t written;       /* bytes of out */
    int events;           /* what poll waits for; 0: nothing */
    bool input_ended;     /* the client has closed its side */
    uint64_t deadline_ms; /* for HELLO or for the write in flight */
    uint64_t idle_ms;     /* since when nothing is asked: connection_is_idle() */
    uint64_t source;      /* who it counts for: the user on this machine, or the IPv4 address */
    int refusal;          /* what its HELLO will be answered with; 0: it may come in */
    char refusal_text[320];
    uint64_t sequence; /* of the next frame out */
    struct buf in;     /* not yet parsed */
    struct buf out;    /* being written, or made for the next write */
    char from[API_FROM_SIZE];
    struct ask ask;
};

/* Takes the transport. needs_hello: it is a unix socket's. NULL where libuv refuses it (the
 * transport is closed). */
struct connection *connection_open(struct api *api, const struct transport *transport,
                                   bool needs_hello, bool may_change, const char *from,
                                   uint64_t source);
/* Its HELLO will be answered by why it is not let in, then it ends; before WELCOME only. (A socket
 * that is closed with its HELLO unread would take the sentence with it.) */
void connection_refuse(struct connection *connection, int code, const char *text);
/* Ends at once; nothing more is written. */
void connection_close(struct connection *connection, const char *why);

/* It waits for a HELLO or for a question: nothing is lost by ending it. */
bool connection_is_idle(const struct connection *connection);

/* Appends a reply; sent by connection_flush. */
void connection_reply(struct connection *connection, Ctl__Reply *reply);
/* Writes what was appended; ask_on_written comes when it is taken, then the next
 * question if one is there. */
void connection_flush(struct connection *connection);
/* Frees a closed connection that nothing holds any more; ask.c calls it when its work came back. */
void connection_release(struct connection *connection);

#endif

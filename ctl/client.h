/* A blocking connection to a daemon: its unix socket or its port.
 *
 * Opening says HELLO (class ctl) and waits for WELCOME. Then requests are asked and their replies
 * read in order. Nothing waits for ever unless told to: each wait has a deadline, and an interrupt
 * (terminal.h) ends it. Problems: ERR_REACH (nobody there, or gone), ERR_AUTH (not allowed),
 * ERR_PROTO (somebody else's protocol), ERR_TIMEOUT, ERR_CANCELED, and what the daemon answers. */
#ifndef COPPELIUS_CTL_CLIENT_H
#define COPPELIUS_CTL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <ctl.pb-c.h>

#include "ctl/command.h"

#define CLIENT_TIMEOUT_MS       10000
#define CLIENT_ENDPOINT_DEFAULT "unix:/run/coppelius/coppeliusd.sock"
#define CLIENT_ENDPOINT_ENV     "COPPELIUS_ENDPOINT"
#define CLIENT_IDENTITY_ENV     "COPPELIUS_IDENTITY"

struct client;

/* The endpoint named by --endpoint or the environment; NULL where none is. */
const char *client_endpoint_named(const struct args *args);
/* The folder named by --identity or the environment; NULL where none is. */
const char *client_identity_named(const struct args *args);
/* identity: a folder with ca.crt, node.crt, node.key, for TLS to IP:PORT; NULL: plain text.
 * timeout_ms: for the whole of it. */
int client_open(const char *endpoint, const char *identity, uint64_t timeout_ms,
                struct client **ret_client, struct problem *problem);
/* By the command's flags: endpoint or the default one, --timeout or CLIENT_TIMEOUT_MS. */
int client_open_for(const struct ctl *ctl, struct client **ret_client, struct problem *problem);
void client_close(struct client *client); /* NULL is fine */
/* A connected, non-blocking socket to IP:PORT, for who speaks something else on it. */
int client_connect(const char *endpoint, uint64_t timeout_ms, int *ret_fd, struct problem *problem);

/* Sends it; request->id is set here. */
int client_ask(struct client *client, Ctl__Request *request, struct problem *problem);

struct answer {
    Ctl__Reply *reply; /* NULL: none yet, see client_next */
    json_t *json;      /* NULL where the reply has no document */
};
void answer_done(struct answer *answer); /* twice is fine */

/* The next reply. A reply with a code fills *problem and returns it. wait_ms passes: returns 0 with
 * ret_answer->reply NULL. UINT64_MAX: waits until there is one. */
int client_next(struct client *client, uint64_t wait_ms, struct answer *ret_answer,
                struct problem *problem);
/* Asks, and takes the one reply within the client's timeout: ERR_TIMEOUT otherwise. */
int client_call(struct client *client, Ctl__Request *request, struct answer *ret_answer,
                struct problem *problem);

#endif

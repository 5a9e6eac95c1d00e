/* One question on a ctl connection, from its Request to its last Reply. Private to the api.
 *
 *   IDLE -> VERB     a verb or a look at a file is under way elsewhere    [ask_begin]
 *   IDLE -> VALUES   predictions, a piece a reply                         [on_predicted by VERB]
 *   IDLE -> WATCH, LOGS   until the client or the job ends                [ask_begin]
 *   any -> IDLE      the last reply was made                              [finish]
 */
#ifndef COPPELIUS_DAEMON_ASK_H
#define COPPELIUS_DAEMON_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ctl.pb-c.h>

#include "base/buf.h"
#include "daemon/facts.h"
#include "daemon/meter.h"

struct connection;

enum ask_state { ASK_IDLE, ASK_VERB, ASK_VALUES, ASK_SHOW, ASK_WATCH, ASK_LOGS };

struct ask {
    enum ask_state state;
    uint64_t id; /* the Request's */
    bool busy;   /* a callback is still to come: the connection's memory stays until then */
    /* VERB: predict's, told while it has not answered */
    struct work_meter meter;
    uint64_t meter_told;
    /* VALUES */
    double *values;
    size_t values_count;
    size_t values_sent;
    struct buf document; /* the closing one */
    /* WATCH and LOGS */
    uint64_t job;
    bool follow;
    bool begun;
    char job_state[16];
    uint64_t version;
    uint64_t epoch;
    bool has_epoch;
    uint64_t log_after;
    char member[FACTS_NAME_SIZE]; /* VERB of who is in the cluster */
    uint32_t needles_count;
    char needles[2][FACTS_NAME_SIZE + 8];
};

/* Whether a viewer may ask it too (ask_rights.c). */
bool ask_only_looks(const Ctl__Request *request);
/* The connection is open and idle. The request is borrowed. */
void ask_begin(struct connection *connection, const Ctl__Request *request);
/* Every API_TICK_MS while nothing is being written. */
void ask_tick(struct connection *connection);
/* All replies made so far are with the client. */
void ask_on_written(struct connection *connection);
/* The connection is closed: gives back what can be; ask.busy says whether something is out still.
 */
void ask_drop(struct connection *connection);

#endif

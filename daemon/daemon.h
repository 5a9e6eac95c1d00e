/* The daemon: one process' rooms, built in order and taken down in reverse. The folder's map:
 *
 *   main       arguments, config, state folder, signals; opens the daemon, then the services
 *   daemon     (this door) files, control, mesh; what goes between them
 *   members    who is there: heartbeats with progress, the coordinator's view
 *   run        the corridor: one generation of one job on this node, from import to release
 *              (run.h has its files)
 *   publish    agents that turn agreed publications into files
 *   history    losses and times of the jobs for people
 *   verbs, tell, predict   the daemon's side of facts.h
 *   api, http, metrics, notify, doctor, …   the services, which know facts.h alone
 *
 * Thread: the loop for every function and callback. */
#ifndef COPPELIUS_DAEMON_DAEMON_H
#define COPPELIUS_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/facts.h"
#include "peer/peer.h"

#define DAEMON_VERSION "0.1.0"

/* Below the state folder. The mark: this node has taken part with that log. */
#define DAEMON_LOG_FOLDER "log"
#define DAEMON_LOG_MARK   "log-begun"

struct daemon;

enum daemon_role { DAEMON_TRAINER = 1, DAEMON_ARBITER = 2, DAEMON_SPARE = 3 };

struct daemon_peer {
    uint32_t id;   /* its place; of the first nodes 1 .. by the order of the config */
    uint32_t life; /* of its identity (control/group.h) */
    const char *name;
    const char *address; /* "IP:PORT" */
    enum daemon_role role;
};

/* Texts are borrowed until daemon_open() returns. */
struct daemon_settings {
    const char *cluster;
    const char *name;
    uint32_t node_id;
    uint32_t life;
    uint8_t uuid[16];                /* of the state folder */
    bool joined;                     /* let in by a cluster that was there: it begins none */
    const char *listen;              /* "IP:PORT" */
    const char *advertise;           /* "IP:PORT" that others reach it at */
    const struct daemon_peer *peers; /* all voters, this node included */
    size_t peers_count;
    const char *device; /* "cpu", "auto", … (gpu/gpu.h) */
    unsigned threads;   /* CPU workers; 0: as many as there are processors */
    bool device_share;
    uint64_t memory_bytes;     /* the most that a session may take; 0: what the device has */
    const char *state_dir;     /* exists and belongs to this node (main has checked) */
    uint64_t incarnation;      /* greater than that of any earlier start from this state_dir */
    uint64_t cache_bytes;      /* of imported and fetched datasets; 0: 64 GiB */
    uint32_t streams;          /* bulk connections to a peer; 0: 4, over TLS 8 */
    uint32_t exchange_threads; /* for them; 0: by the cores (peer/peer.h) */
    struct trust *trust;       /* outlives the daemon; NULL: plain text */
    bool insecure;             /* plain text between machines is meant */
    const char *authority;     /* a folder: this node lets others join; "" or NULL: it does not */
    unsigned device_failures;  /* in a row, of the process that this one takes the place of: then
                                  the start's self-test goes to daemon_retested() */
    unsigned renew_days;       /* a certificate that ends sooner is renewed; 0: never */
};

struct daemon_hooks {
    void *context;
    /* A ctl connection came in on the peer port: takes it. NULL: refused. */
    void (*on_ctl)(void *context, const struct peer_incoming *incoming);
    /* The node cannot go on (its log's disk failed): say it, end the process with err's status. */
    void (*on_failed)(void *context, const struct err *err);
    /* The device is lost to this process (gpu/gpu.h), and it is time to try it again, after so many
     * failures in a row: a new process has to. Called from inside the daemon. */
    void (*on_device_lost)(void *context, unsigned failures);
    /* After daemon_stop(): everything is closed and freed; the last call. */
    void (*on_stopped)(void *context);
};

/* Opens files, recovers the log, listens, begins to talk. Blocks on the disk while it recovers. */
int daemon_open(uv_loop_t *loop, const struct daemon_settings *settings,
                const struct daemon_hooks *hooks, struct daemon **ret_daemon, struct err *err);
/* Clean stop (SIGTERM): asks for a publication of the job that this node works on and waits for it,
 * at most 8 s; then says what of the job is kept and takes everything down. Calling it again
 * changes nothing, unless it hurries: then no publication is waited for. */
void daemon_stop(struct daemon *daemon, bool hurry);
/* The table that the services read; valid until on_stopped. */
const struct facts *daemon_facts(struct daemon *daemon);
/* The self-test has passed on that device, or failed (a check of readiness): one of both is NULL.
 */
struct session_binding;
void daemon_set_selftest(struct daemon *daemon, const struct session_binding *binding,
                         const struct err *err);
/* The same where settings.device_failures were given: a failure keeps work away from this node, and
 * is no failure of the start. err code 0: passed. */
void daemon_retested(struct daemon *daemon, const struct session_binding *binding,
                     const char *sentence, const struct err *err);

#endif

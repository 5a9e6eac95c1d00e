/* Throw-away daemons on this machine: configs, free ports on 127.0.0.1, state folders below one
 * folder, N processes, waiting until they are a cluster, and stopping them again.
 *
 * Each child has its own process group (a Ctrl-C is for coppeliusctl, which then stops them) and is
 * told by the kernel when coppeliusctl dies. They are stopped by SIGTERM, by SIGKILL after
 * SPAWN_STOP_MS; a second interrupt hurries that. */
#ifndef COPPELIUS_CTL_SPAWN_H
#define COPPELIUS_CTL_SPAWN_H

#include <sys/types.h>

#include "ctl/client.h"

#define SPAWN_NODES_MAX 16
#define SPAWN_READY_MS  60000
#define SPAWN_STOP_MS   15000

struct spawn_node {
    pid_t pid;  /* 0: not running */
    int status; /* of waitpid, once it ended */
    bool ended;
    unsigned port;
    char endpoint[32]; /* "127.0.0.1:PORT" */
    char *folder;      /* config.yaml, log, state/ */
};

struct spawn {
    struct spawn_node nodes[SPAWN_NODES_MAX];
    size_t count;
    char *base;     /* absolute */
    bool temporary; /* base was made here and is removed by spawn_done */
    bool logs;      /* ... but for its logs/ */
    char *daemon;   /* path of coppeliusd */
};

struct spawn_settings {
    size_t nodes;
    const char *device; /* cpu, cuda, or what the daemon's `device` takes */
    unsigned threads;   /* 0: the processors' share */
    const char *folder; /* NULL: a temporary one */
};

/* Starts them and waits until they agree on a leader. On failure everything is stopped, the problem
 * has the dying daemon's last words, and spawn_done is still to be called. */
int spawn_start(const struct spawn_settings *settings, struct spawn *spawn,
                struct problem *problem);
/* For watch_job: a daemon that has ended is a problem. context is the struct spawn. */
int spawn_alive(void *context, struct problem *problem);
void spawn_stop(struct spawn *spawn);
/* Moves the daemons' logs to logs/node-N.log below the base, where spawn_done leaves them; says
 * where in a hint. For a run that failed; after spawn_stop. */
void spawn_keep_logs(struct spawn *spawn, struct problem *problem);
/* keep: state, logs and configs stay. Else they are removed, and a temporary base with them. */
void spawn_done(struct spawn *spawn, bool keep);

/* $COPPELIUSD, or the one beside this program, or the installed one; new memory. */
int spawn_find_daemon(char **ret_path, struct problem *problem);
/* By the flags --device, --threads, --nodes; ERR_USAGE. */
int spawn_settings_of(const struct args *args, struct spawn_settings *ret_settings,
                      struct problem *problem);

#endif

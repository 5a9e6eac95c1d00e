/* Private to publish.c, copies.c and recall.c: an agent with the work that is under way for it. */
#ifndef COPPELIUS_DAEMON_PUBLISH_ROOM_H
#define COPPELIUS_DAEMON_PUBLISH_ROOM_H

#include <stdatomic.h>

#include "daemon/core.h"
#include "peer/fetch.h"

/* Where a copy's bytes come from: the fetch of another node's shard, opened by the first read, with
 * several requests under way. Filled on the loop, used by a worker. */
struct copy_pull {
    struct daemon *daemon;
    struct fetch_settings settings;
    char holder[FACTS_NAME_SIZE];
    char address[FACTS_NAME_SIZE];
    uint64_t size;
    struct fetch *fetch;
    uint64_t asked; /* bytes of the file, from the first one read on */
    uint64_t bytes; /* that came */
};

struct publication {
    struct publication *next;
    struct daemon *daemon;
    uint64_t job;
    struct agent agent;
    struct capture *capture; /* NULL: none */
    uint64_t proposed_ms;
    uint8_t proposed_kind;
    uint64_t proposed_epoch;
    uint32_t proposed_rank;
    uint64_t retry_ms; /* after a failed action */
    uint64_t seen;     /* state.changes when the agent was last idle; asked again when it moves */
    bool idle;
    bool caught_up;
    bool troubled;            /* its last action failed, and this node's progress says so */
    uint64_t words_ms;        /* when words were last said; 0: at once */
    uint64_t need_generation; /* of the run that starts from an epoch here; 0: none */
    uint64_t scrub_ms;        /* when the next background check is due */
    uint64_t bad_epoch[STATE_EPOCHS_MAX]; /* shards found missing or damaged by the last check */
    uint64_t bad[STATE_EPOCHS_MAX];
    uint64_t served;     /* the version of the files to serve when they were last listed; 0: none */
    uint64_t lost_epoch; /* that was told in the log */

    uint64_t recalled_epoch; /* whose losses were read, or could not be; 0: none */
    bool recalling;          /* they are being read */
    bool recall_again;       /* when a shard here is repaired */

    uv_work_t work;
    struct agent_action action;
    struct agent_result result;
    struct capture *working; /* held while a worker reads it */
    struct copy_pull pull;
    uint64_t started_ns;
};

/* publish.c */
struct publication *publication_find(const struct daemon *daemon, uint64_t job);
struct publication *publication_of(struct daemon *daemon, uint64_t job);

/* copies.c */
/* On the loop: false where the node to fetch from is not known. */
bool copies_begin(struct publication *p);
void copies_run(struct publication *p); /* worker */
/* What came of an action about copies, for the log. */
void copies_done(struct publication *p);
/* Words to others, the list of files to serve, the background check. */
void copies_turn(struct publication *p);

/* recall.c: the losses of the job's steps, where this process has not seen them. */
void recall_turn(struct publication *p);
void recall_repaired(struct publication *p); /* a shard was fetched */

#endif

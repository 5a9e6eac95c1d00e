/* The local agent of publication: what this node's files must become, one action after another.
 *
 * agent_next() is pure: the agreed state and what this process knows of its files in, the next
 * action out. The caller does it, AGENT_STAGE .. AGENT_DELETE with agent_execute() on a worker
 * thread (one at a time a job), proposals through the control room, and gives the result to
 * agent_done(). Then, and after each applied entry, it asks again. A crash at any point is no case
 * of its own: the next process scans the folder and goes on.
 *
 * Order of the durable steps (each fsynced where it says so):
 *   STAGE    mkdir staging/epoch-N, fsync the folders above; write the shard as .part, fsync it,
 *            rename it, fsync the folder. Before that nothing is voted.
 *   VOTE     PREPARED, proposed until seen applied or the epoch is decided
 *   PUBLISH  manifest.json and SHA256SUMS into staging, fsynced, fsync the folder; rename the
 * folder to epoch-N, fsync both parents; CURRENT.new, fsync, rename, fsync: published here REPORT
 * PUBLISHED, proposed until seen applied DISCARD  staging of an epoch that is neither open nor
 * committed, DELETE an epoch that is collected and older than CURRENT: only when caught up with the
 * leader, since a log that is behind does not know what was decided.
 *
 * Thread: the loop, agent_execute() excepted. struct agent is the caller's, one for each job. */
#ifndef COPPELIUS_CHECKPOINT_AGENT_H
#define COPPELIUS_CHECKPOINT_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"
#include "control/state.h"

/* What the run captured and still holds in memory. */
struct agent_capture {
    uint64_t generation; /* 0: nothing */
    uint64_t step;
    bool ends;
    bool content_ready; /* the copy has been read back: agent_execute may be given it */
    /* Rank 0 only: the whole vectors' digests have been taken; its vote waits for them. */
    bool vectors_ready;
    uint8_t parameter_sha256[SHA256_SIZE];
    uint8_t accumulator_sha256[SHA256_SIZE];
    uint64_t loss_bits;
};

struct agent {
    uint64_t job;
    uint32_t node;        /* this one */
    uint64_t incarnation; /* of this process */
    bool scanned;         /* `view` is true */
    bool busy;            /* an action is under way */
    struct folder_view view;
    struct agent_capture capture;
    /* The shard that this process staged, durable, with its digest; epoch 0: none. A shard that an
     * earlier process left is never voted for: its votes died with its incarnation. */
    uint64_t staged_epoch;
    uint8_t staged_sha256[SHA256_SIZE];
    uint64_t staged_size;
    uint64_t failed_epoch; /* staging failed: an ABORT is owed; 0: none */
    char failed_reason[COMMAND_REASON_SIZE];
    uint64_t lost_epoch; /* committed, but its files are missing or damaged here: not published */
};

enum agent_kind {
    AGENT_IDLE,    /* nothing until something changes */
    AGENT_SCAN,    /* execute: look at the folder */
    AGENT_STAGE,   /* execute: write the captured shard */
    AGENT_PUBLISH, /* execute */
    AGENT_DISCARD, /* execute: delete staging/epoch-N */
    AGENT_DELETE,  /* execute: delete epoch-N, never the one CURRENT names */
    AGENT_PROPOSE, /* propose `command` (PREPARED, ABORT or PUBLISHED); no agent_done() */
};

struct agent_action {
    enum agent_kind kind;
    uint64_t job;
    uint64_t epoch;
    char folder[FOLDER_PATH_SIZE];  /* the job's */
    char shard[MANIFEST_TEXT_SIZE]; /* this node's file in the epoch */
    struct manifest manifest;       /* of AGENT_PUBLISH */
    bool verify;            /* AGENT_PUBLISH: the shard is from an earlier process, read it */
    struct command command; /* of AGENT_PROPOSE; wall_ms is the caller's to fill */
};

struct agent_result {
    int code; /* 0 or ERR_*; the sentence is in err */
    /* A folder's fsync failed: nothing is known about its names any more. The process must end (and
     * find out when it starts); agent_done() must not be called. */
    bool fatal;
    bool scanned;  /* `view` is true */
    bool repaired; /* SCAN: CURRENT was damaged and names the newest epoch here again */
    struct err err;
    struct folder_view view;     /* after AGENT_SCAN, PUBLISH, DISCARD, DELETE */
    uint8_t sha256[SHA256_SIZE]; /* after AGENT_STAGE */
    uint64_t size;
};

void agent_init(struct agent *agent, uint64_t job, uint32_t node, uint64_t incarnation);

/* The run captured a step (replaces an older capture, whose epoch must be decided by then), its
 * digests have come, or it let go of the capture. */
void agent_capture(struct agent *agent, const struct agent_capture *capture);
/* True while the capture must be kept in memory (see coordinator_report). */
bool agent_holds_capture(const struct agent *agent, const struct state *state);

/* caught_up: everything that was committed when the current leader was last heard is applied here.
 * Before that nothing is published or deleted. Fills *ret_action; its kind is also returned.
 * AGENT_STAGE .. AGENT_DELETE mark the agent busy until agent_done(). */
enum agent_kind agent_next(struct agent *agent, const struct state *state, bool caught_up,
                           struct agent_action *ret_action);

/* Does an action's file work (blocking). content: for AGENT_STAGE, borrowed; else NULL. */
void agent_execute(struct fs *fs, const struct agent_action *action,
                   const struct shard_content *content, struct agent_result *ret_result);

/* Takes the result in. A failed STAGE is turned into an ABORT proposal (its file has been deleted);
 * a PUBLISH whose files are missing or damaged is not tried again; what failed otherwise is, at the
 * next agent_next(): the caller waits a while and shows result->err. Returns result->code. */
int agent_done(struct agent *agent, const struct agent_action *action,
               const struct agent_result *result);

#endif

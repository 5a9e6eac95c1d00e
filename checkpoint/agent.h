/* The local agent of publication: what this node's files must become, one action after another.
 *
 * agent_next() is pure: the agreed state and what this process knows of its files in, the next
 * action out. The caller does it, AGENT_SCAN .. AGENT_RETRACT with agent_execute() (AGENT_COPY with
 * agent_execute_copy()) on a worker thread, one at a time a job, proposals through the control
 * room, and gives the result to agent_done(). Then, and after each applied entry, it asks again. A
 * crash at any point is no case of its own: the next process scans the folder and goes on.
 *
 * Order of the durable steps (each fsynced where it says so):
 *   STAGE    mkdir staging/epoch-N, fsync the folders above; write the shard as .part, fsync it,
 *            rename it, fsync the folder. Before that nothing is voted.
 *   COPY     on each node that BEGIN placed a copy on, once the shard's node offers it
 * (agent_words): fetched as .part (a part that is there is gone on with), its digest compared,
 * fsynced, renamed, the folder fsynced. Then it says STORED. VOTE     PREPARED, when all holders
 * said STORED; proposed until seen applied or decided PUBLISH  manifest.json and SHA256SUMS into
 * staging, fsynced, fsync the folder; rename the folder to epoch-N, fsync both parents;
 * CURRENT.new, fsync, rename, fsync: published here REPORT   PUBLISHED, proposed until seen applied
 *   DISCARD  staging of an epoch that is neither open nor committed, DELETE an epoch that is
 *            collected and older than CURRENT
 *   VERIFY   digests of shards that lie here: before a run starts from them, and in the background.
 *            A damaged one is put aside (.damaged). What this node should hold and does not is
 *            DROPPED in the log; the leader ASSIGNs a node, which COPYs from a holder and says
 *            REPLICATED.
 *   TRIM     shards that nobody needs here any more
 *   RETRACT  CURRENT names an epoch that is lost everywhere: the newest agreed one here instead
 * All but STAGE, COPY and VOTE only when caught up with the leader, since a log that is behind does
 * not know what was decided.
 *
 * Thread: the loop, agent_execute*() excepted. struct agent is the caller's, one for each job. */
#ifndef COPPELIUS_CHECKPOINT_AGENT_H
#define COPPELIUS_CHECKPOINT_AGENT_H

#include <stdbool.h>
#include <stddef.h>
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

/* Between the node of a shard and those that are to hold a copy of it, while its epoch is open. May
 * be lost, doubled or late: said again until the shard is prepared. */
enum agent_word_kind {
    AGENT_OFFER = 1,  /* shard's node to holder: it is durable here, fetch it */
    AGENT_STORED = 2, /* holder to shard's node: the copy is durable here, and was compared */
    AGENT_DOUBT = 3,  /* to a holder of a committed shard: what came of yours is not right */
};

#define AGENT_WORDS_MAX (STATE_NODES_MAX + COMMAND_HOLDERS_MAX)

struct agent_word {
    enum agent_word_kind kind;
    uint32_t node; /* whom it goes to, or whom it came from */
    uint64_t job;
    uint64_t epoch;
    uint32_t rank;
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
};

/* A shard of the open epoch that another node offered, or that is stored here. */
struct agent_offer {
    uint32_t node; /* that offered it; 0: none */
    bool stored;   /* by this process */
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
};

#define AGENT_GOOD_MAX 64

/* Shards of a committed epoch whose digests this process has compared. */
struct agent_good {
    uint64_t epoch; /* 0: none */
    uint64_t ranks;
};

struct agent {
    uint64_t job;
    uint32_t node;        /* this one's place */
    uint32_t life;        /* which of its identities it is */
    uint64_t incarnation; /* of this process */
    bool scanned;         /* `view` is true */
    bool busy;            /* an action is under way */
    bool rooted;          /* this process made the folders down to staging durable */
    struct folder_view view;
    struct agent_capture capture;
    /* The shard that this process staged, durable, with its digest; epoch 0: none. A shard that an
     * earlier process left is never voted for: its votes died with its incarnation. */
    uint64_t staged_epoch;
    uint8_t staged_sha256[SHA256_SIZE];
    uint64_t staged_size;
    uint64_t stored_by; /* nodes that hold a copy of it, bit id - 1 */
    uint64_t offers_epoch;
    struct agent_offer offers[STATE_NODES_MAX]; /* by rank */
    struct agent_good good[AGENT_GOOD_MAX];     /* a ring */
    uint32_t good_next;
    uint64_t need_epoch; /* a run starts from it here: shards `need_ranks` must lie here; 0: none */
    uint64_t need_ranks;
    uint64_t doubt_epoch; /* another node found that shards `doubt_ranks` here are not right */
    uint64_t doubt_ranks;
    uint64_t scrub_next;   /* the epoch from which on the background check goes on; 0: none */
    uint64_t scrubs;       /* background checks that came to their end */
    uint32_t tries;        /* of copying; another holder is asked each time */
    uint64_t failed_epoch; /* staging failed: an ABORT is owed; 0: none */
    char failed_reason[COMMAND_REASON_SIZE];
};

enum agent_kind {
    AGENT_IDLE,    /* nothing until something changes */
    AGENT_SCAN,    /* execute: look at the folder */
    AGENT_STAGE,   /* execute: write the captured shard */
    AGENT_PUBLISH, /* execute */
    AGENT_DISCARD, /* execute: delete staging/epoch-N */
    AGENT_DELETE,  /* execute: delete epoch-N, never the one CURRENT names */
    AGENT_VERIFY,  /* execute: compare digests of `ranks` */
    AGENT_TRIM,    /* execute: delete shards `ranks` of epoch-N */
    AGENT_RETRACT, /* execute: CURRENT names `current` again, 0: there is none */
    AGENT_COPY,    /* execute_copy: shard `rank` from node `from` */
    AGENT_PROPOSE, /* propose `command`; no agent_done() */
};

struct agent_action {
    enum agent_kind kind;
    uint64_t job;
    uint64_t epoch;
    char folder[FOLDER_PATH_SIZE];  /* the job's */
    char shard[MANIFEST_TEXT_SIZE]; /* the file in the epoch: of STAGE and COPY */
    struct manifest manifest;       /* of a committed epoch; decided_index 0: of an open one */
    uint64_t ranks;                 /* of PUBLISH (what lies in staging), VERIFY, TRIM */
    uint64_t trusted; /* PUBLISH: of them, those that this process has written or compared */
    uint64_t keep;    /* TRIM, VERIFY, COPY: the shards that lie here and stay */
    bool rooted;      /* STAGE, COPY: the folders down to staging are durable already */
    bool published;   /* COPY: its epoch's folder is there already */
    uint32_t rank;    /* COPY */
    uint32_t from;    /* COPY: a node that holds it */
    uint8_t sha256[SHA256_SIZE]; /* COPY */
    uint64_t size;               /* COPY */
    uint64_t current;            /* RETRACT */
    struct command command;      /* of AGENT_PROPOSE; wall_ms is the caller's to fill */
};

struct agent_result {
    int code; /* 0 or ERR_*; the sentence is in err */
    /* A folder's fsync failed: nothing is known about its names any more. The process must end (and
     * find out when it starts); agent_done() must not be called. */
    bool fatal;
    bool scanned;  /* `view` is true */
    bool repaired; /* SCAN: CURRENT was damaged and names the newest epoch here again */
    struct err err;
    struct folder_view view;     /* after all but AGENT_PROPOSE */
    uint8_t sha256[SHA256_SIZE]; /* after AGENT_STAGE */
    uint64_t size;
    uint64_t good;      /* PUBLISH, VERIFY, COPY: shards whose digest was compared and is right */
    uint64_t bad;       /* PUBLISH, VERIFY: missing or damaged; the latter are put aside */
    char bad_text[256]; /* what is wrong with the first of them */
};

/* `id`: of this node's identity, member_id() of control/group.h. */
void agent_init(struct agent *agent, uint64_t job, uint32_t id, uint64_t incarnation);

/* The run captured a step (replaces an older capture, whose epoch must be decided by then), its
 * digests have come, or it let go of the capture. */
void agent_capture(struct agent *agent, const struct agent_capture *capture);
/* True while the capture must be kept in memory (see coordinator_report). */
bool agent_holds_capture(const struct agent *agent, const struct state *state);

/* A run starts from shards `ranks` (bit rank) of the epoch: they are fetched where they are not
 * here, and compared. True when all is here and right. Until agent_need(agent, 0, 0). */
bool agent_need(struct agent *agent, uint64_t epoch, uint64_t ranks);
/* What is known to be right is doubted: a reader found damage. */
void agent_doubt(struct agent *agent, uint64_t epoch);
/* Whether the shard lies here, published or staged, and whether its digest was compared. */
bool agent_shard_here(const struct agent *agent, const struct state_epoch *epoch, uint32_t rank);
bool agent_shard_good(const struct agent *agent, const struct state_epoch *epoch, uint32_t rank);
/* Begins a background check of all that lies here; agent->scrubs counts those that ended. */
void agent_scrub(struct agent *agent);

/* What is to be said to others now, at most AGENT_WORDS_MAX; the same again until it is heard. */
size_t agent_words(const struct agent *agent, const struct state *state,
                   struct agent_word words[AGENT_WORDS_MAX]);
/* What is to be said once after this failed AGENT_COPY; false: nothing. */
bool agent_word_of_failure(const struct agent_action *action, const struct agent_result *result,
                           struct agent_word *ret_word);
/* A word came from word->node. True: agent_next() may have more to do. */
bool agent_hear(struct agent *agent, const struct state *state, const struct agent_word *word);

/* caught_up: everything that was committed when the current leader was last heard is applied here.
 * Before that nothing is published or deleted. Fills *ret_action; its kind is also returned.
 * AGENT_SCAN .. AGENT_COPY mark the agent busy until agent_done(). */
enum agent_kind agent_next(struct agent *agent, const struct state *state, bool caught_up,
                           struct agent_action *ret_action);

/* Does an action's file work (blocking). content: for AGENT_STAGE, borrowed; else NULL. */
void agent_execute(struct fs *fs, const struct agent_action *action,
                   const struct shard_content *content, struct agent_result *ret_result);

/* Where AGENT_COPY's bytes come from: exactly size bytes of the shard's file, or an error. */
struct agent_source {
    void *context;
    int (*read)(void *context, uint64_t offset, void *bytes, size_t size, struct err *err);
};

/* Does AGENT_COPY (blocking). Bounded memory; after an error of the source the part stays and the
 * next try goes on with it. ERR_DAMAGED where what came has another digest (the part is deleted).
 */
void agent_execute_copy(struct fs *fs, const struct agent_action *action,
                        const struct agent_source *source, struct agent_result *ret_result);

/* Takes the result in. A failed STAGE is turned into an ABORT proposal (its file has been deleted);
 * what failed otherwise is tried again at the next agent_next(): the caller waits a while and shows
 * result->err. Returns result->code. */
int agent_done(struct agent *agent, const struct agent_action *action,
               const struct agent_result *result);

#endif

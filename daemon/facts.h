/* What a daemon tells about itself, and what may be asked of it: the seam between the corridor
 * (daemon.c, run.c), which knows, and the services (api.c, metrics.c, http.c, notify.c, doctor.c),
 * which tell. The corridor fills one `struct facts`, a table of functions with its own pointer; the
 * services hold no state of the cluster of their own.
 *
 * Thread: everything here, callbacks included, is the loop's. A reading function fills the caller's
 * memory from what the loop knows already: it never blocks, allocates or fails, and takes well
 * below a millisecond. Texts are UTF-8, terminated, "" where unknown. Wall times are milliseconds
 * since 1970, 0 where unknown; they are for people. Every count of a list is bounded by its
 * FACTS_*_MAX.
 *
 * A verb either fails now (a negative ERR_* with its sentence in err: done is not called), or
 * returns 0 and calls done exactly once, later, never from inside the call. What a verb is given is
 * borrowed for the call. When the daemon stops it answers pending verbs with ERR_CANCELED first. */
#ifndef COPPELIUS_DAEMON_FACTS_H
#define COPPELIUS_DAEMON_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/histogram.h"

#define FACTS_NAME_SIZE    64
#define FACTS_TEXT_SIZE    512 /* a sentence: a reason, a hint */
#define FACTS_PATH_SIZE    1024
#define FACTS_DIGEST_SIZE  65 /* 64 hexadecimal digits and the end; "" where unknown */
#define FACTS_NODES_MAX    64
#define FACTS_JOBS_MAX     4096 /* jobs that the state machine keeps */
#define FACTS_EPOCHS_MAX   1024 /* of a job */
#define FACTS_CHECKS_MAX   64
#define FACTS_IMAGES_MAX   32
#define FACTS_REGIONS_MAX  32
#define FACTS_EVENTS_MAX   5
#define FACTS_NOTES_MAX    8
#define FACTS_FIRST_MAX    5    /* pairs that a prediction shows */
#define FACTS_LOSSES_MAX   4096 /* points of one read */
#define FACTS_JOB_TEXT_MAX (1U << 20)

/* ---- the cluster ---- */

/* Failed handshakes by reason; facts_tls_failure() has the labels. */
enum facts_tls_failure {
    FACTS_TLS_PLAIN,     /* no TLS, or an older one */
    FACTS_TLS_AUTHORITY, /* another authority, or no certificate */
    FACTS_TLS_EXPIRED,   /* or not yet valid */
    FACTS_TLS_NAME,
    FACTS_TLS_MEMBER, /* no member, or removed */
    FACTS_TLS_OTHER,
    FACTS_TLS_FAILURES,
};
const char *facts_tls_failure(enum facts_tls_failure failure);

enum facts_raft_role { FACTS_FOLLOWER, FACTS_CANDIDATE, FACTS_LEADER };

struct facts_cluster {
    char cluster[FACTS_NAME_SIZE];
    char node[FACTS_NAME_SIZE];   /* this one */
    char leader[FACTS_NAME_SIZE]; /* "" where none is known */
    uint32_t node_id;
    uint32_t leader_id; /* 0: none known */
    enum facts_raft_role role;
    uint32_t voters;
    uint32_t voters_alive; /* this one included */
    uint64_t incarnation;
    uint64_t term;
    uint64_t last_index;
    uint64_t commit_index;
    uint64_t applied_index;
    /* Counters since the daemon's start. */
    uint64_t leader_changes;
    uint64_t proposals_committed;
    uint64_t proposals_failed;
    uint64_t proposals_dropped;
    struct histogram wal_fsync; /* HISTOGRAM_LATENCY */
    struct histogram commit;    /* HISTOGRAM_LATENCY, on the leader */
    bool tls;
    bool insecure;           /* without it: plain text between machines is meant */
    int64_t tls_ends[2];     /* of the certificate and the authority, seconds since 1970 */
    uint64_t tls_handshakes; /* done */
    uint64_t tls_failures[FACTS_TLS_FAILURES];
    uint64_t tls_cut;             /* connections of removed members */
    uint64_t peer_turned_away;    /* connections over the rate (peer/gate.h) */
    uint64_t peer_refused;        /* ... with a HELLO that is not let in */
    uint64_t peer_late;           /* ... with none in time, or cut for others */
    char reason[FACTS_TEXT_SIZE]; /* why it is not healthy (no leader, no majority, …); "" where it
                                     is */
    /* The last things that happened to the cluster, newest last. */
    uint32_t events_count;
    struct facts_event {
        int64_t at_ms;
        char text[256];
    } events[FACTS_EVENTS_MAX];
};

enum facts_node_state { FACTS_ALIVE, FACTS_SUSPECT, FACTS_DOWN };

/* Bytes between this node and a peer by class, [0] sent and [1] received. */
struct facts_traffic {
    uint64_t control[2];
    uint64_t gradient[2]; /* the exchange */
    uint64_t checkpoint[2];
    uint64_t data[2]; /* columns of datasets */
};

struct facts_node {
    uint32_t id;
    bool self;
    bool connected; /* the control link is up; true for self */
    bool known;     /* its NODE entry has been applied: what follows is true */
    enum facts_node_state state;
    char name[FACTS_NAME_SIZE];
    char address[FACTS_NAME_SIZE]; /* advertised IP:PORT */
    char role[16];                 /* trainer, arbiter, spare */
    uint32_t life;                 /* of its identity */
    bool votes;                    /* in the consensus group as this node knows it */
    bool drained;
    char device[128]; /* "cpu (AVX2, 2 threads)", "NVIDIA H200, driver 580.65" */
    char backend[8];  /* cpu, cuda; "" for an arbiter or while it is not known */
    char version[32]; /* of its program */
    char phase[24];   /* of Progress: loading, training, …; "" */
    uint32_t threads;
    char binding[33];             /* 32 hexadecimal digits */
    char reason[FACTS_TEXT_SIZE]; /* why it is suspect, down or gets no work; else "" */
    uint64_t losses;              /* times that this daemon has lost it */
    bool lost; /* it is lost now (reason says why), and this is what it was last heard with: */
    int64_t lost_ms; /* wall time */
    uint64_t lost_job, lost_generation, lost_step;
    uint64_t lost_sent_bytes, lost_received_bytes; /* of that generation's exchange */
    char lost_phase[24];
    uint64_t incarnation;
    uint64_t heard_ms_ago; /* 0 for self, UINT64_MAX: never */
    double round_trip_s;   /* < 0: not measured */
    uint64_t job;          /* the job that it works on, 0: none */
    uint64_t step;
    uint64_t queue_bytes; /* waiting to be sent to it */
    uint64_t
        match_index; /* the leader's knowledge of its log; UINT64_MAX where this is no leader */
    uint64_t storage_free_bytes; /* of its state_dir; UINT64_MAX: unknown */
    struct facts_traffic traffic;
};

/* What a node found when it looked at the line to another one last (peer/probe.h). */
enum facts_line { FACTS_LINE_UNKNOWN, FACTS_LINE_GOOD, FACTS_LINE_SLOW, FACTS_LINE_FAILED };
const char *facts_line(enum facts_line line); /* "unknown", "good", "slow", "failed" */

struct facts_pair {
    uint32_t to;
    enum facts_line state;
    bool tls;
    char name[FACTS_NAME_SIZE];    /* the other's */
    char address[FACTS_NAME_SIZE]; /* that was dialled */
    uint64_t age_ms;
    double round_trip_s;          /* 0: not measured */
    uint64_t bytes_per_s;         /* from the node to the other; 0: not measured */
    uint64_t bytes;               /* that were sent for it */
    char reason[FACTS_TEXT_SIZE]; /* why it failed, and what to do; else "" */
};

/* ---- jobs ---- */

struct facts_part {
    uint32_t node_id;
    char node[FACTS_NAME_SIZE];
    uint64_t first, end; /* coordinates [first, end), the intercept's included */
    uint64_t weight;     /* bytes of x that it holds, or its non-zeros where sparse */
    uint64_t step;       /* finished, as it said last */
    char state[24];      /* Progress' phase, or "down" */
};

/* Time of the steps of this daemon so far, by phase (metrics and `watch`). */
enum facts_phase {
    FACTS_PHASE_COMPUTE,     /* the device or the CPU works */
    FACTS_PHASE_EXCHANGE,    /* waiting for other nodes */
    FACTS_PHASE_PUBLICATION, /* what captures kept the steps waiting */
    FACTS_PHASES
};

struct facts_job {
    uint64_t id;
    char uuid[37];
    char name[FACTS_NAME_SIZE];
    char kind[24];   /* regression */
    char backend[8]; /* cpu, cuda; "" where not placed here */
    char state[16];  /* submitted, placed, loading, running, finishing, paused, succeeded, … */
    char phase[24];  /* what this node does for it now: import, load, step, … ; "" */
    char work[16];   /* what of the data this node reads now, "" where it does not: */
    uint64_t work_done_bytes;
    uint64_t work_total_bytes; /* 0: not known */
    bool ended;                /* succeeded, failed or cancelled: the state changes no more */
    bool has_loss;
    bool has_objective;
    char reason[FACTS_TEXT_SIZE];
    char identity[FACTS_DIGEST_SIZE];
    char dataset[FACTS_DIGEST_SIZE];
    char policy[64];
    char storage[8]; /* dense, sparse */
    uint32_t nodes;  /* participants of the newest generation */
    bool dataset_known;
    uint64_t coordinates;
    uint64_t nonzeros;   /* where sparse, else 0 */
    uint64_t elapsed_ns; /* of all generations, and of it: */
    uint64_t compute_ns;
    uint64_t exchange_ns;
    uint64_t publication_ns;
    uint32_t notes_count; /* what it asks for and is not honoured yet, a sentence each */
    char notes[FACTS_NOTES_MAX][FACTS_TEXT_SIZE];
    uint64_t generation;
    uint64_t step;  /* completed */
    uint64_t steps; /* total; 0 while it is not known */
    uint64_t rows;  /* training rows */
    uint64_t test_rows;
    uint64_t features;
    uint64_t batch; /* rows of a batch */
    double loss;
    double first_loss;
    double objective;
    double rows_per_second; /* recent; 0 while unknown */
    double eta_s;           /* < 0: unknown */
    int64_t submitted_ms;
    int64_t started_ms; /* running for the first time */
    int64_t ended_ms;
    int64_t progress_ms; /* wall time of the last completed step: "stuck" is seen from it */
    /* Of the newest published checkpoint on this node. */
    bool has_epoch;
    uint64_t epoch;
    uint64_t epoch_step;
    int64_t epoch_ms;
    char checkpoint[FACTS_PATH_SIZE]; /* the folder on this node */
    char parameter_sha256[FACTS_DIGEST_SIZE];
    char accumulator_sha256[FACTS_DIGEST_SIZE];
    /* The job file's checkpoint keys, as asked. */
    uint64_t checkpoint_every; /* steps; 0: only the last */
    uint32_t checkpoint_keep;
    uint32_t checkpoint_replicas;
    /* Of this daemon, since its start. */
    uint64_t steps_done;
    uint64_t rows_done;
    struct histogram phases[FACTS_PHASES]; /* HISTOGRAM_STEP each */
    /* The partition of this generation, in order of ranks; 0 while unknown. */
    uint32_t parts_count;
    struct facts_part parts[FACTS_NODES_MAX];
    /* The nodes that say that they can serve its data; told of the newest job that they work on. */
    uint32_t holders_count;
    char holders[FACTS_NODES_MAX][FACTS_NAME_SIZE];
};

struct facts_point {
    uint64_t step; /* completed steps when it was the newest */
    double loss;
};

/* The verdict on a job that paused or failed (daemon/verdict.h). */
struct facts_verdict {
    uint64_t job;
    uint64_t generation;
    char name[FACTS_NAME_SIZE]; /* the job's */
    char state[16];             /* paused, failed */
    char who[FACTS_NAME_SIZE];  /* the node that is meant; "": none */
    int64_t at_ms;              /* wall time */
    uint64_t step;
    char phase[24];
    uint64_t sent_bytes;
    char why[FACTS_TEXT_SIZE];
    char by[FACTS_NAME_SIZE];   /* the leader that wrote it */
    char file[FACTS_PATH_SIZE]; /* on this node */
    uint32_t answered;          /* nodes whose records are in it */
    uint32_t nodes_count;
    struct facts_witness { /* and what each said last of that generation */
        char name[FACTS_NAME_SIZE];
        bool answered;
        uint32_t records;
        int64_t at_ms;
        uint64_t step;
        char phase[24];
        char text[256];
    } nodes[FACTS_NODES_MAX];
};

/* ---- checkpoints ---- */

#define FACTS_COPIES_MAX 8

struct facts_shard {
    uint32_t node_id;
    char node[FACTS_NAME_SIZE];
    char name[FACTS_NAME_SIZE]; /* the file's */
    char sha256[FACTS_DIGEST_SIZE];
    uint64_t size;
    uint32_t copies_count; /* nodes that hold it, its own included, as the log knows */
    char copies[FACTS_COPIES_MAX][FACTS_NAME_SIZE];
    uint32_t copies_due; /* how many there are to be, its own included */
    /* On the asked node: "verified" (its digest was compared since the daemon's start), "here",
     * "damaged" (found so by the last check, put aside), "missing", or "" where it holds none. */
    char here[12];
    bool prepared;  /* has voted */
    bool published; /* its CURRENT names the epoch or a newer one */
};

struct facts_epoch {
    uint64_t epoch;
    uint64_t step;
    uint64_t generation;
    char state[16]; /* publishing, published, collected, aborted */
    bool current;   /* this node's CURRENT names it */
    char reason[FACTS_TEXT_SIZE];
    char folder[FACTS_PATH_SIZE]; /* on this node, "" where it is not here */
    int64_t committed_ms;
    char parameter_sha256[FACTS_DIGEST_SIZE];
    char accumulator_sha256[FACTS_DIGEST_SIZE];
    char policy[64];
    double loss;
    double objective;
    bool has_loss;
    bool has_objective;
    uint64_t bytes;    /* of all shards */
    uint32_t replicas; /* further copies of each shard, the number in effect */
    uint32_t shards_count;
    struct facts_shard shards[FACTS_NODES_MAX];
};

struct facts_publication { /* counters since the daemon's start */
    uint64_t committed;
    uint64_t aborted;
    uint64_t bytes_written;
    uint64_t bytes_read;
    struct histogram capture; /* HISTOGRAM_STEP each */
    struct histogram write;
    struct histogram prepare; /* from BEGIN to the last vote */
    struct histogram commit;  /* from the last vote to CURRENT here */
};

/* ---- the compute session ---- */

struct facts_region {
    char name[FACTS_NAME_SIZE];
    uint64_t offset, bytes, alignment;
};

struct facts_session {
    bool open;
    char state[24];   /* as gpu/session.h names it */
    char backend[8];  /* cpu, cuda */
    char device[128]; /* also without an open session */
    char device_uuid[64];
    char driver[32]; /* "" without one */
    char binding[33];
    uint32_t images_count; /* what is registered: "sm_90a", "ptx_80"; "avx512", "avx2", "c" */
    struct facts_image {
        char name[FACTS_NAME_SIZE];
        char state[24]; /* chosen, usable, refused: … */
    } images[FACTS_IMAGES_MAX];
    uint32_t threads;
    uint64_t job;
    uint64_t generation;
    uint64_t issues; /* the counter's last known value */
    uint64_t issues_expected;
    uint64_t arena_bytes;
    uint64_t arena_alignment;
    uint32_t regions_count;
    struct facts_region regions[FACTS_REGIONS_MAX];
};

/* ---- readiness, pulse ---- */

struct facts_check {
    char name[32]; /* selftest, raft, state, device, peers, … */
    bool ok;
    bool warns;                     /* it is ok, and yet people should know */
    char sentence[FACTS_TEXT_SIZE]; /* what is so, or what is wrong and where */
    char hint[FACTS_TEXT_SIZE];     /* what to do; "" where ok */
};

/* Whether compute advances: while busy, ticks must change (steps, chunks, imported pieces), or
 * the watchdog is not fed. The loop's own advance is seen by notify.c itself. */
struct facts_pulse {
    bool busy;
    uint64_t ticks;
};

/* ---- answers ---- */

struct facts_result {
    struct err err; /* code 0: done */
    char hint[FACTS_TEXT_SIZE];
    uint64_t job; /* submit and the job verbs: the job's id */
    bool existed; /* submit: this uuid was submitted before, nothing changed */
    /* All faults of a refused job file, one a line, file:line:column: …; NULL: err says all.
     * Borrowed for the callback. */
    const char *faults;
};

typedef void facts_done_fn(void *context, const struct facts_result *result);

struct facts_prediction {
    struct err err;
    char hint[FACTS_TEXT_SIZE];
    /* Heap (malloc), taken by the callback, which frees it: one value a row in the rows' order.
     * NULL on error. */
    double *values;
    size_t values_count;
    bool has_metrics;
    double rmse, mae, r2;
    char target[FACTS_NAME_SIZE]; /* the column's name, "" where there is none */
    char device[128];
    char checkpoint[FACTS_PATH_SIZE]; /* the folder used, and of it: */
    char parameter_sha256[FACTS_DIGEST_SIZE];
    char prediction_sha256[FACTS_DIGEST_SIZE]; /* of the values as little-endian binary64 */
    uint64_t epoch, step;
    uint32_t first_count; /* rows shown; the predictions are values[0 … first_count-1] */
    bool first_has_target;
    double first_target[FACTS_FIRST_MAX];
};

typedef void facts_predicted_fn(void *context, struct facts_prediction *prediction);

struct work_meter;

/* One question for `predict`: paths are this machine's and absolute. */
struct facts_predict {
    struct work_meter *meter; /* told how far it is; lives until the callback. May be NULL */
    const char *checkpoint;   /* a folder with every shard */
    const char *data_path;
    const char *data_settings; /* YAML: the keys of a job file's `data:`; "": a native folder */
    const char *rows;          /* all, train, test */
    bool metrics;
};

/* A job as a client hands it in. */
struct facts_submit {
    uint8_t uuid[16]; /* the client's: the same one again is the same job */
    const char *text; /* the job file as it is, text_size bytes, at most FACTS_JOB_TEXT_MAX */
    size_t text_size;
    const char *file_name;        /* for its faults */
    const char *folder;           /* absolute; a relative data.path starts here */
    const char *const *overrides; /* "optimizer.rate=0.1" */
    size_t overrides_count;       /* at most 64 */
    const char *from; /* absolute path of a checkpoint folder of the same identity, or "" */
};

enum facts_member_how { FACTS_ADD, FACTS_REMOVE, FACTS_DRAIN, FACTS_UNDRAIN, FACTS_JOIN };

/* A change of who is in the cluster, asked by a person, or (JOIN) by the node that wants in. */
struct facts_member {
    enum facts_member_how how;
    const char *name;
    const char *address; /* ADD: may be ""; JOIN: what others dial */
    const char *role;    /* ADD: trainer, arbiter, spare */
    uint8_t uuid[16];    /* JOIN: of its state folder */
    uint32_t node, life; /* standing: the identity that asks */
};

/* ---- the table ---- */

struct facts {
    void *daemon; /* first argument of every function */

    void (*cluster)(void *daemon, struct facts_cluster *ret_cluster);
    /* Every member in order of ids; returns how many were written (at most nodes_max). */
    size_t (*nodes)(void *daemon, struct facts_node *ret_nodes, size_t nodes_max);

    /* The lines from a node to every other member, in order of ids; returns how many. May be NULL:
     * nobody looks. */
    size_t (*pairs)(void *daemon, uint32_t from, struct facts_pair *ret_pairs, size_t pairs_max);

    /* Ids of all jobs, ascending; returns how many were written. */
    size_t (*job_ids)(void *daemon, uint64_t *ret_ids, size_t ids_max);
    /* false: no such job. */
    bool (*job)(void *daemon, uint64_t id, struct facts_job *ret_job);
    /* The job's text as it is in the log (canonical YAML): borrowed until the loop goes on. NULL:
     * no such job. */
    const char *(*job_text)(void *daemon, uint64_t id);
    /* Losses of steps beyond `after`, ascending, thinned to points_max; returns how many. */
    size_t (*losses)(void *daemon, uint64_t id, uint64_t after, struct facts_point *ret_points,
                     size_t points_max);
    /* The losses of steps before this process are still being read: who asks for the job waits. May
     * be NULL: never. */
    bool (*losses_pending)(void *daemon, uint64_t id);
    /* The newest verdict on the job; false: none. May be NULL: no flight recorder. */
    bool (*verdict)(void *daemon, uint64_t id, struct facts_verdict *ret_verdict);
    /* A number that changes whenever anything that job() or losses() tells of this job has changed.
     */
    uint64_t (*job_version)(void *daemon, uint64_t id);

    /* Epochs of a job, ascending; returns how many were written. */
    size_t (*epoch_ids)(void *daemon, uint64_t job, uint64_t *ret_epochs, size_t epochs_max);
    bool (*epoch)(void *daemon, uint64_t job, uint64_t epoch, struct facts_epoch *ret_epoch);
    void (*publication)(void *daemon, struct facts_publication *ret_publication);

    void (*session)(void *daemon, struct facts_session *ret_session);
    size_t (*checks)(void *daemon, struct facts_check *ret_checks, size_t checks_max);
    void (*pulse)(void *daemon, struct facts_pulse *ret_pulse);

    /* Verbs. done of submit comes when the job's entry is applied here. */
    int (*submit)(void *daemon, const struct facts_submit *job, facts_done_fn *done, void *context,
                  struct err *err);
    int (*cancel)(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
    int (*pause)(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
    int (*resume)(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
    /* done comes when the change is agreed and applied here (result->job counts nothing). */
    int (*member)(void *daemon, const struct facts_member *ask, facts_done_fn *done, void *context,
                  struct err *err);
    /* Was the identity that asks removed? 0: not that this node knew; ERR_STATE: yes. */
    int (*standing)(void *daemon, const struct facts_member *ask, struct err *err);
    /* Compares all that lies here of the job's checkpoints; done when all was read once. */
    int (*verify)(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
    int (*prune)(void *daemon, uint64_t job, uint32_t keep, facts_done_fn *done, void *context,
                 struct err *err);
    int (*predict)(void *daemon, const struct facts_predict *question, facts_predicted_fn *done,
                   void *context, struct err *err);
};

/* The verdict of /readyz: every check is ok, and there is one. */
bool facts_ready(const struct facts *facts);

#endif

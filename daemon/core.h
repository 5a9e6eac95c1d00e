/* The daemon's inside: what daemon.c, members.c, publish.c, run*.c, verbs.c and tell.c share.
 * Private to these files. Thread: the loop, run_compute.c's thread excepted. */
#ifndef COPPELIUS_DAEMON_CORE_H
#define COPPELIUS_DAEMON_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "control/control.h"
#include "control/coordinator.h"
#include "control/env_uv.h"
#include "control/state.h"
#include "daemon/daemon.h"
#include "daemon/facts.h"
#include "daemon/fitness.h"
#include "daemon/histogram.h"
#include "daemon/recorder.h"
#include "peer/peer.h"

#define DAEMON_PATH_SIZE     4096
#define DAEMON_STATE_DIR_MAX 480 /* bytes: every path below it then fits where it is shown */
#define DAEMON_TICK_MS       100
#define DAEMON_HEARTBEAT_MS  250
#define DAEMON_STOP_MS       8000 /* of the 10 s: the rest is for closing */
#define DAEMON_SAID_MAX      64   /* proposals whose first saying is remembered */

/* Frames of the mesh. */
enum daemon_frame {
    FRAME_RAFT = MESH_KIND_FIRST, /* a message of the control room */
    FRAME_PROGRESS,               /* peer.proto's Progress */
    FRAME_RENEW,                  /* a request for a certificate (DER), to who has the authority */
    FRAME_RENEWED,                /* the certificate (PEM) */
    FRAME_SHARD,                  /* a word about a copy of a shard (checkpoint/agent.h) */
    FRAME_RECORDS_ASK,            /* peer.proto's RecordsAsk (verdict.h) */
    FRAME_RECORDS,                /* Records */
    FRAME_VERDICT,                /* a verdict's text */
    FRAME_PROBE_ASK,              /* peer.proto's ProbeAsk (preflight.h) */
    FRAME_PROBE_ROW,              /* ProbeRow */
    FRAME_OUT,                    /* whose place and life (4 bytes each) were removed: standing.c */
};

/* What a node says of the data of its job. */
struct data_word {
    uint64_t job; /* 0: nothing */
    bool has;
    uint8_t dataset[32];           /* where it has them */
    char missing[FACTS_TEXT_SIZE]; /* why it has none; "" with has false: it still looks */
};

/* How far a node is: peer.proto's Progress as a struct; this node's own is kept in the same form.
 */
struct progress {
    uint64_t job, generation, step;
    char phase[24];
    bool has_loss;
    double loss, first_loss;
    uint64_t rows, elapsed_ns, compute_ns, exchange_ns, publication_ns;
    uint64_t sent_bytes, received_bytes;
    struct coordinator_report captured;
    uint64_t storage_free_bytes;
    char trouble[FACTS_TEXT_SIZE];
    bool stopping;
    bool failed_here; /* the trouble is its own, not what others led to */
    char version[32];
    char backend[8];
    uint32_t threads;
};

/* A node that this one has lost: what was last known of it then (lost.c). */
struct lost {
    uint64_t times; /* since this daemon's start; 0: never, and nothing below counts */
    uint64_t wall_ms;
    uint64_t job, generation, step; /* job 0: it had none */
    uint64_t sent_bytes, received_bytes;
    char phase[24];
};

struct member {
    uint32_t id;   /* its place (control/group.h) */
    uint32_t life; /* of the identity that has it */
    char name[FACTS_NAME_SIZE];
    char address[FACTS_NAME_SIZE];
    enum daemon_role role;
    bool self;
    bool heard;
    uint64_t heard_ms; /* clock_now_ms() of the last frame with progress */
    uint64_t incarnation;
    char reason[FACTS_TEXT_SIZE]; /* why its link is down or its part has failed; else "" */
    struct lost lost;
    struct progress progress;
    struct data_word data;       /* kept apart: it outlives the run */
    char unfit[FACTS_TEXT_SIZE]; /* why its device cannot be worked with; "": it can */
    /* Of its log, as it said since it connected (newcomer.c). */
    bool log_empty;
    bool caught_up;
    uint64_t knows_self; /* the incarnation of this node that its state has; 0: none */
};

/* A proposal: what it was, without its wall time, when it was said first and last. */
struct said {
    uint64_t hash;
    uint64_t at_ms;   /* the last time, clock_now_ms(); 0: none */
    uint64_t wall_ms; /* the first time */
};

struct run;
struct publication;
struct history;
struct verb;
struct renewal;
struct standing;
struct joins;
struct data_cache;
struct serve;
struct verdicts;
struct preflight;

struct daemon {
    uv_loop_t *loop;
    struct daemon_hooks hooks;
    struct facts facts;

    char cluster[FACTS_NAME_SIZE];
    char name[FACTS_NAME_SIZE];
    char advertise[FACTS_NAME_SIZE];
    char state_dir[DAEMON_PATH_SIZE];
    char device[64];
    unsigned threads;
    bool device_share;
    uint64_t memory_bytes;
    uint32_t node_id;
    uint32_t streams;
    uint32_t exchange_threads;
    uint64_t incarnation;
    struct trust *trust; /* NULL: plain text */
    bool insecure;
    char authority[DAEMON_PATH_SIZE]; /* "": not here */
    unsigned renew_days;
    struct renewal *renewal;
    struct standing *standing;
    struct joins *joins; /* NULL: not here */
    uint32_t life;       /* of this identity (control/group.h) */
    uint8_t uuid[16];    /* of its state folder */
    uint8_t binding[16];
    char device_text[COMMAND_DEVICE_SIZE];
    char backend[8];

    struct fs *fs;
    struct data_cache *cache;
    struct serve *serve;
    struct state state;
    struct control_uv *control_uv;
    struct control *control;
    struct mesh *mesh;
    struct coordinator coordinator;
    bool was_leading;
    uint32_t leader_seen;
    uint64_t term_seen; /* the term that leader_seen was told with */
    bool log_failed;
    bool newcomer; /* its log is empty: it takes no part in Raft before newcomer.c lets it */
    uint64_t newcomer_ms;

    uint32_t members_count;
    struct member members[STATE_NODES_MAX]; /* in order of id; one is self */
    struct member nobody;                   /* members_find()'s answer for who is none */
    uint64_t members_seen;                  /* state.changes when the list was last made to fit */
    uint32_t expected_seen;                 /* who was expected when trust was told last */
    bool joined;                            /* it began no cluster */

    uv_timer_t tick;
    uv_timer_t soon; /* fires at the loop's next turn: something has changed */
    unsigned handles_open;
    bool opened;
    uint64_t heartbeat_ms;
    uint64_t node_proposed_ms;
    struct said said[DAEMON_SAID_MAX]; /* a ring */
    size_t said_next;

    struct run *run;                  /* NULL: none */
    struct run *closing;              /* being taken down; no other may start before */
    struct publication *publications; /* a list, one for each job with files */
    uint64_t publications_seen;       /* state.changes when the list was last made to fit */
    bool publications_sweep;          /* an action has ended since */
    atomic_bool copies_cancel;        /* the daemon ends: fetches of shards give up */
    struct history *histories;        /* a list, newest job first */
    struct verb *verbs;               /* a list: pending answers */
    uint32_t predictions;             /* that are worked on (predict.c) */
    unsigned works;                   /* uv_queue_work requests under way */

    bool stopping;
    bool hurried;
    uint64_t stop_job; /* that this node worked on then; 0: none */
    uint64_t stop_until_ms;
    uint64_t stop_proposed_ms;

    bool selftest_done;
    struct err selftest;
    struct fitness fitness;

    struct recorder recorder;
    struct verdicts *verdicts;
    struct preflight *preflight;
    uint64_t pulse_ms; /* when the recorder had the last one */

    uint32_t events_count;
    struct facts_event events[FACTS_EVENTS_MAX];
    uint64_t recoveries;
    struct facts_publication publication_stats;
    uint64_t traffic_out[STATE_NODES_MAX + 1];
    struct facts_session session;
    uint64_t wal_syncs_seen;
};

/* daemon.c */
uint64_t daemon_wall_ms(void);
/* 0: nobody, or the log is closed here already: a stop waits for works under way, and people may
 * ask all that time. */
uint32_t daemon_leader(const struct daemon *daemon);
/* Something has changed: daemon_turn() at the loop's next turn. */
void daemon_soon(struct daemon *daemon);
/* Gives the command to the control room, stamped with the wall time of its first saying; what fails
 * is tried again by whoever still wants it. */
void daemon_propose(struct daemon *daemon, struct command *command);
/* An event of the cluster for people: listings show the last few; the log has it too. */
void daemon_event(struct daemon *daemon, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Into the flight recorder, with what this node works on now. */
void daemon_record(struct daemon *daemon, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A worker request began or ended: the daemon is not freed before all have. */
void daemon_work_begun(struct daemon *daemon);
void daemon_work_ended(struct daemon *daemon);
void daemon_run_gone(struct daemon *daemon, struct run *run); /* run.c: it is closed and freed */

/* daemon_mesh.c */
int daemon_open_mesh(struct daemon *daemon, const char *listen, struct err *err);

/* members.c */
int members_init(struct daemon *daemon, const struct daemon_settings *settings, struct err *err);
/* Tells the certificates' side who is in: whoever is not is refused, and cut. */
void members_tell_trust(struct daemon *daemon);
struct member *members_get(struct daemon *daemon, uint32_t id); /* NULL: none */
/* Never NULL: of who is no member (any more) a stand-in, true until the next call. */
struct member *members_find(struct daemon *daemon, uint32_t id);
struct member *members_put(struct daemon *daemon, uint32_t id); /* must not be there */
void members_drop(struct daemon *daemon, uint32_t id);          /* must be there */
struct member *members_self(struct daemon *daemon);
void members_on_up(struct daemon *daemon, uint32_t id, uint64_t incarnation);
void members_on_down(struct daemon *daemon, uint32_t id, const char *reason);
void members_on_progress(struct daemon *daemon, uint32_t id, const uint8_t *bytes, size_t size);
/* Sends this node's progress to everyone (at most every DAEMON_HEARTBEAT_MS unless `now`). */
void members_heartbeat(struct daemon *daemon, bool now);
void members_view(struct daemon *daemon, struct coordinator_view *ret_view);
enum facts_node_state members_state(const struct daemon *daemon, const struct member *member);

/* admit.c */
/* Somebody with a token wants to be a member (joins.h): 1: it is, and `lines` has all members; 0:
 * not yet; negative: refused. */
struct join_wish;
struct buf;
int members_admit(void *daemon, const struct join_wish *wish, struct buf *lines, struct err *err);
void admit_on_join(void *daemon, const struct peer_incoming *incoming);

/* standing.c */
void standing_init(struct daemon *daemon);
void standing_free(struct daemon *daemon);
void standing_turn(struct daemon *daemon);
/* Why a member refuses this node, which knows no leader; "": none does, so far. */
const char *standing_reason(const struct daemon *daemon);
/* A node asks whether its identity was removed: ERR_STATE, or 0. */
int standing_answer(void *daemon, const struct facts_member *ask, struct err *err);
/* The last word to a member whose removal was applied: what its socket takes now. */
void standing_say_out(struct daemon *daemon, const struct member *member);
void standing_on_out(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size);
/* membership.c: this node was removed, as `by` says (""; its own log): it ends. */
void members_out(struct daemon *daemon, const char *by);

/* renew.c */
void renew_init(struct daemon *daemon);
void renew_free(struct daemon *daemon);
void renew_turn(struct daemon *daemon);
void renew_on_request(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size);
void renew_on_answer(struct daemon *daemon, const uint8_t *bytes, size_t size);

/* newcomer.c */
void newcomer_init(struct daemon *daemon);
void newcomer_turn(struct daemon *daemon);

/* membership.c: who is in the cluster, as agreed */
void membership_turn(struct daemon *daemon);
/* The entry that the ask comes to; ERR_NOT_FOUND, ERR_STATE, ERR_USAGE where it cannot be. */
int membership_command(const struct daemon *daemon, const struct facts_member *ask,
                       struct command *ret_command, struct err *err);
/* Before each proposal: the free place and the like, as they are now. */
void membership_name(const struct daemon *daemon, struct command *command);
bool membership_settled(const struct daemon *daemon, const struct command *command);

/* run.c */
void run_turn(struct daemon *daemon);
void run_adopt(struct daemon *daemon, const struct peer_incoming *incoming);
bool run_active(const struct daemon *daemon);
/* This node's part does steps, or has done the last one. */
bool run_steps(const struct daemon *daemon);

/* lost.c: names a node that is gone or whose part has failed, with the job, step, phase and bytes
 * that it was last heard with: in its entry, the log, the listings and the metrics. `what` goes
 * between the node's name and the reason: "is gone". */
void lost_name(struct daemon *daemon, struct member *member, const char *what, const char *reason);

/* publish.c */
struct capture;
void publish_turn(struct daemon *daemon);
/* Takes the capture. */
void publish_capture(struct daemon *daemon, struct capture *capture);
/* Rank 0: the whole vectors of that step; takes both. */
void publish_vectors(struct daemon *daemon, uint64_t job, uint64_t generation, uint64_t step,
                     double *parameter, double *accumulator, size_t count);
/* The newest epoch whose CURRENT is durable here; 0: none. */
uint64_t publish_current(const struct daemon *daemon, uint64_t job);
/* A run of that generation starts from coordinates [first, end) of the epoch: true when the shards
 * over them lie here, and their digests were compared since. Else they are fetched or waited for.
 */
bool publish_seed_ready(struct daemon *daemon, uint64_t job, uint64_t generation, uint64_t epoch,
                        uint64_t first, uint64_t end);
/* Whether the epoch is published here. */
bool publish_has(const struct daemon *daemon, uint64_t job, uint64_t epoch);
/* Begins to compare all that lies here of the job; ..._verified: when all was, since then. */
uint64_t publish_verify(struct daemon *daemon, uint64_t job);
bool publish_verified(const struct daemon *daemon, uint64_t job, uint64_t since);
/* facts_shard.here */
const char *publish_here(const struct daemon *daemon, uint64_t job, const struct state_epoch *epoch,
                         uint32_t rank);
void publish_on_word(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size);
bool publish_holds_capture(const struct daemon *daemon, uint64_t job, uint64_t step);
bool publish_busy(const struct daemon *daemon); /* something still to be written */
void publish_report(const struct daemon *daemon, struct coordinator_report *ret_report);
void publish_free(struct daemon *daemon);

/* recall.c: whether the losses of the job's steps are still to be read from a checkpoint here,
 * after a start. */
bool recall_pending(const struct daemon *daemon, uint64_t job);

/* history.c: losses and counters of the jobs that this daemon saw, for people. */
#define HISTORIES_MAX 32 /* of the newest jobs */

struct history {
    struct history *next;
    uint64_t job;
    uint64_t version;
    uint64_t steps_done, rows_done;
    int64_t progress_wall_ms;
    bool has_first;
    double first_loss;
    struct histogram phases[FACTS_PHASES];
    struct progress last; /* this node's last report of the job; job 0: none */
    struct losses losses;
    /* Of the dataset, as this node prepared it; ranges_count 0: not yet. */
    bool read; /* the next three are known */
    uint64_t test_rows, nonzeros;
    bool sparse;
    uint32_t ranges_count;
    uint64_t weights[STATE_NODES_MAX];
    /* Recent speed: rows and time of the last reports. */
    uint64_t recent_ms[2], recent_rows[2];
};
struct history *history_find(const struct daemon *daemon, uint64_t job); /* NULL: none */
struct history *history_of(struct daemon *daemon, uint64_t job);         /* made where absent */
/* stepped_ms: when the step was done; the report may come later, from a run that stood still. */
void history_put(struct history *history, const struct facts_point *point, uint64_t stepped_ms);
/* All of a run's losses: what a run starts from, a capture, a checkpoint here. Replaces what is
 * known. */
void history_take(struct history *history, const struct losses *losses);
/* phases are added and emptied. */
void history_add(struct history *history, uint64_t steps, uint64_t rows,
                 struct histogram phases[FACTS_PHASES]);
double history_rows_per_s(const struct history *history);
size_t history_get(const struct history *history, uint64_t after, struct facts_point *points,
                   size_t points_max);
void history_free(struct daemon *daemon);

/* verbs.c, predict.c */
void verbs_turn(struct daemon *daemon);
void verbs_cancel(struct daemon *daemon);
/* ERR_BUSY: PREDICTIONS_MAX are worked on. Each holds its data, and 8 bytes a row for the answer.
 */
#define PREDICTIONS_MAX 2U /* of the pool's four threads: the others are for shards */
/* A prediction takes limits.memory, or where that is not given this part of the machine's. */
#define PREDICTION_MEMORY_SHARE 4
#define PREDICTION_ROW_BYTES    32 /* beside the row: target, prediction, the session's sums */
int predict_start(void *daemon, const struct facts_predict *question, facts_predicted_fn *done,
                  void *context, struct err *err);
int verbs_submit(void *daemon, const struct facts_submit *job, facts_done_fn *done, void *context,
                 struct err *err);
int verbs_cancel_job(void *daemon, uint64_t job, facts_done_fn *done, void *context,
                     struct err *err);
int verbs_pause(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
int verbs_resume(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
int verbs_verify(void *daemon, uint64_t job, facts_done_fn *done, void *context, struct err *err);
int verbs_prune(void *daemon, uint64_t job, uint32_t keep, facts_done_fn *done, void *context,
                struct err *err);

int verbs_member(void *daemon, const struct facts_member *ask, facts_done_fn *done, void *context,
                 struct err *err);

/* daemon_control.c: opens the log and the state machine behind it; a log that was lost is refused.
 */
int daemon_open_control(struct daemon *daemon, struct err *err);
/* From here on the log counts: to lose it is to be refused. */
int daemon_mark_log(struct daemon *daemon, struct err *err);

/* tell.c: fills daemon->facts */
void tell_init(struct daemon *daemon);
void tell_hex(const uint8_t digest[SHA256_SIZE], char text[FACTS_DIGEST_SIZE]);
/* tell_epoch.c: functions of struct facts */
size_t tell_epoch_ids(void *daemon, uint64_t job, uint64_t *ret_epochs, size_t epochs_max);
bool tell_epoch(void *daemon, uint64_t job, uint64_t epoch, struct facts_epoch *ret_epoch);
/* tell_trust.c */
void tell_trust(const struct daemon *daemon, struct facts_cluster *ret);
void tell_trust_check(const struct daemon *daemon, struct facts_check *ret);

#endif

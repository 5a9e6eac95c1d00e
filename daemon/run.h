/* One generation of one job on this node: the corridor that hands each noun through the next door.
 *
 *   PREPARING -> CUTTING      the dataset is here and known               [on_prepared]
 *   CUTTING -> LOADING        PARTITION is applied, the seed epoch is here [run_cutting_turn]
 *   LOADING -> CONNECTING     columns and session are ready               [on_loaded]
 *   LOADING -> STEPPING       one participant: no links                   [on_loaded]
 *   CONNECTING -> STEPPING    all bulk links are up                       [on_exchange_ready]
 *   any before ENDED -> ENDED finished, stopped or failed                 [on_ended, run_fail_here]
 *   any -> CLOSING            the generation is over                      [run_end]
 *
 * Two halves: run.c on the loop, run_compute.c on the run's compute thread; they exchange messages
 * and share nothing but what is written before the thread starts, and one flag. */
#ifndef COPPELIUS_DAEMON_RUN_H
#define COPPELIUS_DAEMON_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mailbox.h"
#include "daemon/capture.h"
#include "daemon/core.h"
#include "daemon/meter.h"
#include "data/data.h"
#include "gpu/gpu.h"
#include "learn/learn.h"
#include "proto/job.h"

/* Bits of the directive that travels with chunk 0. */
#define RUN_CAPTURE 1U
#define RUN_STOP    2U

enum run_state {
    RUN_PREPARING,
    RUN_CUTTING,
    RUN_LOADING,
    RUN_CONNECTING,
    RUN_STEPPING,
    RUN_ENDED,
    RUN_CLOSING,
};

/* Messages between the halves. */
enum run_mail {
    /* to the compute thread */
    RUN_MAIL_LOAD, /* struct run_load */
    RUN_MAIL_STEP, /* struct message: the exchange is ready (or there is none) */
    RUN_MAIL_NEXT, /* struct message: the capture before is decided, another may be made */
    RUN_MAIL_QUIT, /* struct message: wake up, the generation is over */
    RUN_MAIL_FREE, /* struct message: the exchange is closed, free what it borrowed */
    /* to the loop */
    RUN_MAIL_PREPARED, /* struct run_prepared */
    RUN_MAIL_LOADED,   /* struct run_loaded */
    RUN_MAIL_PROGRESS, /* struct run_progress */
    RUN_MAIL_CAPTURED, /* struct run_captured */
    RUN_MAIL_ENDED,    /* struct run_ended: no more steps; waits for RUN_MAIL_FREE */
    RUN_MAIL_GONE,     /* struct message: the thread returns */
};

struct run_holder {
    uint32_t node_id;
    uint32_t life;
    char name[FACTS_NAME_SIZE];
    char address[FACTS_NAME_SIZE];
};

struct run_load {
    struct message message;
    uint32_t rank, participants;
    uint64_t bounds[STATE_NODES_MAX + 1];
    uint64_t steps;
    uint64_t seed_epoch;
    char seed_folder[DAEMON_PATH_SIZE]; /* of that epoch, below the state folder; or, with epoch 0,
                                           the folder that the job continues; "" zeros */
    uint8_t identity[SHA256_SIZE];
    bool fetch; /* the data are not here, or others: this node's columns come from the holders */
    uint8_t dataset[SHA256_SIZE];
    uint32_t holders_count;
    struct run_holder holders[STATE_NODES_MAX];
};

struct run_prepared {
    struct message message;
    char missing[FACTS_TEXT_SIZE]; /* why the data are not here; then nothing below is known */
    uint8_t dataset[SHA256_SIZE];
    uint64_t rows, test_rows, features, nonzeros, steps;
    bool sparse;
    uint32_t ranges_count; /* cuts for as many participants as there are, or coordinates */
    uint64_t bounds[STATE_NODES_MAX + 1];
    uint64_t weights[STATE_NODES_MAX]; /* of each range: bytes, or non-zeros */
};

struct run_loaded {
    struct message message;
    uint32_t chunk_rows_max, chunks_max;
    uint64_t test_rows, nonzeros; /* of the dataset: who fetched knows them only now */
    bool sparse;
    struct facts_session session;
    struct losses losses; /* of the steps before the first that it does */
};

#define RUN_CACHE_NAME_SIZE 96
#define RUN_HELD_MAX        2
#define RUN_POINTS_MAX      256

struct run_progress {
    struct message message;
    atomic_bool taken; /* the loop has read it: the compute thread may fill it again */
    uint64_t step;
    uint64_t steps_done, rows_done; /* since the last one */
    double loss;
    uint64_t elapsed_ns, compute_ns, exchange_ns, publication_ns; /* of this generation */
    uint64_t rows;                                                /* of this generation */
    uint64_t issues;
    uint64_t stepped_ms; /* when the newest step was done */
    struct histogram phases[FACTS_PHASES];
    size_t points_count;
    struct facts_point points[RUN_POINTS_MAX];
};

struct run_captured {
    struct message message;
    struct capture *capture;
};

struct run_ended {
    struct message message;
    struct err err; /* code 0: finished or stopped */
    bool finished;  /* all steps are done */
    bool published; /* nothing new to publish: the last step was committed before */
    uint64_t step;
    bool has_loss, has_objective;
    double loss, objective;
};

struct run {
    struct daemon *daemon;
    enum run_state state;
    uint64_t job;
    uint64_t generation;
    struct job spec;
    char name[COMMAND_NAME_SIZE];
    uint32_t rank;
    uint32_t participants; /* those with a range, from LOADING on */

    /* the loop's half */
    struct mailbox to_loop;
    bool box_open;
    pthread_t thread;
    bool thread_started;
    bool thread_ended;
    bool quit_sent;
    uint64_t state_since_ms;
    uint64_t proposed_ms;
    bool directed; /* STOP was asked of the steps */
    bool has_prepared;
    struct run_prepared prepared;
    struct run_loaded loaded;
    struct exchange *exchange;
    bool exchange_closing;
    bool exchange_failed;
    struct capture *gathering; /* its slices are on their way */
    bool next_owed;            /* the compute thread waits for RUN_MAIL_NEXT after its capture */
    uint64_t next_step;        /* ... of this step */
    struct run_ended ended;
    bool end_proposed;

    /* the compute thread's until it is gone, then the loop's */
    char held[RUN_HELD_MAX][RUN_CACHE_NAME_SIZE]; /* entries of the cache in use */
    unsigned held_count;

    /* shared, immutable once the thread runs */
    char cache_dir[DAEMON_PATH_SIZE];

    /* shared */
    atomic_bool cancel;           /* set by the loop; the thread looks at each boundary */
    atomic_bool exchange_refused; /* begin, push or pull gave the thread an error */
    atomic_uint local_word;       /* directive where no exchange is */
    atomic_ullong ticks;          /* the thread's pulse */
    struct work_meter meter;      /* of import and load */
    struct mailbox to_compute;
    const struct learn_exchange *learn_exchange; /* written before RUN_MAIL_STEP */
    struct learn_exchange learn_exchange_store;
    const struct learner_ops *ops;
    struct learner *_Atomic learner; /* for finish on the exchange thread; immutable when set */
    struct message mail_step, mail_next, mail_quit, mail_free, mail_gone;
};

/* run_compute.c: the thread's main function. */
void *run_compute_main(void *run);
/* run_data.c: import where the cache lacks it, open. progress ticks and obeys run->cancel. */
int run_data_open(struct run *run, struct dataset **ret_dataset, struct err *err);
/* Whether the job's files cannot be read here: then why, else "". */
void run_data_missing(const struct run *run, char *text, size_t size);
/* Holds an entry of the cache until the run is gone (run_data_release). */
void run_data_hold(struct run *run, const char *name);
void run_data_release(struct run *run);
void run_data_view(const struct run *run, struct dataset_view *ret_view);
/* A job's `data:` block as the data room wants it; the pointers borrow from `data` and `paths`. */
int run_data_settings(const struct job_data *data, struct data_settings *ret_settings,
                      struct err *err);

/* Appends "(and N more places…)" to an import's refusal; the sentence itself is the data room's. */
void run_data_more(const struct data_faults *faults, const char *where, int code, struct err *err);

/* run.c: states, begin and end */
void run_set_state(struct run *run, enum run_state next);
const struct state_job *run_job(const struct run *run);
bool run_may_propose(struct run *run); /* true at most twice a second */
/* The generation is over for this node. */
void run_end(struct run *run, const char *reason);
/* Goes on closing where the thread has ended. */
void run_close_on(struct run *run);
void run_stop(struct daemon *daemon);

/* run_agree.c: one turn in that state */
void run_cutting_turn(struct run *run, const struct state_job *job);
void run_stepping_turn(struct run *run, const struct state_job *job);
void run_next_turn(struct run *run);
void run_ended_turn(struct run *run, const struct state_job *job);

/* run_exchange.c */
int run_open_exchange(struct run *run, const struct state_job *job, struct err *err);
void run_start_steps(struct run *run);
void run_connecting_turn(struct run *run, const struct state_job *job);

/* run_mail.c */
void run_on_mail(struct mailbox *box);
/* This node's part cannot go on for that reason. */
void run_fail_here(struct run *run, const struct err *err);

#endif

/* The compute thread's inside: what run_compute.c (its life, data, session) and run_steps.c (steps,
 * captures, the end) share. Nothing here is seen by another thread. */
#ifndef COPPELIUS_DAEMON_RUN_COMPUTE_H
#define COPPELIUS_DAEMON_RUN_COMPUTE_H

#include "daemon/run.h"

/* What the thread holds; nobody else sees it. */
struct compute {
    struct run *run;
    struct dataset *dataset;
    struct dataset_block block;
    struct dataset_targets targets;
    struct dataset_view view;
    struct session *session;
    struct learner *learner;
    struct run_load *load;
    struct learn_schedule schedule;
    uint64_t step;       /* steps done */
    uint64_t first_step; /* of this generation */
    bool has_loss;
    double loss;
    struct losses losses; /* of all steps, those of earlier generations too */
    struct shard seed;
    bool names_made;
    struct capture_names *names; /* of this node's coordinates, for its captures */
    bool slot_used;              /* a capture is out: RUN_MAIL_NEXT is awaited before another */

    struct run_progress progress;
    uint64_t started_ns;
    uint64_t told_ns;
    uint64_t compute_ns, exchange_ns, publication_ns, rows;
    /* Since the last report; they go into the next one when the loop has read that. */
    uint64_t points_stride;
    size_t points_count;
    uint64_t stepped_ms; /* when the newest step was done */
    struct facts_point points[RUN_POINTS_MAX];
    struct histogram phases[FACTS_PHASES];
    uint64_t steps_told;
    uint64_t rows_told;
};

/* ERR_CANCELED: the generation is over. */
int compute_canceled(struct err *err);
/* Waits for mail of that kind; NULL with ERR_CANCELED where the generation is over. */
struct message *compute_await(struct compute *c, int kind, struct err *err);
void compute_tell(struct compute *c, struct message *message, int kind);

/* run_fetch.c: this node's columns of c->load->dataset from the holders; c->dataset is then the
 * partial copy. ERR_PEER where no holder could give them, ERR_DISK, ERR_CANCELED. */
int run_fetch(struct compute *c, struct err *err);

/* run_steps.c */
int compute_steps(struct compute *c, struct run_ended *ended, struct err *err);
int compute_finish(struct compute *c, struct run_ended *ended, struct err *err);
/* A report of how far it is; `must`: now, not only each 50 ms. */
void compute_progress(struct compute *c, bool must);

#endif

/* A captured step: this node's slices of both vectors, and what its shard says beside them.
 *
 * Made by the compute thread, handed to the loop, which owns it from then on: publish.c until the
 * epoch is decided, run.c while the exchange still sends the slices to rank 0. Counted holders, all
 * on the loop. */
#ifndef COPPELIUS_DAEMON_CAPTURE_H
#define COPPELIUS_DAEMON_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"

/* The same for all captures of a run: counted holders, on any thread. */
struct capture_names {
    atomic_uint holders;
    uint64_t count;
    char *names[]; /* count */
};

struct capture {
    unsigned holders;
    uint64_t job, generation, step;
    bool ends;  /* the run stopped here */
    bool whole; /* this node has every coordinate: no vectors come from elsewhere */
    bool first; /* rank 0: its vote carries the whole vectors' digests */
    double loss;
    bool has_loss;
    struct shard_content content; /* its arrays are those below; about.epoch is set at BEGIN */
    double *parameter, *accumulator;
    double *mean, *scale;        /* NULL: not standardised */
    struct capture_names *names; /* of the coordinates; NULL: too many to be written */
    uint64_t count;              /* end - first */
    struct losses losses;        /* up to the step */
};

/* For free(), its values are to be set; NULL where there is no memory. Large ones take large pages:
 * a capture fills them while the run waits. */
double *capture_vector(uint64_t count);
void capture_names_drop(struct capture_names *names); /* NULL is fine */
void capture_hold(struct capture *capture);
void capture_drop(struct capture *capture); /* frees with the last holder; NULL is fine */

#endif

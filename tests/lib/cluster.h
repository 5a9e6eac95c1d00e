/* A whole job in one process: each node a thread with a learner and a session through its whole
 * life, joined by an exchange in memory that folds in tree order whatever arrives first. */
#ifndef COPPELIUS_TESTS_CLUSTER_H
#define COPPELIUS_TESTS_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "learn/learn.h"

#define CLUSTER_NODES_MAX 16

struct cluster_job {
    /* The matrix in the form that storage says; the other may be absent. */
    struct session_matrix dense;
    struct session_matrix csc;
    enum session_storage storage;
    const double *targets;
    bool intercept;
    double rate;
    double decay;
    double l2;
    uint64_t batch;
    uint64_t steps;

    uint32_t nodes;
    unsigned threads;
    const char *isa;        /* NULL: the best */
    const uint64_t *bounds; /* NULL: partition_cut() */
    uint64_t jitter;        /* 0: none; else the seed of random delays */
    const struct session_backend *backend[CLUSTER_NODES_MAX]; /* NULL: the CPU's */
    const char *device;                                       /* NULL: "cpu" */

    uint64_t first_step;
    const double *parameter; /* the state at first_step; NULL: zeros */
    const double *accumulator;
    uint64_t
        end_step; /* the directive comes with step end_step - 1; 0: all steps and the objective */
};

struct cluster_result {
    double *parameter; /* coordinates; the caller's memory */
    double *accumulator;
    double *losses; /* steps; as rank 0 told them */
    double objective;
    uint64_t done; /* steps */
};

/* 0, or the first node's error. Asserts that every node tells the same losses and objective, that
 * the read-back file has the captured state, and that each session ends RELEASED. */
int cluster_run(const struct cluster_job *job, struct cluster_result *result, struct err *err);

#endif

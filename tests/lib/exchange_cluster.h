/* Participants of an exchange in one process, for tests: a mesh and an exchange each, on one loop
 * (the test's thread), and a compute thread each that makes the values of a known problem, pushes
 * and pulls in a random order and takes digests of what comes back.
 *
 * The problem: term(step, row, coordinate) is a function of these alone; the answer to a row is
 * residual = (float)(z - row), a panel's loss is the sum of z * z in row order. So every cluster
 * must give the digests of cluster_expected(), whatever its size. */
#ifndef COPPELIUS_TESTS_EXCHANGE_CLUSTER_H
#define COPPELIUS_TESTS_EXCHANGE_CLUSTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "base/hash.h"
#include "peer/peer.h"
#include "tests/lib/delay_proxy.h"
#include "tests/lib/trust_files.h"

#define CLUSTER_NODES_MAX  4
#define CLUSTER_STEPS_MAX  16
#define CLUSTER_PANEL_ROWS 8

struct cluster_step {
    uint64_t step;
    uint64_t rows;
};

struct cluster_settings {
    uint32_t nodes;
    uint64_t coordinates;
    uint32_t streams;
    uint32_t threads; /* 0: the usual number */
    bool mixed;       /* node i has i more */
    uint32_t chunk_rows;
    size_t window_size; /* 0: the usual one */
    struct cluster_step steps[CLUSTER_STEPS_MAX];
    size_t steps_count;
    uint64_t seed;
    uint32_t delay_us_max; /* of the proxies; 0: none between */
    bool proxied;          /* proxies even without delay */
    bool pumps;            /* with secure: a thread for each connection */
    bool secure;           /* TLS, each node with a certificate of its own */
    uint32_t silence_ms, connect_timeout_ms, progress_ms;
    uint64_t gather_at;          /* a step after which all gather; 0: none */
    uint32_t pause_us;           /* between steps, at random */
    uint32_t played_by_hand;     /* these nodes' bits have a mesh at most: the test is them */
    uint64_t fail_finish_at;     /* a step in which the owner of chunk 0 cannot finish; 0: none */
    bool fail_finish_everywhere; /* ... nor any owner of any chunk */
    uint64_t stop_at;            /* a step before which node stop_node computes no more; 0: none */
    uint32_t stop_node;
};

struct cluster_digests {
    uint8_t residuals[SHA256_SIZE];
    uint8_t losses[SHA256_SIZE];
};

struct cluster_node {
    struct cluster *cluster;
    uint32_t rank;
    struct mesh *mesh;
    struct exchange *exchange;
    struct delay_proxy *proxy;
    struct trust *trust; /* NULL: plain text */
    char name[16], address[32];
    pthread_t compute;
    bool computing; /* joined when false */
    /* the compute thread's, read after it is done */
    struct cluster_digests digests;
    uint32_t words[CLUSTER_STEPS_MAX];
    size_t steps_done;
    struct err err;
    double *slices[2];
    _Atomic bool done;
    /* the loop's */
    int ups, ready, failed, slices_sent, closed;
    uint32_t culprit;
    struct err failure;
    uint64_t failed_ms;
    int gathered;
    uint64_t gathered_step;
    uint8_t gathered_digest[2][SHA256_SIZE];
    struct exchange_stats stats; /* when its compute thread was done */
};

struct cluster {
    struct cluster_settings settings;
    uv_loop_t loop;
    struct test_folder folder; /* of the certificates */
    struct cluster_node nodes[CLUSTER_NODES_MAX];
    void (*tweak)(uint32_t rank, struct exchange_settings *settings); /* before exchange_open */
};

/* The coordinates of a rank. */
uint64_t cluster_bound(const struct cluster_settings *settings, uint32_t rank);
void cluster_expected(const struct cluster_settings *settings, struct cluster_digests *ret_digests);
double cluster_slice_value(int which, uint64_t coordinate);
/* Values of the rank's canonical nodes for a chunk: (nodes, rows). Returns how many nodes. */
size_t cluster_values(const struct cluster_settings *settings, uint32_t rank, uint64_t step,
                      uint64_t first_row, uint32_t rows, double *values);

void cluster_open(struct cluster *cluster, const struct cluster_settings *settings);
void cluster_start(struct cluster *cluster); /* exchanges and compute threads */
/* Runs the loop until *counter is at least wanted (checked every 2 ms); false: timeout. */
bool cluster_run(struct cluster *cluster, const int *counter, int wanted, uint64_t timeout_ms);
bool cluster_run_done(struct cluster *cluster, uint64_t timeout_ms); /* all compute threads */
void cluster_close(struct cluster *cluster);

#endif

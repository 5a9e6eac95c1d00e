/* The cases of shared/numerics/golden.json: what each asks for, its data through the data room, and
 * the digests that it must give. */
#ifndef COPPELIUS_TESTS_GOLDEN_H
#define COPPELIUS_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "data/data.h"
#include "tests/lib/cluster.h"

#define GOLDEN_CASES_MAX 64

struct golden_case {
    char name[128];
    char path[512]; /* of the data file */
    enum data_format format;
    enum data_target target;
    char target_name[64];
    bool header;
    char drop[64];
    double test;
    bool shuffle;
    uint64_t shuffle_seed;
    bool standardize;
    double rate, decay, l2;
    uint64_t batch, steps;
    /* What it must give. */
    uint64_t rows, features;
    double first_loss, last_loss;
    char parameter_sha256[SHA256_HEX_SIZE];
    char accumulator_sha256[SHA256_HEX_SIZE];
};

/* The matrix of a case in both forms, and its targets; golden_done frees. */
struct golden_data {
    struct dataset_block block;
    struct dataset_targets targets;
    float *dense;     /* made here where the block is sparse, … */
    uint64_t *starts; /* … and these where it is dense */
    uint32_t *row;
    float *value;
};

/* Reads shared/numerics/golden.json; asserts that it can be read. Returns the number of cases. */
size_t golden_open(const char *shared, struct golden_case cases[GOLDEN_CASES_MAX]);
/* Imports into `folder`, loads, and fills in the job but for nodes, threads, isa and storage. */
void golden_load(const struct golden_case *golden, const char *folder, struct golden_data *data,
                 struct cluster_job *job);
void golden_done(struct golden_data *data);

#endif

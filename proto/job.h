/* The job file (DESIGN.md, "Commands and files"): what is trained on what, and how.
 *
 *     text --job_parse--> struct job --job_write--> canonical text (in the log) --job_parse-->
 * equal
 *                             |
 *                             +-- job_identity: what decides the bits, and nothing else
 *
 * A struct job owns its texts (job_done) and is immutable after job_parse. Any thread. */
#ifndef COPPELIUS_PROTO_JOB_H
#define COPPELIUS_PROTO_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "proto/faults.h"
#include "proto/yaml.h"

#define JOB_NAME_MAX      63 /* bytes: letters, digits, "-", "_", "."; starts with letter or digit */
#define JOB_OVERRIDES_MAX 64
#define JOB_POLICY        "f32-products-f64-accumulation-v1"

enum job_kind { JOB_REGRESSION, JOB_LANGUAGE_MODEL };
/* In the order of data.h's enum data_format, so a cast is the conversion; likewise missing and
 * storage. */
enum job_format { JOB_CSV, JOB_SPACE, JOB_SVM, JOB_NPY, JOB_NATIVE };
enum job_missing { JOB_MISSING_REFUSE, JOB_MISSING_DROP_ROW };
enum job_storage { JOB_STORAGE_AUTO, JOB_STORAGE_DENSE, JOB_STORAGE_SPARSE };

struct job_data {
    struct yaml_texts path; /* absolute once a folder was given to job_parse; one, or several */
    int format;             /* enum job_format */
    bool header;            /* default no */
    char *separator;        /* one byte; default "," */
    char *decimal;          /* "." or "," */
    char *target;           /* "last" (default), "first", a name, or a 1-based column */
    struct yaml_texts drop; /* names or 1-based columns of the file */
    int missing;            /* enum job_missing; default refuse */
    struct yaml_texts missing_values; /* besides the empty field */
    int storage;                      /* enum job_storage; default auto */
    uint64_t features;                /* svm: the declared width; 0: the highest index */
    double test;                      /* [0, 1); default 0 */
    bool shuffle_given;
    uint64_t shuffle; /* the seed, where given */
    bool standardize; /* default no */
};

struct job {
    char *name;
    int kind; /* enum job_kind */
    struct job_data data;
    struct {
        bool intercept; /* default yes */
        double l2;      /* >= 0; default 0; on every coefficient but the intercept */
    } model;
    struct {
        double rate;    /* > 0; required */
        double decay;   /* [0, 1]; default 0.9 */
        uint64_t batch; /* rows; 0: all (default) */
        bool steps_given;
        bool passes_given;
        uint64_t steps;  /* exactly one of both is given; the other is 0 */
        uint64_t passes; /* of all training rows, short last batches included */
    } optimizer;
    struct {
        uint64_t every;    /* steps; 0: only the last (default) */
        uint64_t keep;     /* published epochs; default 3 */
        uint64_t replicas; /* copies on other nodes; default 1; see job_notes */
        char *from;        /* a checkpoint folder to go on from, absolute; NULL: from the start */
    } checkpoint;
    bool elastic; /* default no; see job_notes */
    int numerics; /* 0: JOB_POLICY, the only one so far */
};

/* Reads a job file with `overrides` ("optimizer.rate=0.1" each; place "--set optimizer.rate") put
 * over it. folder (absolute; may be NULL: leave them) is where relative data paths start. 0, or
 * ERR_JOB with every fault of one pass in *faults; the job then needs no job_done. */
int job_parse(const char *text, size_t size, const char *file_name, const char *folder,
              const char *const *overrides, size_t overrides_count, struct job *ret_job,
              struct faults *faults);
/* The same for a `data:` block alone ("format: csv\nheader: yes\n"), as predict sends it; `path`
 * may be absent there. Free with job_data_done. */
int job_data_parse(const char *text, size_t size, const char *file_name, const char *folder,
                   struct job_data *ret_data, struct faults *faults);

/* The same from any input, such as flags as overrides ({"--header", "header", "yes"}). The input's
 * check is set here. */
int job_data_read(const struct yaml_input *input, const char *folder, struct job_data *ret_data,
                  struct faults *faults);
/* Appends the block as job_data_parse reads it. */
void job_data_write(const struct job_data *data, struct buf *out);

void job_done(struct job *job); /* a zeroed or finished one is fine */
void job_data_done(struct job_data *data);

/* Appends the canonical text: every key, defaults included. Equal jobs, equal texts. */
void job_write(const struct job *job, struct buf *out);

/* SHA-256 over kind, dataset digest (dataset_digest of data.h), test, shuffle, standardize, model,
 * rate, decay, batch and policy. Not over names, paths, steps, passes, checkpoint, elastic: a
 * longer run continues a shorter one. */
void job_identity(const struct job *job, const uint8_t dataset_digest[SHA256_SIZE],
                  uint8_t ret_identity[SHA256_SIZE]);

/* What the job asks for and this version does not honour yet: appends a sentence a line and returns
 * how many. They are shown by submit and `job show`, never silent. */
size_t job_notes(const struct job *job, struct buf *out);

const char *job_policy(const struct job *job);    /* JOB_POLICY */
const char *job_kind_name(const struct job *job); /* "regression" */
const struct yaml_schema *job_schema(void);       /* for help and manual pages */

#endif

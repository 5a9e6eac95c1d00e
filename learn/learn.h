/* learn: the partition and the learners. No network, no files.
 *
 * The room: partition.c (who owns which coordinates), schedule.c (which rows a step looks at, and
 * in which chunks: pure functions of the job), regression.c (the learner behind struct
 * learner_ops), predict.c. A learner drives a session (gpu/gpu.h) on the compute thread; what it
 * needs of other participants comes through struct learn_exchange, which may be absent: then this
 * node owns everything and steps are local.
 *
 * Index line: coordinates 0 .. columns-1 and, with an intercept, coordinate `columns`. All
 * participants are given the same settings but for their rank; the bits do not depend on it. */
#ifndef COPPELIUS_LEARN_LEARN_H
#define COPPELIUS_LEARN_LEARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gpu/gpu.h"

#define LEARN_PARTICIPANTS_MAX 128

/* -- partition --------------------------------------------------------------------------------- */

struct partition_settings {
    uint64_t columns; /* stored columns, at least 1 */
    bool intercept;   /* adds one coordinate behind them, which goes to the last range */
    uint32_t participants;
    /* What each column weighs: its non-zeros (sparse; dataset_counts()), or NULL where all weigh
     * the same (dense: bytes). */
    const uint64_t *weights;
};

/* bounds[p] .. bounds[p + 1] - 1 are participant p's coordinates; participants + 1 bounds,
 * bounds[0] = 0, the last one = coordinates. Each range is within 12 % of the mean weight, or a
 * column from where the balanced cut would be; within that freedom a cut is the multiple of the
 * highest power of two, which keeps the canonical nodes few. No range is empty: more participants
 * than coordinates is ERR_JOB. Pure: every participant computes the same. */
int partition_cut(const struct partition_settings *settings, uint64_t *bounds, struct err *err);

/* -- schedule ---------------------------------------------------------------------------------- */

/* Steps 0 .. steps-1 train: step s looks at batch s mod batches_count, rows (s mod batches_count) *
 * batch_rows and on, the last batch of a pass may be short. Steps behind are the evaluation:
 * windows of whole panels over all training rows, then, where there is a penalty and more than one
 * participant, one step of a single row whose folded value is the sum of the squared parameters. */
struct learn_schedule {
    uint64_t rows; /* of training */
    uint64_t batch_rows;
    uint64_t batches_count;
    uint64_t steps;
    uint32_t chunk_rows;  /* a multiple of PANEL_ROWS */
    uint32_t chunks_max;  /* of any step */
    uint64_t window_rows; /* chunk_rows * chunks_max */
    uint64_t windows_count;
};

/* batch_rows 0 is all. ERR_JOB where rows or steps are 0 or rows are 2^32 or more. The chunk's rows
 * follow from batch and participants alone: at least four chunks a participant where there are
 * panels enough, at most 16 panels a chunk. */
int learn_schedule_init(struct learn_schedule *schedule, uint64_t rows, uint64_t batch_rows,
                        uint64_t steps, uint32_t participants, struct err *err);
/* Steps of `passes` whole passes over the rows; 0 where that overflows. */
uint64_t learn_steps_of_passes(uint64_t rows, uint64_t batch_rows, uint64_t passes);
/* The rows of a step, training or evaluation window. */
void learn_batch(const struct learn_schedule *schedule, uint64_t step,
                 struct session_batch *ret_batch);
uint32_t learn_chunks_count(const struct learn_schedule *schedule, uint64_t step);
uint32_t learn_chunk_rows(const struct learn_schedule *schedule, uint64_t step, uint32_t chunk);

/* -- exchange: the seam to the network -----------------------------------------------------------
 */

/* Called on the compute thread only. A step is begin, then each chunk pushed once and pulled once,
 * all pulled before the next begin. Evaluation steps go through it like the others. */
struct learn_exchange {
    void *context;
    int (*begin)(void *context, uint64_t step, uint64_t rows, uint32_t chunk_rows, struct err *err);
    /* values[n*rows + i]: n over this node's canonical nodes in index order, i over the chunk's
     * rows. Borrowed until the step's last pull. */
    int (*push)(void *context, uint64_t step, uint32_t chunk, const double *values,
                struct err *err);
    /* Waits for the owner's answer: residual[rows] binary32, panel_losses[panels]; borrowed until
     * the next begin. directive: the word that came with chunk 0, 0 with others. */
    int (*pull)(void *context, uint64_t step, uint32_t chunk, const float **ret_residual,
                const double **ret_panel_losses, uint32_t *ret_directive, struct err *err);
};

/* -- learners ------------------------------------------------------------------------------------
 */

struct learn_settings {
    struct learn_schedule schedule;
    uint64_t columns;
    bool intercept;
    double rate;
    double decay;
    double l2;
    uint32_t participants; /* 1 .. LEARN_PARTICIPANTS_MAX */
    uint32_t rank;
    const uint64_t *bounds; /* participants + 1; copied */
    enum session_storage storage;
    uint64_t entries;      /* stored by this rank's columns */
    const double *targets; /* schedule.rows; borrowed for the learner's life, immutable */
};

/* What is told after each step, in order. */
struct learn_report {
    uint64_t step;        /* the one just done, from 0 */
    double loss;          /* data loss of its batch before its update */
    uint32_t directive;   /* of this step; 0 where steps are local */
    uint64_t compute_ns;  /* time in the session's calls */
    uint64_t exchange_ns; /* time waiting in push and pull */
};

typedef void learn_report_fn(void *context, const struct learn_report *report);

struct learner;

struct learner_ops {
    const char *kind;   /* the job file's */
    const char *policy; /* numerics policy that it computes by */
    /* Checks the settings (ERR_JOB), allocates all that its steps need. */
    int (*make)(const struct learn_settings *settings, struct learner **ret_learner,
                struct err *err);
    void (*free)(struct learner *learner); /* NULL is fine */
    /* The plan that session_admit() is to be given for steps first_step .. schedule.steps-1 and the
     * evaluation behind them. */
    void (*plan)(const struct learner *learner, uint64_t first_step, struct session_plan *ret_plan);
    /* Runs steps first_step .. first_step + steps_count - 1, at most to the schedule's end,
     * reporting each. Ends early after a step with a directive that is not 0. ret_done: steps done;
     * ret_directive: the last one's word. An error leaves the step's state undefined: release the
     * session, start from a checkpoint. exchange NULL: local steps (participants must be 1); the
     * caller looks at its mail between calls, so it gives a steps_count that takes as long as it
     * may be deaf. */
    int (*run)(struct learner *learner, struct session *session,
               const struct learn_exchange *exchange, uint64_t first_step, uint64_t steps_count,
               learn_report_fn *on_report, void *context, uint64_t *ret_done,
               uint32_t *ret_directive, struct err *err);
    /* Behind the last step: the objective over all training rows, penalty included: the same number
     * on every participant. */
    int (*evaluate)(struct learner *learner, struct session *session,
                    const struct learn_exchange *exchange, double *ret_objective, struct err *err);
    /* What the owner of a chunk does with the folded z[rows] (canonical): residual[rows] and panel
     * losses (one a panel of 2048 rows). Called on the exchange's threads, on several at
     * once, while the compute thread runs: pure, reads only what does not change. ERR_DIVERGED
     * names step and row. Every step that goes through the exchange, evaluation included. */
    int (*finish)(const struct learner *learner, uint64_t step, uint32_t chunk, uint32_t rows,
                  const double *z, float *residual, double *panel_losses, struct err *err);
    /* The issues that a session retires for steps first_step .. end_step-1 (and the evaluation):
     * what session_read_back() is to expect, from the job alone. UINT64_MAX where it overflows. */
    uint64_t (*issues)(const struct learner *learner, uint64_t first_step, uint64_t end_step,
                       bool evaluated);
};

extern const struct learner_ops learner_regression;

/* The learner of a job's kind, or NULL. */
const struct learner_ops *learner_find(const char *kind);

/* Canonical nodes of a rank's range: values[n][…] of push. */
size_t learn_nodes_count(const struct learn_settings *settings, uint32_t rank);

/* -- prediction ----------------------------------------------------------------------------------
 */

/* The life of one session from NEW to RELEASED for predictions: admits, binds, loads, certifies,
 * seeds the given parameters, does the products on that device, folds, and releases. matrix: all
 * columns. parameter: columns + intercept. prediction[matrix->rows]: canonical z. */
int learn_predict(const struct session_settings *settings, const struct session_matrix *matrix,
                  bool intercept, const double *parameter, double *prediction, struct err *err);

#endif

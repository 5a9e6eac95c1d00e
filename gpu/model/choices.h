/* The table of choices: which candidate a product runs with, measured on the card by
 * `coppeliusctl bench tiles` and committed for each architecture (tiles.choices). A line is
 *
 *   sm_90 16 tiled-rr-m1024-n1536-k512 tile=9 split=1 us=44.1 tflops=584 registers=168 local=0
 *   shared=230464 blocks=1                                             (all in one line)
 *
 * architecture, sequences it was measured at, the product for one sequence, the candidate's number
 * and parts of k, time, rate, and the schedule's resources: registers a thread, bytes of local
 * memory (spills), bytes of shared memory, blocks a multiprocessor. A line whose product is
 * "tiled-rr", "tiled-rc" or "tiled-cc" serves the shapes that have no line of their own; there the
 * first that serves counts. Plain functions, any thread. */
#ifndef COPPELIUS_GPU_MODEL_CHOICES_H
#define COPPELIUS_GPU_MODEL_CHOICES_H

#include "gpu/model/device.h"

struct model_choice {
    int tile;
    uint32_t split;
    double microseconds;
    double tflops;
    uint32_t registers;
    uint32_t local_bytes;
    uint32_t shared_bytes;
    uint32_t blocks;
};

/* A table of one's own, measured on a card that the committed one does not know: it takes the place
 * of the committed lines of every architecture that it has lines of. */
struct model_choices {
    char *text; /* NULL: none */
    size_t size;
    char path[512];
};

#define MODEL_CHOICES_MAX (1U << 20) /* bytes of a table */

/* Reads and checks every line: ERR_NOT_FOUND, ERR_DISK; ERR_CONFIG names file and line. */
int model_choices_init(struct model_choices *choices, const char *path, struct err *err);
void model_choices_done(struct model_choices *choices);

/* The choice for a product on an architecture (90 for sm_90). `own` may be NULL. `launch` is the
 * product of `sequences` sequences (model_launch_sequences()). Of the lines of the product the one
 * measured at the most sequences that are not more than these counts, else the one at the fewest.
 * ERR_DEVICE names the product and says what to do: no line, or one whose candidate does not serve
 * it. */
int model_choice_find(const struct model_choices *own, int architecture, const char *name,
                      uint32_t sequences, const struct model_launch *launch,
                      struct model_choice *ret_choice, struct err *err);
/* The same from any text, of `size` bytes, whose name is `origin`. */
int model_choice_in(const char *text, size_t size, const char *origin, int architecture,
                    const char *name, uint32_t sequences, const struct model_launch *launch,
                    struct model_choice *ret_choice, struct err *err);
/* A line of the table with its line feed; returns its length. */
size_t model_choice_line(const struct model_choice *choice, int architecture, const char *name,
                         uint32_t sequences, char *text, size_t capacity);
/* How many of a shape's products have a choice at 1, 16 and 64 sequences (*ret_served), of how many
 * (*ret_count); *ret_missing is the refusal of the first that has none. */
void model_choices_count(const struct model_choices *own, int architecture,
                         const struct model_shape *shape, size_t *ret_served, size_t *ret_count,
                         struct err *ret_missing);

#endif

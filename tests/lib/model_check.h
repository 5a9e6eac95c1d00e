/* Runs the language model's images by device plan on whatever runs kernels (the emulator, a GPU),
 * and holds them against the oracles: poisoned outputs, and the same bits on every repetition. */
#ifndef COPPELIUS_TESTS_LIB_MODEL_CHECK_H
#define COPPELIUS_TESTS_LIB_MODEL_CHECK_H

#include "gpu/model/device.h"
#include "tests/lib/model_case.h"

struct model_runner {
    void *context;
    unsigned multiprocessors;
    void *(*alloc)(void *context, uint64_t bytes); /* the device's address; aborts on failure */
    void (*release)(void *context, void *device);
    void (*upload)(void *context, void *device, const void *host, uint64_t bytes);
    void (*download)(void *context, void *host, const void *device, uint64_t bytes);
    /* Launches and waits. 0, or not, having said why. */
    int (*launch)(void *context, const struct model_kernel *kernel, enum model_half half,
                  const struct model_arguments *arguments);
    /* What model_check_shape() makes of its checks, counted from 0: those from `first` on whose
     * number is `slice` modulo `slices` (0: all); *at is the number of the one under way. */
    unsigned first;
    unsigned slice;
    unsigned slices;
    bool without_products;
    bool hopper;   /* sm_90a's candidates, and nothing else: */
    int candidate; /* -1: all */
    unsigned *at;  /* NULL: nobody looks */
};

/* One image, `repeats` times (the operands are written anew each time); tile MODEL_TILE_NONE: no
 * product, else the candidate. Returns the number of failures (printed). */
unsigned model_check_image(const struct model_runner *runner, const char *name,
                           const struct model_launch *launch, enum model_half half, int tile,
                           enum case_flavour flavour, unsigned repeats);
/* Every image of the shape that has a kernel, products with every candidate that serves and C in
 * both types, the flavours where they matter. */
unsigned model_check_shape(const struct model_runner *runner, const struct model_shape *shape,
                           enum model_half half, unsigned repeats);
/* Runs an image on all sequences of the shape and on the first alone; the first's results must be
 * the same bits. Returns the number of failures (printed). */
unsigned model_check_rows(const struct model_runner *runner, const char *name,
                          const struct model_shape *shape, enum model_half half, int tile);
/* Every image that does not add over rows. */
unsigned model_check_all_rows(const struct model_runner *runner, const struct model_shape *shape,
                              enum model_half half);

#endif

/* The candidates of attention on sm_90a, one list for the kernels and for who picks: number, head,
 * warpgroups of 64 rows, columns of a step, stages of the ring, blocks a multiprocessor, registers
 * of a thread that multiplies and of one that copies. */
#ifndef COPPELIUS_GPU_MODEL_ATTENTION_TILES_H
#define COPPELIUS_GPU_MODEL_ATTENTION_TILES_H

#define FORWARD_CANDIDATES(X)       \
    X(0, 64, 1, 64, 3, 3, 128, 32)  \
    X(1, 64, 4, 64, 3, 1, 112, 32)  \
    X(2, 128, 2, 64, 3, 1, 240, 24) \
    X(3, 128, 1, 64, 2, 2, 216, 40)
#define FORWARD_CANDIDATES_COUNT 4

/* The fastest for a head of 64, and of 128. */
#define FORWARD_CHOICE_64  0
#define FORWARD_CHOICE_128 2

#define QUERY_CANDIDATES(X)        \
    X(0, 64, 3, 64, 3, 1, 160, 32) \
    X(1, 64, 2, 64, 3, 1, 240, 24) \
    X(2, 128, 2, 64, 2, 1, 240, 24)
#define QUERY_CANDIDATES_COUNT 3

#define QUERY_CHOICE_64  0
#define QUERY_CHOICE_128 2

#define KEY_CANDIDATES(X)          \
    X(0, 64, 1, 64, 3, 2, 216, 40) \
    X(1, 64, 2, 64, 3, 1, 240, 24) \
    X(2, 128, 2, 64, 2, 1, 240, 24)
#define KEY_CANDIDATES_COUNT 3

#define KEY_CHOICE_64  0
#define KEY_CHOICE_128 2

#endif

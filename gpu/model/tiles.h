/* The candidates of the tiled products, one list for the kernels and for who picks: number, block
 * M x N, stages of the ring, warps M x N. Steps of the summed dimension are TILE_K. */
#ifndef COPPELIUS_GPU_MODEL_TILES_H
#define COPPELIUS_GPU_MODEL_TILES_H

#define TILE_K 32

#define MODEL_TILES(X)      \
    X(0, 128, 128, 4, 2, 4) \
    X(1, 128, 128, 2, 2, 4) \
    X(2, 64, 64, 4, 2, 2)   \
    X(3, 64, 64, 2, 2, 2)   \
    X(4, 128, 64, 4, 4, 2)  \
    X(5, 64, 128, 4, 2, 4)  \
    X(6, 256, 128, 2, 4, 2) \
    X(7, 128, 256, 2, 2, 4)
#define MMA_TILES_COUNT 8

/* Hopper's own (sm_90a): number, block M x N, stages of 64 of k, consumer warpgroups, what these
 * do, blocks of a cluster M x N. Numbers go on from the above. Consumers share a tile (TOGETHER),
 * or take tiles in turns (ALTERNATE), or do that and have R brought to them by the copy engine
 * (RESIDUAL: serves only C = A B + R in f32). */
#define HOPPER_TOGETHER  0
#define HOPPER_ALTERNATE 1
#define HOPPER_RESIDUAL  2
#define HOPPER_K         64 /* steps of the summed dimension: a row of the swizzle */
#define HOPPER_BAND      8  /* rows of tiles that run side by side */
/* Bytes of a block: the ring, pieces of 8 KiB a consumer for what it writes (and R), barriers, and
 * what alignment may take. */
#define HOPPER_STORES    2
#define HOPPER_RESIDUALS 5
#define HOPPER_SHARED(m, n, stages, groups, mode)                                              \
    (((m) + (n)) * HOPPER_K * 2 * (stages) + (stages)*16 +                                     \
     (groups) * ((mode) == HOPPER_RESIDUAL ? HOPPER_RESIDUALS : HOPPER_STORES) * (8192 + 16) + \
     1024)
#define HOPPER_SHARED_HALF (113 * 1024) /* two blocks a multiprocessor */

#define HOPPER_TILES(X)                           \
    X(8, 128, 256, 4, 2, HOPPER_TOGETHER, 1, 1)   \
    X(9, 128, 256, 4, 2, HOPPER_TOGETHER, 2, 1)   \
    X(10, 128, 256, 4, 2, HOPPER_TOGETHER, 1, 2)  \
    X(11, 256, 128, 4, 2, HOPPER_TOGETHER, 1, 1)  \
    X(12, 128, 128, 6, 2, HOPPER_ALTERNATE, 1, 1) \
    X(13, 128, 128, 6, 2, HOPPER_ALTERNATE, 2, 1) \
    X(14, 128, 128, 6, 2, HOPPER_ALTERNATE, 1, 2) \
    X(15, 128, 128, 4, 2, HOPPER_RESIDUAL, 1, 1)  \
    X(16, 128, 128, 6, 2, HOPPER_TOGETHER, 1, 1)  \
    X(17, 64, 64, 5, 1, HOPPER_TOGETHER, 1, 1)    \
    X(18, 64, 64, 12, 1, HOPPER_TOGETHER, 1, 1)   \
    X(19, 64, 128, 8, 1, HOPPER_TOGETHER, 1, 1)   \
    X(20, 128, 64, 8, 2, HOPPER_TOGETHER, 1, 1)   \
    X(21, 192, 128, 4, 3, HOPPER_TOGETHER, 1, 2)  \
    X(22, 64, 64, 12, 1, HOPPER_TOGETHER, 2, 1)
#define MODEL_TILES_COUNT 23

#endif

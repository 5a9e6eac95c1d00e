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
#define MODEL_TILES_COUNT 8

#endif

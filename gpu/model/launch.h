/* What a launch of a device image of the language model is told: plain data, the same bytes for the
 * CPU's programs and, by value as kernel parameters, for the GPU's. Which fields an image reads is
 * said beside its entry in catalogue.c. */
#ifndef COPPELIUS_GPU_MODEL_LAUNCH_H
#define COPPELIUS_GPU_MODEL_LAUNCH_H

#include <stdint.h>

#define MODEL_OPERANDS_MAX 10
#define MODEL_MAPS_MAX     4

/* Fixed orders (NUMERICS.md, second policy): rows are summed in order within a leaf, leaves as a
 * dyadic tree in which absent leaves have no say. */
#define MODEL_SCATTER_LEAF 1024 /* positions, embedding-scatter */
#define MODEL_NORM_LEAF    128  /* rows, layernorm-parameters */
#define MODEL_SUM_LEAF     8192 /* elements, loss-sum and gradient-norm */
#define MODEL_SUM_LANES    256  /* element i of a leaf adds to lane i mod 256 */

/* How the GPU's kernels share out their work; no result depends on it. */
#define MODEL_AHEAD           4   /* pieces of 16 bytes that a thread has under way */
#define MODEL_SUM_LEAVES      4   /* of a block */
#define MODEL_NORM_COLUMNS    256 /* of a block of layernorm-parameters' first launch */
#define MODEL_SCATTER_PLACES  16  /* of a block of embedding-scatter's second launch */
#define MODEL_SCATTER_SHORT   4   /* rows of a leaf that the third launch sums itself */
#define MODEL_SCATTER_TOKENS  4   /* of a block of it, a warp each */
#define MODEL_SOFTMAX_ROWS    8   /* of a block */
#define MODEL_TRANSPOSE_TILES 2   /* of 64 x 64, of a block */

/* Levels of a tree over so many leaves below its root, one at least. */
#define MODEL_SCATTER_LEVELS(leaves) \
    ((leaves) <= 2     ? 1U          \
     : (leaves) <= 4   ? 2U          \
     : (leaves) <= 8   ? 3U          \
     : (leaves) <= 16  ? 4U          \
     : (leaves) <= 32  ? 5U          \
     : (leaves) <= 64  ? 6U          \
     : (leaves) <= 128 ? 7U          \
                       : 8U)

/* The model and the microbatch; all of them at least 1. */
struct model_shape {
    uint32_t sequences;  /* of the launch */
    uint32_t length;     /* positions of a sequence */
    uint32_t width;      /* heads * head */
    uint32_t heads;      /* of a position */
    uint32_t head;       /* elements of a head, even */
    uint32_t feed;       /* of the gated feed-forward layer */
    uint32_t vocabulary; /* tokens are 0 .. vocabulary - 1 */
};

struct model_launch {
    struct model_shape shape;
    uint32_t rows;      /* of row-wise images: positions over all sequences, or fewer */
    uint64_t count;     /* elements of flat images */
    uint64_t first;     /* random-normal: the number of the first element */
    uint64_t seed;      /* random-normal */
    uint32_t m;         /* products: C is m x n; transposes: rows of a group */
    uint32_t n;         /* transposes: columns of a group */
    uint32_t k;         /* the summed dimension */
    uint32_t groups;    /* transposes */
    uint32_t a_columns; /* A is stored k x m */
    uint32_t b_columns; /* B is stored k x n */
    uint32_t add;       /* C = A B + R */
    uint32_t half_out;  /* C is written in the half type, else in f32 */
    uint32_t split;     /* products: k is summed in so many parts, added in order; 0 and 1: one */
    float value;        /* fill; gradient-norm: the largest norm (0: any) */
    float scale;        /* scale; softmax and attention: of the scores; cross-entropy-backward */
    float epsilon;      /* layernorm, adamw */
    float rate;         /* adamw, and what follows */
    float beta1;
    float beta2;
    float decay;
    float correction1; /* 1 / (1 - beta1^step) */
    float correction2; /* 1 / (1 - beta2^step) */
    float pad;
    double base; /* rotary-table */
};

/* A kernel's first parameter. Operands are in the order of the image's entry in the catalogue. */
struct model_arguments {
    struct model_launch launch;
    void *operand[MODEL_OPERANDS_MAX]; /* addresses in the device's memory */
};

/* How the copy engine of sm_90 walks an operand: the driver's opaque CUtensorMap. The second
 * parameter of kernels whose plan has maps. */
struct model_map {
    uint64_t words[16];
#ifdef __CUDACC__
} __attribute__((aligned(64)));
#else
};
#endif

struct model_maps {
    struct model_map map[MODEL_MAPS_MAX];
};

#endif

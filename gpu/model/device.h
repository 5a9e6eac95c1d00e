/* How a GPU launches an image of the language model: which kernels, in which order, with which
 * grid. Plain arithmetic, no driver: the same in builds without kernels. Any thread. */
#ifndef COPPELIUS_GPU_MODEL_DEVICE_H
#define COPPELIUS_GPU_MODEL_DEVICE_H

#include "gpu/model/model.h"

/* A tile of the products that nobody chose: model_device_plan() refuses a product with it. */
#define MODEL_TILE_NONE (-1)

/* An operand as the copy engine walks it (sm_90): rows of halves, in boxes, 128-byte swizzle. */
struct model_box {
    uint32_t operand;
    uint32_t columns;
    uint64_t rows;
    uint32_t box_columns;
    uint32_t box_rows;
};

struct model_kernel {
    char entry[IMAGE_NAME_SIZE]; /* in the module of the half type: without its _fp16 or _bf16 */
    uint32_t grid[3];
    uint32_t threads;      /* of a block */
    uint32_t shared_bytes; /* dynamic */
    bool early;            /* it waits itself for the grids before it: model_kernel_launch() */
    uint32_t boxes_count;  /* 0: the kernel takes no maps */
    struct model_box boxes[MODEL_MAPS_MAX];
};

/* The kernels of an image, one after the other on one stream. launch is filled (model_image_find,
 * model_launch_sequences) and its shape one that model_shape_check_device() took; tile is the
 * product's candidate, or one of attention (MODEL_TILE_NONE: the one for any GPU), and ignored
 * elsewhere. multiprocessors: of the GPU; no result depends on it.
 * ERR_DEVICE names the image: no kernel for it, a product without a tile or with one that does not
 * serve its shape, a size that a kernel does not serve. */
int model_device_plan(const char *name, const struct model_launch *launch, int tile,
                      unsigned multiprocessors, struct model_kernel ret[MODEL_STAGES_MAX],
                      size_t *ret_count, struct err *err);

/* Does a candidate of attention on sm_90a serve the head's size? */
bool model_attention_serves(const char *name, int tile, const struct model_launch *launch);
/* The one that was fastest on that architecture (90 for sm_90), or MODEL_TILE_NONE: the kernels for
 * any GPU. */
int model_attention_choice(int architecture, const char *name, const struct model_launch *launch);

/* Does a candidate divide the product? */
bool model_tile_serves(int tile, const struct model_launch *launch);

#endif

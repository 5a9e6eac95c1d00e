/* The GPU's session of the language model: its images by name, each kernel held against its
 * committed record when it is loaded.
 *
 *   open: every module is loaded, every kernel is looked up, its registers, threads,
 *   |     shared and local bytes are compared; one that is missing, empty or different refuses all
 *   v
 *   launch (name, shape, addresses): a name or a shape that nothing serves is refused by name; else
 *   |     the image's kernels are put on a stream, one after the other; nothing is waited for
 *   v
 *   close: the modules go; who made the context keeps it
 *
 * One thread, which has made the GPU's context its current one. */
#ifndef COPPELIUS_GPU_MODEL_GPU_SESSION_H
#define COPPELIUS_GPU_MODEL_GPU_SESSION_H

#include "gpu/cuda_driver.h"
#include "gpu/model/choices.h"

struct model_gpu;

/* folder: where kernels lie ("FILE_bf16.fatbin"), NULL: those inside the program (blobs.h).
 * choices: a table of one's own, which is to stay until close; NULL: the committed one. ERR_DEVICE
 * names the file or the kernel; ERR_NOT_FOUND: no such file. */
int model_gpu_open(const struct cuda_driver *driver, cu_device device, const char *folder,
                   const struct model_choices *choices, enum model_half half,
                   struct model_gpu **ret_gpu, struct err *err);
void model_gpu_close(struct model_gpu *gpu); /* NULL is fine */

/* Every kernel with its record, by the names of the records ("softmax-forward-bf16"). */
const struct images *model_gpu_images(const struct model_gpu *gpu);
int model_gpu_architecture(const struct model_gpu *gpu); /* 90 for sm_90 */

/* Puts an image's kernels on the stream. launch as for model_session_launch(): fields that the name
 * carries are filled in here. tile: a product's, or MODEL_TILE_NONE: the measured choice
 * (choices.h), whose split is used, too; attention takes its own choice then. operands: addresses
 * in the device's memory, multiples of 16, in the catalogue's order. */
int model_gpu_launch(struct model_gpu *gpu, const char *name, const struct model_launch *launch,
                     int tile, void *const operands[], size_t operands_count, cu_stream stream,
                     struct err *err);
/* The same for one kernel of a plan. */
int model_gpu_launch_kernel(struct model_gpu *gpu, const struct model_kernel *kernel,
                            const struct model_arguments *arguments, cu_stream stream,
                            struct err *err);

#endif

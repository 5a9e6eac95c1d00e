/* The copy engine's maps (sm_90) that a kernel's plan asks for. */
#ifndef COPPELIUS_GPU_MODEL_MAPS_H
#define COPPELIUS_GPU_MODEL_MAPS_H

#include "gpu/cuda_driver.h"
#include "gpu/model/device.h"

/* Fills ret->map[0 .. boxes_count - 1] from the operands' addresses (multiples of 16 bytes). Any
 * thread. ERR_DEVICE names the kernel and the operand. */
int model_maps_make(const struct cuda_driver *driver, const struct model_kernel *kernel,
                    const struct model_arguments *arguments, enum model_half half,
                    struct model_maps *ret, struct err *err);

/* Enqueues the kernel of a plan with its arguments and maps (NULL: it has none), early where it
 * waits for the grids before it itself. Shared memory above 48 KiB was allowed before. */
int model_kernel_launch(const struct cuda_driver *driver, cu_function function,
                        const struct model_kernel *kernel, const struct model_arguments *arguments,
                        const struct model_maps *maps, cu_stream stream, struct err *err);

#endif

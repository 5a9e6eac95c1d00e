#include "gpu/model/maps.h"

#include <string.h>

int model_maps_make(const struct cuda_driver *driver, const struct model_kernel *kernel,
                    const struct model_arguments *arguments, enum model_half half,
                    struct model_maps *ret, struct err *err)
{
    for (uint32_t i = 0; i < kernel->boxes_count; i++) {
        const struct model_box *box = &kernel->boxes[i];
        const uint64_t sizes[2] = {box->columns, box->rows};
        const uint64_t strides[1] = {(uint64_t)box->columns * 2};
        const unsigned box_sizes[2] = {box->box_columns, box->box_rows};
        const unsigned steps[2] = {1, 1};
        _Alignas(64) struct model_map map;
        cu_result result = driver->cuTensorMapEncodeTiled(
            &map, half == MODEL_HALF_FP16 ? CU_TENSOR_FLOAT16 : CU_TENSOR_BFLOAT16, 2,
            arguments->operand[box->operand], sizes, strides, box_sizes, steps, 0,
            CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_256, 0);
        int status = cuda_check(driver, result, "making a tensor map", err);
        if (status != 0) {
            return err_prefix(err, "kernel %s, operand %u: ", kernel->entry, box->operand);
        }
        ret->map[i] = map;
    }
    return 0;
}

int model_kernel_launch(const struct cuda_driver *driver, cu_function function,
                        const struct model_kernel *kernel, const struct model_arguments *arguments,
                        const struct model_maps *maps, cu_stream stream, struct err *err)
{
    struct model_arguments own = *arguments; /* the driver's parameters are not const */
    struct model_maps own_maps = {0};
    if (maps != NULL) {
        own_maps = *maps;
    }
    void *parameters[] = {&own, &own_maps};
    struct cu_launch_attribute early = {.id = CU_LAUNCH_EARLY, .value = 1};
    const struct cu_launch_config config = {
        .grid = {kernel->grid[0], kernel->grid[1], kernel->grid[2]},
        .block = {kernel->threads, 1, 1},
        .shared_size = kernel->shared_bytes,
        .stream = stream,
        .attributes = &early,
        .attributes_count = kernel->early ? 1 : 0,
    };
    return cuda_check(driver, driver->cuLaunchKernelEx(&config, function, parameters, NULL),
                      kernel->entry, err);
}

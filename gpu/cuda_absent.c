/* Where a build has no CUDA backend this file says so; cuda.c has the real answer. */
#include "gpu/gpu.h"

const struct session_backend *session_backend_cuda(void)
{
    return NULL;
}

int gpu_bench_tiles(const char *folder, FILE *table, FILE *log, struct err *err)
{
    (void)table;
    (void)log;
    return err_set(err, ERR_DEVICE,
                   "no GPU kernels in this build: the tiles of '%s' were not timed", folder);
}

int gpu_list_images(const char *folder, FILE *list, struct err *err)
{
    (void)list;
    return err_set(err, ERR_DEVICE,
                   "no GPU kernels in this build: the images of '%s' were not loaded", folder);
}

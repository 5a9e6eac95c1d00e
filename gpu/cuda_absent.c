/* Where a build has no CUDA backend this file says so; cuda.c has the real answer. */
#include "gpu/gpu.h"

const struct session_backend *session_backend_cuda(void)
{
    return NULL;
}

bool session_device_lost(void)
{
    return false;
}

static int refuse(const char *what, struct err *err)
{
    return err_set(err, ERR_DEVICE,
                   "no GPU kernels in this build (COPPELIUS_CUDA=OFF, or nvcc was "
                   "not there): %s",
                   what);
}

int gpu_bench_tiles(const char *folder, FILE *table, FILE *log, struct err *err)
{
    (void)folder;
    (void)table;
    (void)log;
    return refuse("nothing was timed", err);
}

int gpu_list_images(const char *folder, FILE *list, struct err *err)
{
    (void)folder;
    (void)list;
    return refuse("no image was loaded", err);
}

int gpu_print_images(FILE *list, struct err *err)
{
    (void)list;
    return refuse("there is no device image to list", err);
}

/* A libcuda.so.1 that a test puts in front of a daemon on a real GPU (LD_LIBRARY_PATH): everything
 * is the real driver's (COPPELIUS_REAL_CUDA: its path), but while the file COPPELIUS_CUDA_FAULT
 * exists, each launch brings a kernel that traps with it. The driver then says of all that follows
 * what it says after a kernel's fault: the context is lost. faulty_cuda_rest.c has what is handed
 * on as it is. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/cuda_driver.h"

#define EXPORTED __attribute__((visibility("default")))

#define REAL(name, arguments)          \
    EXPORTED cu_result name arguments; \
    extern __attribute__((visibility("hidden"))) void *real_##name;
CUDA_SYMBOLS(REAL)
#undef REAL

static struct cuda_driver real;

static const char trap[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                           ".visible .entry fault() { trap; ret; }\n";

__attribute__((constructor)) static void find_real(void)
{
    const char *path = getenv("COPPELIUS_REAL_CUDA");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        (void)fprintf(stderr, "faulty_cuda: COPPELIUS_REAL_CUDA: %s\n",
                      path != NULL ? dlerror() : "not set");
        exit(1);
    }
#define FIND(name, arguments)            \
    real_##name = dlsym(library, #name); \
    memcpy(&real.name, &real_##name, sizeof(real_##name));
    CUDA_SYMBOLS(FIND)
#undef FIND
}

/* That it was done is seen by what the real driver says of the launch behind it. */
static void fault(cu_stream stream)
{
    const char *file = getenv("COPPELIUS_CUDA_FAULT");
    cu_module module;
    cu_function function;
    if (file != NULL && access(file, F_OK) == 0 &&
        real.cuModuleLoadDataEx(&module, trap, 0, NULL, NULL) == 0 &&
        real.cuModuleGetFunction(&function, module, "fault") == 0) {
        (void)real.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    }
}

cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,
                         cu_stream stream, void **arguments, void **extra)
{
    fault(stream);
    return real.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                               shared_size, stream, arguments, extra);
}

cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream)
{
    fault(stream);
    return real.cuGraphLaunch(exec, stream);
}

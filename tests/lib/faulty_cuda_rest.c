/* The real driver's functions under their own names; those of faulty_cuda.c win over these. */
#include "gpu/cuda_driver.h"

#if !defined(__x86_64__)
#error "the jumps are written for x86-64"
#endif

/* A jump to the real function, with whatever arguments there are. */
#define FORWARD(name, arguments)                                                      \
    __attribute__((visibility("hidden"), used)) void *real_##name;                    \
    __asm__(".pushsection .text\n.weak " #name "\n.type " #name ", @function\n" #name \
            ":\nendbr64\njmp *real_" #name "(%rip)\n.size " #name ", .-" #name "\n.popsection");
CUDA_SYMBOLS(FORWARD)

/* Compiled with -mavx2; called only where the machine has it. */
#include <assert.h>
#include <immintrin.h>

#define CPU_W        4
#define CPU_ACC      8
#define CPU_WIDEN(x) _mm256_cvtps_pd(x)
#define CPU_SPLAT(x) _mm_set1_ps(x)
#define CPU_ISA      cpu_isa_avx2
#define CPU_ISA_NAME "avx2"
#include "gpu/cpu_vector.h"

/* Compiled with -mavx512f and its kin; called only where the machine has them. */
#include <assert.h>
#include <immintrin.h>

#define CPU_W        8
#define CPU_ACC      16
#define CPU_WIDEN(x) _mm512_cvtps_pd(x)
#define CPU_SPLAT(x) _mm256_set1_ps(x)
#define CPU_ISA      cpu_isa_avx512
#define CPU_ISA_NAME "avx512"
#include "gpu/cpu_vector.h"

/* What a warp asks of the tensor cores and of the copies into shared memory (PTX ISA, sections on
 * cp.async, ldmatrix and mma.m16n8k16), sm_80 and up. */
#ifndef COPPELIUS_GPU_MODEL_KERNELS_MMA_CUH
#define COPPELIUS_GPU_MODEL_KERNELS_MMA_CUH

#include "gpu/model/kernels/model.cuh"

#ifndef EMULATED

__device__ static inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ static inline void copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ static inline void copy_commit()
{
    asm volatile("cp.async.commit_group;");
}

/* Until at most LEFT of this thread's groups are under way. */
template <int LEFT> __device__ static inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

/* Four 8 x 8 matrices; TRANSPOSED: each is turned on the way. */
template <bool TRANSPOSED>
__device__ static inline void load_matrices(uint32_t to[4], uint32_t address)
{
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address));
    }
}

__device__ static inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
#if defined(MODEL_FP16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

#endif
#endif

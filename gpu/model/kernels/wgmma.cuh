/* What a Hopper block asks of its tensor cores, its copy engine and its cluster (PTX ISA 9.0:
 * wgmma.mma_async, cp.async.bulk.tensor, mbarrier, cluster). sm_90a only.
 *
 * Shared operands are tiles of 128-byte rows as the copy engine leaves them with the 128-byte
 * swizzle, starting at a multiple of 1024 bytes. By rows (the summed dimension inside a row) a tile
 * is (index, 64 of k); by columns, blocks of 64 indices, each (k, 64 indices). */
#ifndef COPPELIUS_GPU_MODEL_KERNELS_WGMMA_CUH
#define COPPELIUS_GPU_MODEL_KERNELS_WGMMA_CUH

#include "gpu/model/kernels/model.cuh"

#define SWIZZLE_ROW  128  /* bytes */
#define SWIZZLE_ATOM 1024 /* eight rows */

__device__ static inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* -- barriers --------------------------------------------------------------------------------- */

__device__ static inline void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ static inline void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ static inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ static inline void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The same barrier in another block of the cluster. */
__device__ static inline void barrier_arrive_at(uint32_t barrier, uint32_t rank)
{
    asm volatile("{\n.reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

__device__ static inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Of one warpgroup; `which` from 1 up. */
__device__ static inline void group_barrier(uint32_t which)
{
    asm volatile("bar.sync %0, 128;" ::"r"(which) : "memory");
}

/* A named barrier of two warpgroups: one waits, the other only says that it came. */
__device__ static inline void pair_wait(uint32_t which)
{
    asm volatile("bar.sync %0, 256;" ::"r"(which) : "memory");
}

__device__ static inline void pair_arrive(uint32_t which)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(which) : "memory");
}

__device__ static inline void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ static inline uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

template <int REGISTERS> __device__ static inline void registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> __device__ static inline void registers_fewer()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* -- bulk tensor copies ----------------------------------------------------------------------- */

__device__ static inline void tensor_prefetch(const model_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The box at (x, y), x the contiguous dimension, into shared memory; its bytes count for barrier.
 */
__device__ static inline void tensor_load(uint32_t to, const model_map *map, uint32_t x, uint32_t y,
                                          uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}

/* The same into all blocks of the cluster in the mask, at the same place, for the same barrier. */
__device__ static inline void tensor_load_all(uint32_t to, const model_map *map, uint32_t x,
                                              uint32_t y, uint32_t barrier, uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
                 : "memory");
}

__device__ static inline void tensor_store(const model_map *map, uint32_t x, uint32_t y,
                                           uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(x), "r"(y), "r"(from)
                 : "memory");
}

/* Until at most LEFT stores of this thread still read shared memory. */
template <int LEFT> __device__ static inline void tensor_store_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

__device__ static inline void tensor_store_done()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Ordinary writes of shared memory become visible to the copy engine and the tensor cores. */
__device__ static inline void proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ static inline float2 load_pair(uint32_t address)
{
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
    return pair;
}

__device__ static inline void store_pair(uint32_t address, float2 pair)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(pair.x), "f"(pair.y)
                 : "memory");
}

__device__ static inline void store_matrices(uint32_t address, const uint32_t from[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}

/* -- products of a warpgroup ------------------------------------------------------------------ */

/* A shared matrix at that address. Leading and stride: bytes between blocks of 64 indices (by
 * columns only) and between groups of eight rows. Swizzle 1: 128 bytes. */
__device__ static inline uint64_t shared_matrix(uint32_t address, uint32_t leading, uint32_t stride)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same matrix so many bytes further on; it stays below 256 KiB. */
__device__ static inline uint64_t shared_matrix_at(uint64_t matrix, uint32_t bytes)
{
    return (matrix & 0xffffffff00000000ULL) | ((uint32_t)matrix + (bytes >> 4));
}

__device__ static inline void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ static inline void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT> __device__ static inline void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define ACCUMULATORS_0                                       \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ACCUMULATORS_1                                                 \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define ACCUMULATORS_2                                                 \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define ACCUMULATORS_3                                                             \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define REGISTERS_8(c, i)                                                       \
    "+f"((c)[(i)]), "+f"((c)[(i) + 1]), "+f"((c)[(i) + 2]), "+f"((c)[(i) + 3]), \
        "+f"((c)[(i) + 4]), "+f"((c)[(i) + 5]), "+f"((c)[(i) + 6]), "+f"((c)[(i) + 7])
#define REGISTERS_32(c, i) \
    REGISTERS_8(c, i), REGISTERS_8(c, (i) + 8), REGISTERS_8(c, (i) + 16), REGISTERS_8(c, (i) + 24)

#if defined(MODEL_FP16)
#define HALF_KINDS "f16.f16"
#else
#define HALF_KINDS "bf16.bf16"
#endif

/* c += A B of 64 x N x 16, or c = A B where keep is 0. Element i of c: row lane / 4 + 8 (i / 2 % 2)
 * of the warp's 16, column i / 4 * 8 + lane % 4 * 2 + i % 2. */
template <int N, bool A_COLUMNS, bool B_COLUMNS> struct warpgroup_product;

#define WARPGROUP_PRODUCT(n, list, a, b, keep_, ta, tb, ...)                                       \
    template <bool A_COLUMNS, bool B_COLUMNS> struct warpgroup_product<n, A_COLUMNS, B_COLUMNS> {  \
        __device__ static inline void add(float (&c)[n / 2], uint64_t matrix_a, uint64_t matrix_b, \
                                          uint32_t keep)                                           \
        {                                                                                          \
            asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_ ", 0;\n"                  \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." HALF_KINDS " {" list    \
                         "}, " a ", " b ", keep, 1, 1, " ta ", " tb ";\n}"                         \
                         : __VA_ARGS__                                                             \
                         : "l"(matrix_a), "l"(matrix_b), "r"(keep), "n"(A_COLUMNS ? 1 : 0),        \
                           "n"(B_COLUMNS ? 1 : 0));                                                \
        }                                                                                          \
    };

WARPGROUP_PRODUCT(64, ACCUMULATORS_0, "%32", "%33", "%34", "%35", "%36", REGISTERS_32(c, 0))
WARPGROUP_PRODUCT(128, ACCUMULATORS_0 "," ACCUMULATORS_1, "%64", "%65", "%66", "%67", "%68",
                  REGISTERS_32(c, 0), REGISTERS_32(c, 32))
WARPGROUP_PRODUCT(192, ACCUMULATORS_0 "," ACCUMULATORS_1 "," ACCUMULATORS_2, "%96", "%97", "%98",
                  "%99", "%100", REGISTERS_32(c, 0), REGISTERS_32(c, 32), REGISTERS_32(c, 64))
WARPGROUP_PRODUCT(256, ACCUMULATORS_0 "," ACCUMULATORS_1 "," ACCUMULATORS_2 "," ACCUMULATORS_3,
                  "%128", "%129", "%130", "%131", "%132", REGISTERS_32(c, 0), REGISTERS_32(c, 32),
                  REGISTERS_32(c, 64), REGISTERS_32(c, 96))

#endif

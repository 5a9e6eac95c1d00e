/* What sm_90a's streaming causal attention and its backward share (Shah et al., "FlashAttention-3",
 * 2024): wgmma with the weights as register operands, tiles by the copy engine.
 *
 * A block is GROUPS warpgroups of 64 rows each, and one that copies. It makes the tiles (last - i)
 * and i of a sequence and head, one after the other, so that all blocks have the same work under
 * the causal mask. The other side's rows come in steps of N through a ring; the products of step
 * j + 1 run beside the exponentials of step j.
 *
 * Scores are kept in units of log2: exp2(scale log2(e) s - largest), scale > 0. Every element's sum
 * is one chain in a fixed order, whatever else is in the launch. grid: (pairs of tiles, sequences *
 * heads). */
#ifndef COPPELIUS_GPU_MODEL_KERNELS_ATTENTION_HOPPER_CUH
#define COPPELIUS_GPU_MODEL_KERNELS_ATTENTION_HOPPER_CUH

#include "gpu/model/kernels/wgmma.cuh"

#define LOG2E 1.44269504F
#define LN2   0.693147181F
#define ROWS  64                   /* of a warpgroup, and of every box that is copied */
#define PANEL (ROWS * SWIZZLE_ROW) /* bytes of a box: 64 rows of 64 halves */

__device__ static inline float power(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* c += A B of 64 x N x 16 with A in registers (as the accumulators of two groups of eight columns,
 * rounded). */
template <int N, bool B_COLUMNS> struct register_product;

#define REGISTER_PRODUCT(n, list, a0, a1, a2, a3, b, keep_, tb, ...)                             \
    template <bool B_COLUMNS> struct register_product<n, B_COLUMNS> {                            \
        __device__ static inline void add(float (&c)[n / 2], const uint32_t *a, uint64_t matrix, \
                                          uint32_t keep)                                         \
        {                                                                                        \
            asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_ ", 0;\n"                \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." HALF_KINDS " {" list  \
                         "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", keep, 1, 1, " tb ";\n}"       \
                         : __VA_ARGS__                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix), "r"(keep),   \
                           "n"(B_COLUMNS ? 1 : 0));                                              \
        }                                                                                        \
    };
REGISTER_PRODUCT(64, ACCUMULATORS_0, "%32", "%33", "%34", "%35", "%36", "%37", "%38",
                 REGISTERS_32(c, 0))
REGISTER_PRODUCT(128, ACCUMULATORS_0 "," ACCUMULATORS_1, "%64", "%65", "%66", "%67", "%68", "%69",
                 "%70", REGISTERS_32(c, 0), REGISTERS_32(c, 32))

/* The compiler must not move what touches these registers over this point. */
template <int COUNT> __device__ static inline void settle(float (&c)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        asm volatile("" : "+f"(c[i])::"memory");
    }
}

/* A tile in shared memory: HEAD / 64 panels of COUNT rows by 128 bytes. */
template <int HEAD, int COUNT> struct tile {
    static constexpr int bytes = COUNT * HEAD * 2;

    __device__ static inline void load(uint32_t to, const model_map *map, uint32_t row,
                                       uint32_t barrier)
    {
#pragma unroll
        for (int panel = 0; panel < HEAD / 64; panel++) {
#pragma unroll
            for (int box = 0; box < COUNT / ROWS; box++) {
                tensor_load(to + panel * (COUNT * SWIZZLE_ROW) + box * PANEL, map, panel * 64,
                            row + box * ROWS, barrier);
            }
        }
    }

    /* Rows are the operand's index, 16 of the head's elements from k. */
    __device__ static inline uint64_t by_rows(uint32_t at, int k)
    {
        return shared_matrix(at + k / 64 * (COUNT * SWIZZLE_ROW) + k % 64 * 2, 16, SWIZZLE_ATOM);
    }

    /* The head's elements are the operand's index, 16 rows from `row` are summed. */
    __device__ static inline uint64_t by_columns(uint32_t at, int row)
    {
        return shared_matrix(at + row * SWIZZLE_ROW, COUNT * SWIZZLE_ROW, SWIZZLE_ATOM);
    }
};

/* c (64 x N) = rows of a (of A_COUNT), times rows of b (of N) transposed. */
template <int HEAD, int A_COUNT, int N>
__device__ static inline void multiply_rows(float (&c)[N / 2], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int k = 0; k < HEAD; k += 16) {
        warpgroup_product<N, false, false>::add(c, tile<HEAD, A_COUNT>::by_rows(a, k),
                                                tile<HEAD, N>::by_rows(b, k), k != 0);
    }
}

/* c (64 x HEAD) += weights (64 x N, halves) times b (N x HEAD). */
template <int HEAD, int N>
__device__ static inline void multiply_weights(float (&c)[HEAD / 2], const uint32_t *weights,
                                               uint32_t b)
{
#pragma unroll
    for (int k = 0; k < N; k += 16) {
        register_product<HEAD, true>::add(c, weights + k / 4, tile<HEAD, N>::by_columns(b, k), 1);
    }
}

template <int N>
__device__ static inline void pack(uint32_t (&to)[N / 4], const float (&from)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        to[i] = half_pair(from[2 * i], from[2 * i + 1]);
    }
}

/* Over the four lanes that share a row. */
__device__ static inline float row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

__device__ static inline float row_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffU, value, 1);
    return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

/* The lane's upper row of its warpgroup's 64, and its first column of eight. */
__device__ static inline uint32_t lane_row()
{
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

__device__ static inline uint32_t lane_column()
{
    return threadIdx.x % 4 * 2;
}

/* Writes the warpgroup's 64 rows times a factor for each of the lane's two: the four lanes of a row
 * trade so that each writes 16 bytes. */
template <int HEAD>
__device__ static inline void store_rows(half_t *to, const float (&c)[HEAD / 2], float above,
                                         float below)
{
    const uint32_t lane = threadIdx.x % 4;
    half_t *row = to + lane_row() * HEAD;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const float factor = side == 0 ? above : below;
#pragma unroll
        for (int j = 0; j < HEAD / 32; j++) {
            uint32_t mine[4]; /* the lane's pair of each of four groups of eight columns */
            uint32_t whole[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = (4 * j + i) * 4 + 2 * side;
                mine[i] = half_pair(c[at] * factor, c[at + 1] * factor);
            }
#pragma unroll
            for (int turn = 0; turn < 4; turn++) {
                /* Lane l takes group l's pair from lane l ^ turn, which gives its group l. */
                const uint32_t group = lane ^ turn;
                const uint32_t give = group == 0   ? mine[0]
                                      : group == 1 ? mine[1]
                                      : group == 2 ? mine[2]
                                                   : mine[3];
                const uint32_t got = __shfl_xor_sync(0xffffffffU, give, turn);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    whole[i] = (lane ^ turn) == (uint32_t)i ? got : whole[i];
                }
            }
            *(uint4 *)&row[side * 8 * HEAD + j * 32 + lane * 8] =
                make_uint4(whole[0], whole[1], whole[2], whole[3]);
        }
    }
}

/* Counts through a ring; the parity of a round flips each time around. */
template <int STAGES> struct ring {
    uint32_t stage = 0;
    uint32_t parity = 0;

    __device__ inline void next()
    {
        stage++;
        if (stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* The thread's warpgroup, the same for all that the compiler sees of a warp. */
__device__ static inline uint32_t warpgroup_index()
{
    return __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);
}

/* Contiguous bytes (a multiple of 16) into shared memory; they count for barrier. */
__device__ static inline void bulk_load(uint32_t to, const void *from, uint32_t bytes,
                                        uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Hides the scores of columns (from `column` on) above the diagonal; the warpgroup's rows begin at
 * `first`. */
template <int N>
__device__ static inline void hide(float (&c)[N / 2], uint32_t first, uint32_t column)
{
    const int below = (int)(first + lane_row()) - (int)(column + lane_column());
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        if (j / 4 * 8 + j % 2 - j / 2 % 2 * 8 > below) {
            c[j] = -INFINITE;
        }
    }
}

/* -- a block's memory and who fills it -------------------------------------------------------- */

/* Where everything is: shared addresses. */
template <int STAGES> struct places {
    uint32_t own;   /* the own side's tiles, of both tiles of the block */
    uint32_t steps; /* the ring */
    uint32_t own_full;
    uint32_t first_full; /* of a stage: its first operand */
    uint32_t second_full;
    uint32_t empty;
};

/* A warpgroup's tile: which of the block's two, and of which warpgroup. */
struct own_of {
    uint32_t i;
    uint32_t warpgroup;
};

/* OWN operands of the own side stay for a tile; a step of the ring has N rows of two operands, and
 * of VECTORS f32 vectors. */
template <int HEAD, int GROUPS, int N, int STAGES, int OWN, int VECTORS> struct layout {
    using own_rows = tile<HEAD, ROWS>;
    using step_rows = tile<HEAD, N>;
    static constexpr int own_tile = own_rows::bytes; /* of a warpgroup */
    static constexpr int own_operand = GROUPS * own_tile;
    static constexpr int own_bytes = OWN * own_operand; /* of a tile */
    static constexpr int vectors_bytes =
        (VECTORS * N * 4 + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    static constexpr int step_bytes = 2 * step_rows::bytes + vectors_bytes;
    static constexpr int barriers = 2 + 3 * STAGES;

    __device__ static inline places<STAGES> begin(const void *memory, const uint64_t *room)
    {
        const uint32_t own =
            (shared_address(memory) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
        const uint32_t start = shared_address(room);
        const places<STAGES> at = {own,        own + 2 * own_bytes,     start,
                                   start + 16, start + 16 + STAGES * 8, start + 16 + STAGES * 16};
        if (threadIdx.x == 0) {
            barrier_init(at.own_full, 1);
            barrier_init(at.own_full + 8, 1);
            for (int i = 0; i < STAGES; i++) {
                barrier_init(at.first_full + i * 8, 1);
                barrier_init(at.second_full + i * 8, 1);
                barrier_init(at.empty + i * 8, GROUPS * (VECTORS > 0 ? 128 : 4));
            }
            barrier_init_done();
        }
        __syncthreads();
        return at;
    }

    /* Rows from `row` on of the own side, for the block's tile i. */
    __device__ static inline void load_own(const places<STAGES> &at, const model_maps &maps,
                                           const uint32_t (&which)[OWN], uint32_t i, uint32_t row)
    {
        const uint32_t full = at.own_full + i * 8;
        barrier_expect(full, own_bytes);
#pragma unroll
        for (int o = 0; o < OWN; o++) {
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                own_rows::load(at.own + i * own_bytes + o * own_operand + g * own_tile,
                               &maps.map[which[o]], row + g * ROWS, full);
            }
        }
    }

    __device__ static inline void wait_own(const places<STAGES> &at, own_of which)
    {
        barrier_wait(at.own_full + which.i * 8, 0);
    }

    __device__ static inline uint32_t own_at(const places<STAGES> &at, own_of which)
    {
        return at.own + which.i * own_bytes + which.warpgroup * own_tile;
    }

    __device__ static inline void load_step(const places<STAGES> &at, const model_maps &maps,
                                            const uint32_t (&which)[2], const ring<STAGES> &turn,
                                            uint32_t row, const float *const *vectors)
    {
        const uint32_t to = at.steps + turn.stage * step_bytes;
        const uint32_t first = at.first_full + turn.stage * 8;
        const uint32_t second = at.second_full + turn.stage * 8;
        barrier_wait(at.empty + turn.stage * 8, turn.parity ^ 1);
        barrier_expect(first, step_rows::bytes + VECTORS * N * 4);
        step_rows::load(to, &maps.map[which[0]], row, first);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            bulk_load(to + 2 * step_rows::bytes + i * N * 4, vectors[i] + row, N * 4, first);
        }
        barrier_expect(second, step_rows::bytes);
        step_rows::load(to + step_rows::bytes, &maps.map[which[1]], row, second);
    }

    __device__ static inline void wait_step(const places<STAGES> &at, const ring<STAGES> &turn)
    {
        barrier_wait(at.first_full + turn.stage * 8, turn.parity);
        barrier_wait(at.second_full + turn.stage * 8, turn.parity);
    }

    /* A warpgroup has no use for this step. */
    __device__ static inline void skip(const places<STAGES> &at, const ring<STAGES> &turn)
    {
        wait_step(at, turn);
        release(at, turn);
    }

    /* This thread is done with the stage; the copies that fill it anew come behind the word.
     *
     * There:  expect_tx (tile + vectors: as many bytes as the copies bring) -> copies' complete_tx
     *         -> phase of `full` -> try_wait (acquire) -> wgmma, ld.shared. What a bulk copy wrote
     * is there for ordinary reads once its completion was seen. Back:   wgmma reads by the copies'
     * own proxy and was waited for (wait_group): one lane's word for its warp will do. ld.shared of
     * the vectors does not: each lane's fence.proxy.async puts its reads before what the copy engine
     * writes after it, and each lane gives its own word (release) -> the phase of `empty` -> the
     * copying thread's try_wait (acquire) -> copies. */
    __device__ static inline void release(const places<STAGES> &at, const ring<STAGES> &turn)
    {
        const uint32_t empty = at.empty + turn.stage * 8;
        if (VECTORS > 0) {
            proxy_fence();
            barrier_arrive(empty);
        } else {
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                barrier_arrive(empty);
            }
        }
    }
};

/* The block's two tiles (one where they are the same) of its sequence and head. */
template <int GROUPS> struct tiles_of {
    uint32_t length;
    uint32_t group; /* the row where the sequence and head begin */
    uint32_t last;
    uint32_t count;

    __device__ inline tiles_of(const model_arguments &args)
    {
        length = args.launch.shape.length;
        group = blockIdx.y * length;
        last = (length + GROUPS * ROWS - 1) / (GROUPS * ROWS) - 1;
        count = last - blockIdx.x == blockIdx.x ? 1 : 2;
    }

    __device__ inline uint32_t first(uint32_t i) const
    {
        return (i == 0 ? last - blockIdx.x : blockIdx.x) * (GROUPS * ROWS);
    }

    __device__ inline uint32_t end(uint32_t first) const
    {
        return min(first + GROUPS * ROWS, length);
    }
};

struct step_vectors {
    const float *from[2]; /* where the first step's begin */
};

/* A block's two roles. One thread copies: of each of its tiles the own side's operands (own), then
 * step by step the other side's (others, with vectors) of the rows that span(tiles, block) names.
 * The warpgroups that multiply run work(tiles, block, first, own, at, turn) for each of the two
 * tiles: wait_own(), then all its steps, or skip() them; block and first are the rows where the
 * block's tile and the warpgroup's 64 of it begin. */
template <typename PLAN, int GROUPS, int N, int STAGES, int MORE, int FEWER, int OWN,
          typename VECTORS_OF, typename SPAN, typename WORK>
__device__ static inline void
copy_and_multiply(const model_arguments &args, const model_maps &maps, const void *memory,
                  const uint64_t *barriers, const uint32_t (&own)[OWN], const uint32_t (&others)[2],
                  VECTORS_OF vectors_of, SPAN span, WORK work)
{
    const places<STAGES> at = PLAN::begin(memory, barriers);
    const tiles_of<GROUPS> tiles(args);
    const uint32_t warpgroup = warpgroup_index();
    ring<STAGES> turn;
    if (warpgroup == GROUPS) {
        registers_fewer<FEWER>();
        if (threadIdx.x == GROUPS * 128) {
            const step_vectors vectors = vectors_of();
            for (uint32_t i = 0; i < tiles.count; i++) {
                const uint32_t block = tiles.first(i);
                PLAN::load_own(at, maps, own, i, tiles.group + block);
                const uint2 rows = span(tiles, block);
                for (uint32_t row = rows.x; row < rows.y; row += N) {
                    PLAN::load_step(at, maps, others, turn, tiles.group + row, vectors.from);
                    turn.next();
                }
            }
        }
    } else {
        registers_more<MORE>();
        for (uint32_t i = 0; i < tiles.count; i++) {
            const uint32_t block = tiles.first(i);
            work(tiles, block, block + warpgroup * ROWS, own_of{i, warpgroup}, at, turn);
        }
    }
}

/* The same for queries, which meet the keys from the first to the diagonal's. */
template <typename PLAN, int GROUPS, int N, int STAGES, int MORE, int FEWER, int OWN,
          typename ROWS_OF>
__device__ static inline void
copy_and_multiply_queries(const model_arguments &args, const model_maps &maps, const void *memory,
                          const uint64_t *barriers, const uint32_t (&own_operands)[OWN],
                          ROWS_OF rows_of)
{
    const uint32_t others[2] = {1, 2};
    copy_and_multiply<PLAN, GROUPS, N, STAGES, MORE, FEWER>(
        args, maps, memory, barriers, own_operands, others, []() { return step_vectors{}; },
        [](const tiles_of<GROUPS> &tiles, uint32_t block) {
            return make_uint2(0, tiles.end(block));
        },
        [&](const tiles_of<GROUPS> &tiles, uint32_t block, uint32_t first, own_of own_tile,
            const places<STAGES> &at, ring<STAGES> &turn) {
            const uint32_t steps = (tiles.end(block) + N - 1) / N;
            const uint32_t own = first < tiles.length ? (first + ROWS + N - 1) / N : 0;
            PLAN::wait_own(at, own_tile);
            if (own != 0) {
                rows_of(tiles.group, first, PLAN::own_at(at, own_tile), at, turn);
            }
            for (uint32_t step = own; step < steps; step++) { /* wholly above the diagonal */
                PLAN::skip(at, turn);
                turn.next();
            }
        });
}

/* What a thread of a block of so many warpgroups has of the 65536 registers when it starts; the
 * roles may only share out anew what their block has. */
constexpr int registers_at_start(int warpgroups, int blocks)
{
    return 65536 / (blocks * warpgroups * 128) / 8 * 8;
}

#define HOPPER_KERNEL(name, groups, blocks, more, fewer)                                  \
    static_assert((groups) * (more) + (fewer) <=                                          \
                      ((groups) + 1) * registers_at_start((groups) + 1, blocks),          \
                  "setmaxnreg would wait for ever");                                      \
    extern "C" __global__ void __launch_bounds__((groups)*128 + 128, blocks) ENTRY(name)( \
        const __grid_constant__ model_arguments args, const __grid_constant__ model_maps maps)

#endif

/* Tiled products on Hopper (sm_90a): wgmma out of shared memory that bulk tensor copies fill.
 * C = A B, + R; A by rows (m, k) or columns (k, m), B by rows (n, k) or columns (k, n); f32 sums.
 *
 * A block is a producer warp and GROUPS consumer warpgroups around a ring of STAGES, each a BM x 64
 * piece of A and a 64 x BN piece of B. Two barriers a stage: full (the copies' bytes have landed)
 * and empty (every consumer warp of every block that shares the stage is done with it).
 *
 *   producer   wait empty -> expect bytes -> copy A, copy B -> next stage
 *   consumer   wait full -> wgmma -> (previous stage's wgmma done) arrive empty -> next stage
 *
 * Consumers share a tile, each BM / GROUPS rows of it, or take tiles in turns (ALTERNATE), so that
 * one writes its tile while the other multiplies. The grid is persistent: a cluster takes every
 * so-manieth unit, a unit being a tile of CM x CN blocks and a part of k. The blocks of a cluster
 * share operands: each copies its slice of a common piece to all that need it.
 *
 * Every element of C is one chain of k16 products in order of k (or one a part, and the parts added
 * in order by product_sum): its bits do not depend on m, n, the grid or the tile. */
#include "gpu/model/kernels/wgmma.cuh"
#include "gpu/model/tiles.h"

#define STEP        HOPPER_K
#define STORE_BYTES 8192
#define TURN        4 /* named barriers: consumer 0's turn, consumer 1's */

struct unit {
    uint32_t row;
    uint32_t column;
    uint32_t part;
    uint32_t first; /* step */
    uint32_t steps;
};

template <bool A_COLUMNS, bool B_COLUMNS, int BM, int BN, int STAGES, int GROUPS, int MODE, int CM,
          int CN>
struct hopper {
    static constexpr bool ALTERNATE = MODE != HOPPER_TOGETHER;
    static constexpr bool RESIDUAL = MODE == HOPPER_RESIDUAL;
    static_assert(!ALTERNATE || GROUPS == 2, "turns are for two");
    static constexpr int WM = ALTERNATE ? BM : BM / GROUPS; /* rows of a consumer */
    static constexpr int MT = WM / 64;
    static constexpr int CLUSTER = CM * CN;
    static constexpr int SHARERS = CM + CN - 1;
    static constexpr uint32_t a_bytes = BM * STEP * 2;
    static constexpr uint32_t b_bytes = BN * STEP * 2;
    static constexpr uint32_t stage_bytes = a_bytes + b_bytes;
    static constexpr uint32_t store_at = STAGES * stage_bytes;
    static constexpr int STORES = RESIDUAL ? HOPPER_RESIDUALS : HOPPER_STORES; /* of a consumer */
    static constexpr uint32_t barriers_at = store_at + GROUPS * STORES * STORE_BYTES;
    static constexpr uint32_t residuals_at = barriers_at + STAGES * 16; /* barriers of R's pieces */
    static constexpr int CONSUMERS = ALTERNATE ? 1 : GROUPS;            /* of a stage */

    const model_launch &l;
    const model_arguments &args;
    const model_maps &maps;
    uint32_t base;
    uint32_t rank;

    __device__ inline uint32_t full(uint32_t stage) const
    {
        return base + barriers_at + stage * 16;
    }
    __device__ inline uint32_t empty(uint32_t stage) const
    {
        return base + barriers_at + stage * 16 + 8;
    }

    __device__ inline uint32_t residual_full(uint32_t group, uint32_t piece) const
    {
        return base + residuals_at + (group * STORES + piece) * 16;
    }
    __device__ inline uint32_t residual_empty(uint32_t group, uint32_t piece) const
    {
        return residual_full(group, piece) + 8;
    }
    __device__ inline uint32_t store_room(uint32_t group, uint32_t piece) const
    {
        return base + store_at + (group * STORES + piece) * STORE_BYTES;
    }

    /* Bands of rows of tiles, columns within; parts of k outermost, so that what runs at one time
     * reads the same k. */
    __device__ inline bool take(uint32_t number, unit &u) const
    {
        const uint32_t tiles_m = l.m / (BM * CM);
        const uint32_t tiles_n = l.n / (BN * CN);
        const uint32_t parts = l.split > 1 ? l.split : 1;
        const uint32_t tiles = tiles_m * tiles_n;
        if (number >= tiles * parts) {
            return false;
        }
        u.part = number / tiles;
        const uint32_t tile = number % tiles;
        const uint32_t band = tile / (HOPPER_BAND * tiles_n);
        const uint32_t band_rows = min((uint32_t)HOPPER_BAND, tiles_m - band * HOPPER_BAND);
        const uint32_t inside = tile % (HOPPER_BAND * tiles_n);
        u.row = ((band * HOPPER_BAND + inside % band_rows) * CM + rank % CM) * BM;
        u.column = (inside / band_rows * CN + rank / CM) * BN;
        const uint32_t all = l.k / STEP;
        u.first = (uint32_t)((uint64_t)all * u.part / parts);
        u.steps = (uint32_t)((uint64_t)all * (u.part + 1) / parts) - u.first;
        return true;
    }

    /* This block's slice of a piece, to all that share it. */
    template <bool COLUMNS, int SIZE, int SLICES>
    __device__ inline void copy(uint32_t to, const model_map *map, uint32_t index, uint32_t k,
                                uint32_t barrier, uint32_t slice, uint16_t mask) const
    {
        /* By columns a slice is some of the 64 of k in every block of 64 indices; by rows, some
         * rows. */
        constexpr int LINES = (COLUMNS ? STEP : SIZE) / SLICES;
        static_assert(LINES % 8 == 0, "slices are whole atoms of the swizzle");
#pragma unroll
        for (int at = 0; at < (COLUMNS ? SIZE : 1); at += 64) {
            const uint32_t line = slice * LINES;
            const uint32_t x = COLUMNS ? index + at : k;
            const uint32_t y = COLUMNS ? k + line : index + line;
            const uint32_t place = to + (at + line) * SWIZZLE_ROW;
            if (SLICES > 1) {
                tensor_load_all(place, map, x, y, barrier, mask);
            } else {
                tensor_load(place, map, x, y, barrier);
            }
        }
    }

    __device__ inline void produce() const
    {
        earlier_grids_done();
        uint16_t a_mask = 0;
        uint16_t b_mask = 0;
        for (int i = 0; i < CN; i++) {
            a_mask |= (uint16_t)(1U << (rank % CM + i * CM));
        }
        for (int i = 0; i < CM; i++) {
            b_mask |= (uint16_t)(1U << (rank / CM * CM + i));
        }
        uint32_t stage = 0;
        uint32_t phase = 1;
        unit u;
        for (uint32_t number = blockIdx.x / CLUSTER; take(number, u);
             number += gridDim.x / CLUSTER) {
            for (uint32_t step = u.first; step < u.first + u.steps; step++) {
                barrier_wait(empty(stage), phase);
                barrier_expect(full(stage), stage_bytes);
                const uint32_t to = base + stage * stage_bytes;
                copy<A_COLUMNS, BM, CN>(to, &maps.map[0], u.row, step * STEP, full(stage),
                                        rank / CM, a_mask);
                copy<B_COLUMNS, BN, CM>(to + a_bytes, &maps.map[1], u.column, step * STEP,
                                        full(stage), rank % CM, b_mask);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
    }

    /* R's pieces of 64 x 32 for the tiles of one consumer, which adds its sums to them in place. */
    __device__ inline void produce_residual(uint32_t group) const
    {
        earlier_grids_done();
        uint32_t piece = 0;
        uint32_t phase = 1;
        uint32_t turn = 0;
        unit u;
        for (uint32_t number = blockIdx.x / CLUSTER; take(number, u);
             number += gridDim.x / CLUSTER, turn++) {
            if (turn % GROUPS != group) {
                continue;
            }
            for (uint32_t at = 0; at < MT * (BN / 32); at++) {
                barrier_wait(residual_empty(group, piece), phase);
                barrier_expect(residual_full(group, piece), STORE_BYTES);
                tensor_load(store_room(group, piece), &maps.map[2],
                            (u.column + at % (BN / 32) * 32) * 2, u.row + at / (BN / 32) * 64,
                            residual_full(group, piece));
                if (++piece == STORES) {
                    piece = 0;
                    phase ^= 1;
                }
            }
        }
    }

    /* One arrival a consumer warp, at every block that copies into this one's stage. */
    __device__ inline void leave(uint32_t stage, uint32_t lane) const
    {
        if (CLUSTER == 1) {
            if (lane == 0) {
                barrier_arrive(empty(stage));
            }
        } else if (lane < CLUSTER && (lane % CM == rank % CM || lane / CM == rank / CM)) {
            barrier_arrive_at(empty(stage), lane);
        }
    }

    __device__ inline void consume(uint32_t group) const
    {
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t first_row = ALTERNATE ? 0 : group * WM;
        const uint64_t a_ring = shared_matrix(base + first_row * SWIZZLE_ROW,
                                              A_COLUMNS ? STEP * SWIZZLE_ROW : 16, SWIZZLE_ATOM);
        const uint64_t b_ring =
            shared_matrix(base + a_bytes, B_COLUMNS ? STEP * SWIZZLE_ROW : 16, SWIZZLE_ATOM);
        float c[MT][BN / 2];
        uint32_t done = 0; /* steps of the units before */
        uint32_t turn = 0;
        uint32_t pieces = 0; /* of R, so far */
        if (ALTERNATE && group == 1) {
            pair_arrive(TURN); /* the other one begins */
        }
        unit u;
        for (uint32_t number = blockIdx.x / CLUSTER; take(number, u);
             number += gridDim.x / CLUSTER, turn++, done += u.steps) {
            if (ALTERNATE && turn % GROUPS != group) {
                continue;
            }
            uint32_t stage = done % STAGES;
            uint32_t phase = done / STAGES % 2;
            uint32_t before = stage;
            if (ALTERNATE) {
                pair_wait(TURN + group);
            }
            for (uint32_t step = 0; step < u.steps; step++) {
                barrier_wait(full(stage), phase);
                const uint64_t a = shared_matrix_at(a_ring, stage * stage_bytes);
                const uint64_t b = shared_matrix_at(b_ring, stage * stage_bytes);
                products_begin();
#pragma unroll
                for (int k = 0; k < STEP; k += 16) {
#pragma unroll
                    for (int i = 0; i < MT; i++) {
                        warpgroup_product<BN, A_COLUMNS, B_COLUMNS>::add(
                            c[i],
                            shared_matrix_at(a, i * 64 * SWIZZLE_ROW +
                                                    k * (A_COLUMNS ? SWIZZLE_ROW : 2)),
                            shared_matrix_at(b, k * (B_COLUMNS ? SWIZZLE_ROW : 2)),
                            (uint32_t)(step + k != 0));
                    }
                }
                products_commit();
                products_wait<1>();
                if (step != 0) {
                    leave(before, lane);
                }
                before = stage;
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
            /* The other one may wait for its stages now: a parity tells only a phase from the next.
             */
            unit next;
            if (ALTERNATE && take(number + gridDim.x / CLUSTER, next)) {
                pair_arrive(TURN + 1 - group);
            }
            products_wait<0>();
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < BN / 2; j++) {
                    asm volatile("" : "+f"(c[i][j])::"memory");
                }
            }
            leave(before, lane);
            if (RESIDUAL) {
                write_residual(c, group, u.row, u.column, pieces);
            } else if (l.split > 1) {
                write<false, false>(c, u.row + first_row, u.column, u.part);
            } else if (l.add != 0 && l.half_out != 0) {
                write<true, true>(c, u.row + first_row, u.column, 0);
            } else if (l.add != 0) {
                write<true, false>(c, u.row + first_row, u.column, 0);
            } else if (l.half_out != 0) {
                write_half(c, group, u.row + first_row, u.column);
            } else {
                write<false, false>(c, u.row + first_row, u.column, 0);
            }
        }
        if (threadIdx.x % 128 == 0) {
            tensor_store_done();
        }
    }

    /* 64 x 64 halves at a time through shared memory. */
    __device__ inline void write_half(const float (&c)[MT][BN / 2], uint32_t group, uint32_t row,
                                      uint32_t column) const
    {
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t line = threadIdx.x % 128 / 32 * 16 + lane % 16;
        const bool one = threadIdx.x % 128 == 0;
#pragma unroll
        for (int i = 0; i < MT; i++) {
#pragma unroll
            for (int j = 0; j < BN / 64; j++) {
                const uint32_t room = store_room(group, (i * (BN / 64) + j) % STORES);
                if (one) {
                    tensor_store_read<STORES - 1>();
                }
                group_barrier(group + 1);
#pragma unroll
                for (int t = 0; t < 8; t += 2) {
                    const float *from = &c[i][j * 32 + t * 4];
                    const uint32_t four[4] = {
                        half_pair(from[0], from[1]), half_pair(from[2], from[3]),
                        half_pair(from[4], from[5]), half_pair(from[6], from[7])};
                    store_matrices(room + line * SWIZZLE_ROW + ((t + lane / 16) ^ line % 8) * 16,
                                   four);
                }
                proxy_fence();
                group_barrier(group + 1);
                if (one) {
                    tensor_store(&maps.map[2], column + j * 64, row + i * 64, room);
                }
            }
        }
    }

    /* Sums into R's pieces, which then leave as C's. */
    __device__ inline void write_residual(const float (&c)[MT][BN / 2], uint32_t group,
                                          uint32_t row, uint32_t column, uint32_t &pieces) const
    {
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t line = threadIdx.x % 128 / 32 * 16 + lane / 4;
        const bool one = threadIdx.x % 128 == 0;
#pragma unroll
        for (int i = 0; i < MT; i++) {
#pragma unroll
            for (int j = 0; j < BN / 32; j++, pieces++) {
                const uint32_t piece = pieces % STORES;
                const uint32_t room = store_room(group, piece);
                barrier_wait(residual_full(group, piece), pieces / STORES % 2);
#pragma unroll
                for (int t = 0; t < 8; t++) {
                    const float *own = &c[i][j * 16 + t * 2];
                    const uint32_t at = room + (line + t % 2 * 8) * SWIZZLE_ROW +
                                        ((t / 2 * 2 + lane % 4 / 2) ^ (line % 8)) * 16 +
                                        lane % 2 * 8;
                    const float2 r = load_pair(at);
                    store_pair(at, make_float2(own[0] + r.x, own[1] + r.y));
                }
                proxy_fence();
                group_barrier(group + 1);
                if (one) {
                    tensor_store(&maps.map[3], (column + j * 32) * 2, row + i * 64, room);
                    if (i + j != 0) { /* the one before has left */
                        tensor_store_read<1>();
                        barrier_arrive(residual_empty(group, (pieces + STORES - 1) % STORES));
                    }
                }
            }
        }
        if (one) {
            tensor_store_read<0>();
            barrier_arrive(residual_empty(group, (pieces + STORES - 1) % STORES));
        }
    }

    /* Straight from the registers, four lanes eight elements of a row; + R. */
    template <bool ADD, bool HALF>
    __device__ inline void write(const float (&c)[MT][BN / 2], uint32_t row, uint32_t column,
                                 uint32_t part) const
    {
        const uint32_t lane = threadIdx.x % 32;
        const uint64_t line = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
        float *out = l.split > 1 ? operand<float>(args, 5) + (uint64_t)part * l.m * l.n
                                 : operand<float>(args, 3);
#pragma unroll
        for (int i = 0; i < MT; i++) {
#pragma unroll
            for (int j = 0; j < BN / 64; j++) {
                const uint64_t at = (line + i * 64) * l.n + column + j * 64 + lane % 4 * 2;
                float2 r[16];
#pragma unroll
                for (int t = 0; ADD && t < 16; t++) {
                    r[t] = __ldg((const float2 *)(operand<const float>(args, 2) + at + t / 2 * 8 +
                                                  (uint64_t)(t % 2 * 8) * l.n));
                }
#pragma unroll
                for (int t = 0; t < 16; t++) {
                    const uint64_t to = at + t / 2 * 8 + (uint64_t)(t % 2 * 8) * l.n;
                    float2 sum = make_float2(c[i][j * 32 + t * 2], c[i][j * 32 + t * 2 + 1]);
                    if (ADD) {
                        sum = make_float2(sum.x + r[t].x, sum.y + r[t].y);
                    }
                    if (HALF) {
                        *(uint32_t *)&operand<half_t>(args, 4)[to] = half_pair(sum.x, sum.y);
                    } else {
                        *(float2 *)&out[to] = sum;
                    }
                }
            }
        }
    }

    __device__ inline void run()
    {
        next_grid_may_come();
        const uint32_t warp = __shfl_sync(0xffffffffU, threadIdx.x / 32, 0); /* uniform */
        if (threadIdx.x == 0) {
            tensor_prefetch(&maps.map[0]);
            tensor_prefetch(&maps.map[1]);
            for (uint32_t stage = 0; stage < STAGES; stage++) {
                barrier_init(full(stage), 1);
                barrier_init(empty(stage), CONSUMERS * 4 * SHARERS);
            }
            for (uint32_t i = 0; RESIDUAL && i < GROUPS * STORES; i++) {
                barrier_init(residual_full(0, i), 1);
                barrier_init(residual_empty(0, i), 1);
            }
            barrier_init_done();
        }
        if (CLUSTER > 1) {
            cluster_barrier();
        } else {
            __syncthreads();
        }
        if (warp < 4) {
            if (GROUPS > 1) {
                registers_fewer<56>();
            }
            if (threadIdx.x == 0) {
                produce();
            } else if (RESIDUAL && (threadIdx.x == 32 || threadIdx.x == 64)) {
                produce_residual(warp - 1);
            }
        } else {
            if (GROUPS > 1) {
                registers_more<GROUPS == 2 ? 224 : 152>();
            }
            consume(warp / 4 - 1);
        }
        if (CLUSTER > 1) { /* no block leaves while another may still write to it */
            __syncwarp();
            cluster_barrier();
        }
    }
};

static_assert(sizeof(model_map) == 128 && alignof(model_map) == 64, "CUtensorMap");

#define PRODUCT(pattern, a, b, number, bm, bn, stages, groups, mode, cm, cn)  \
    KERNEL_MAPS(product_##pattern##number, ((groups) + 1) * 128, (cm) * (cn)) \
    {                                                                         \
        DYNAMIC_SHARED(ring);                                                 \
        hopper<a, b, bm, bn, stages, groups, mode, cm, cn> one = {            \
            args.launch, args, maps,                                          \
            (shared_address(ring) + SWIZZLE_ATOM - 1) & ~(SWIZZLE_ATOM - 1U), \
            (cm) * (cn) > 1 ? cluster_rank() : 0};                            \
        one.run();                                                            \
    }
#define PRODUCTS(number, bm, bn, stages, groups, mode, cm, cn)              \
    PRODUCT(rr, false, false, number, bm, bn, stages, groups, mode, cm, cn) \
    PRODUCT(rc, false, true, number, bm, bn, stages, groups, mode, cm, cn)  \
    PRODUCT(cc, true, true, number, bm, bn, stages, groups, mode, cm, cn)
HOPPER_TILES(PRODUCTS)

/* C = the parts in order, + R. Four elements a thread. */
KERNEL(product_sum, 256)
{
    const model_launch &l = args.launch;
    const uint64_t count = (uint64_t)l.m * l.n;
    const uint64_t at = ((uint64_t)blockIdx.x * 256 + threadIdx.x) * 4;
    if (at >= count) {
        return;
    }
    const float *from = operand<const float>(args, 5) + at;
    float4 sum = *(const float4 *)from;
#pragma unroll 8
    for (uint32_t part = 1; part < l.split; part++) {
        const float4 more = *(const float4 *)(from + part * count);
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
    }
    if (l.add != 0) {
        const float4 r = *(const float4 *)(operand<const float>(args, 2) + at);
        sum = make_float4(sum.x + r.x, sum.y + r.y, sum.z + r.z, sum.w + r.w);
    }
    if (l.half_out != 0) {
        *(uint2 *)&operand<half_t>(args, 4)[at] =
            make_uint2(half_pair(sum.x, sum.y), half_pair(sum.z, sum.w));
    } else {
        *(float4 *)&operand<float>(args, 3)[at] = sum;
    }
}

/* The backward of streaming causal attention for sm_90a, two launches: queries; keys and values.
 * attention_hopper.cuh says how. */
#include "gpu/model/attention_tiles.h"
#include "gpu/model/kernels/attention_hopper.cuh"

/* -- queries ---------------------------------------------------------------------------------- */

/* dout . out of the lane's row: the four lanes of a row take a quarter each. */
template <int HEAD>
__device__ static inline float row_delta(const half_t *out, const half_t *dout, uint64_t row)
{
    const uint64_t from = row * HEAD + threadIdx.x % 4 * (HEAD / 4);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < HEAD / 4; i += 8) {
        float a[8];
        float b[8];
        unpack8(*(const uint4 *)(out + from + i), a);
        unpack8(*(const uint4 *)(dout + from + i), b);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum += a[j] * b[j];
        }
    }
    return row_sum(sum);
}

/* One warpgroup's 64 queries; own tiles: q, dout; steps: keys, values. */
template <typename PLAN, int HEAD, int N, int STAGES>
__device__ static inline void query_rows(const model_arguments &args, uint32_t group,
                                         uint32_t first, uint32_t q_tile, const places<STAGES> &at,
                                         ring<STAGES> &turn)
{
    const uint64_t row = (uint64_t)group + first + lane_row();
    const half_t *o = operand<const half_t>(args, 3);
    const half_t *dout = operand<const half_t>(args, 4);
    const float *lse = operand<const float>(args, 5) + row;
    const float scale = args.launch.scale * LOG2E;
    const uint32_t own = (first + ROWS + N - 1) / N;
    const uint32_t dout_tile = q_tile + PLAN::own_operand;
    const float base[2] = {lse[0] * LOG2E, lse[8] * LOG2E};
    const float delta[2] = {row_delta<HEAD>(o, dout, row), row_delta<HEAD>(o, dout, row + 8)};
    if (threadIdx.x % 4 == 0) {
        operand<float>(args, 7)[row] = delta[0];
        operand<float>(args, 7)[row + 8] = delta[1];
    }
    float p[N / 2];
    float slopes[N / 2];
    uint32_t weights[N / 4];
    float out[HEAD / 2];
#pragma unroll
    for (int j = 0; j < HEAD / 2; j++) {
        out[j] = 0.0F;
    }
    auto scores = [&](uint32_t stage) {
        settle(p);
        settle(slopes);
        products_begin();
        multiply_rows<HEAD, ROWS, N>(p, q_tile, stage);
        multiply_rows<HEAD, ROWS, N>(slopes, dout_tile, stage + PLAN::step_rows::bytes);
        products_commit();
    };
    auto weigh = [&](uint32_t step) { /* dS in place of p */
                                      if (step + 1 ==
                                          own) { /* N >= ROWS: no other step meets the diagonal */
                                          hide<N>(p, first, step * N);
                                      }
#pragma unroll
                                      for (int j = 0; j < N / 2; j++) {
                                          p[j] = power(fmaf(p[j], scale, -base[j / 2 % 2])) *
                                                 (slopes[j] - delta[j / 2 % 2]);
                                      }
    };
    auto add = [&](uint32_t stage) {
        settle(out);
        products_begin();
        multiply_weights<HEAD, N>(out, weights, stage);
        products_commit();
    };
    PLAN::wait_step(at, turn);
    scores(at.steps + turn.stage * PLAN::step_bytes);
    products_wait<0>();
    settle(p);
    settle(slopes);
    weigh(0);
    pack<N>(weights, p);
    for (uint32_t step = 1; step < own; step++) {
        const ring<STAGES> before = turn;
        turn.next();
        PLAN::wait_step(at, turn);
        scores(at.steps + turn.stage * PLAN::step_bytes);
        add(at.steps + before.stage * PLAN::step_bytes);
        products_wait<1>(); /* the scores are there */
        settle(p);
        settle(slopes);
        weigh(step);
        products_wait<0>(); /* the step before is done with its weights and its keys */
        settle(out);
        PLAN::release(at, before);
        pack<N>(weights, p);
    }
    add(at.steps + turn.stage * PLAN::step_bytes);
    products_wait<0>();
    settle(out);
    PLAN::release(at, turn);
    turn.next();
    store_rows<HEAD>(operand<half_t>(args, 6) + ((uint64_t)group + first) * HEAD, out,
                     args.launch.scale, args.launch.scale);
}

template <int HEAD, int GROUPS, int N, int STAGES, int MORE, int FEWER>
__device__ static inline void attention_query(const model_arguments &args, const model_maps &maps)
{
    using plan = layout<HEAD, GROUPS, N, STAGES, 2, 0>;
    __shared__ uint64_t barriers[plan::barriers];
    DYNAMIC_SHARED(memory);
    const uint32_t own[2] = {0, 3};
    copy_and_multiply_queries<plan, GROUPS, N, STAGES, MORE, FEWER>(
        args, maps, memory, barriers, own,
        [&](uint32_t group, uint32_t first, uint32_t q_tile, const places<STAGES> &at,
            ring<STAGES> &turn) {
            query_rows<plan, HEAD, N, STAGES>(args, group, first, q_tile, at, turn);
        });
}

/* -- keys and values -------------------------------------------------------------------------- */

/* One warpgroup's 64 keys: rows are keys, columns queries (P and dS transposed). own tiles: k, v;
 * steps: queries and dout, with lse and delta; the first of them holds the diagonal. */
template <typename PLAN, int HEAD, int N, int STAGES>
__device__ static inline void key_rows(const model_arguments &args, uint32_t group, uint32_t first,
                                       uint32_t query, uint32_t steps, uint32_t k_tile,
                                       const places<STAGES> &at, ring<STAGES> &turn)
{
    const float scale = args.launch.scale * LOG2E;
    const uint32_t v_tile = k_tile + PLAN::own_operand;
    float p[N / 2];
    float slopes[N / 2];
    uint32_t weights[N / 4];
    uint32_t slope_weights[N / 4];
    float dk[HEAD / 2];
    float dv[HEAD / 2];
#pragma unroll
    for (int j = 0; j < HEAD / 2; j++) {
        dk[j] = 0.0F;
        dv[j] = 0.0F;
    }
    auto scores = [&](uint32_t stage) {
        settle(p);
        settle(slopes);
        products_begin();
        multiply_rows<HEAD, ROWS, N>(p, k_tile, stage);
        multiply_rows<HEAD, ROWS, N>(slopes, v_tile, stage + PLAN::step_rows::bytes);
        products_commit();
    };
    /* P in place of the scores, dS in place of the slopes. */
    auto weigh = [&](uint32_t stage) {
        const uint32_t vectors = stage + 2 * PLAN::step_rows::bytes + lane_column() * 4;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 lse = load_pair(vectors + j * 32);
            const float2 delta = load_pair(vectors + N * 4 + j * 32);
            const float base[2] = {lse.x * LOG2E, lse.y * LOG2E};
            const float from[2] = {delta.x, delta.y};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float weight = power(fmaf(p[4 * j + i], scale, -base[i % 2]));
                p[4 * j + i] = weight;
                slopes[4 * j + i] = weight * (slopes[4 * j + i] - from[i % 2]);
            }
        }
    };
    auto add = [&](uint32_t stage) {
        settle(dk);
        settle(dv);
        products_begin();
        multiply_weights<HEAD, N>(dv, weights, stage + PLAN::step_rows::bytes);
        multiply_weights<HEAD, N>(dk, slope_weights, stage);
        products_commit();
    };
    PLAN::wait_step(at, turn);
    scores(at.steps + turn.stage * PLAN::step_bytes);
    products_wait<0>();
    settle(p);
    settle(slopes);
    const int above = (int)(first + lane_row()) - (int)(query + lane_column());
#pragma unroll
    for (int j = 0; j < N / 2; j++) { /* hidden where the query comes before the key */
        if (j / 4 * 8 + j % 2 - j / 2 % 2 * 8 < above) {
            p[j] = -INFINITE;
        }
    }
    weigh(at.steps + turn.stage * PLAN::step_bytes);
    pack<N>(weights, p);
    pack<N>(slope_weights, slopes);
    for (uint32_t step = 1; step < steps; step++) {
        const ring<STAGES> before = turn;
        turn.next();
        PLAN::wait_step(at, turn);
        if (HEAD > 64) { /* too many registers for both at once */
            add(at.steps + before.stage * PLAN::step_bytes);
            products_wait<0>();
            settle(dk);
            settle(dv);
            PLAN::release(at, before);
            scores(at.steps + turn.stage * PLAN::step_bytes);
            products_wait<0>();
        } else {
            scores(at.steps + turn.stage * PLAN::step_bytes);
            add(at.steps + before.stage * PLAN::step_bytes);
            products_wait<1>();
        }
        settle(p);
        settle(slopes);
        weigh(at.steps + turn.stage * PLAN::step_bytes);
        if (HEAD <= 64) {
            products_wait<0>();
            settle(dk);
            settle(dv);
            PLAN::release(at, before);
        }
        pack<N>(weights, p);
        pack<N>(slope_weights, slopes);
    }
    add(at.steps + turn.stage * PLAN::step_bytes);
    products_wait<0>();
    settle(dk);
    settle(dv);
    PLAN::release(at, turn);
    turn.next();
    const uint64_t row = ((uint64_t)group + first) * HEAD;
    store_rows<HEAD>(operand<half_t>(args, 6) + row, dk, args.launch.scale, args.launch.scale);
    store_rows<HEAD>(operand<half_t>(args, 7) + row, dv, 1.0F, 1.0F);
}

template <int HEAD, int GROUPS, int N, int STAGES, int MORE, int FEWER>
__device__ static inline void attention_key(const model_arguments &args, const model_maps &maps)
{
    using plan = layout<HEAD, GROUPS, N, STAGES, 2, 2>;
    __shared__ uint64_t barriers[plan::barriers];
    DYNAMIC_SHARED(memory);
    const uint32_t own[2] = {1, 2};
    const uint32_t others[2] = {0, 3};
    copy_and_multiply<plan, GROUPS, N, STAGES, MORE, FEWER>(
        args, maps, memory, barriers, own, others,
        [&]() {
            return step_vectors{{operand<const float>(args, 4), operand<const float>(args, 5)}};
        },
        [](const tiles_of<GROUPS> &tiles, uint32_t block) {
            return make_uint2(block, tiles.length);
        },
        [&](const tiles_of<GROUPS> &tiles, uint32_t block, uint32_t first, own_of own_tile,
            const places<STAGES> &at, ring<STAGES> &turn) {
            const uint32_t steps = (tiles.length - block + N - 1) / N;
            const uint32_t before = first < tiles.length ? (first - block) / N : steps;
            plan::wait_own(at, own_tile);
            for (uint32_t step = 0; step < before; step++) { /* wholly before the keys */
                plan::skip(at, turn);
                turn.next();
            }
            if (before < steps) {
                key_rows<plan, HEAD, N, STAGES>(args, tiles.group, first, block + before * N,
                                                steps - before, plan::own_at(at, own_tile), at,
                                                turn);
            }
        });
}

#define CANDIDATE(number, head, groups, n, stages, blocks, more, fewer)    \
    HOPPER_KERNEL(hopper_query##number, groups, blocks, more, fewer)       \
    {                                                                      \
        attention_query<head, groups, n, stages, more, fewer>(args, maps); \
    }
QUERY_CANDIDATES(CANDIDATE)
#undef CANDIDATE
#define CANDIDATE(number, head, groups, n, stages, blocks, more, fewer)  \
    HOPPER_KERNEL(hopper_key##number, groups, blocks, more, fewer)       \
    {                                                                    \
        attention_key<head, groups, n, stages, more, fewer>(args, maps); \
    }
KEY_CANDIDATES(CANDIDATE)

/* Streaming causal attention for sm_90a; attention_hopper.cuh says how. */
#include "gpu/model/attention_tiles.h"
#include "gpu/model/kernels/attention_hopper.cuh"

/* -- forward ---------------------------------------------------------------------------------- */

/* Scores to weights, in place: the largest so far, the sums, and what the sums before shrink by. */
template <int N>
__device__ static inline void soften(float (&c)[N / 2], float (&most)[2], float (&sum)[2],
                                     float (&kept)[2], float scale)
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float larger = most[side];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            larger = fmaxf(larger, fmaxf(c[4 * j + 2 * side], c[4 * j + 2 * side + 1]));
        }
        larger = row_max(larger);
        kept[side] = power((most[side] - larger) * scale);
        most[side] = larger;
        sum[side] *= kept[side];
        const float from = larger * scale;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const float p = power(fmaf(c[4 * j + 2 * side + k], scale, -from));
                c[4 * j + 2 * side + k] = p;
                sum[side] += p;
            }
        }
    }
}

/* One warpgroup's 64 rows over its steps. */
template <typename PLAN, int HEAD, int N, int STAGES>
__device__ static inline void forward_rows(const model_arguments &args, uint32_t group,
                                           uint32_t first, uint32_t q_own, const places<STAGES> &at,
                                           ring<STAGES> &turn)
{
    const float scale = args.launch.scale * LOG2E;
    const uint32_t own = (first + ROWS + N - 1) / N;
    float c[N / 2];
    uint32_t weights[N / 4];
    float out[HEAD / 2];
    float most[2] = {-INFINITE, -INFINITE}; /* of the lane's two rows */
    float sum[2] = {0.0F, 0.0F};            /* of the lane's own columns */
    float kept[2];
#pragma unroll
    for (int j = 0; j < HEAD / 2; j++) {
        out[j] = 0.0F;
    }
    barrier_wait(at.first_full + turn.stage * 8, turn.parity);
    products_begin();
    multiply_rows<HEAD, ROWS, N>(c, q_own, at.steps + turn.stage * PLAN::step_bytes);
    products_commit();
    products_wait<0>();
    settle(c);
    if (own == 1) {
        hide<N>(c, first, 0);
    }
    soften<N>(c, most, sum, kept, scale);
    pack<N>(weights, c);
    for (uint32_t block = 1; block < own; block++) {
        const ring<STAGES> before = turn;
        turn.next();
        barrier_wait(at.first_full + turn.stage * 8, turn.parity);
        settle(c);
        settle(out);
        products_begin();
        multiply_rows<HEAD, ROWS, N>(c, q_own, at.steps + turn.stage * PLAN::step_bytes);
        products_commit();
        barrier_wait(at.second_full + before.stage * 8, before.parity);
        settle(out);
        products_begin();
        multiply_weights<HEAD, N>(
            out, weights, at.steps + before.stage * PLAN::step_bytes + tile<HEAD, N>::bytes);
        products_commit();
        products_wait<1>(); /* the scores are there */
        settle(c);
        if (block + 1 == own) { /* N >= ROWS: only the last step meets the diagonal */
            hide<N>(c, first, block * N);
        }
        soften<N>(c, most, sum, kept, scale);
        products_wait<0>(); /* the step before is done with its weights and its values */
        settle(out);
        PLAN::release(at, before);
        pack<N>(weights, c);
#pragma unroll
        for (int j = 0; j < HEAD / 2; j++) {
            out[j] *= kept[j / 2 % 2];
        }
    }
    barrier_wait(at.second_full + turn.stage * 8, turn.parity);
    settle(out);
    products_begin();
    multiply_weights<HEAD, N>(out, weights,
                              at.steps + turn.stage * PLAN::step_bytes + tile<HEAD, N>::bytes);
    products_commit();
    products_wait<0>();
    settle(out);
    PLAN::release(at, turn);
    turn.next();
    const uint64_t row = (uint64_t)group + first;
    sum[0] = row_sum(sum[0]);
    sum[1] = row_sum(sum[1]);
    store_rows<HEAD>(operand<half_t>(args, 3) + row * HEAD, out, 1.0F / sum[0], 1.0F / sum[1]);
    if (threadIdx.x % 4 == 0) {
        float *lse = operand<float>(args, 4) + row + lane_row();
        lse[0] = (most[0] * scale + log2f(sum[0])) * LN2;
        lse[8] = (most[1] * scale + log2f(sum[1])) * LN2;
    }
}

template <int HEAD, int GROUPS, int N, int STAGES, int MORE, int FEWER>
__device__ static inline void attention_forward(const model_arguments &args, const model_maps &maps)
{
    using plan = layout<HEAD, GROUPS, N, STAGES, 1, 0>;
    __shared__ uint64_t barriers[plan::barriers];
    DYNAMIC_SHARED(memory);
    const uint32_t own[1] = {0};
    copy_and_multiply_queries<plan, GROUPS, N, STAGES, MORE, FEWER>(
        args, maps, memory, barriers, own,
        [&](uint32_t group, uint32_t first, uint32_t q_tile, const places<STAGES> &at,
            ring<STAGES> &turn) {
            forward_rows<plan, HEAD, N, STAGES>(args, group, first, q_tile, at, turn);
        });
}

#define CANDIDATE(number, head, groups, n, stages, blocks, more, fewer)      \
    HOPPER_KERNEL(hopper_forward##number, groups, blocks, more, fewer)       \
    {                                                                        \
        attention_forward<head, groups, n, stages, more, fewer>(args, maps); \
    }
FORWARD_CANDIDATES(CANDIDATE)

/* Gated GELU: eight elements a thread, 16 bytes of each operand. */
#include "gpu/model/kernels/model.cuh"

#define THREADS 256

__device__ static inline float gelu_sigmoid(float x)
{
    float u = 0.797884561F * (x + 0.044715F * x * x * x);
    return fast_divide(1.0F, 1.0F + fast_exp(-2.0F * u)); /* 0 where the exponential is infinite */
}

#define OCTETS(count)                                                                \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count) / 8; \
         i += (uint64_t)gridDim.x * THREADS)
#define AHEAD 2 /* octets of a thread under way; a block has THREADS * AHEAD of them */

KERNEL(gated_gelu_forward, THREADS)
{
    const uint64_t count = (uint64_t)args.launch.rows * args.launch.shape.feed / 8;
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * AHEAD) + threadIdx.x;
    uint4 gates[AHEAD];
    uint4 ups[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        if (first + k * THREADS < count) {
            gates[k] = operand<const uint4>(args, 0)[first + k * THREADS];
            ups[k] = operand<const uint4>(args, 1)[first + k * THREADS];
        }
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        if (first + k * THREADS < count) {
            float gate[8];
            float up[8];
            unpack8(gates[k], gate);
            unpack8(ups[k], up);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                gate[j] = gate[j] * gelu_sigmoid(gate[j]) * up[j];
            }
            operand<uint4>(args, 2)[first + k * THREADS] = pack8(gate);
        }
    }
}

KERNEL(gated_gelu_backward, THREADS)
{
    OCTETS((uint64_t)args.launch.rows * args.launch.shape.feed)
    {
        float gate[8];
        float up[8];
        float dout[8];
        unpack8(operand<const uint4>(args, 0)[i], gate);
        unpack8(operand<const uint4>(args, 1)[i], up);
        unpack8(operand<const uint4>(args, 2)[i], dout);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float x = gate[j];
            float s = gelu_sigmoid(x);
            float du = 0.797884561F * (1.0F + 0.134145F * x * x);
            float slope = s * (1.0F - s); /* exactly 0 far out, where x^2 may be infinite */
            gate[j] = dout[j] * up[j] * (s + (slope == 0.0F ? 0.0F : 2.0F * x * du * slope));
            up[j] = dout[j] * x * s;
        }
        operand<uint4>(args, 3)[i] = pack8(gate);
        operand<uint4>(args, 4)[i] = pack8(up);
    }
}

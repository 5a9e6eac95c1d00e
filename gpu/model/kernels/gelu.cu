/* Gated GELU: eight elements a thread, 16 bytes of each operand. */
#include "gpu/model/kernels/model.cuh"

#define THREADS 256

__device__ static inline float gelu_sigmoid(float x)
{
    float u = 0.797884561F * (x + 0.044715F * x * x * x);
    return 1.0F / (1.0F + expf(-2.0F * u));
}

#define OCTETS(count)                                                                \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count) / 8; \
         i += (uint64_t)gridDim.x * THREADS)

KERNEL(gated_gelu_forward, THREADS)
{
    OCTETS((uint64_t)args.launch.rows * args.launch.shape.feed)
    {
        float gate[8];
        float up[8];
        unpack8(operand<const uint4>(args, 0)[i], gate);
        unpack8(operand<const uint4>(args, 1)[i], up);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            gate[j] = gate[j] * gelu_sigmoid(gate[j]) * up[j];
        }
        operand<uint4>(args, 2)[i] = pack8(gate);
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

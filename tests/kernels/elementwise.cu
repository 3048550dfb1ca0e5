// Elementwise kernels: grid-stride loops, vector loads, strided and three-dimensional indexing, gelu on bfloat16.
#include <cuda_bf16.h>

extern "C" __global__ void axpy(float *y, const float *x, float a, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = fmaf(a, x[i], y[i]);
}

// Four elements an access; the last ones, fewer than four, by single accesses.
extern "C" __global__ void scale_by_fours(float *to, const float *from, float factor, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 four = reinterpret_cast<const float4 *>(from)[i];
        reinterpret_cast<float4 *>(to)[i] =
            make_float4(four.x * factor, four.y * factor, four.z * factor, four.w * factor);
    }
    if (i < n % 4) to[n - n % 4 + i] = from[n - n % 4 + i] * factor;
}

extern "C" __global__ void add_pairs_of_doubles(double2 *to, const double2 *a, const double2 *b, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = make_double2(a[i].x + b[i].x, a[i].y - b[i].y);
}

extern "C" __global__ void saturating_bytes(uchar4 *to, const uchar4 *from, int step, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 p = from[i];
    auto move = [step](unsigned char v) { return (unsigned char)min(max((int)v + step, 0), 255); };
    to[i] = make_uchar4(move(p.x), move(p.y), move(p.z), move(p.w));
}

struct Strides {
    long long size[3];
    long long from[3];
};

// A view with any strides, copied to one in a row.
extern "C" __global__ void gather_strided(short *to, const short *from, Strides s, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long rest = i, offset = 0;
    for (int axis = 2; axis >= 0; --axis) {
        offset += rest % s.size[axis] * s.from[axis];
        rest /= s.size[axis];
    }
    to[i] = from[offset];
}

extern "C" __global__ void place_in_grid(unsigned *to) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    to[block * threads + thread] = blockIdx.x | blockIdx.y << 4 | blockIdx.z << 8 | threadIdx.x << 12 |
                                   threadIdx.y << 18 | threadIdx.z << 24;
}

extern "C" __global__ void gelu_bf16(__nv_bfloat16 *to, const __nv_bfloat16 *from, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = __bfloat162float(from[i]);
    to[i] = __float2bfloat16(0.5f * x * (1.0f + erff(x * 0.70710678118654752f)));
}

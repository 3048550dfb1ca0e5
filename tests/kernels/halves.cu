// Arithmetic on pairs of half and bfloat16 numbers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int KINDS = 12;

// For pair i: sum, difference, product, fused product and sum, negation, magnitude, least, greatest, sum of the pair's
// halves with the halves swapped, relu of the fused product, comparison (less) as 0 or 1, saturated sum.
extern "C" __global__ void half_pairs(__half2 *to, const __half2 *x, const __half2 *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 a = x[i], b = y[i], *out = to + i * KINDS;
    out[0] = __hadd2(a, b);
    out[1] = __hsub2(a, b);
    out[2] = __hmul2(a, b);
    out[3] = __hfma2(a, b, a);
    out[4] = __hneg2(a);
    out[5] = __habs2(a);
    out[6] = __hmin2(a, b);
    out[7] = __hmax2(a, b);
    out[8] = __hadd2(a, __lowhigh2highlow(b));
    out[9] = __hfma2_relu(a, b, a);
    out[10] = __hlt2(a, b);
    out[11] = __hadd2_sat(a, b);
}

// Hardware before 8.0 has no such instruction; the numbers here are such that f32 holds the result.
__device__ __nv_bfloat162 fused(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
#if __CUDA_ARCH__ >= 800
    return __hfma2(a, b, c);
#else
    return __floats2bfloat162_rn(fmaf(__low2float(a), __low2float(b), __low2float(c)),
                                 fmaf(__high2float(a), __high2float(b), __high2float(c)));
#endif
}

extern "C" __global__ void bfloat_pairs(__nv_bfloat162 *to, const __nv_bfloat162 *x, const __nv_bfloat162 *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat162 a = x[i], b = y[i], *out = to + i * KINDS;
    out[0] = __hadd2(a, b);
    out[1] = __hsub2(a, b);
    out[2] = __hmul2(a, b);
    out[3] = fused(a, b, a);
    out[4] = __hneg2(a);
    out[5] = __habs2(a);
    out[6] = __hmin2(a, b);
    out[7] = __hmax2(a, b);
    out[8] = __hadd2(a, __lowhigh2highlow(b));
    out[9] = __hmax2(fused(a, b, a), __float2bfloat162_rn(0));
    out[10] = __hlt2(a, b);
    out[11] = __hadd2_sat(a, b);
}

// Single numbers: quotient, square root, floor, ceiling, to the nearest, towards zero, and to integers in four roundings.
extern "C" __global__ void half_singles(__half *to, int *whole, const __half *x, const __half *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half a = x[i], b = y[i];
    to[i * 6] = __hdiv(a, b);
    to[i * 6 + 1] = hsqrt(__habs(a));
    to[i * 6 + 2] = hfloor(a);
    to[i * 6 + 3] = hceil(a);
    to[i * 6 + 4] = hrint(a);
    to[i * 6 + 5] = htrunc(a);
    whole[i * 4] = __half2int_rn(a);
    whole[i * 4 + 1] = __half2int_rz(a);
    whole[i * 4 + 2] = __half2int_ru(a);
    whole[i * 4 + 3] = __half2int_rd(a);
}

// The approximate functions of both types.
extern "C" __global__ void half_functions(__half *to, __nv_bfloat16 *bto, const float *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half h = __float2half(x[i]);
    __nv_bfloat16 b = __float2bfloat16(x[i]);
    to[i * 6] = hexp(h), bto[i * 6] = hexp(b);
    to[i * 6 + 1] = hlog(h), bto[i * 6 + 1] = hlog(b);
    to[i * 6 + 2] = hsin(h), bto[i * 6 + 2] = hsin(b);
    to[i * 6 + 3] = hrsqrt(h), bto[i * 6 + 3] = hrsqrt(b);
    to[i * 6 + 4] = hexp2(h), bto[i * 6 + 4] = hexp2(b);
    to[i * 6 + 5] = hrcp(h), bto[i * 6 + 5] = hrcp(b);
}

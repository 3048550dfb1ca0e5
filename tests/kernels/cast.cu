// One kernel for each pair of number types: cast_FROM_TO.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class To, class From> __device__ To cast(From value) { return static_cast<To>(value); }
template <> __device__ __half cast<__half, __nv_bfloat16>(__nv_bfloat16 v) { return __float2half(__bfloat162float(v)); }
template <> __device__ __nv_bfloat16 cast<__nv_bfloat16, __half>(__half v) { return __float2bfloat16(__half2float(v)); }
template <> __device__ double cast<double, __half>(__half v) { return __half2float(v); }
template <> __device__ double cast<double, __nv_bfloat16>(__nv_bfloat16 v) { return __bfloat162float(v); }

#define CAST(from, From, to, To)                                                                    \
    extern "C" __global__ void cast_##from##_##to(To *target, const From *source, unsigned n) {     \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                         \
        if (i < n) target[i] = cast<To, From>(source[i]);                                           \
    }
#define FROM(from, From)                                                                            \
    CAST(from, From, i8, signed char)                                                               \
    CAST(from, From, u8, unsigned char)                                                             \
    CAST(from, From, i16, short)                                                                    \
    CAST(from, From, u16, unsigned short)                                                           \
    CAST(from, From, i32, int)                                                                      \
    CAST(from, From, u32, unsigned)                                                                 \
    CAST(from, From, i64, long long)                                                                \
    CAST(from, From, u64, unsigned long long)                                                       \
    CAST(from, From, f16, __half)                                                                   \
    CAST(from, From, bf16, __nv_bfloat16)                                                           \
    CAST(from, From, f32, float)                                                                    \
    CAST(from, From, f64, double)
FROM(i8, signed char)
FROM(u8, unsigned char)
FROM(i16, short)
FROM(u16, unsigned short)
FROM(i32, int)
FROM(u32, unsigned)
FROM(i64, long long)
FROM(u64, unsigned long long)
FROM(f16, __half)
FROM(bf16, __nv_bfloat16)
FROM(f32, float)
FROM(f64, double)

// Gradient scaling: gradients of several tensors are multiplied and checked in one launch, and the scale is moved on.
//
// A block has one piece of PIECE elements of one tensor; the first piece begins at the tensor's first element.

#include "numbers.cuh"

constexpr int THREADS = 256;
constexpr int PIECE = 8192;
constexpr int TENSORS = 128;

struct Tensors {
    u64 first[TENSORS];
    i64 elements[TENSORS];
    // The pieces of all tensors up to and with each.
    u32 pieces[TENSORS];
    u32 count;
    u32 padding;
};

struct Single {
    typedef float Stored;
    typedef float Computed;
    static __device__ __forceinline__ float load(float stored) { return stored; }
    static __device__ __forceinline__ float store(float value) { return value; }
};

struct Double {
    typedef double Stored;
    typedef double Computed;
    static __device__ __forceinline__ double load(double stored) { return stored; }
    static __device__ __forceinline__ double store(double value) { return value; }
};

struct Half {
    typedef u16 Stored;
    typedef float Computed;
    static __device__ __forceinline__ float load(u16 stored) {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(stored));
        return wide;
    }
    static __device__ __forceinline__ u16 store(float value) {
        u16 narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
        return narrow;
    }
};

struct Brain {
    typedef u16 Stored;
    typedef float Computed;
    static __device__ __forceinline__ float load(u16 stored) { return __uint_as_float((u32)stored << 16); }
    // Rounded to the nearest, to even halfway, without the instruction of compute capability 8.0.
    static __device__ __forceinline__ u16 store(float value) {
        u32 bits = __float_as_uint(value);
        if (value != value) return 0x7fc0;
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    }
};

// Neither an infinity nor a NaN: only those less themselves are not zero.
template <typename T> __device__ __forceinline__ bool is_finite(T value) { return value - value == T(0); }

// Multiplies the elements of a piece, unless the factor is one, and puts a one to `found` if one of them is no finite number.
template <typename T>
__device__ __forceinline__ void unscale(const Tensors &tensors, float *found, const float *factor) {
    typedef typename T::Stored Stored;
    typedef typename T::Computed Computed;
    u32 tensor = 0;
    while (tensor + 1 < tensors.count && tensors.pieces[tensor] <= blockIdx.x) ++tensor;
    u32 before = tensor == 0 ? 0 : tensors.pieces[tensor - 1];
    i64 start = (i64)(blockIdx.x - before) * PIECE, end = tensors.elements[tensor];
    if (end > start + PIECE) end = start + PIECE;
    Stored *at = reinterpret_cast<Stored *>(tensors.first[tensor]);
    const float by = *factor;
    bool is_bad = false;
    for (i64 i = start + threadIdx.x; i < end; i += THREADS) {
        Computed value = T::load(at[i]);
        is_bad |= !is_finite(value);
        if (by != 1.0f) at[i] = T::store(value * by);
    }
    if (__syncthreads_or(is_bad) && threadIdx.x == 0) atomicExch(found, 1.0f);
}

#define UNSCALE(name, type)                                                                                            \
    extern "C" __global__ void unscale_##name(float *found, const float *factor, const Tensors tensors) {             \
        unscale<type>(tensors, found, factor);                                                                         \
    }

UNSCALE(f32, Single)
UNSCALE(f64, Double)
UNSCALE(f16, Half)
UNSCALE(bf16, Brain)

// One thread. A scale that would not be finite any more stays as it is.
extern "C" __global__ void update_scale(float *scale, int *tracker, const float *found, double growth, double backoff,
                                        int interval) {
    if (*found != 0.0f) {
        *scale = (float)(*scale * backoff);
        *tracker = 0;
        return;
    }
    int successful = *tracker + 1;
    if (successful == interval) {
        float grown = (float)(*scale * growth);
        if (is_finite(grown)) *scale = grown;
        successful = 0;
    }
    *tracker = successful;
}

// Products of matrices with any strides, in batches: out = act(alpha * a @ b + beta * c + bias).
//
// A block computes a tile of 64 x 64 elements, a thread 4 x 4 of them. Tiles of both factors pass through shared memory,
// 16 steps of the inner dimension at a time. Sums are kept in the accumulate type: float for halves, the type itself
// for the others. They are taken in the order of the inner dimension, each step with one rounding (fma).

#include "matmul_sizes.cuh"

#define TILE 64
#define STEP 16
#define SIDE 16

struct half_bits { u16 bits; };
struct bfloat_bits { u16 bits; };
template <typename T> struct pair { T re, im; };

template <typename T> struct Arithmetic;

template <typename T> struct Real {
    typedef T acc;
    // Of doubles the negative one, so that a sum of one product keeps the product's sign: as cuBLAS has it.
    static __device__ acc zero() { return sizeof(T) == 8 ? -(T)0 : (T)0; }
    static __device__ acc of(const double* number) { return (T)number[0]; }
    static __device__ acc times(acc a, acc b) { return a * b; }
    static __device__ acc plus(acc a, acc b, acc c) { return fma(a, b, c); }
    static __device__ acc load(T value) { return value; }
    static __device__ T store(acc value) { return value; }
    static __device__ acc conjugate(acc value, bool) { return value; }
    static __device__ acc added(acc a, acc b) { return a + b; }
    // Called, since sixteen copies of it would take the registers of the sums.
    static __device__ __noinline__ acc activated(acc value, i64 activation)
    {
        if (activation == RELU) return value < 0 ? 0 : value;
        const acc t = (acc)0.7978845608028654 * (value + (acc)0.044715 * value * value * value);
        return value / (1 + exp(-2 * t));
    }
};

template <> struct Arithmetic<float> : Real<float> {};
template <> struct Arithmetic<double> : Real<double> {};

template <> struct Arithmetic<half_bits> : Real<float> {
    static __device__ float load(half_bits value)
    {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
        return wide;
    }
    static __device__ half_bits store(float value)
    {
        half_bits narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
        return narrow;
    }
};

template <> struct Arithmetic<bfloat_bits> : Real<float> {
    static __device__ float load(bfloat_bits value) { return __uint_as_float((u32)value.bits << 16); }
    static __device__ bfloat_bits store(float value)
    {
        const u32 bits = __float_as_uint(value);
        bfloat_bits narrow;
        narrow.bits = value != value ? 0x7fff : (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        return narrow;
    }
};

template <typename T> struct Arithmetic<pair<T>> {
    typedef pair<T> acc;
    static __device__ acc zero() { return acc{(T)0, (T)0}; }
    static __device__ acc of(const double* number) { return acc{(T)number[0], (T)number[1]}; }
    static __device__ acc plus(acc a, acc b, acc c)
    {
        return acc{fma(a.re, b.re, fma(-a.im, b.im, c.re)), fma(a.re, b.im, fma(a.im, b.re, c.im))};
    }
    static __device__ acc times(acc a, acc b) { return plus(a, b, zero()); }
    static __device__ acc load(acc value) { return value; }
    static __device__ acc store(acc value) { return value; }
    static __device__ acc conjugate(acc value, bool turns) { return acc{value.re, turns ? -value.im : value.im}; }
    static __device__ acc added(acc a, acc b) { return acc{a.re + b.re, a.im + b.im}; }
    // There are none of complex numbers.
    static __device__ acc activated(acc value, i64) { return value; }
};

// Fills a tile of shared memory: STEP x TILE elements, zero outside the matrix.
template <typename T, typename acc>
__device__ __forceinline__ void fill(acc (*tile)[TILE + 1], const T* from, i64 first, i64 inner, i64 lines, i64 k,
                                     i64 line_stride, i64 inner_stride, bool is_conjugated, u32 thread)
{
    const bool inner_is_fast = inner_stride <= line_stride;
    for (u32 at = thread; at < TILE * STEP; at += SIDE * SIDE) {
        const u32 step = inner_is_fast ? at % STEP : at / TILE;
        const u32 line = inner_is_fast ? at / STEP : at % TILE;
        const bool inside = first + line < lines && inner + step < k;
        tile[step][line] = inside
            ? Arithmetic<T>::conjugate(
                  Arithmetic<T>::load(from[(first + line) * line_stride + (inner + step) * inner_stride]), is_conjugated)
            : Arithmetic<T>::zero();
    }
}

template <typename T> __device__ __forceinline__ void product(T* out, const T* a, const T* b, const T* c, const T* bias,
                                                               const Sizes& s, u32 conjugated)
{
    typedef Arithmetic<T> A;
    typedef typename A::acc acc;
    __shared__ acc left[STEP][TILE + 1];
    __shared__ acc right[STEP][TILE + 1];
    const u32 thread = threadIdx.x;
    const u32 row = thread / SIDE, column = thread % SIDE;
    const bool turns_a = conjugated & 1, turns_b = conjugated & 2, turns_c = conjugated & 4, turns_bias = conjugated & 8;
    const i64 columns = (s.n + TILE - 1) / TILE;
    const i64 first_row = (i64)blockIdx.x / columns * TILE, first_column = (i64)blockIdx.x % columns * TILE;
    for (i64 batch = blockIdx.y; batch < s.batches; batch += gridDim.y) {
        acc sums[4][4];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) sums[i][j] = A::zero();
        for (i64 inner = 0; inner < s.k; inner += STEP) {
            fill(left, a + batch * s.a.batch, first_row, inner, s.m, s.k, s.a.row, s.a.column, turns_a, thread);
            fill(right, b + batch * s.b.batch, first_column, inner, s.n, s.k, s.b.column, s.b.row, turns_b, thread);
            __syncthreads();
            const int steps = (int)min((i64)STEP, s.k - inner);
#pragma unroll 4
            for (int step = 0; step < steps; step++) {
                acc x[4], y[4];
                for (int i = 0; i < 4; i++) x[i] = left[step][row + i * SIDE];
                for (int j = 0; j < 4; j++) y[j] = right[step][column + j * SIDE];
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++) sums[i][j] = A::plus(x[i], y[j], sums[i][j]);
            }
            __syncthreads();
        }
        const acc alpha = A::of(s.alpha), beta = A::of(s.beta);
        // Unrolled, so that the sums stay in registers.
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const i64 at_row = first_row + row + i * SIDE, at_column = first_column + column + j * SIDE;
                if (at_row >= s.m || at_column >= s.n) continue;
                acc value = A::times(alpha, sums[i][j]);
                if (c) {
                    const acc before =
                        A::conjugate(A::load(c[batch * s.c.batch + at_row * s.c.row + at_column * s.c.column]), turns_c);
                    value = A::plus(beta, before, value);
                }
                if (bias) value = A::added(value, A::conjugate(A::load(bias[at_column * s.bias_step]), turns_bias));
                if (s.activation != NONE) value = A::activated(value, s.activation);
                out[batch * s.out.batch + at_row * s.out.row + at_column * s.out.column] = A::store(value);
            }
    }
}

// Blocks: tiles of the result along x, matrices of the batch along y; 256 threads each, so many BLOCKS on a multiprocessor
// at once. c and bias may be null. Of complex numbers bits 0 to 3 of `conjugated` say whether a, b, c and bias are
// conjugates of what lies in memory.
#define PRODUCT(name, T, BLOCKS)                                                                                        \
    extern "C" __global__ __launch_bounds__(SIDE * SIDE, BLOCKS) void name(                                             \
        T* out, const T* a, const T* b, const T* c, const T* bias, const Sizes sizes, const u32 conjugated)             \
    {                                                                                                                   \
        product<T>(out, a, b, c, bias, sizes, conjugated);                                                              \
    }

PRODUCT(matmul_f16, half_bits, 4)
PRODUCT(matmul_bf16, bfloat_bits, 4)
PRODUCT(matmul_f32, float, 4)
PRODUCT(matmul_f64, double, 3)
PRODUCT(matmul_c64, pair<float>, 3)
PRODUCT(matmul_c128, pair<double>, 2)

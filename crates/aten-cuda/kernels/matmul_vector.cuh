// What the kernels of a product of a matrix and a vector share: how elements are read, summed and stored.

#pragma once

#include "activation.cuh"
#include "numbers.cuh"

// Elements from one to the next. The layout of launch/library/product/vector.rs.
struct Steps {
    i64 batch, element;
};
struct Sizes {
    i64 n, k;
    // Of the matrix: from one line to the next, where neighbours in a line lie together.
    i64 matrix_batch, line;
    Steps x, out, c, bias;
    double alpha, beta;
    u32 shares, activation;
};

struct Half { u16 bits; };
struct Brain { u16 bits; };

template <class T> struct Element {
    typedef T Sum;
    static __device__ __forceinline__ T widened(T value) { return value; }
    static __device__ __forceinline__ T rounded(T value) { return value; }
};

template <> struct Element<Half> {
    typedef float Sum;
    static __device__ __forceinline__ float widened(Half value)
    {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
        return wide;
    }
    static __device__ __forceinline__ Half rounded(float value)
    {
        Half narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
        return narrow;
    }
};

template <> struct Element<Brain> {
    typedef float Sum;
    static __device__ __forceinline__ float widened(Brain value) { return __uint_as_float((u32)value.bits << 16); }
    static __device__ __forceinline__ Brain rounded(float value)
    {
        const u32 bits = __float_as_uint(value);
        return Brain{value != value ? (u16)0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
    }
};

// Neighbours in a line that are read at once: 16 bytes, or one element where lines do not begin at multiples of that.
template <class T, int WIDTH> struct Chunk {
    T elements[WIDTH];
};

// Elements of the matrix are read once, so they leave the nearest cache to the vector.
template <class T, int WIDTH> __device__ __forceinline__ Chunk<T, WIDTH> read_once(const T *from)
{
    Chunk<T, WIDTH> chunk;
    if constexpr (WIDTH * sizeof(T) == 16) {
        uint4 words;
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "l"(from));
        *(uint4 *)&chunk = words;
    } else {
        chunk.elements[0] = *from;
    }
    return chunk;
}

// Of doubles the negative zero, so that a sum of one product keeps the sign of the product: as cuBLAS has it.
template <class Sum> __device__ __forceinline__ Sum nothing() { return sizeof(Sum) == 8 ? -(Sum)0 : (Sum)0; }

// Finishes and stores the sum of a place.
template <class T>
__device__ __forceinline__ void store(typename Element<T>::Sum sum, T *out, const T *c, const T *bias, const Sizes &s,
                                      i64 batch, i64 at)
{
    typedef Element<T> E;
    typedef typename E::Sum Sum;
    Sum value = (Sum)s.alpha * sum;
    if (c) value = fma((Sum)s.beta, E::widened(c[batch * s.c.batch + at * s.c.element]), value);
    if (bias) value += E::widened(bias[at * s.bias.element]);
    out[batch * s.out.batch + at * s.out.element] = E::rounded(activated(value, s.activation));
}

// Sums of WIDTH columns over some lines: each thread takes every LINES-th line from its own one on.
template <class T, int WIDTH, int LANES, int UNROLL, int THREADS>
__device__ __forceinline__ void add_lines(typename Element<T>::Sum *sums, const T *matrix, const T *x, const Sizes &s,
                                          i64 column, i64 begin, i64 end)
{
    typedef Element<T> E;
    constexpr int LINES = THREADS / LANES;
    i64 row = begin + threadIdx.x / LANES;
    const T *from = matrix + row * s.line + column;
    const i64 next = LINES * s.line;
#pragma unroll 1
    for (; row + LINES * (UNROLL - 1) < end; row += LINES * UNROLL) {
        Chunk<T, WIDTH> chunks[UNROLL];
        T factors[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u, from += next) chunks[u] = read_once<T, WIDTH>(from);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) factors[u] = x[(row + u * LINES) * s.x.element];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int e = 0; e < WIDTH; ++e)
                sums[e] = fma(E::widened(chunks[u].elements[e]), E::widened(factors[u]), sums[e]);
    }
#pragma unroll 1
    for (; row < end; row += LINES, from += next) {
        const Chunk<T, WIDTH> chunk = read_once<T, WIDTH>(from);
        const T factor = x[row * s.x.element];
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sums[e] = fma(E::widened(chunk.elements[e]), E::widened(factor), sums[e]);
    }
}

// Leaves the sums of all columns of a block in `whole`: lanes of a warp first, then warps in their order.
template <class T, int WIDTH, int LANES, int THREADS>
__device__ __forceinline__ void join_lines(typename Element<T>::Sum *sums, typename Element<T>::Sum *whole)
{
    typedef typename Element<T>::Sum Sum;
    constexpr int WARPS = THREADS / 32, COLUMNS = LANES * WIDTH;
    __shared__ Sum parts[WARPS][COLUMNS];
#pragma unroll
    for (int offset = 16; offset >= LANES; offset /= 2)
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sums[e] += __shfl_xor_sync(~0u, sums[e], offset);
    if (threadIdx.x % 32 < LANES)
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) parts[threadIdx.x / 32][threadIdx.x % LANES * WIDTH + e] = sums[e];
    __syncthreads();
    for (int at = threadIdx.x; at < COLUMNS; at += THREADS) {
        Sum sum = parts[0][at];
        for (int warp = 1; warp < WARPS; ++warp) sum += parts[warp][at];
        whole[at] = sum;
    }
    __syncthreads();
}

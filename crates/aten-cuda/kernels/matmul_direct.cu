// One small product of floats or of floats of 16 bits: out = alpha * a @ b.
//
// A block computes a tile of ROWS x COLUMNS elements, a thread four neighbours of a row. Tiles of both factors come to
// shared memory as floats, STEP elements of the inner dimension at a time: all of a small product at once, so that memory
// is waited for once. Sums are floats, taken in the order of the inner dimension, each step with one rounding.
//
// A factor's neighbours in memory lie along the inner dimension or along the other one. Where its lines begin at
// multiples of 16 bytes and have whole vectors of as many, a thread loads such a vector.

#include "numbers.cuh"

#define ROWS 16
#define COLUMNS 32
#define STEP 64
#define THREADS 128
// Lines in shared memory are longer, so that what a warp uses together lies in different banks.
#define LEFT_LINE (STEP + 4)
#define RIGHT_LINE (COLUMNS + 4)

// The layout of launch/library/product/direct.rs: steps from line to line of what lies together, in elements.
struct Sizes {
    u32 m, n, k, flags;
    u32 out_step, a_step, b_step;
    float alpha;
};

// Neighbours of the factor lie along the inner dimension; its lines consist of vectors.
enum { A_INNER = 1, B_INNER = 2, A_VECTORS = 4, B_VECTORS = 8 };

struct Half { u16 bits; };
struct Brain { u16 bits; };

__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ float widened(Half value)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}
__device__ __forceinline__ float widened(Brain value) { return __uint_as_float((u32)value.bits << 16); }

__device__ __forceinline__ void round_to(float *to, float value) { *to = value; }
__device__ __forceinline__ void round_to(Half *to, float value)
{
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
}
__device__ __forceinline__ void round_to(Brain *to, float value)
{
    const u32 bits = __float_as_uint(value);
    to->bits = value != value ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T> union Vector {
    static constexpr u32 LENGTH = 16 / sizeof(T);
    uint4 whole;
    T elements[LENGTH];
};

// A tile of LINES lines of WIDTH elements as they lie in memory, of which `lines` and `width` are inside. The element in
// place `at` of line `line` goes to to[line * BY_LINE + at * BY_PLACE]. Threads go along lines, or across them where that
// keeps their stores apart.
template <u32 LINES, u32 WIDTH, u32 BY_LINE, u32 BY_PLACE, class T>
__device__ __forceinline__ void fill(float *to, const T *from, u32 step, u32 lines, u32 width, bool has_vectors)
{
    constexpr bool ALONG = BY_PLACE == 1;
    constexpr u32 LENGTH = Vector<T>::LENGTH, VECTORS = LINES * WIDTH / LENGTH;
    if (has_vectors) {
        constexpr u32 PASSES = (VECTORS + THREADS - 1) / THREADS;
        Vector<T> vectors[PASSES];
#pragma unroll
        for (u32 pass = 0; pass < PASSES; ++pass) {
            const u32 number = threadIdx.x + pass * THREADS;
            const u32 line = ALONG ? number / (WIDTH / LENGTH) : number % LINES;
            const u32 at = (ALONG ? number % (WIDTH / LENGTH) : number / LINES) * LENGTH;
            const bool is_inside = line < lines && at < width;
            vectors[pass].whole = is_inside ? __ldg((const uint4 *)(from + line * step + at)) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (u32 pass = 0; pass < PASSES; ++pass) {
            const u32 number = threadIdx.x + pass * THREADS;
            const u32 line = ALONG ? number / (WIDTH / LENGTH) : number % LINES;
            const u32 at = (ALONG ? number % (WIDTH / LENGTH) : number / LINES) * LENGTH;
            if (VECTORS % THREADS != 0 && number >= VECTORS) break;
            float *place = to + line * BY_LINE + at * BY_PLACE;
            const T *elements = vectors[pass].elements;
            if (ALONG) {
#pragma unroll
                for (u32 e = 0; e < LENGTH; e += 4)
                    *(float4 *)(place + e) = make_float4(widened(elements[e]), widened(elements[e + 1]),
                                                         widened(elements[e + 2]), widened(elements[e + 3]));
            } else {
#pragma unroll
                for (u32 e = 0; e < LENGTH; ++e) place[e * BY_PLACE] = widened(elements[e]);
            }
        }
    } else {
#pragma unroll 8
        for (u32 number = threadIdx.x; number < LINES * WIDTH; number += THREADS) {
            const u32 line = number / WIDTH, at = number % WIDTH;
            const bool is_inside = line < lines && at < width;
            to[line * BY_LINE + at * BY_PLACE] = is_inside ? widened(from[line * step + at]) : 0;
        }
    }
}

template <class T>
__device__ __forceinline__ void product(T *out, const T *a, const T *b, const Sizes &s)
{
    __shared__ __align__(16) float left[ROWS * LEFT_LINE];
    __shared__ __align__(16) float right[STEP * RIGHT_LINE];
    const u32 across = (s.n + COLUMNS - 1) / COLUMNS;
    const u32 first_row = blockIdx.x / across * ROWS, first_column = blockIdx.x % across * COLUMNS;
    const u32 rows = min(s.m - first_row, ROWS), columns = min(s.n - first_column, COLUMNS);
    const u32 column = threadIdx.x % (COLUMNS / 4) * 4, row = threadIdx.x / (COLUMNS / 4);
    float sums[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 first = 0; first < s.k; first += STEP) {
        const u32 inner = min(s.k - first, STEP);
        if (first > 0) __syncthreads();
        const bool a_vectors = s.flags & A_VECTORS, b_vectors = s.flags & B_VECTORS;
        if (s.flags & A_INNER)
            fill<ROWS, STEP, LEFT_LINE, 1>(left, a + first_row * s.a_step + first, s.a_step, rows, inner, a_vectors);
        else
            fill<STEP, ROWS, 1, LEFT_LINE>(left, a + first * s.a_step + first_row, s.a_step, inner, rows, a_vectors);
        if (s.flags & B_INNER)
            fill<COLUMNS, STEP, 1, RIGHT_LINE>(right, b + first_column * s.b_step + first, s.b_step, columns, inner,
                                               b_vectors);
        else
            fill<STEP, COLUMNS, RIGHT_LINE, 1>(right, b + first * s.b_step + first_column, s.b_step, inner, columns,
                                               b_vectors);
        __syncthreads();
#pragma unroll 4
        for (u32 k = 0; k < inner; k += 4) {
            const float4 x = *(const float4 *)(left + row * LEFT_LINE + k);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                const float4 y = *(const float4 *)(right + (k + j) * RIGHT_LINE + column);
                const float factor = j == 0 ? x.x : j == 1 ? x.y : j == 2 ? x.z : x.w;
                sums[0] = fmaf(factor, y.x, sums[0]);
                sums[1] = fmaf(factor, y.y, sums[1]);
                sums[2] = fmaf(factor, y.z, sums[2]);
                sums[3] = fmaf(factor, y.w, sums[3]);
            }
        }
    }
    if (row >= rows) return;
    T *to = out + (i64)(first_row + row) * s.out_step + first_column + column;
#pragma unroll
    for (u32 e = 0; e < 4; ++e)
        if (column + e < columns) round_to(to + e, s.alpha * sums[e]);
}

// Blocks: tiles of the result, row by row.
#define KERNEL(name, T)                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) name(T *out, const T *a, const T *b, const Sizes sizes)      \
    {                                                                                                                  \
        product<T>(out, a, b, sizes);                                                                                  \
    }

KERNEL(direct_f32, float)
KERNEL(direct_f16, Half)
KERNEL(direct_bf16, Brain)

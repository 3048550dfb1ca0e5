// Batches of small products of floats: out = act(alpha * a @ b + beta * c + bias), each of at most 64 x 64 x 64.
//
// A block computes one product: both factors come to shared memory whole, 16 bytes a thread where lines begin at
// multiples of that, then each thread computes 8 x 4 elements, four steps of the inner dimension at a time. What is
// outside the factors is zero there. Sums are taken in the order of the inner dimension, each step with one rounding.

#include "activation.cuh"
#include "numbers.cuh"

struct Strides {
    i64 batch, row, column;
};

// The layout of launch/library/product/small.rs.
struct Sizes {
    i64 m, n, k;
    Strides out, a, b, c;
    i64 bias_step;
    float alpha, beta;
    i64 activation;
};

#define SIDE 64
#define THREADS 128
// Lines of the left factor are longer, so that the rows that a warp reads together lie in different banks.
#define LEFT_LINE 68

// A factor of `rows` x `columns` elements to shared memory, where rows have LINE floats. Neighbours in memory lie along
// the columns (ALONG) or along the rows, in lines that begin at multiples of 16 bytes, and there are whole vectors.
template <int LINE, bool ALONG>
__device__ __forceinline__ void fill(float *to, const float *from, u32 rows, u32 columns, i64 step)
{
    const u32 lines = ALONG ? rows : columns, across = ALONG ? columns : rows;
    float4 vectors[SIDE * SIDE / 4 / THREADS];
#pragma unroll
    for (int pass = 0; pass < SIDE * SIDE / 4 / THREADS; ++pass) {
        const u32 at = threadIdx.x + pass * THREADS, line = at / (SIDE / 4), place = at % (SIDE / 4) * 4;
        const bool is_inside = line < lines && place < across;
        vectors[pass] = is_inside ? __ldg((const float4 *)(from + line * step + place)) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int pass = 0; pass < SIDE * SIDE / 4 / THREADS; ++pass) {
        const u32 at = threadIdx.x + pass * THREADS, line = at / (SIDE / 4), place = at % (SIDE / 4) * 4;
        const float4 vector = vectors[pass];
        if (ALONG) {
            *(float4 *)(to + line * LINE + place) = vector;
        } else {
            to[place * LINE + line] = vector.x;
            to[(place + 1) * LINE + line] = vector.y;
            to[(place + 2) * LINE + line] = vector.z;
            to[(place + 3) * LINE + line] = vector.w;
        }
    }
}

// The same element by element, for any strides and sizes.
template <int LINE>
__device__ __forceinline__ void fill_any(float *to, const float *from, u32 rows, u32 columns, i64 row_step, i64 column_step)
{
    const bool is_turned = row_step < column_step;
    for (u32 at = threadIdx.x; at < SIDE * SIDE; at += THREADS) {
        const u32 row = is_turned ? at % SIDE : at / SIDE, column = is_turned ? at / SIDE : at % SIDE;
        const bool is_inside = row < rows && column < columns;
        to[row * LINE + column] = is_inside ? from[row * row_step + column * column_step] : 0;
    }
}

// Adds up 8 x 4 elements: rows `row`, `row` + 8 and so on, columns from `column` on.
__device__ __forceinline__ void multiply(float (*sums)[4], const float *left, const float *right, u32 row, u32 column,
                                         u32 inner)
{
#pragma unroll 2
    for (u32 k = 0; k < inner; k += 4) {
        float4 x[8], y[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) y[j] = *(const float4 *)(right + (k + j) * SIDE + column);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = *(const float4 *)(left + (row + i * 8) * LEFT_LINE + k);
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float factor = j == 0 ? x[i].x : j == 1 ? x[i].y : j == 2 ? x[i].z : x[i].w;
                sums[i][0] = fmaf(factor, y[j].x, sums[i][0]);
                sums[i][1] = fmaf(factor, y[j].y, sums[i][1]);
                sums[i][2] = fmaf(factor, y[j].z, sums[i][2]);
                sums[i][3] = fmaf(factor, y[j].w, sums[i][3]);
            }
    }
}

// Finishes and stores 4 sums of a row.
__device__ __forceinline__ void store(const float *sums, float *out, const float *c, const float *bias, const Sizes &s,
                                      u32 row, u32 column)
{
    float values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        if (column + j >= s.n) return;
        values[j] = s.alpha * sums[j];
        if (c) values[j] = fmaf(s.beta, c[row * s.c.row + (column + j) * s.c.column], values[j]);
        if (bias) values[j] += bias[(column + j) * s.bias_step];
        values[j] = activated(values[j], s.activation);
        float *to = out + row * s.out.row + (column + j) * s.out.column;
        if (s.out.column != 1 || (i64)(out + row * s.out.row) % 16 != 0 || column + 4 > s.n)
            *to = values[j];
        else if (j == 3)
            *(float4 *)(to - 3) = make_float4(values[0], values[1], values[2], values[3]);
    }
}

enum Lies { INNER, OUTER, ANY };

template <Lies A, Lies B>
__device__ __forceinline__ void product(float *out, const float *a, const float *b, const float *c, const float *bias,
                                        const Sizes &s)
{
    __shared__ __align__(16) float left[SIDE * LEFT_LINE];
    __shared__ __align__(16) float right[SIDE * SIDE];
    const i64 batch = blockIdx.x;
    a += batch * s.a.batch;
    b += batch * s.b.batch;
    if (A == ANY)
        fill_any<LEFT_LINE>(left, a, s.m, s.k, s.a.row, s.a.column);
    else
        fill<LEFT_LINE, A == INNER>(left, a, s.m, s.k, A == INNER ? s.a.row : s.a.column);
    if (B == ANY)
        fill_any<SIDE>(right, b, s.k, s.n, s.b.row, s.b.column);
    else
        fill<SIDE, B == OUTER>(right, b, s.k, s.n, B == OUTER ? s.b.row : s.b.column);
    __syncthreads();
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 column = (warp % 2 * 8 + lane % 8) * 4;
    float sums[8][4] = {};
    // A warp takes 4 rows out of 8.
    const u32 row = warp / 2 * 4 + lane / 8;
    multiply(sums, left, right, row, column, s.k);
    // The sums pass through shared memory, so that the code that stores them is there once.
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i)
        *(float4 *)(left + (row + i * 8) * LEFT_LINE + column) = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    __syncthreads();
    if (c) c += batch * s.c.batch;
#pragma unroll 1
    for (u32 at = threadIdx.x; at < s.m * (SIDE / 4); at += THREADS) {
        const float4 four = *(const float4 *)(left + at / (SIDE / 4) * LEFT_LINE + at % (SIDE / 4) * 4);
        const float values[4] = {four.x, four.y, four.z, four.w};
        store(values, out + batch * s.out.batch, c, bias, s, at / (SIDE / 4), at % (SIDE / 4) * 4);
    }
}

// Blocks: products of the batch. `c` and `bias` may be null. A kernel for each way that the factors lie: neighbours
// along the inner dimension (i) or the outer one (o), the left factor first; and one for any strides.
#define KERNEL(name, A, B)                                                                                             \
    extern "C" __global__ __launch_bounds__(THREADS, 4) void name(float *out, const float *a, const float *b,          \
                                                                  const float *c, const float *bias, const Sizes sizes) \
    {                                                                                                                  \
        product<A, B>(out, a, b, c, bias, sizes);                                                                      \
    }

KERNEL(small_f32_ii, INNER, INNER)
KERNEL(small_f32_io, INNER, OUTER)
KERNEL(small_f32_oi, OUTER, INNER)
KERNEL(small_f32_oo, OUTER, OUTER)
KERNEL(small_f32_any, ANY, ANY)

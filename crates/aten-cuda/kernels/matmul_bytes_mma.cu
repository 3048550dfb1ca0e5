// needs 80
//
// Products of matrices of bytes on tensor cores: integers of 8 bits into integers of 32, and floats of 8 bits with scales.
//
// Of both factors neighbours lie along the inner dimension, in lines that begin at multiples of 16 bytes. A block computes
// a tile of 128 x 128 elements, its 8 warps 64 x 32 of them each. Tiles of both factors come to shared memory a step of 128
// bytes ahead (cp.async); what lies outside the matrices comes as zeros. The 8 chunks of 16 bytes of a line are permuted by
// the number of the line, so that those which ldmatrix takes at once lie in different banks.
//
// Tensor cores of compute capability 8.0 know no floats of 8 bits: these become floats of 16, which hold each of them
// exactly, those with three bits behind the point divided by 256. Sums are floats. Where scales differ along the inner
// dimension the sum of each step is scaled and added to the result by itself: a step is as long as the parts that have scales
// of their own.

#include "tiles.cuh"

#define TILE 128
#define STEP 128
#define STAGES 2
#define THREADS 256

// Elements between the scales of lines and between those of parts of a line, and lines that share one; zero for one of all.
struct ScaleSteps {
    u32 line, part, shared;
};

// The layout of launch/library/product/bytes/mma.rs.
struct Sizes {
    u32 m, n, k, is_divided;
    ScaleSteps scale_a, scale_b;
    u32 bias_step, kind_out, kind_bias, unused;
    i64 a_line, b_line;
};

enum Kind { E4M3, E5M2, HALF, BRAIN, SINGLE, WHOLE };

// The place of a chunk of a tile in shared memory, in bytes.
__device__ __forceinline__ u32 place(u32 line, u32 chunk) { return line * STEP + (chunk ^ line % 8) * 16; }

// Begins to copy a step of a tile.
__device__ __forceinline__ void copy_tile(u32 to, const u8 *matrix, u32 first, u32 lines, i64 line_bytes, u32 step, u32 k)
{
    const u32 chunk = threadIdx.x % 8, inner = step * STEP + chunk * 16;
    const u32 bytes = inner >= k ? 0 : min(k - inner, 16u);
#pragma unroll
    for (u32 pass = 0; pass < TILE * 8 / THREADS; ++pass) {
        const u32 line = threadIdx.x / 8 + pass * (THREADS / 8);
        const bool is_inside = first + line < lines && bytes > 0;
        // What is not read has an address all the same; that of the matrix is a good one.
        copy_chunk(to + place(line, chunk), is_inside ? matrix + (first + line) * line_bytes + inner : matrix,
                   is_inside ? bytes : 0);
    }
}

// Four codes as two pairs of floats of 16 bits.
template <Kind KIND> __device__ __forceinline__ void widen(u32 codes, u32 *pairs)
{
    const u32 first = __byte_perm(codes, 0, 0x1404), second = __byte_perm(codes, 0, 0x3424);
    if (KIND == E5M2) {
        pairs[0] = first;
        pairs[1] = second;
        return;
    }
    pairs[0] = (first & 0x80008000) | (first >> 1 & 0x3f803f80);
    pairs[1] = (second & 0x80008000) | (second >> 1 & 0x3f803f80);
    const u32 beyond = (codes & 0x7f7f7f7f) + 0x01010101 & 0x80808080;
    // A code of all ones is no number.
    if (beyond) {
        pairs[0] |= (beyond & 0x80 ? 0x7fff : 0) | (beyond & 0x8000 ? 0x7fff0000 : 0);
        pairs[1] |= (beyond & 0x800000 ? 0x7fff : 0) | (beyond & 0x80000000 ? 0x7fff0000 : 0);
    }
}

// Floats: their products over 32 bytes of the inner dimension are two of 16. Which bytes these are makes no difference, as
// long as both factors have the same.
template <Kind A, Kind B> struct Floats {
    typedef float Sum;
    static constexpr float UNIT = (A == E4M3 ? 256.0f : 1.0f) * (B == E4M3 ? 256.0f : 1.0f);
    static constexpr int PAIRS = 2;
    static __device__ __forceinline__ void left(const u32 *codes, u32 *parts)
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) widen<A>(codes[i], parts + 2 * i);
    }
    static __device__ __forceinline__ void right(const u32 *codes, u32 *parts)
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) widen<B>(codes[i], parts + 2 * i);
    }
    static __device__ __forceinline__ void add_product(float *d, const u32 *a, const u32 *b)
    {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                : "r"(a[half]), "r"(a[2 + half]), "r"(a[4 + half]), "r"(a[6 + half]), "r"(b[half]), "r"(b[2 + half]));
    }
};

struct Integers {
    typedef int Sum;
    static constexpr float UNIT = 1;
    static constexpr int PAIRS = 1;
    static __device__ __forceinline__ void left(const u32 *codes, u32 *parts)
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[i] = codes[i];
    }
    static __device__ __forceinline__ void right(const u32 *codes, u32 *parts)
    {
        parts[0] = codes[0];
        parts[1] = codes[1];
    }
    static __device__ __forceinline__ void add_product(int *d, const u32 *a, const u32 *b)
    {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

__device__ __forceinline__ float widened(u16 bits, u32 kind)
{
    if (kind == BRAIN) return __uint_as_float((u32)bits << 16);
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

// The nearest code, halves to the even one; what is too large becomes the largest number, as cuBLASLt has it.
__device__ __forceinline__ u32 to_code(float value, u32 kind)
{
    u32 bits = __float_as_uint(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 128;
    if (magnitude > 0x7f800000) return sign | 127;
    const u32 fraction = kind == E5M2 ? 2 : 3, bias = kind == E5M2 ? 15 : 7;
    magnitude = min(magnitude, kind == E5M2 ? 0x47600000u : 0x43e00000u);
    if (magnitude < (128 - bias) << 23) {
        const u32 rounder = (127 - bias + 24 - fraction) << 23;
        return sign | (__float_as_uint(__uint_as_float(magnitude) + __uint_as_float(rounder)) - rounder);
    }
    const u32 dropped = 23 - fraction, half = (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
    return sign | (magnitude - ((127 - bias) << 23) + half) >> dropped;
}

struct Result {
    void *out;
    const float *scale_a, *scale_b;
    const void *bias;
    const Sizes &s;

    __device__ __forceinline__ float of_row(u32 row, u32 part) const
    {
        return scale_a[(i64)(row / s.scale_a.shared) * s.scale_a.line + (i64)part * s.scale_a.part];
    }
    __device__ __forceinline__ float of_column(u32 column, u32 part) const
    {
        return scale_b[(i64)(column / s.scale_b.shared) * s.scale_b.line + (i64)part * s.scale_b.part];
    }

    // Stores 8 sums of a row, which begin at a multiple of 16 bytes.
    __device__ __forceinline__ void store(float *values, u32 row, u32 column) const
    {
        if (bias)
#pragma unroll
            for (int e = 0; e < 8; ++e)
                values[e] += widened(((const u16 *)bias)[(i64)(column + e) * s.bias_step], s.kind_bias);
        const i64 at = (i64)row * s.n + column;
        if (s.kind_out >= SINGLE) {
            float4 *const to = (float4 *)((float *)out + at);
            to[0] = make_float4(values[0], values[1], values[2], values[3]);
            to[1] = make_float4(values[4], values[5], values[6], values[7]);
            return;
        }
        if (s.kind_out <= E5M2) {
            u32 codes[2] = {0, 0};
#pragma unroll
            for (int e = 0; e < 8; ++e) codes[e / 4] |= to_code(values[e], s.kind_out) << e % 4 * 8;
            *(uint2 *)((u8 *)out + at) = make_uint2(codes[0], codes[1]);
            return;
        }
        u32 pairs[4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (s.kind_out == HALF)
                asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs[e]) : "f"(values[2 * e + 1]), "f"(values[2 * e]));
            else
                asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[e]) : "f"(values[2 * e + 1]), "f"(values[2 * e]));
        *(uint4 *)((u16 *)out + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
};

// Sums of a tile lie in shared memory as lines of 512 bytes; chunks of 32 bytes are permuted by the number of the line.
__device__ __forceinline__ u32 sum_place(u32 row, u32 column) { return row * (TILE * 4) + (column * 4 ^ row % 8 * 32); }

template <class T> __device__ __forceinline__ void product(const u8 *a, const u8 *b, const Result &result)
{
    typedef typename T::Sum Sum;
    constexpr bool IS_FLOAT = T::PAIRS == 2;
    constexpr int DOWN = 4, ACROSS = 4;
    const Sizes &s = result.s;
    extern __shared__ __align__(128) u8 memory[];
    const u32 shared = (u32)__cvta_generic_to_shared(memory);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;

    // Blocks that are at work together share rows and columns: they go down BAND tiles before they go across.
    constexpr u32 BAND = 8;
    const u32 down = (s.m + TILE - 1) / TILE, across = (s.n + TILE - 1) / TILE;
    const u32 band = blockIdx.x / (BAND * across), in_band = blockIdx.x % (BAND * across);
    const u32 height = min(BAND, down - band * BAND);
    const u32 first_row = (band * BAND + in_band % height) * TILE, first_column = in_band / height * TILE;
    const u32 steps = (s.k + STEP - 1) / STEP;

    Sum sums[DOWN][ACROSS][4];
    float scaled[IS_FLOAT ? DOWN : 1][ACROSS][4];
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
#pragma unroll
        for (int j = 0; j < ACROSS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                sums[i][j][e] = 0;
                if (IS_FLOAT) scaled[i][j][e] = 0;
            }
    // The scaled sums go to the result, and the next ones begin.
    auto scale = [&](u32 part) {
        float of_column[ACROSS][2];
#pragma unroll
        for (int j = 0; j < ACROSS; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                of_column[j][e] = result.of_column(min(first_column + warp_column + j * 8 + lane % 4 * 2 + e, s.n - 1), part);
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float of_row = T::UNIT * result.of_row(min(first_row + warp_row + i * 16 + half * 8 + lane / 4, s.m - 1), part);
#pragma unroll
                for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                    for (int e = half * 2; e < half * 2 + 2; ++e) {
                        scaled[i][j][e] = fmaf(sums[i][j][e], of_row * of_column[j][e % 2], scaled[i][j][e]);
                        sums[i][j][e] = 0;
                    }
            }
    };
    auto copy = [&](u32 step) {
        const u32 to = shared + step % STAGES * (2 * TILE * STEP);
        copy_tile(to, a, first_row, s.m, s.a_line, step, s.k);
        copy_tile(to + TILE * STEP, b, first_column, s.n, s.b_line, step, s.k);
        close_group();
    };

    copy(0);
#pragma unroll 1
    for (u32 step = 0; step < steps; ++step) {
        // Behind the end zeros come.
        copy(step + 1);
        await_groups<1>();
        __syncthreads();
        const u32 left = shared + step % STAGES * (2 * TILE * STEP), right = left + TILE * STEP;
#pragma unroll 1
        for (u32 at = 0; at < STEP / 32; ++at) {
            u32 b_parts[ACROSS][2 * T::PAIRS];
#pragma unroll
            for (int j = 0; j < ACROSS; j += 2) {
                u32 codes[4];
                read_matrices<false>(codes, right + place(warp_column + j * 8 + lane / 16 * 8 + lane % 8, at * 2 + lane / 8 % 2));
                T::right(codes, b_parts[j]);
                T::right(codes + 2, b_parts[j + 1]);
            }
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
                u32 codes[4], a_parts[4 * T::PAIRS];
                read_matrices<false>(codes, left + place(warp_row + i * 16 + lane % 16, at * 2 + lane / 16));
                T::left(codes, a_parts);
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) T::add_product(sums[i][j], a_parts, b_parts[j]);
            }
        }
        if constexpr (IS_FLOAT)
            if (s.is_divided || step + 1 == steps) scale(step);
        // The stage is free for the copies of the next step.
        __syncthreads();
    }
    await_groups<0>();
    __syncthreads();
    // The memory of the stages now takes the sums; integers pass through as they are.
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
                u8 *const to = memory + sum_place(warp_row + i * 16 + half * 8 + lane / 4, warp_column + j * 8 + lane % 4 * 2);
                if constexpr (IS_FLOAT)
                    *(float2 *)to = make_float2(scaled[i][j][half * 2], scaled[i][j][half * 2 + 1]);
                else
                    *(int2 *)to = make_int2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
    __syncthreads();
#pragma unroll 1
    for (u32 at = threadIdx.x; at < TILE * TILE / 8; at += THREADS) {
        const u32 line = at / (TILE / 8), across_line = at % (TILE / 8) * 8;
        const u32 row = first_row + line, column = first_column + across_line;
        if (row >= s.m || column >= s.n) continue;
        float values[8];
        *(float4 *)values = *(const float4 *)(memory + sum_place(line, across_line));
        *(float4 *)(values + 4) = *(const float4 *)(memory + sum_place(line, across_line) + 16);
        result.store(values, row, column);
    }
}

#define KERNEL(name, ...)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS) name(void *out, const u8 *a, const u8 *b,                    \
                                                               const float *scale_a, const float *scale_b,             \
                                                               const void *bias, const Sizes sizes)                    \
    {                                                                                                                  \
        const Result result{out, scale_a, scale_b, bias, sizes};                                                       \
        product<__VA_ARGS__>(a, b, result);                                                                            \
    }

KERNEL(mma_i8, Integers)
KERNEL(mma_f8_fine, Floats<E4M3, E4M3>)
KERNEL(mma_f8_fine_coarse, Floats<E4M3, E5M2>)
KERNEL(mma_f8_coarse_fine, Floats<E5M2, E4M3>)

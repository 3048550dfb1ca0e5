// Products of matrices of bytes with any strides: of integers of 8 bits into integers of 32, and of floats of 8 bits with
// scales.
//
// A block computes a tile of 64 x 64 elements, a thread 4 x 4 of them. Tiles of both factors pass through shared memory.
// Sums of integers wrap around. Products of floats of 8 bits are exact in float; their sums are taken in the order of the
// inner dimension, each step with one rounding (fma), and then scaled. Where scales differ along the inner dimension, the
// sum of each 128 steps is scaled and added to the result by itself.

#include "numbers.cuh"

#define TILE 64
#define SIDE 16
// Words of four steps, and single steps, that pass through shared memory at a time.
#define WORDS 8
#define STEPS 16
// Steps that have scales of their own.
#define BLOCK 128

struct Strides {
    i64 row, column;
};

// Elements between the scales of lines and between those of parts of a line, and lines that share one; zero for one of all.
struct ScaleSteps {
    i64 line, part, shared;
};

// The layout of launch/library/product/bytes.rs.
struct Sizes {
    i64 m, n, k;
    Strides out, a, b;
    ScaleSteps scale_a, scale_b;
    i64 bias;
    // Which floats the factors, the result and the bias are.
    int kind_a, kind_b, kind_out, kind_bias;
    i64 is_divided;
};

enum Kind { E4M3, E5M2, HALF, BRAIN, SINGLE };

static __device__ float of_half(u16 bits)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

static __device__ float of_code(u32 code, int kind)
{
    if (kind == E5M2) {
        return of_half((u16)(code << 8));
    }
    u32 magnitude = code & 127;
    float scaled = of_half((u16)((code & 128) << 8 | magnitude << 7));
    return magnitude == 127 ? __int_as_float(0x7fffffff) : scaled * 256.0f;
}

// The nearest code, halves to the even one; what is too large becomes the largest number, as cuBLASLt has it.
static __device__ u8 to_code(float value, int kind)
{
    u32 bits = __float_as_uint(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 128;
    if (magnitude > 0x7f800000) {
        return (u8)(sign | 127);
    }
    u32 fraction = kind == E5M2 ? 2 : 3, bias = kind == E5M2 ? 15 : 7;
    u32 largest = kind == E5M2 ? 0x47600000 : 0x43e00000;
    magnitude = magnitude < largest ? magnitude : largest;
    if (magnitude < (128 - bias) << 23) {
        u32 rounder = (127 - bias + 24 - fraction) << 23;
        return (u8)(sign | (__float_as_uint(__uint_as_float(magnitude) + __uint_as_float(rounder)) - rounder));
    }
    u32 dropped = 23 - fraction;
    u32 half = (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
    return (u8)(sign | (magnitude - ((127 - bias) << 23) + half) >> dropped);
}

static __device__ float load(const void* memory, i64 at, int kind)
{
    switch (kind) {
    case HALF: return of_half(((const u16*)memory)[at]);
    case BRAIN: return __uint_as_float((u32)((const u16*)memory)[at] << 16);
    case SINGLE: return ((const float*)memory)[at];
    default: return of_code(((const u8*)memory)[at], kind);
    }
}

static __device__ u16 to_brain(float value)
{
    u32 bits = __float_as_uint(value);
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static __device__ void store(void* memory, i64 at, int kind, float value)
{
    u16 narrow;
    switch (kind) {
    case HALF:
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
        ((u16*)memory)[at] = narrow;
        break;
    case BRAIN: ((u16*)memory)[at] = to_brain(value); break;
    case SINGLE: ((float*)memory)[at] = value; break;
    default: ((u8*)memory)[at] = to_code(value, kind);
    }
}

// The first row and column of the block's tile.
struct Place {
    i64 row, column;
    __device__ Place(const Sizes& sizes)
    {
        i64 across = (sizes.n + TILE - 1) / TILE;
        row = blockIdx.x / across * TILE;
        column = blockIdx.x % across * TILE;
    }
};

// Four neighbours along the inner dimension as one word; zeros outside of the matrix.
static __device__ int word(const signed char* line, bool is_inside, i64 step, i64 k, i64 stride)
{
    u32 packed = 0;
    for (int at = 0; at < 4; at++) {
        if (is_inside && step + at < k) {
            packed |= (u32)(u8)line[(step + at) * stride] << 8 * at;
        }
    }
    return (int)packed;
}

extern "C" __global__ void __launch_bounds__(256) matmul_i8(int* out, const signed char* a, const signed char* b, Sizes sizes)
{
    __shared__ int left[WORDS][TILE + 1], right[WORDS][TILE + 1];
    Place place(sizes);
    int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    int sums[4][4] = {};
    for (i64 step = 0; step < sizes.k; step += 4 * WORDS) {
        for (int at = threadIdx.x; at < WORDS * TILE; at += SIDE * SIDE) {
            // Neighbouring threads take neighbouring words of a line.
            int line = at / WORDS, taken = at % WORDS;
            i64 i = place.row + line, j = place.column + line;
            left[taken][line] = word(a + i * sizes.a.row, i < sizes.m, step + 4 * taken, sizes.k, sizes.a.column);
            right[taken][line] = word(b + j * sizes.b.column, j < sizes.n, step + 4 * taken, sizes.k, sizes.b.row);
        }
        __syncthreads();
        for (int taken = 0; taken < WORDS; taken++) {
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    sums[i][j] = __dp4a(left[taken][row + SIDE * i], right[taken][column + SIDE * j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            i64 r = place.row + row + SIDE * i, c = place.column + column + SIDE * j;
            if (r < sizes.m && c < sizes.n) {
                out[r * sizes.out.row + c * sizes.out.column] = sums[i][j];
            }
        }
    }
}

static __device__ float scale_of(const float* scales, const ScaleSteps& steps, i64 line, i64 part)
{
    return scales[line / steps.shared * steps.line + part * steps.part];
}

// The scaled sums of the block's threads, of the part of the inner dimension.
static __device__ __forceinline__ void scale(
    float (*sums)[4], const float* scale_a, const float* scale_b, const Sizes& sizes, i64 row, i64 column, i64 part)
{
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            i64 r = row + SIDE * i, c = column + SIDE * j;
            if (r < sizes.m && c < sizes.n) {
                sums[i][j] *= scale_of(scale_a, sizes.scale_a, r, part) * scale_of(scale_b, sizes.scale_b, c, part);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) matmul_f8(
    void* out, const u8* a, const u8* b, const float* scale_a, const float* scale_b, const void* bias, Sizes sizes)
{
    __shared__ float left[STEPS][TILE + 1], right[STEPS][TILE + 1];
    Place place(sizes);
    int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    i64 first_row = place.row + row, first_column = place.column + column;
    float sums[4][4] = {}, scaled[4][4] = {};
    for (i64 step = 0; step < sizes.k; step += STEPS) {
        for (int at = threadIdx.x; at < STEPS * TILE; at += SIDE * SIDE) {
            int line = at / STEPS, taken = at % STEPS;
            i64 i = place.row + line, j = place.column + line, inner = step + taken;
            bool is_inside = inner < sizes.k;
            left[taken][line] =
                is_inside && i < sizes.m ? of_code(a[i * sizes.a.row + inner * sizes.a.column], sizes.kind_a) : 0.0f;
            right[taken][line] =
                is_inside && j < sizes.n ? of_code(b[j * sizes.b.column + inner * sizes.b.row], sizes.kind_b) : 0.0f;
        }
        __syncthreads();
        for (int taken = 0; taken < STEPS; taken++) {
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    sums[i][j] = fmaf(left[taken][row + SIDE * i], right[taken][column + SIDE * j], sums[i][j]);
                }
            }
        }
        __syncthreads();
        bool is_last = step + STEPS >= sizes.k;
        if (is_last || (sizes.is_divided && (step + STEPS) % BLOCK == 0)) {
            scale(sums, scale_a, scale_b, sizes, first_row, first_column, step / BLOCK);
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    scaled[i][j] += sums[i][j];
                    sums[i][j] = 0.0f;
                }
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            i64 r = first_row + SIDE * i, c = first_column + SIDE * j;
            if (r < sizes.m && c < sizes.n) {
                float value = scaled[i][j];
                if (bias) {
                    value += load(bias, c * sizes.bias, sizes.kind_bias);
                }
                store(out, r * sizes.out.row + c * sizes.out.column, sizes.kind_out, value);
            }
        }
    }
}

// needs 90a
//
// Products of matrices of bytes on the tensor cores of compute capability 9.0: floats of 8 bits with scales, and integers of
// 8 bits into integers of 32.
//
// Of both factors neighbours lie along the inner dimension. A block is four warps that ask for tiles of the factors, and two
// groups of four warps that multiply them. Tiles come by the tensor memory accelerator into a ring of stages in shared
// memory, 128 bytes of the inner dimension at a time. Each stage has two barriers: `full` counts the bytes that have come,
// `empty` the groups that are done with them. The groups multiply straight from shared memory (wgmma), 64 rows each. The
// chunks of 16 bytes of a line are permuted by the number of the line (swizzle of 128 bytes). Two blocks of a cluster take
// tiles below each other: each asks for half of the tile of the right factor, which goes to both.
//
// Tensor cores add products of 8-bit floats with some fourteen bits. So the sum of each stage is added to the result by
// itself, in float, and where scales differ along the inner dimension it is scaled first: a stage is as long as the parts
// that have scales of their own. Sums that may be less exact, and those of integers, stay where the tensor cores add.
//
// Blocks begin before the work before them on the stream is done: they wait for it once their barriers stand, before they
// touch memory, and let the next launch begin then.

#include "hopper.cuh"

// Elements between the scales of lines and between those of parts of a line, and lines that share one; zero for one of all.
struct ScaleSteps {
    u32 line, part, shared;
};

// The layout of launch/library/product/bytes_wgmma.rs.
struct Sizes {
    u32 m, n, k, band;
    ScaleSteps scale_a, scale_b;
    u32 bias_step, kind_out, kind_bias;
};

enum Kind { E4M3, E5M2, HALF, BRAIN, SINGLE, WHOLE };

// ---- The tensor memory accelerator ----

__device__ __forceinline__ void load_box(u32 to, const Map &map, u32 barrier, u32 inner, u32 line)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(inner), "r"(line) : "memory");
}

// The same into both blocks of a cluster, with each one's barrier told.
__device__ __forceinline__ void load_box_for_both(u32 to, const Map &map, u32 barrier, u32 inner, u32 line)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(inner), "r"(line), "h"((u16)3) : "memory");
}

// ---- Multiplication ----

#define SUMS_8(c, at) c(d[at]), c(d[at + 1]), c(d[at + 2]), c(d[at + 3]), c(d[at + 4]), c(d[at + 5]), c(d[at + 6]), c(d[at + 7])
#define SUMS_32(c, at) SUMS_8(c, at), SUMS_8(c, at + 8), SUMS_8(c, at + 16), SUMS_8(c, at + 24)
#define SUMS_64(c) SUMS_32(c, 0), SUMS_32(c, 32)
#define SUMS_128(c) SUMS_64(c), SUMS_32(c, 64), SUMS_32(c, 96)

// The types of the left and the right factor and of their sums.
struct Fine { typedef float Sum; };
struct FineCoarse { typedef float Sum; };
struct CoarseFine { typedef float Sum; };
struct Integers { typedef int Sum; };

// Adds the product of 64 rows and COLUMNS columns over 32 bytes of the inner dimension; or sets the sums to it.
template <class T, int COLUMNS> struct Products;

#define FLOAT_SUMS(x) "+f"(x)
#define INTEGER_SUMS(x) "+r"(x)
#define PRODUCTS(T, SUMS, columns, count, types, signs, at_a, at_b, at_p)                                              \
    template <> struct Products<T, columns> {                                                                          \
        static __device__ __forceinline__ void add(T::Sum *d, u64 a, u64 b, u32 adds)                                  \
        {                                                                                                              \
            asm volatile("{.reg .pred adds; setp.ne.b32 adds, " at_p ", 0;\n"                                          \
                         "wgmma.mma_async.sync.aligned.m64n" #columns "k32." types " {" NAMES_##count "}, "            \
                         at_a ", " at_b ", adds" signs ";}"                                                            \
                         : SUMS_##count(SUMS) : "l"(a), "l"(b), "r"(adds) : "memory");                                 \
        }                                                                                                              \
    };
PRODUCTS(Fine, FLOAT_SUMS, 128, 64, "f32.e4m3.e4m3", ", 1, 1", "%64", "%65", "%66")
PRODUCTS(FineCoarse, FLOAT_SUMS, 128, 64, "f32.e4m3.e5m2", ", 1, 1", "%64", "%65", "%66")
PRODUCTS(CoarseFine, FLOAT_SUMS, 128, 64, "f32.e5m2.e4m3", ", 1, 1", "%64", "%65", "%66")
PRODUCTS(Fine, FLOAT_SUMS, 256, 128, "f32.e4m3.e4m3", ", 1, 1", "%128", "%129", "%130")
PRODUCTS(Integers, INTEGER_SUMS, 256, 128, "s32.s8.s8", "", "%128", "%129", "%130")

// What tells the multiplication where and how a tile lies: groups of 8 lines after 1024 bytes.
__device__ __forceinline__ u64 place(u32 tile)
{
    return (u64)1 << 62 | (u64)(1024 / 16) << 32 | (u64)1 << 16 | (tile & 0x3ffff) >> 4;
}

// ---- The result ----

__device__ __forceinline__ float widened(u16 bits, u32 kind)
{
    if (kind == BRAIN) return __uint_as_float((u32)bits << 16);
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

// Two floats rounded, the first one in the lower part. What is too large for 8 bits becomes the largest number.
__device__ __forceinline__ u32 narrowed(float first, float second, u32 kind)
{
    u32 both;
    u16 bytes;
    switch (kind) {
    case E4M3:
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bytes) : "f"(second), "f"(first));
        return bytes;
    case E5M2:
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bytes) : "f"(second), "f"(first));
        return bytes;
    case HALF: asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first)); break;
    default: asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    }
    return both;
}

struct Result {
    void *out;
    const float *scale_a, *scale_b;
    const void *bias;
    const Sizes &s;

    // Stores 8 sums of a row, which begin at a multiple of 16 bytes, scaled where they are not yet.
    template <bool SCALED> __device__ __forceinline__ void store(float *values, u32 row, u32 column) const
    {
        if (row >= s.m || column >= s.n) return;
        if (!SCALED) {
            const float of_row = scale_a[(i64)row * s.scale_a.line];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] *= of_row * scale_b[(i64)(column + e) * s.scale_b.line];
        }
        if (bias)
#pragma unroll
            for (int e = 0; e < 8; ++e)
                values[e] += widened(((const u16 *)bias)[(i64)(column + e) * s.bias_step], s.kind_bias);
        const i64 at = (i64)row * s.n + column;
        if (s.kind_out == SINGLE) {
            float4 *to = (float4 *)((float *)out + at);
            to[0] = make_float4(values[0], values[1], values[2], values[3]);
            to[1] = make_float4(values[4], values[5], values[6], values[7]);
            return;
        }
        u32 pairs[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) pairs[e] = narrowed(values[2 * e], values[2 * e + 1], s.kind_out);
        if (s.kind_out <= E5M2)
            *(uint2 *)((u8 *)out + at) = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
        else
            *(uint4 *)((u16 *)out + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }

    __device__ __forceinline__ void store_integers(const int *values, u32 row, u32 column) const
    {
        if (row >= s.m || column >= s.n) return;
        int4 *to = (int4 *)((int *)out + (i64)row * s.n + column);
        to[0] = make_int4(values[0], values[1], values[2], values[3]);
        to[1] = make_int4(values[4], values[5], values[6], values[7]);
    }
};

// Sums of 64 x 64 elements lie in shared memory as lines of 256 bytes; chunks of 32 bytes are permuted by the number of
// the line.
__device__ __forceinline__ u32 sum_place(u32 row, u32 column) { return row * 256 + (column * 4 ^ row % 8 * 32); }

template <class Sum> __device__ __forceinline__ void leave_sums(u8 *to, const Sum *sums)
{
    const u32 lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Sum *const place = (Sum *)(to + sum_place(row + half * 8, j * 8 + lane % 4 * 2));
            place[0] = sums[j * 4 + half * 2];
            place[1] = sums[j * 4 + half * 2 + 1];
        }
}

// Stores the result's part of a group, 64 rows and COLUMNS columns. `room` has 16 KiB.
template <int COLUMNS, bool SCALED, class Sum>
__device__ __forceinline__ void store_finished(const Sum *sums, const Result &result, u8 *room, u32 group, u32 first_row,
                                               u32 first_column)
{
    // The loop stays one, so that its code is there once; only sums have to be named one by one.
#pragma unroll 1
    for (u32 chunk = 0; chunk < COLUMNS / 64; ++chunk) {
        join_group(group);
#pragma unroll
        for (u32 at = 0; at < COLUMNS / 64; ++at)
            if (at == chunk) leave_sums(room, sums + at * 32);
        join_group(group);
#pragma unroll 1
        for (u32 row = threadIdx.x % 128 / 8; row < 64; row += 16) {
            const u32 column = threadIdx.x % 8 * 8, to = first_column + chunk * 64 + column;
            alignas(16) Sum values[8];
            ((float4 *)values)[0] = *(const float4 *)(room + sum_place(row, column));
            ((float4 *)values)[1] = *(const float4 *)(room + sum_place(row, column) + 16);
            if constexpr (sizeof(Sum) == 4 && (Sum)0.5f != 0)
                result.store<SCALED>(values, first_row + row, to);
            else
                result.store_integers(values, first_row + row, to);
        }
    }
}

// Where a tile lies. Blocks at work together share rows and columns: they go down `band` tiles before they go across.
struct Tile {
    u32 row, column;
    __device__ __forceinline__ Tile(u32 tile, u32 down, u32 across, u32 most)
    {
        const u32 band = tile / (most * across), in_band = tile % (most * across);
        const u32 height = min(most, down - band * most);
        row = band * most + in_band % height;
        column = in_band / height;
    }
};

// How the sums of a stage come to the result: they stay with the tensor cores; they are added as they are; or they are
// scaled, where all columns of a tile share a scale, or where each has its own.
enum Way { STAY, ADDED, BLOCKS, PARTS };

template <class T, int COLUMNS, int STAGES, Way WAY>
__device__ __forceinline__ void product(const Map &a_map, const Map &b_map, const Result &result)
{
    typedef typename T::Sum Sum;
    constexpr u32 ROWS = 128, CLUSTER = 2, GROUPS = 2, LEFT = ROWS * 128, STAGE = LEFT + COLUMNS * 128;
    const Sizes &s = result.s;
    extern __shared__ __align__(1024) u8 memory[];
    const u32 shared = shared_place(memory);
    const u32 full = shared + STAGES * STAGE + GROUPS * 16384, empty = full + STAGES * 8;
    const u32 group = threadIdx.x / 128, rank = cluster_rank();
    const u32 down = (s.m + ROWS * CLUSTER - 1) / (ROWS * CLUSTER), across = (s.n + COLUMNS - 1) / COLUMNS;
    const u32 tiles = down * across, steps = (s.k + 127) / 128;

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            begin_barrier(full + stage * 8, 1);
            begin_barrier(empty + stage * 8, GROUPS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    join_cluster();
    await_turn();

    Ring<STAGES> ring;
    if (group == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == GROUPS * 128) {
            fetch_map(a_map);
            fetch_map(b_map);
            for (u32 number = blockIdx.x / CLUSTER; number < tiles; number += gridDim.x / CLUSTER) {
                const Tile tile(number, down, across, s.band);
                const u32 row = (tile.row * CLUSTER + rank) * ROWS, column = tile.column * COLUMNS;
                for (u32 step = 0; step < steps; ++step, ring.next()) {
                    const u32 barrier = full + ring.stage * 8, stage = shared + ring.stage * STAGE;
                    await(empty + ring.stage * 8, ring.phase ^ 1);
                    expect_bytes(barrier, STAGE);
                    load_box(stage, a_map, barrier, step * 128, row);
                    load_box_for_both(stage + LEFT + rank * (COLUMNS * 64), b_map, barrier, step * 128,
                                      column + rank * (COLUMNS / 2));
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        constexpr int KEPT = COLUMNS / 2;
        Sum sums[KEPT], totals[WAY == STAY ? 1 : KEPT];
        u8 *const room = memory + STAGES * STAGE + group * 16384;
        const u32 lane = threadIdx.x % 32, line = threadIdx.x % 128 / 32 * 16 + lane / 4;
        for (u32 number = blockIdx.x / CLUSTER; number < tiles; number += gridDim.x / CLUSTER) {
            const Tile tile(number, down, across, s.band);
            const u32 row = (tile.row * CLUSTER + rank) * ROWS + group * 64, column = tile.column * COLUMNS;
            if (WAY != STAY)
#pragma unroll
                for (int i = 0; i < KEPT; ++i) totals[i] = 0;
            // Where the scales of the thread's two rows and of its columns begin; what is outside has those of the last ones.
            const float *rows[2], *columns = nullptr;
            if (WAY == BLOCKS || WAY == PARTS) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    rows[half] = result.scale_a + (i64)(min(row + line + half * 8, s.m - 1) / s.scale_a.shared) * s.scale_a.line;
                columns = result.scale_b + (WAY == BLOCKS ? (i64)(column / s.scale_b.shared) * s.scale_b.line : (i64)column);
            }
            // The scales of a step are read a step ahead.
            float of_row[2], of_column[WAY == PARTS ? COLUMNS / 4 : 1];
            auto read_scales = [&](u32 step) {
#pragma unroll
                for (int half = 0; half < 2; ++half) of_row[half] = rows[half][(i64)step * s.scale_a.part];
                const float *const from = columns + (i64)step * s.scale_b.part;
                if (WAY == BLOCKS) of_column[0] = *from;
                if (WAY == PARTS)
#pragma unroll
                    for (int j = 0; j < COLUMNS / 8; ++j) {
                        const u32 at = j * 8 + lane % 4 * 2;
                        const float2 two = column + at < s.n ? *(const float2 *)(from + at) : make_float2(0, 0);
                        of_column[j * 2] = two.x;
                        of_column[j * 2 + 1] = two.y;
                    }
            };
            if (WAY == BLOCKS || WAY == PARTS) read_scales(0);
            u32 done = 0;
#pragma unroll 1
            for (u32 step = 0; step < steps; ++step) {
                const u32 stage = shared + ring.stage * STAGE;
                const u64 left = place(stage + group * 8192), right = place(stage + LEFT);
                await(full + ring.stage * 8, ring.phase);
                begin_products();
#pragma unroll
                for (u32 part = 0; part < 4; ++part)
                    Products<T, COLUMNS>::add(sums, left + part * 2, right + part * 2, (WAY == STAY ? step + part : part) != 0);
                close_products();
                if (WAY == STAY) {
                    // The stage before is free once its products are done.
                    await_products<1>();
                    if (step > 0) release_stage<CLUSTER>(empty + done * 8);
                    done = ring.stage;
                } else {
                    float row_now[2], column_now[WAY == PARTS ? COLUMNS / 4 : 1];
                    if (WAY == BLOCKS || WAY == PARTS) {
                        row_now[0] = of_row[0];
                        row_now[1] = of_row[1];
#pragma unroll
                        for (int at = 0; at < (WAY == PARTS ? COLUMNS / 4 : 1); ++at) column_now[at] = of_column[at];
                        read_scales(min(step + 1, steps - 1));
                    }
                    await_products<0>();
                    release_stage<CLUSTER>(empty + ring.stage * 8);
#pragma unroll
                    for (int i = 0; i < KEPT; ++i) {
                        if (WAY == ADDED)
                            totals[i] += sums[i];
                        else
                            totals[i] = fmaf(sums[i], row_now[i / 2 % 2] * column_now[WAY == PARTS ? i / 4 * 2 + i % 2 : 0], totals[i]);
                    }
                }
                ring.next();
            }
            if (WAY == STAY) {
                await_products<0>();
                release_stage<CLUSTER>(empty + done * 8);
                store_finished<COLUMNS, false>(sums, result, room, group, row, column);
            } else {
                store_finished<COLUMNS, WAY != ADDED>(totals, result, room, group, row, column);
            }
        }
    }
    // No block goes while others may still write into its memory.
    __syncwarp();
    join_cluster();
}

// Blocks: as many as there is room for, in clusters of two; each takes tiles in turn. The factors come by their maps; their
// addresses are there so that a launch names all memory that it uses.
#define KERNEL(name, T, COLUMNS, STAGES, WAY)                                                                          \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        name(void *out, const u8 *a, const u8 *b, const float *scale_a, const float *scale_b, const void *bias,        \
             const __grid_constant__ Map a_map, const __grid_constant__ Map b_map, const __grid_constant__ Sizes sizes) \
    {                                                                                                                  \
        const Result result{out, scale_a, scale_b, bias, sizes};                                                       \
        product<T, COLUMNS, STAGES, WAY>(a_map, b_map, result);                                                        \
    }

KERNEL(f8_fine, Fine, 128, 6, ADDED)
KERNEL(f8_fine_coarse, FineCoarse, 128, 6, ADDED)
KERNEL(f8_coarse_fine, CoarseFine, 128, 6, ADDED)
KERNEL(f8_fine_blocks, Fine, 128, 6, BLOCKS)
KERNEL(f8_fine_parts, Fine, 128, 6, PARTS)
KERNEL(f8_fine_fast, Fine, 256, 4, STAY)
KERNEL(i8, Integers, 256, 4, STAY)

// needs 90a
//
// Products of matrices on the tensor cores of compute capability 9.0, in batches: out = act(alpha * a @ b + beta * c +
// bias), with factors of 16-bit floats, or of floats that are rounded to tf32.
//
// A block is a warp (or four) that asks for tiles of both factors, and one or two groups of four warps that multiply
// them. Tiles come by the tensor memory accelerator into a ring of stages in shared memory. Each stage has two
// barriers: `full` counts the bytes that have come, `empty` the groups that are done with them. The groups multiply
// straight from shared memory (wgmma), 64 rows at a time. Sums are floats, taken in the order of the inner dimension.
//
// A line of a tile has 128 bytes of what lies together in memory: along the inner dimension (INNER) or along the other
// one, then a tile consists of parts with 64 elements in a line. The chunks of 16 bytes of a line are permuted by the
// number of the line, which the accelerator and the multiplication both do (swizzle of 128 bytes).
//
// Blocks begin before the work before them on the stream is done: they wait for it once their barriers stand, before they
// touch memory, and let the next launch begin then.
//
// What lies outside the matrices comes as zeros. Two blocks of a cluster take tiles below each other: each asks for
// half of the tile of b, which goes to both.

#include "halves.cuh"
#include "hopper.cuh"

struct Strides {
    i64 batch, row, column;
};

// The layout of launch/library/product/wgmma.rs. A step of 0 is that of a matrix that serves the whole batch.
struct Sizes {
    u32 batches, m, n, k;
    u32 a_step, b_step;
    u32 band, activation;
    float alpha, beta;
    u32 stores_tiles, bias_step;
    Strides out, c;
};

enum { NONE = 0, RELU = 1, GELU = 2 };

template <> struct Element<float> {
    static __device__ __forceinline__ float widened(float value) { return value; }
    static __device__ __forceinline__ float rounded(float value) { return value; }
};

// ---- The tensor memory accelerator ----

__device__ __forceinline__ void load_box(u32 to, const Map &map, u32 barrier, u32 fast, u32 slow, u32 batch)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(fast), "r"(slow), "r"(batch) : "memory");
}

// The same into all blocks of the cluster that the mask names, with each one's barrier told.
__device__ __forceinline__ void load_box_for(u16 mask, u32 to, const Map &map, u32 barrier, u32 fast, u32 slow,
                                             u32 batch)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(fast), "r"(slow), "r"(batch), "h"(mask) : "memory");
}

__device__ __forceinline__ void store_box(const Map &map, u32 from, u32 fast, u32 slow, u32 batch)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 ::"l"(&map), "r"(from), "r"(fast), "r"(slow), "r"(batch) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all stores but the last COUNT have read what they store.
template <int COUNT> __device__ __forceinline__ void await_stores()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(COUNT) : "memory");
}

// ---- Multiplication ----

#define NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMS_8(at) "+f"(d[at]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3]), "+f"(d[at + 4]), "+f"(d[at + 5]), \
    "+f"(d[at + 6]), "+f"(d[at + 7])
#define SUMS_32_FROM(at) SUMS_8(at), SUMS_8(at + 8), SUMS_8(at + 16), SUMS_8(at + 24)
#define SUMS_16 SUMS_8(0), SUMS_8(8)
#define SUMS_32 SUMS_32_FROM(0)
#define SUMS_64 SUMS_32, SUMS_32_FROM(32)
#define SUMS_96 SUMS_64, SUMS_32_FROM(64)
#define SUMS_128 SUMS_96, SUMS_32_FROM(96)

// Adds the product of 64 rows and COLUMNS columns over 32 bytes of the inner dimension; or sets the sums to it.
template <class T, int COLUMNS, bool A_INNER, bool B_INNER> struct Products;

#define PRODUCTS_16(T, type, columns, count, at_a, at_b, at_p, at_ta, at_tb)                                       \
    template <bool A_INNER, bool B_INNER> struct Products<T, columns, A_INNER, B_INNER> { \
        static __device__ __forceinline__ void add(float *d, u64 a, u64 b, u32 adds) \
        { \
            asm volatile("{.reg .pred adds; setp.ne.b32 adds, " at_p ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type               \
                         " {" NAMES_##count "}, " at_a ", " at_b ", adds, 1, 1, " at_ta ", " at_tb ";}" \
                         : SUMS_##count : "l"(a), "l"(b), "r"(adds), "n"(!A_INNER), "n"(!B_INNER) : "memory"); \
        } \
    };
#define PRODUCTS_32(columns, count, at_a, at_b, at_p)                                                              \
    template <> struct Products<float, columns, true, true> { \
        static __device__ __forceinline__ void add(float *d, u64 a, u64 b, u32 adds) \
        { \
            asm volatile("{.reg .pred adds; setp.ne.b32 adds, " at_p ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" NAMES_##count "}, "     \
                         at_a ", " at_b ", adds, 1, 1;}" \
                         : SUMS_##count : "l"(a), "l"(b), "r"(adds) : "memory"); \
        } \
    };
#define PRODUCTS(columns, count, at_a, at_b, at_p, at_ta, at_tb)                                                   \
    PRODUCTS_16(Half, "f16", columns, count, at_a, at_b, at_p, at_ta, at_tb)                                       \
    PRODUCTS_16(Brain, "bf16", columns, count, at_a, at_b, at_p, at_ta, at_tb)                                     \
    PRODUCTS_32(columns, count, at_a, at_b, at_p)

PRODUCTS(32, 16, "%16", "%17", "%18", "%19", "%20")
PRODUCTS(64, 32, "%32", "%33", "%34", "%35", "%36")
PRODUCTS(128, 64, "%64", "%65", "%66", "%67", "%68")
PRODUCTS(256, 128, "%128", "%129", "%130", "%131", "%132")

// A tile of a factor: OUTER elements along the dimension that the result has, 128 bytes of the inner one.
template <class T, int OUTER, bool INNER> struct Factor {
    static constexpr u32 STEP = 128 / sizeof(T), BYTES = OUTER * 128;
    // From 32 bytes of the inner dimension to the next ones, and from 64 elements of the outer one.
    static constexpr u32 NEXT = INNER ? 32 : 2048, PART = 8192;

    // What tells the multiplication where and how a tile lies: groups of 8 lines after 1024 bytes, parts after 8192.
    static __device__ __forceinline__ u64 place(u32 tile)
    {
        const u64 parts = INNER ? 1 : PART / 16, groups = 1024 / 16;
        return (u64)1 << 62 | groups << 32 | parts << 16 | (tile & 0x3ffff) >> 4;
    }

    // Asks for a share of the tile, for one block or for all that the mask names.
    template <int SHARES>
    static __device__ __forceinline__ void load(u32 to, const Map &map, u32 barrier, u32 outer, u32 inner, u32 batch,
                                                u32 share)
    {
        if (INNER) {
            const u32 lines = OUTER / SHARES;
            box<SHARES>(to + share * lines * 128, map, barrier, inner, outer + share * lines, batch);
        } else {
            const u32 lines = STEP / SHARES;
#pragma unroll
            for (u32 part = 0; part < OUTER / 64; ++part)
                box<SHARES>(to + part * PART + share * lines * 128, map, barrier, outer + part * 64,
                            inner + share * lines, batch);
        }
    }

    template <int SHARES>
    static __device__ __forceinline__ void box(u32 to, const Map &map, u32 barrier, u32 fast, u32 slow, u32 batch)
    {
        if (SHARES > 1)
            load_box_for((1 << SHARES) - 1, to, map, barrier, fast, slow, batch);
        else
            load_box(to, map, barrier, fast, slow, batch);
    }
};

// ---- The result ----

__device__ __forceinline__ float activated(float value, u32 activation)
{
    if (activation == RELU) return value < 0 ? 0 : value;
    // value * (1 + tanh(t)) / 2 is value / (1 + exp(-2 t)).
    if (activation != GELU) return value;
    const float t = 0.7978845608028654f * (value + 0.044715f * value * value * value);
    // The quick division is exact to some 2 units of 2^-23, and 0 where the exponential is beyond 2^126.
    return __fdividef(value, 1 + __expf(-2 * t));
}

template <class T> struct Result {
    T *out;
    const T *c, *bias;
    const Sizes &s;
    u32 batch;

    // Finishes and stores 8 sums of a row.
    __device__ __forceinline__ void store(float *values, u32 row, u32 column) const
    {
        if (row >= s.m || column >= s.n) return;
        const float alpha = s.alpha, beta = s.beta;
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] *= alpha;
        if (c) {
            const T *from = c + (i64)batch * s.c.batch + row * s.c.row + column * s.c.column;
            add(values, from, s.c.column, beta, column);
        }
        if (bias) add(values, bias + (i64)column * s.bias_step, s.bias_step, 1, column);
        if (s.activation != NONE)
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = activated(values[e], s.activation);
        T *to = out + (i64)batch * s.out.batch + row * s.out.row + column * s.out.column;
        alignas(16) T rounded[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) rounded[e] = Element<T>::rounded(values[e]);
        if (s.out.column == 1 && (u64)to % 16 == 0 && column + 8 <= s.n) {
#pragma unroll
            for (int e = 0; e < (int)sizeof(T) / 2; ++e) ((uint4 *)to)[e] = ((const uint4 *)rounded)[e];
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (column + e < s.n) to[e * s.out.column] = rounded[e];
        }
    }

    __device__ __forceinline__ void add(float *values, const T *from, i64 step, float factor, u32 column) const
    {
        alignas(16) T read[8];
        if (step == 1 && (u64)from % 16 == 0 && column + 8 <= s.n) {
#pragma unroll
            for (int e = 0; e < (int)sizeof(T) / 2; ++e) ((uint4 *)read)[e] = ((const uint4 *)from)[e];
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) read[e] = column + e < s.n ? from[e * step] : T{};
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = fmaf(factor, Element<T>::widened(read[e]), values[e]);
    }
};

// Sums of 64 x 64 elements lie in shared memory as lines of 256 bytes; chunks of 32 bytes are permuted by the number of
// the line.
__device__ __forceinline__ u32 sum_place(u32 row, u32 column) { return row * 256 + (column * 4 ^ row % 8 * 32); }

// A group's sums of 64 x COLUMNS elements to shared memory.
template <int COLUMNS = 64> __device__ __forceinline__ void leave_sums(u8 *to, const float *sums)
{
    const u32 lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            *(float2 *)(to + sum_place(row + half * 8, j * 8 + lane % 4 * 2)) =
                make_float2(sums[j * 4 + half * 2], sums[j * 4 + half * 2 + 1]);
}

// Stores the result's part of a group, 64 rows and COLUMNS columns, with all that may be added. `room` has 16 KiB.
template <class T, int COLUMNS>
__device__ __forceinline__ void store_finished(const float *sums, const Result<T> &result, u8 *room, u32 group,
                                               u32 first_row, u32 first_column)
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
            const u32 column = threadIdx.x % 8 * 8;
            float values[8];
            *(float4 *)values = *(const float4 *)(room + sum_place(row, column));
            *(float4 *)(values + 4) = *(const float4 *)(room + sum_place(row, column) + 16);
            result.store(values, first_row + row, first_column + chunk * 64 + column);
        }
    }
}

// Stores the result's part of a group by the accelerator, where nothing but alpha is to be applied. Boxes of 64 x 64
// elements pass through two rooms of 8 KiB in turn.
template <class T, int COLUMNS>
__device__ __forceinline__ void store_tiles(const float *sums, float alpha, const Map &out, u32 room, u32 group,
                                            u32 first_row, u32 first_column, u32 batch)
{
    const u32 lane = threadIdx.x % 32, line = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
    const bool is_first = threadIdx.x % 128 == 0;
#pragma unroll
    for (int chunk = 0; chunk < COLUMNS / 64; ++chunk) {
        const u32 box = room + chunk % 2 * 8192;
        // What was stored from here before has been read.
        if (is_first) await_stores<1>();
        join_group(group);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const float *d = sums + chunk * 32 + j * 4;
            u32 parts[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) parts[p] = Element<T>::narrowed(alpha * d[p * 2], alpha * d[p * 2 + 1]);
            const u32 place = box + line * 128 + ((j + lane / 16) ^ line % 8) * 16;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
                         ::"r"(place), "r"(parts[0]), "r"(parts[1]), "r"(parts[2]), "r"(parts[3]) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        join_group(group);
        if (is_first) store_box(out, box, first_column + chunk * 64, first_row, batch);
    }
}
// Where a tile lies. Blocks at work together share rows and columns: they go down `band` tiles before they go across.
struct Tile {
    u32 batch, row, column;
    __device__ __forceinline__ Tile(u32 number, u32 down, u32 across, u32 most)
    {
        batch = number / (down * across);
        const u32 tile = number % (down * across), band = tile / (most * across), in_band = tile % (most * across);
        const u32 height = min(most, down - band * most);
        row = band * most + in_band % height;
        column = in_band / height;
    }
};

// Blocks: as many as there is room for, a multiple of CLUSTER; each takes tiles in turn.
template <class T, bool A_INNER, bool B_INNER, int ROWS, int COLUMNS, int STAGES, int GROUPS, int CLUSTER>
__device__ __forceinline__ void tiled_product(const Map &a_map, const Map &b_map, const Map &out_map, T *out,
                                              const T *c, const T *bias, const Sizes &s)
{
    typedef Factor<T, ROWS, A_INNER> Left;
    typedef Factor<T, COLUMNS, B_INNER> Right;
    constexpr u32 STAGE = Left::BYTES + Right::BYTES, STEP = Left::STEP, PARTS = ROWS / GROUPS / 64;
    extern __shared__ __align__(1024) u8 memory[];
    const u32 shared = shared_place(memory);
    const u32 full = shared + STAGES * STAGE + GROUPS * 16384, empty = full + STAGES * 8;
    const u32 group = threadIdx.x / 128, own = GROUPS > 1 ? group : 0, rank = CLUSTER > 1 ? cluster_rank() : 0;
    const u32 down = (s.m + ROWS * CLUSTER - 1) / (ROWS * CLUSTER), across = (s.n + COLUMNS - 1) / COLUMNS;
    const u32 tiles = down * across * s.batches, steps = (s.k + STEP - 1) / STEP;

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            begin_barrier(full + stage * 8, 1);
            begin_barrier(empty + stage * 8, GROUPS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (CLUSTER > 1)
        join_cluster();
    else
        __syncthreads();
    await_turn();

    Ring<STAGES> ring;
    if (group == GROUPS) {
        if (GROUPS > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
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
                    Left::template load<1>(stage, a_map, barrier, row, step * STEP, tile.batch * s.a_step, 0);
                    Right::template load<CLUSTER>(stage + Left::BYTES, b_map, barrier, column, step * STEP,
                                                  tile.batch * s.b_step, rank);
                }
            }
        }
    } else {
        if (GROUPS > 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sums[PARTS][COLUMNS / 2];
        u8 *const room = memory + STAGES * STAGE + own * 16384;
        for (u32 number = blockIdx.x / CLUSTER; number < tiles; number += gridDim.x / CLUSTER) {
            u32 done = 0;
#pragma unroll 1
            for (u32 step = 0; step < steps; ++step) {
                const u32 stage = shared + ring.stage * STAGE;
                const u64 left = Left::place(stage + own * (PARTS * 8192)), right = Right::place(stage + Left::BYTES);
                await(full + ring.stage * 8, ring.phase);
                begin_products();
#pragma unroll
                for (u32 part = 0; part < 4; ++part)
#pragma unroll
                    for (u32 i = 0; i < PARTS; ++i)
                        Products<T, COLUMNS, A_INNER, B_INNER>::add(sums[i], left + (part * Left::NEXT + i * 8192) / 16,
                                                                    right + part * Right::NEXT / 16, step + part != 0);
                close_products();
                // The stage before is free once its products are done.
                await_products<1>();
                if (step > 0) release_stage<CLUSTER>(empty + done * 8);
                done = ring.stage;
                ring.next();
            }
            await_products<0>();
            if (steps > 0) release_stage<CLUSTER>(empty + done * 8);

            const Tile tile(number, down, across, s.band);
            const u32 column = tile.column * COLUMNS;
#pragma unroll
            for (u32 i = 0; i < PARTS; ++i) {
                const u32 row = (tile.row * CLUSTER + rank) * ROWS + (own * PARTS + i) * 64;
                if constexpr (sizeof(T) == 2) {
                    if (s.stores_tiles) {
                        store_tiles<T, COLUMNS>(sums[i], s.alpha, out_map, shared_place(room), own, row, column,
                                                tile.batch);
                        continue;
                    }
                }
                const Result<T> result{out, c, bias, s, tile.batch};
                store_finished<T, COLUMNS>(sums[i], result, room, own, row, column);
            }
        }
        if (threadIdx.x % 128 == 0) await_stores<0>();
    }
    // No block goes while others may still write into its memory.
    __syncwarp();
    if (CLUSTER > 1) join_cluster();
}

// Blocks: tiles of all results, each of SHARES blocks of a cluster: they divide the inner dimension, and add their sums
// in the order of their ranks.
template <class T, bool A_INNER, bool B_INNER, int COLUMNS, int STAGES, int SHARES>
__device__ __forceinline__ void divided_product(const Map &a_map, const Map &b_map, T *out, const T *c, const T *bias,
                                                const Sizes &s)
{
    typedef Factor<T, 64, A_INNER> Left;
    typedef Factor<T, COLUMNS, B_INNER> Right;
    constexpr u32 STAGE = Left::BYTES + Right::BYTES, STEP = Left::STEP;
    extern __shared__ __align__(1024) u8 memory[];
    const u32 shared = shared_place(memory);
    const u32 full = shared + STAGES * STAGE, empty = full + STAGES * 8;
    const u32 rank = SHARES > 1 ? cluster_rank() : 0;
    const u32 down = (s.m + 63) / 64, across = (s.n + COLUMNS - 1) / COLUMNS;
    const u32 steps = (s.k + STEP - 1) / STEP, first = steps * rank / SHARES, end = steps * (rank + 1) / SHARES;
    const Tile tile(blockIdx.x / SHARES, down, across, s.band);
    const u32 row = tile.row * 64, column = tile.column * COLUMNS;

    if (threadIdx.x == 128) {
        fetch_map(a_map);
        fetch_map(b_map);
        for (u32 stage = 0; stage < STAGES; ++stage) {
            begin_barrier(full + stage * 8, 1);
            begin_barrier(empty + stage * 8, 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    await_turn();
    Ring<STAGES> ring;
    float sums[COLUMNS / 2];
    if (threadIdx.x == 128) {
        for (u32 step = first; step < end; ++step, ring.next()) {
            const u32 barrier = full + ring.stage * 8, stage = shared + ring.stage * STAGE;
            await(empty + ring.stage * 8, ring.phase ^ 1);
            expect_bytes(barrier, STAGE);
            Left::template load<1>(stage, a_map, barrier, row, step * STEP, tile.batch * s.a_step, 0);
            Right::template load<1>(stage + Left::BYTES, b_map, barrier, column, step * STEP, tile.batch * s.b_step, 0);
        }
    } else if (threadIdx.x < 128) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) sums[i] = 0;
        u32 done = 0;
#pragma unroll 1
        for (u32 step = first; step < end; ++step) {
            const u32 stage = shared + ring.stage * STAGE;
            const u64 left = Left::place(stage), right = Right::place(stage + Left::BYTES);
            await(full + ring.stage * 8, ring.phase);
            begin_products();
#pragma unroll
            for (u32 part = 0; part < 4; ++part)
                Products<T, COLUMNS, A_INNER, B_INNER>::add(sums, left + part * Left::NEXT / 16,
                                                            right + part * Right::NEXT / 16, 1);
            close_products();
            await_products<1>();
            if (step > first) release_stage<1>(empty + done * 8);
            done = ring.stage;
            ring.next();
        }
        await_products<0>();
    }
    // All that was asked for has come and been read: the memory now takes the sums.
    constexpr u32 ROOM = COLUMNS / 64 * 16384;
    static_assert(ROOM <= STAGES * STAGE, "the sums fit");
    __syncthreads();
    if (threadIdx.x < 128)
#pragma unroll
        for (int chunk = 0; chunk < COLUMNS / 64; ++chunk) leave_sums(memory + chunk * 16384, sums + chunk * 32);
    if (SHARES > 1)
        join_cluster();
    else
        __syncthreads();
    const Result<T> result{out, c, bias, s, tile.batch};
    if (threadIdx.x < 128)
#pragma unroll 1
        for (u32 at = threadIdx.x; at < 64 / SHARES * (COLUMNS / 8); at += 128) {
            const u32 line = 64 / SHARES * rank + at / (COLUMNS / 8), across_line = at % (COLUMNS / 8) * 8;
            const u32 place = shared + across_line / 64 * 16384 + sum_place(line, across_line % 64);
            float values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
            for (u32 block = 0; block < SHARES; ++block) {
                float more[8];
#pragma unroll
                for (int e = 0; e < 8; e += 4)
                    asm volatile("{.reg .b32 place; mapa.shared::cluster.u32 place, %4, %5;"
                                 "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [place];}"
                                 : "=f"(more[e]), "=f"(more[e + 1]), "=f"(more[e + 2]), "=f"(more[e + 3])
                                 : "r"(place + e * 4), "r"(block) : "memory");
#pragma unroll
                for (int e = 0; e < 8; ++e) values[e] += more[e];
            }
            result.store(values, row + line, column + across_line);
        }
    if (SHARES > 1) join_cluster();
}

// A tile of the right factor with 32 columns, 64 elements of the inner dimension. Where neighbours lie along the columns,
// a line has 64 bytes, whose chunks are permuted as such lines are (swizzle of 64 bytes).
template <class T, bool INNER> struct NarrowFactor {
    static constexpr u32 BYTES = 32 * 128, NEXT = INNER ? 32 : 1024;
    static __device__ __forceinline__ u64 place(u32 tile)
    {
        return INNER ? Factor<T, 32, true>::place(tile) : (u64)2 << 62 | (u64)(512 / 16) << 32 | (tile & 0x3ffff) >> 4;
    }
    static __device__ __forceinline__ void load(u32 to, const Map &map, u32 barrier, u32 outer, u32 inner, u32 batch)
    {
        load_box(to, map, barrier, INNER ? inner : outer, INNER ? outer : inner, batch);
    }
};

// Blocks: tiles of 64 x 32 elements of all results, of at most CHUNKS times 64 elements along the inner dimension: all of
// it is asked for at once. Its one group of warps does everything.
template <class T, bool A_INNER, bool B_INNER, int CHUNKS>
__device__ __forceinline__ void whole_product(const Map &a_map, const Map &b_map, T *out, const T *c, const T *bias,
                                              const Sizes &s)
{
    typedef Factor<T, 64, A_INNER> Left;
    typedef NarrowFactor<T, B_INNER> Right;
    constexpr u32 CHUNK = Left::BYTES + Right::BYTES, STEP = Left::STEP;
    extern __shared__ __align__(1024) u8 memory[];
    const u32 shared = shared_place(memory), full = shared + CHUNKS * CHUNK;
    const u32 down = (s.m + 63) / 64, across = (s.n + 31) / 32, steps = (s.k + STEP - 1) / STEP;
    const Tile tile(blockIdx.x, down, across, s.band);
    const u32 row = tile.row * 64, column = tile.column * 32;

    if (threadIdx.x == 0) {
        fetch_map(a_map);
        fetch_map(b_map);
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) begin_barrier(full + chunk * 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (u32 chunk = 0; chunk < steps; ++chunk) expect_bytes(full + chunk * 8, CHUNK);
    }
    __syncthreads();
    await_turn();
    if (threadIdx.x == 0)
#pragma unroll 1
        for (u32 chunk = 0; chunk < steps; ++chunk) {
            const u32 barrier = full + chunk * 8, place = shared + chunk * CHUNK;
            Left::template load<1>(place, a_map, barrier, row, chunk * STEP, tile.batch * s.a_step, 0);
            Right::load(place + Left::BYTES, b_map, barrier, column, chunk * STEP, tile.batch * s.b_step);
        }
    __syncwarp();
    float sums[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) sums[i] = 0;
#pragma unroll
    for (u32 chunk = 0; chunk < CHUNKS; ++chunk) {
        if (chunk >= steps) break;
        const u32 place = shared + chunk * CHUNK;
        const u64 left = Left::place(place), right = Right::place(place + Left::BYTES);
        await(full + chunk * 8, 0);
        begin_products();
#pragma unroll
        for (u32 part = 0; part < 4; ++part)
            Products<T, 32, A_INNER, B_INNER>::add(sums, left + part * Left::NEXT / 16, right + part * Right::NEXT / 16,
                                                   1);
        close_products();
    }
    await_products<0>();

    const bool is_plain = !c && !bias && s.activation == NONE && s.out.column == 1 && s.n % 2 == 0;
    if (is_plain && (((u64)out / sizeof(T)) | (u64)s.out.row | (u64)s.out.batch) % 2 == 0) {
        const u32 lane = threadIdx.x % 32, first = row + threadIdx.x / 32 * 16 + lane / 4;
        T *const to = out + (i64)tile.batch * s.out.batch;
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const u32 line = first + half * 8, at = column + j * 8 + lane % 4 * 2;
                const float *two = sums + j * 4 + half * 2;
                if (line < s.m && at < s.n)
                    *(u32 *)(to + (i64)line * s.out.row + at) = Element<T>::narrowed(s.alpha * two[0], s.alpha * two[1]);
            }
        return;
    }
    // All that was asked for has come and been read: the memory now takes the sums.
    __syncthreads();
    leave_sums<32>(memory, sums);
    __syncthreads();
    const Result<T> result{out, c, bias, s, tile.batch};
#pragma unroll 1
    for (u32 at = threadIdx.x; at < 64 * 4; at += 128) {
        const u32 line = at / 4, across_line = at % 4 * 8;
        float values[8];
        *(float4 *)values = *(const float4 *)(memory + sum_place(line, across_line));
        *(float4 *)(values + 4) = *(const float4 *)(memory + sum_place(line, across_line) + 16);
        result.store(values, row + line, column + across_line);
    }
}

// Kernels: the way that the factors lie stands at the end of a name, the left factor first: neighbours along the inner
// dimension (i) or along the outer one (o). `c` and `bias` may be null. The factors come by their maps; their addresses
// are there so that a launch names all memory that it uses.
#define ARGUMENTS(T)                                                                                                   \
    T *out, const T *a, const T *b, const T *c, const T *bias, const __grid_constant__ Map a_map,                      \
        const __grid_constant__ Map b_map, const __grid_constant__ Map out_map, const __grid_constant__ Sizes sizes
#define TILED(name, T, A_INNER, B_INNER, ROWS, COLUMNS, STAGES, GROUPS, CLUSTER, BLOCKS)                               \
    extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)                                                         \
        __launch_bounds__(GROUPS * 128 + (GROUPS > 1 ? 128 : 32), BLOCKS) name(ARGUMENTS(T))                           \
    {                                                                                                                  \
        tiled_product<T, A_INNER, B_INNER, ROWS, COLUMNS, STAGES, GROUPS, CLUSTER>(a_map, b_map, out_map, out, c, bias,\
                                                                                   sizes);                             \
    }
#define DIVIDED(name, T, A_INNER, B_INNER, COLUMNS, STAGES, SHARES)                                                    \
    extern "C" __global__ void __cluster_dims__(SHARES, 1, 1) __launch_bounds__(160) name(ARGUMENTS(T))                \
    {                                                                                                                  \
        divided_product<T, A_INNER, B_INNER, COLUMNS, STAGES, SHARES>(a_map, b_map, out, c, bias, sizes);              \
    }
#define WHOLE(name, T, A_INNER, B_INNER, CHUNKS)                                                                       \
    extern "C" __global__ void __launch_bounds__(128) name(ARGUMENTS(T))                                               \
    {                                                                                                                  \
        whole_product<T, A_INNER, B_INNER, CHUNKS>(a_map, b_map, out, c, bias, sizes);                                 \
    }
#define LAYOUTS(KERNEL, name, T, ...)                                                                                  \
    KERNEL(name##_ii, T, true, true, __VA_ARGS__)                                                                      \
    KERNEL(name##_io, T, true, false, __VA_ARGS__)                                                                     \
    KERNEL(name##_oi, T, false, true, __VA_ARGS__)                                                                     \
    KERNEL(name##_oo, T, false, false, __VA_ARGS__)
#define HALVES(KERNEL, name, ...)                                                                                      \
    LAYOUTS(KERNEL, name##_f16, Half, __VA_ARGS__)                                                                     \
    LAYOUTS(KERNEL, name##_bf16, Brain, __VA_ARGS__)
#define ROWS_INNER(KERNEL, name, ...)                                                                                  \
    KERNEL(name##_f16_ii, Half, true, true, __VA_ARGS__)                                                               \
    KERNEL(name##_f16_io, Half, true, false, __VA_ARGS__)                                                              \
    KERNEL(name##_bf16_ii, Brain, true, true, __VA_ARGS__)                                                             \
    KERNEL(name##_bf16_io, Brain, true, false, __VA_ARGS__)

HALVES(TILED, t128x256, 128, 256, 4, 2, 2, 1)
HALVES(TILED, t128x128, 128, 128, 6, 2, 2, 1)
HALVES(TILED, t64x64, 64, 64, 4, 1, 1, 2)
TILED(t128x256_tf32_ii, float, true, true, 128, 256, 4, 2, 2, 1)
TILED(t128x128_tf32_ii, float, true, true, 128, 128, 6, 2, 2, 1)
ROWS_INNER(DIVIDED, d64x64_1, 64, 8, 1)
ROWS_INNER(DIVIDED, d64x64_2, 64, 8, 2)
ROWS_INNER(DIVIDED, d64x64_4, 64, 8, 4)
ROWS_INNER(WHOLE, w64x32, 8)

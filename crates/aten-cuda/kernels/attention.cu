// needs 80
//
// Attention of 16-bit floats on tensor cores, forward: out = softmax(scale * query @ key^T) @ value, for each batch and
// head, without the matrix of weights in memory.
//
// A block computes ROWS rows of the result, each warp a band of them. It goes over the keys and values in tiles of KEYS
// rows, which come to shared memory some tiles ahead (cp.async, a ring of stages); what lies outside comes as zeros. Of
// each row the largest weight so far and the sum of the others relative to it are kept, and the result so far is scaled
// whenever a larger one comes. Weights are floats, rounded to the dtype before they are multiplied by the values, as the
// products on tensor cores take them. Every sum has one order, so that results are the same at every run.
//
// Lines of all four tensors lie together in memory and begin at multiples of 16 bytes; lines of the keys and so on are
// WIDTH elements long in shared memory, of which the tensors have `width`, a multiple of 8. The chunks of 8 elements of
// a line are permuted by its number, so that the 8 chunks of a matrix of ldmatrix lie in different banks.

#include "tiles.cuh"

// Elements from one batch, head or line to the next.
struct Strides {
    i64 batch, head, row;
};

// The layout of launch/library/attention.rs.
struct Sizes {
    // `group` heads of the queries share a head of the keys and values.
    i64 batches, heads, group, queries, keys, width;
    Strides out, query, key, value;
    // The scale of the products times the binary logarithm of e.
    float scale;
    // Whether a query sees only the keys up to its own number.
    int is_causal;
};

#define INFINITY __int_as_float(0x7f800000)

struct Half { u16 bits; };
struct Brain { u16 bits; };

template <class T> struct Arithmetic;

template <> struct Arithmetic<Half> {
    // Two floats rounded, the first one in the lower half.
    static __device__ __forceinline__ u32 narrowed(float first, float second)
    {
        u32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    static __device__ __forceinline__ void add_product(float *sums, const u32 *a, const u32 *b)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

template <> struct Arithmetic<Brain> {
    static __device__ __forceinline__ u32 narrowed(float first, float second)
    {
        u32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    static __device__ __forceinline__ void add_product(float *sums, const u32 *a, const u32 *b)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

__device__ __forceinline__ float power_of_two(float exponent)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return power;
}

__device__ __forceinline__ float over_quad(float value, bool is_sum)
{
#pragma unroll
    for (int apart = 1; apart <= 2; apart *= 2) {
        const float other = __shfl_xor_sync(~0u, value, apart);
        value = is_sum ? value + other : fmaxf(value, other);
    }
    return value;
}

// A tile in shared memory: LINES lines of WIDTH elements.
template <int LINES, int WIDTH, int THREADS>
struct Tile {
    static constexpr u32 CHUNKS = WIDTH / 8, BYTES = LINES * WIDTH * 2;
    static constexpr u32 TOGETHER = THREADS / CHUNKS, PASSES = LINES / TOGETHER;
    static_assert(THREADS % CHUNKS == 0 && LINES % TOGETHER == 0, "threads share the tile evenly");

    // The place of a chunk, in bytes.
    static __device__ __forceinline__ u32 place(u32 line, u32 chunk) { return (line * CHUNKS + (chunk ^ line % 8)) * 16; }

    // Begins to copy a tile, of which `lines` lines and `width` elements of each are there.
    static __device__ __forceinline__ void copy(u32 to, const void *matrix, i64 first, i64 lines, i64 stride, u32 width)
    {
        const u32 line = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const i64 left = lines - first;
        const char *from = (const char *)matrix + ((first + line) * stride + chunk * 8) * 2;
#pragma unroll
        for (u32 pass = 0; pass < PASSES; ++pass) {
            const bool is_there = line + pass * TOGETHER < left && chunk * 8 < width;
            // What is not read has an address all the same; that of the matrix is a good one.
            copy_chunk(to + place(line + pass * TOGETHER, chunk), is_there ? from : matrix, is_there ? 16 : 0);
            from += TOGETHER * stride * 2;
        }
    }
};

template <class T, int WIDTH, int ROWS, int KEYS, int WARPS, int STAGES>
__device__ __forceinline__ void attend(T *out, const T *query, const T *key, const T *value, const Sizes &s)
{
    constexpr int THREADS = WARPS * 32, BAND = ROWS / WARPS, DOWN = BAND / 16, ACROSS = KEYS / 8, ALONG = WIDTH / 8;
    typedef Tile<ROWS, WIDTH, THREADS> Queries;
    typedef Tile<KEYS, WIDTH, THREADS> Others;
    extern __shared__ __align__(128) char memory[];
    const u32 queries = (u32)__cvta_generic_to_shared(memory), ring = queries + Queries::BYTES;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = (u32)s.width;

    // Blocks that are at work together share keys and values. With a causal mask the later rows have more to do and
    // begin first.
    const u32 tiles_down = (u32)((s.queries + ROWS - 1) / ROWS);
    const u32 number = blockIdx.x / tiles_down, tile_down = tiles_down - 1 - blockIdx.x % tiles_down;
    const i64 head = number % s.heads, batch = number / s.heads, first_row = (i64)tile_down * ROWS;
    query += batch * s.query.batch + head * s.query.head;
    key += batch * s.key.batch + head / s.group * s.key.head;
    value += batch * s.value.batch + head / s.group * s.value.head;
    out += batch * s.out.batch + head * s.out.head;

    const i64 seen = s.is_causal ? min(s.keys, first_row + ROWS) : s.keys;
    const int tiles = (int)((seen + KEYS - 1) / KEYS);
    auto copy_tile = [&](int tile) {
        const u32 stage = ring + tile % STAGES * (2 * Others::BYTES);
        Others::copy(stage, key, (i64)tile * KEYS, s.keys, s.key.row, width);
        Others::copy(stage + Others::BYTES, value, (i64)tile * KEYS, s.keys, s.value.row, width);
    };
    Queries::copy(queries, query, first_row, s.queries, s.query.row, width);
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) copy_tile(tile);
        close_group();
    }

    float result[DOWN][ALONG][4], largest[DOWN][2], sum[DOWN][2];
#pragma unroll
    for (int i = 0; i < DOWN; ++i) {
#pragma unroll
        for (int j = 0; j < ALONG; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) result[i][j][e] = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            largest[i][half] = -INFINITY;
            sum[i][half] = 0;
        }
    }

#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        await_groups<STAGES - 2>();
        __syncthreads();
        // The stage that all warps are done with since the barrier.
        if (tile + STAGES - 1 < tiles) copy_tile(tile + STAGES - 1);
        close_group();
        const u32 keys = ring + tile % STAGES * (2 * Others::BYTES), values = keys + Others::BYTES;

        float weights[DOWN][ACROSS][4];
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) weights[i][j][e] = 0;
#pragma unroll
        for (int step = 0; step < WIDTH / 16; ++step) {
            u32 a[DOWN][4];
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
                read_matrices<false>(a[i], queries + Queries::place(warp * BAND + i * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
            for (int j = 0; j < ACROSS; j += 2) {
                u32 b[4];
                read_matrices<false>(b, keys + Others::place(j * 8 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
                    Arithmetic<T>::add_product(weights[i][j], a[i], b);
                    Arithmetic<T>::add_product(weights[i][j + 1], a[i], b + 2);
                }
            }
        }

        // Keys behind the end, and those that a query must not see.
        const i64 first_key = (i64)tile * KEYS;
        if (first_key + KEYS > (s.is_causal ? min(s.keys, first_row + 1) : s.keys)) {
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const i64 row = first_row + warp * BAND + i * 16 + half * 8 + lane / 4;
                    const i64 end = s.is_causal ? min(s.keys, row + 1) : s.keys;
                    const int left = (int)max(min(end - first_key, (i64)KEYS), (i64)0) - (int)(lane % 4 * 2);
#pragma unroll
                    for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                        for (int e = 0; e < 2; ++e)
                            if (j * 8 + e >= left) weights[i][j][half * 2 + e] = -INFINITY;
                }
        }

#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float most = largest[i][half];
#pragma unroll
                for (int j = 0; j < ACROSS; ++j)
                    most = fmaxf(most, fmaxf(weights[i][j][half * 2], weights[i][j][half * 2 + 1]));
                most = over_quad(most, false);
                // Of a row that sees nothing yet all weights are zero, not undefined.
                const float shift = most == -INFINITY ? 0 : most * s.scale;
                const float shrunk = power_of_two(fmaf(largest[i][half], s.scale, -shift));
                largest[i][half] = most;
                float added = 0;
#pragma unroll
                for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float &weight = weights[i][j][half * 2 + e];
                        weight = power_of_two(fmaf(weight, s.scale, -shift));
                        added += weight;
                    }
                sum[i][half] = fmaf(sum[i][half], shrunk, added);
#pragma unroll
                for (int j = 0; j < ALONG; ++j) {
                    result[i][j][half * 2] *= shrunk;
                    result[i][j][half * 2 + 1] *= shrunk;
                }
            }

#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step) {
            u32 a[DOWN][4];
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float *pair = weights[i][step * 2 + part / 2] + part % 2 * 2;
                    a[i][part] = Arithmetic<T>::narrowed(pair[0], pair[1]);
                }
#pragma unroll
            for (int j = 0; j < ALONG; j += 2) {
                u32 b[4];
                read_matrices<true>(b, values + Others::place(step * 16 + lane % 16, j + lane / 16));
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
                    Arithmetic<T>::add_product(result[i][j], a[i], b);
                    Arithmetic<T>::add_product(result[i][j + 1], a[i], b + 2);
                }
            }
        }
    }
    await_groups<0>();

    // A warp's rows go through its own rows of the queries, so that they are written in chunks.
    __syncwarp();
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // A row that sees nothing is zero.
            const float whole = over_quad(sum[i][half], true), factor = whole == 0 ? 0 : 1 / whole;
            const u32 line = warp * BAND + i * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int j = 0; j < ALONG; ++j) {
                const u32 pair = Arithmetic<T>::narrowed(result[i][j][half * 2] * factor, result[i][j][half * 2 + 1] * factor);
                *(u32 *)(memory + Queries::place(line, j) + lane % 4 * 4) = pair;
            }
        }
    __syncwarp();
#pragma unroll 4
    for (u32 at = lane; at < BAND * Queries::CHUNKS; at += 32) {
        const u32 line = warp * BAND + at / Queries::CHUNKS, chunk = at % Queries::CHUNKS;
        const i64 row = first_row + line;
        if (row < s.queries && chunk * 8 < width)
            *(uint4 *)(out + row * s.out.row + chunk * 8) = *(const uint4 *)(memory + Queries::place(line, chunk));
    }
}

// Blocks: tiles of rows of all heads of all batches.
#define KERNEL(name, T, WIDTH, ROWS, KEYS, WARPS, STAGES, BLOCKS)                                                        \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)                                                     \
        name(T *out, const T *query, const T *key, const T *value, const Sizes sizes)                                    \
    {                                                                                                                    \
        attend<T, WIDTH, ROWS, KEYS, WARPS, STAGES>(out, query, key, value, sizes);                                      \
    }
KERNEL(attend_64_f16, Half, 64, 128, 64, 4, 2, 2)
KERNEL(attend_64_bf16, Brain, 64, 128, 64, 4, 2, 2)
KERNEL(attend_128_f16, Half, 128, 128, 64, 4, 2, 2)
KERNEL(attend_128_bf16, Brain, 128, 128, 64, 4, 2, 2)
KERNEL(attend_256_f16, Half, 256, 64, 32, 4, 2, 2)
KERNEL(attend_256_bf16, Brain, 256, 64, 32, 4, 2, 2)

// Products of a matrix and a vector, in batches: out = act(alpha * matrix @ x + beta * c + bias).
//
// The matrix is read once and whole, 16 bytes a thread where its lines begin at multiples of that, and several such
// reads are under way. Where neighbours lie along the inner dimension (rows) a warp takes a row of the matrix; where they
// lie along the result (columns) a block takes some columns, and its warps every so many lines. Lines may be shared among
// blocks: then each leaves its sums, and a second kernel adds them in the order of the blocks. The order of sums follows
// from sizes and strides alone.

#include "matmul_vector.cuh"

// Blocks: rows along x, WARPS of them each; products of the batch along y. WIDTH elements of `x` lie together.
template <class T, int WIDTH, int UNROLL, int WARPS>
__device__ __forceinline__ void by_rows(T *out, const T *matrix, const T *x, const T *c, const T *bias, const Sizes &s)
{
    typedef Element<T> E;
    typedef typename E::Sum Sum;
    const u32 lane = threadIdx.x % 32;
    const i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / 32, batch = blockIdx.y;
    if (row >= s.n) return;
    matrix += batch * s.matrix_batch + row * s.line;
    x += batch * s.x.batch;
    Sum sum = nothing<Sum>();
    i64 at = lane * WIDTH;
    auto add = [&](const Chunk<T, WIDTH> &chunk, i64 from) {
        Chunk<T, WIDTH> factors;
        if constexpr (WIDTH > 1)
            *(uint4 *)&factors = *(const uint4 *)(x + from);
        else
            factors.elements[0] = x[from * s.x.element];
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sum = fma(E::widened(chunk.elements[e]), E::widened(factors.elements[e]), sum);
    };
#pragma unroll 1
    for (; at + 32 * WIDTH * UNROLL <= s.k + lane * WIDTH; at += 32 * WIDTH * UNROLL) {
        Chunk<T, WIDTH> chunks[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) chunks[u] = read_once<T, WIDTH>(matrix + at + u * 32 * WIDTH);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) add(chunks[u], at + u * 32 * WIDTH);
    }
#pragma unroll 1
    for (; at + WIDTH <= s.k; at += 32 * WIDTH) add(read_once<T, WIDTH>(matrix + at), at);
    // Less than a chunk is left at the end of a row.
    if (WIDTH > 1 && at < s.k)
        for (; at < s.k; ++at) sum = fma(E::widened(matrix[at]), E::widened(x[at]), sum);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (lane == 0) store(sum, out, c, bias, s, batch, row);
}

// Blocks: columns along x, products of the batch along y, shares of the lines along z. `room` takes the sums of more
// shares than one, for all products and columns of a share.
template <class T, int WIDTH, int LANES, int UNROLL, int THREADS>
__device__ __forceinline__ void by_columns(T *out, const T *matrix, const T *x, const T *c, const T *bias,
                                           typename Element<T>::Sum *room, const Sizes &s)
{
    typedef typename Element<T>::Sum Sum;
    constexpr int COLUMNS = LANES * WIDTH;
    __shared__ Sum whole[COLUMNS];
    const i64 first = (i64)blockIdx.x * COLUMNS, column = first + threadIdx.x % LANES * WIDTH, batch = blockIdx.y;
    const i64 begin = s.k * blockIdx.z / s.shares, end = s.k * (blockIdx.z + 1) / s.shares;
    Sum sums[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) sums[e] = nothing<Sum>();
    matrix += batch * s.matrix_batch;
    x += batch * s.x.batch;
    if (column + WIDTH <= s.n) {
        add_lines<T, WIDTH, LANES, UNROLL, THREADS>(sums, matrix, x, s, column, begin, end);
    } else {
        // Less than a chunk is left at the end of the lines.
        for (i64 row = begin + threadIdx.x / LANES; row < end; row += THREADS / LANES)
#pragma unroll
            for (int e = 0; e < WIDTH; ++e)
                if (column + e < s.n)
                    sums[e] = fma(Element<T>::widened(matrix[row * s.line + column + e]),
                                  Element<T>::widened(x[row * s.x.element]), sums[e]);
    }
    join_lines<T, WIDTH, LANES, THREADS>(sums, whole);
    for (int at = threadIdx.x; at < COLUMNS && first + at < s.n; at += THREADS) {
        if (s.shares == 1)
            store(whole[at], out, c, bias, s, batch, first + at);
        else
            room[(blockIdx.z * gridDim.y + batch) * s.n + first + at] = whole[at];
    }
}

// Adds the sums of all shares. Blocks: columns along x, products of the batch along y.
template <class T>
__device__ __forceinline__ void finish(T *out, const T *c, const T *bias, const typename Element<T>::Sum *room,
                                       const Sizes &s)
{
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x, batch = blockIdx.y;
    if (at >= s.n) return;
    typename Element<T>::Sum sum = room[batch * s.n + at];
    for (u32 share = 1; share < s.shares; ++share) sum += room[((i64)share * gridDim.y + batch) * s.n + at];
    store(sum, out, c, bias, s, batch, at);
}

#define ROWS(name, T, WIDTH)                                                                                           \
    extern "C" __global__ __launch_bounds__(256, 4) void name(T *out, const T *matrix, const T *x, const T *c,         \
                                                              const T *bias, const Sizes sizes)                        \
    {                                                                                                                  \
        by_rows<T, WIDTH, 8, 8>(out, matrix, x, c, bias, sizes);                                                       \
    }
#define COLUMNS(name, T, WIDTH, LANES)                                                                                 \
    extern "C" __global__ __launch_bounds__(256, 2) void name(T *out, const T *matrix, const T *x, const T *c,         \
                                                              const T *bias, Element<T>::Sum *room, const Sizes sizes) \
    {                                                                                                                  \
        by_columns<T, WIDTH, LANES, 8, 256>(out, matrix, x, c, bias, room, sizes);                                     \
    }
#define FINISH(name, T)                                                                                                \
    extern "C" __global__ __launch_bounds__(128) void name(T *out, const T *c, const T *bias,                          \
                                                           const Element<T>::Sum *room, const Sizes sizes)             \
    {                                                                                                                  \
        finish<T>(out, c, bias, room, sizes);                                                                          \
    }
#define ALL(name, T, WIDTH)                                                                                            \
    ROWS(rows_##name, T, WIDTH)                                                                                        \
    ROWS(rows_##name##_any, T, 1)                                                                                      \
    COLUMNS(columns_##name, T, WIDTH, 8)                                                                               \
    COLUMNS(columns_##name##_any, T, 1, 32)                                                                            \
    FINISH(finish_##name, T)

ALL(f16, Half, 8)
ALL(bf16, Brain, 8)
ALL(f32, float, 4)
ALL(f64, double, 2)

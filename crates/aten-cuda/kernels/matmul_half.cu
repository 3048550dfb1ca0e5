// needs 80
//
// Products of matrices of 16-bit floats on tensor cores, in batches: out = alpha * a @ b + beta * c.
//
// A block computes a tile of the result, its warps equal parts of it as fragments of 16 x 8 elements. Tiles of both
// factors come to shared memory some steps ahead (cp.async, a ring of stages); what lies outside the matrices comes as
// zeros. From there fragments are read one step ahead of the products (ldmatrix). Sums are floats, taken in the order of
// the inner dimension by 16 at a time, and are rounded once at the end.
//
// In memory a factor's neighbours lie along the inner dimension (INNER) or along the other one; its rows begin at
// multiples of 16 bytes. A line of a tile in shared memory is what lies together in memory, in chunks of 8 elements
// whose places are permuted by the number of the line, so that the 8 chunks of a matrix of ldmatrix lie in different
// banks.

typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

struct Strides {
    i64 batch, row, column;
};

// The layout of launch/library/matmul.rs.
struct Sizes {
    i64 batches, m, n, k;
    Strides out, a, b, c;
    double alpha[2], beta[2];
};

struct Half { u16 bits; };
struct Brain { u16 bits; };

template <class T> struct Arithmetic;

template <> struct Arithmetic<Half> {
    static __device__ __forceinline__ float widened(u32 bits)
    {
        float wide;
        asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(wide) : "r"(bits));
        return wide;
    }
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
    static __device__ __forceinline__ float widened(u32 bits) { return __uint_as_float(bits << 16); }
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

// Copies 16 bytes to shared memory, of which the first `bytes` are read and the others zero. Not awaited.
__device__ __forceinline__ void copy_chunk(u32 to, const void *from, u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups but the last COUNT have come.
template <int COUNT> __device__ __forceinline__ void await_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

// Four matrices of 8 x 8 elements, turned or not; each lane names a line of one of them.
template <bool TURNED> __device__ __forceinline__ void read_matrices(u32 *into, u32 line)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(line) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(line) : "memory");
}

// A factor's tile: OUTER elements along the dimension that the result has, STEP along the inner one.
template <int OUTER, int STEP, bool INNER, int THREADS>
struct Factor {
    static constexpr int LINES = INNER ? OUTER : STEP, CHUNKS = (INNER ? STEP : OUTER) / 8;
    static constexpr int BYTES = OUTER * STEP * 2, PASSES = LINES * CHUNKS / THREADS;
    static_assert(LINES * CHUNKS % THREADS == 0 && THREADS % CHUNKS == 0, "threads share the tile evenly");

    // The place of a chunk in shared memory, in bytes.
    static __device__ __forceinline__ u32 place(u32 line, u32 chunk)
    {
        const u32 turn = CHUNKS == 4 ? line / 2 % 4 : line % 8;
        return (line * CHUNKS + (chunk ^ turn)) * 16;
    }

    const char *matrix, *from;
    i64 step_bytes, pass_bytes;
    i64 outer_left, inner_left;
    u32 line, chunk;

    // `outer` elements are there from `first` on, `inner` in all.
    __device__ __forceinline__ Factor(const void *whole, i64 first, i64 outer, i64 inner, i64 stride)
    {
        matrix = (const char *)whole;
        line = threadIdx.x / CHUNKS;
        chunk = threadIdx.x % CHUNKS;
        from = matrix + (INNER ? (first + line) * stride + chunk * 8 : line * stride + first + chunk * 8) * 2;
        step_bytes = (INNER ? STEP : STEP * stride) * 2;
        pass_bytes = THREADS / CHUNKS * stride * 2;
        outer_left = outer - first;
        inner_left = inner;
    }

    // Begins to copy the next tile along the inner dimension.
    __device__ __forceinline__ void copy_next(u32 to)
    {
        // Of each chunk, what is inside the matrix.
        const i64 across = (INNER ? inner_left : outer_left) - chunk * 8, along = INNER ? outer_left : inner_left;
        const u32 elements = across <= 0 ? 0 : across >= 8 ? 8 : (u32)across;
        const char *place_from = from;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const u32 at = line + pass * (THREADS / CHUNKS);
            const bool is_inside = at < along && elements > 0;
            // What is not read has an address all the same; that of the matrix is a good one.
            copy_chunk(to + place(at, chunk), is_inside ? place_from : matrix, is_inside ? elements * 2 : 0);
            place_from += pass_bytes;
        }
        from += step_bytes;
        inner_left -= STEP;
    }
};

template <class T, bool A_INNER, bool B_INNER, int ROWS, int COLUMNS, int STEP, int STAGES, int WARPS_DOWN, int WARPS_ACROSS>
__device__ __forceinline__ void product(T *out, const T *a, const T *b, const T *c, const Sizes &s)
{
    constexpr int THREADS = 32 * WARPS_DOWN * WARPS_ACROSS;
    constexpr int DOWN = ROWS / WARPS_DOWN / 16, ACROSS = COLUMNS / WARPS_ACROSS / 8, STEPS = STEP / 16;
    typedef Factor<ROWS, STEP, A_INNER, THREADS> Left;
    typedef Factor<COLUMNS, STEP, B_INNER, THREADS> Right;
    constexpr u32 STAGE = Left::BYTES + Right::BYTES;
    const bool has_c = c != nullptr;
    extern __shared__ __align__(128) char memory[];
    const u32 shared = (u32)__cvta_generic_to_shared(memory);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 warp_row = warp / WARPS_ACROSS * (ROWS / WARPS_DOWN), warp_column = warp % WARPS_ACROSS * (COLUMNS / WARPS_ACROSS);

    // Blocks that are at work together share rows and columns: they go down BAND tiles before they go across.
    constexpr u32 BAND = 8;
    const u32 down = (u32)((s.m + ROWS - 1) / ROWS), across = (u32)((s.n + COLUMNS - 1) / COLUMNS);
    const u32 batch = blockIdx.x / (down * across), tile = blockIdx.x % (down * across);
    const u32 band = tile / (BAND * across), in_band = tile % (BAND * across);
    const u32 height = min(BAND, down - band * BAND);
    const i64 first_row = (i64)(band * BAND + in_band % height) * ROWS, first_column = (i64)(in_band / height) * COLUMNS;

    Left left(a + batch * s.a.batch, first_row, s.m, s.k, A_INNER ? s.a.row : s.a.column);
    Right right(b + batch * s.b.batch, first_column, s.n, s.k, B_INNER ? s.b.column : s.b.row);
    const i64 tiles = (s.k + STEP - 1) / STEP;

    float sums[DOWN][ACROSS][4];
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
#pragma unroll
        for (int j = 0; j < ACROSS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;

    u32 a_parts[2][DOWN][4], b_parts[2][ACROSS][2];
    // Reads the fragments of a step of 16 from a stage.
    auto read = [&](u32 stage, int step, int into) {
        const u32 left_tile = shared + stage * STAGE, right_tile = left_tile + Left::BYTES;
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            const u32 row = warp_row + i * 16;
            const u32 place = A_INNER ? Left::place(row + lane % 16, step * 2 + lane / 16)
                                      : Left::place(step * 16 + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2);
            read_matrices<!A_INNER>(a_parts[into][i], left_tile + place);
        }
#pragma unroll
        for (int j = 0; j < ACROSS; j += 2) {
            const u32 column = warp_column + j * 8;
            const u32 place = B_INNER ? Right::place(column + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2)
                                      : Right::place(step * 16 + lane % 16, column / 8 + lane / 16);
            read_matrices<!B_INNER>(b_parts[into][j], right_tile + place);
        }
    };

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        left.copy_next(shared + stage * STAGE);
        right.copy_next(shared + stage * STAGE + Left::BYTES);
        close_group();
    }
    await_groups<STAGES - 2>();
    __syncthreads();
    u32 reads = 0, writes = STAGES - 1;
    read(0, 0, 0);
#pragma unroll 1
    for (i64 at = 0; at < tiles; ++at) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                await_groups<STAGES - 2>();
                __syncthreads();
                reads = reads + 1 == STAGES ? 0 : reads + 1;
            }
            read(reads, (step + 1) % STEPS, (step + 1) % 2);
            if (step == 0) {
                // The stage that all warps are done with since the last barrier. Behind the end it gets zeros.
                left.copy_next(shared + writes * STAGE);
                right.copy_next(shared + writes * STAGE + Left::BYTES);
                close_group();
                writes = writes + 1 == STAGES ? 0 : writes + 1;
            }
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) {
                    const int to = i % 2 ? ACROSS - 1 - j : j;
                    Arithmetic<T>::add_product(sums[i][to], a_parts[step % 2][i], b_parts[step % 2][to]);
                }
        }
    }
    await_groups<0>();
    __syncthreads();

    // Each warp leaves its sums in a part of shared memory of its own and goes over it by rows, 8 columns a lane. The
    // lines are longer by 8 floats, so that the rows of a fragment lie in different banks.
    constexpr int HEIGHT = ROWS / WARPS_DOWN, WIDTH = COLUMNS / WARPS_ACROSS, LINE = WIDTH + 8;
    float *const part = (float *)memory + warp * (HEIGHT * LINE);
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            float *to = part + (i * 16 + lane / 4) * LINE + j * 8 + lane % 4 * 2;
            *(float2 *)to = make_float2(sums[i][j][0], sums[i][j][1]);
            *(float2 *)(to + 8 * LINE) = make_float2(sums[i][j][2], sums[i][j][3]);
        }
    __syncwarp();
    const float alpha = (float)s.alpha[0], beta = (float)s.beta[0];
    const i64 column = first_column + warp_column + lane % (WIDTH / 8) * 8;
    const bool is_aligned = s.out.column == 1 && (s.out.row | s.out.batch) % 8 == 0 && (i64)out % 16 == 0;
    out += batch * s.out.batch + column * s.out.column;
    c += batch * s.c.batch + column * s.c.column;
#pragma unroll 1
    for (int line = lane / (WIDTH / 8); line < HEIGHT; line += 32 / (WIDTH / 8)) {
        const i64 row = first_row + warp_row + line;
        if (row >= s.m) break;
        const float *from = part + line * LINE + lane % (WIDTH / 8) * 8;
        float values[8];
        *(float4 *)values = *(const float4 *)from;
        *(float4 *)(values + 4) = *(const float4 *)(from + 4);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] *= alpha;
        if (has_c) {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (column + e < s.n)
                    values[e] = fmaf(beta, Arithmetic<T>::widened(c[row * s.c.row + e * s.c.column].bits), values[e]);
        }
        u32 pairs[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) pairs[e] = Arithmetic<T>::narrowed(values[2 * e], values[2 * e + 1]);
        T *to = out + row * s.out.row;
        if (is_aligned && column + 8 <= s.n) {
            *(uint4 *)to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (column + e < s.n) to[e * s.out.column].bits = (u16)(pairs[e / 2] >> e % 2 * 16);
        }
    }
}

// Blocks: tiles of all results. `c` may be null. A kernel for each way that the factors lie: their neighbours along the
// inner dimension (i) or along the outer one (o), the left factor first.
#define KERNEL(name, T, A_INNER, B_INNER, ROWS, COLUMNS, STEP, STAGES, WARPS_DOWN, WARPS_ACROSS)                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS_DOWN * WARPS_ACROSS)                                         \
        name(T *out, const T *a, const T *b, const T *c, const Sizes sizes)                                              \
    {                                                                                                                    \
        product<T, A_INNER, B_INNER, ROWS, COLUMNS, STEP, STAGES, WARPS_DOWN, WARPS_ACROSS>(out, a, b, c, sizes);        \
    }
#define LAYOUTS(name, T, ...)                                                                                            \
    KERNEL(name##_ii, T, true, true, __VA_ARGS__)                                                                        \
    KERNEL(name##_io, T, true, false, __VA_ARGS__)                                                                       \
    KERNEL(name##_oi, T, false, true, __VA_ARGS__)                                                                       \
    KERNEL(name##_oo, T, false, false, __VA_ARGS__)

LAYOUTS(large_f16, Half, 128, 256, 64, 3, 2, 4)
LAYOUTS(large_bf16, Brain, 128, 256, 64, 3, 2, 4)
LAYOUTS(small_f16, Half, 64, 64, 64, 3, 2, 2)
LAYOUTS(small_bf16, Brain, 64, 64, 64, 3, 2, 2)

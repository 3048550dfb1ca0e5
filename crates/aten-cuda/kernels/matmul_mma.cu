// needs 80
//
// Products of matrices on tensor cores, in batches: out = act(alpha * a @ b + beta * c + bias), with factors of 16-bit
// floats, or of floats that are rounded to tf32.
//
// A block computes tiles of the result, its warps equal parts of a tile as fragments of 16 x 8 elements. Tiles of both
// factors come to shared memory some steps ahead (cp.async, a ring of stages); what lies outside the matrices comes as
// zeros. From there fragments are read one step ahead of the products (ldmatrix). Sums are floats, taken in the order of
// the inner dimension by 32 bytes at a time, and are rounded once at the end.
//
// In memory a factor's neighbours lie along the inner dimension (INNER) or along the other one; its rows begin at
// multiples of 16 bytes. A line of a tile in shared memory is what lies together in memory, in chunks of 16 bytes whose
// places are permuted by the number of the line, or in longer lines, so that what a warp reads at once lies in different
// banks.
//
// Blocks take a tile each, or they are workers that share the steps of all tiles evenly (`stream`). A tile that several
// workers have steps of is finished by the one that has the last step: the others leave their sums in memory, and it adds
// them to its own in the order of the workers, so that the result does not depend on which of them was faster.

#include "halves.cuh"
#include "matmul_sizes.cuh"
#include "tiles.cuh"

template <class T> struct Arithmetic;

template <> struct Arithmetic<Half> : Element<Half> {
    static __device__ __forceinline__ u32 factor(u32 bits) { return bits; }
    static __device__ __forceinline__ void add_product(float *sums, const u32 *a, const u32 *b)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

template <> struct Arithmetic<Brain> : Element<Brain> {
    static __device__ __forceinline__ u32 factor(u32 bits) { return bits; }
    static __device__ __forceinline__ void add_product(float *sums, const u32 *a, const u32 *b)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

template <> struct Arithmetic<float> {
    static __device__ __forceinline__ float widened(float value) { return value; }
    static __device__ __forceinline__ float rounded(float value) { return value; }
    // A float rounded to tf32. The multiplication cuts the lower 13 bits off, so a third to two thirds of a last place of
    // tf32 are added before, in proportion to the float: what comes out is off by two thirds of a last place at most, by
    // nothing where the float is one of tf32, and by nothing on average. The conversion to the nearest one is off by half
    // of a last place; it takes several instructions, and a fifth of the kernel's time.
    static __device__ __forceinline__ u32 factor(u32 bits)
    {
        return __float_as_uint(__fmul_rn(__uint_as_float(bits), 1.0003255f));
    }
    static __device__ __forceinline__ void add_product(float *sums, const u32 *a, const u32 *b)
    {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

__device__ __forceinline__ u32 read_word(u32 place)
{
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(place) : "memory");
    return word;
}

__device__ __forceinline__ float relu(float value) { return value < 0 ? 0 : value; }

// value / (1 + exp(-2 t)) by the quick instructions, whose last two bits are lost in the rounding of the result, or among
// what tf32 has lost.
__device__ __forceinline__ float gelu(float value)
{
    const float t = 0.7978845608028654f * (value + 0.044715f * value * value * value);
    float power, inverse;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(-2.885390081777927f * t));
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(1 + power));
    return value * inverse;
}

// Eight neighbours that begin at a multiple of 16 bytes, as floats.
template <class T> __device__ __forceinline__ void load_eight(float *into, const T *from)
{
    union {
        uint4 vectors[sizeof(T) / 2];
        T elements[8];
    } loaded;
#pragma unroll
    for (int at = 0; at < (int)sizeof(T) / 2; ++at) loaded.vectors[at] = ((const uint4 *)from)[at];
#pragma unroll
    for (int e = 0; e < 8; ++e) into[e] = Arithmetic<T>::widened(loaded.elements[e]);
}

template <class T> __device__ __forceinline__ bool is_aligned(const T *matrix, const Strides &steps)
{
    return steps.column == 1 && (steps.row | steps.batch) % (16 / sizeof(T)) == 0 && (i64)matrix % 16 == 0;
}

// A factor's tile: OUTER elements along the dimension that the result has, STEP along the inner one.
template <class T, int OUTER, int STEP, bool INNER, int THREADS>
struct Factor {
    // Numbers that are no variables: each of those would be one of the text too.
    enum : int {
        // Elements of a chunk, and of a fragment along the inner dimension.
        CHUNK = 16 / sizeof(T),
        DEPTH = 32 / sizeof(T),
        LINES = INNER ? OUTER : STEP,
        CHUNKS = (INNER ? STEP : OUTER) / CHUNK,
        // Floats across lines are read one by one, those of two chunks in four lines at once. Their lines are longer instead.
        IS_PERMUTED = INNER || sizeof(T) == 2,
        LINE = CHUNKS * 16 + (IS_PERMUTED ? 0 : 32),
        BYTES = LINES * LINE,
        PASSES = LINES * CHUNKS / THREADS,
    };
    static_assert(LINES * CHUNKS % THREADS == 0 && THREADS % CHUNKS == 0, "threads share the tile evenly");
    static_assert(CHUNKS % 8 == 0, "a line fills all banks");

    // The place of a chunk in shared memory, in bytes.
    static __device__ __forceinline__ u32 place(u32 line, u32 chunk)
    {
        return line * LINE + (IS_PERMUTED ? chunk ^ line % 8 : chunk) * 16;
    }

    // Reads two fragments of 8 elements along the outer dimension from `outer` on, for the left factor those of the
    // first half of the step before those of the second one, for the right factor the other way round.
    template <bool IS_LEFT> static __device__ __forceinline__ void read(u32 *into, u32 tile, u32 outer, u32 step, u32 lane)
    {
        // Of the four matrices, which have 8 elements of the outer dimension and a chunk of the inner one each.
        const u32 low = lane / 8 % 2, high = lane / 16, along = IS_LEFT ? high : low, across = IS_LEFT ? low : high;
        if (INNER) {
            read_matrices<false>(into, tile + place(outer + across * 8 + lane % 8, step * 2 + along));
        } else if (sizeof(T) == 2) {
            read_matrices<true>(into, tile + place(step * DEPTH + along * 8 + lane % 8, outer / 8 + across));
        } else {
            const u32 first = tile + (step * DEPTH + lane % 4) * LINE + (outer + lane / 4) * sizeof(T);
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                const u32 later = IS_LEFT ? at / 2 : at % 2, further = IS_LEFT ? at % 2 : at / 2;
                into[at] = read_word(first + later * 4 * LINE + further * 8 * sizeof(T));
            }
        }
    }

    const char *matrix, *from;
    i64 step_bytes, pass_bytes;
    i64 outer_left, inner_left;
    u32 line, chunk;

    // `outer` elements are there from `first` on; of the inner dimension those from `begin` on before `end` count.
    __device__ __forceinline__ Factor(const T *whole, i64 first, i64 outer, i64 begin, i64 end, i64 stride)
    {
        matrix = (const char *)whole;
        line = threadIdx.x / CHUNKS;
        chunk = threadIdx.x % CHUNKS;
        const i64 lines = (INNER ? first : begin) + line, elements = (INNER ? begin : first) + chunk * CHUNK;
        from = matrix + (lines * stride + elements) * sizeof(T);
        step_bytes = (INNER ? STEP : STEP * stride) * sizeof(T);
        pass_bytes = THREADS / CHUNKS * stride * sizeof(T);
        outer_left = outer - first;
        inner_left = end - begin;
    }

    // Begins to copy the next tile along the inner dimension.
    __device__ __forceinline__ void copy_next(u32 to)
    {
        // Of each chunk, what is inside the matrix.
        const i64 across = (INNER ? inner_left : outer_left) - chunk * CHUNK, along = INNER ? outer_left : inner_left;
        const u32 elements = across <= 0 ? 0 : across >= CHUNK ? CHUNK : (u32)across;
        const char *place_from = from;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const u32 at = line + pass * (THREADS / CHUNKS);
            const bool is_inside = at < along && elements > 0;
            // What is not read has an address all the same; that of the matrix is a good one.
            copy_chunk(to + place(at, chunk), is_inside ? place_from : matrix, is_inside ? elements * sizeof(T) : 0);
            place_from += pass_bytes;
        }
        from += step_bytes;
        inner_left -= STEP;
    }
};

// Where a tile is.
struct Place {
    i64 batch, row, column;
};

// A tile of the result and how it is computed. STEP elements of the inner dimension, 128 bytes, pass at a time.
template <class T, bool A_INNER, bool B_INNER, int ROWS, int COLUMNS, int STAGES, int WARPS_DOWN, int WARPS_ACROSS>
struct Tile {
    enum : int {
        THREADS = 32 * WARPS_DOWN * WARPS_ACROSS,
        STEP = 128 / sizeof(T),
        STEPS = 4,
        // A warp's part of the tile, and its fragments.
        HEIGHT = ROWS / WARPS_DOWN,
        WIDTH = COLUMNS / WARPS_ACROSS,
        DOWN = HEIGHT / 16,
        ACROSS = WIDTH / 8,
        // Vectors of four sums that a thread has.
        VECTORS = DOWN * ACROSS,
        // Lines of a warp's part in shared memory are longer by 8 floats, so that the rows of a fragment lie in different
        // banks.
        LINE = WIDTH + 8,
    };
    typedef Factor<T, ROWS, STEP, A_INNER, THREADS> Left;
    typedef Factor<T, COLUMNS, STEP, B_INNER, THREADS> Right;
    enum : u32 { STAGE = (u32)Left::BYTES + (u32)Right::BYTES };
    static_assert(WARPS_DOWN * WARPS_ACROSS * HEIGHT * LINE * 4 <= STAGES * (int)STAGE, "the sums have room in shared memory");

    float sums[DOWN][ACROSS][4];

    static __device__ __forceinline__ u32 down(const Sizes &s) { return (u32)((s.m + ROWS - 1) / ROWS); }
    static __device__ __forceinline__ u32 across(const Sizes &s) { return (u32)((s.n + COLUMNS - 1) / COLUMNS); }
    static __device__ __forceinline__ u32 warp_row() { return threadIdx.x / 32 / WARPS_ACROSS * HEIGHT; }
    static __device__ __forceinline__ u32 warp_column() { return threadIdx.x / 32 % WARPS_ACROSS * WIDTH; }

    // Blocks that are at work together share rows and columns: they go down BAND tiles before they go across.
    static __device__ __forceinline__ Place place(u32 number, const Sizes &s)
    {
        constexpr u32 BAND = 8;
        const u32 all = down(s) * across(s), tile = number % all;
        const u32 band = tile / (BAND * across(s)), in_band = tile % (BAND * across(s));
        const u32 height = min(BAND, down(s) - band * BAND);
        return {number / all, (i64)(band * BAND + in_band % height) * ROWS, (i64)(in_band / height) * COLUMNS};
    }

    // The sums over `count` steps from step `first` on. All threads may use shared memory afterwards.
    __device__ __forceinline__ void multiply(char *memory, const T *a, const T *b, const Sizes &s, Place at, u32 first,
                                             u32 count)
    {
        const u32 shared = (u32)__cvta_generic_to_shared(memory), lane = threadIdx.x % 32;
        const i64 begin = (i64)first * STEP, end = min(s.k, (i64)(first + count) * STEP);
        Left left(a + at.batch * s.a.batch, at.row, s.m, begin, end, A_INNER ? s.a.row : s.a.column);
        Right right(b + at.batch * s.b.batch, at.column, s.n, begin, end, B_INNER ? s.b.column : s.b.row);
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;

        u32 a_parts[2][DOWN][4], b_parts[2][ACROSS][2];
        // Reads the fragments of a part of a step from a stage.
        auto read = [&](u32 stage, int step, int into) {
            const u32 left_tile = shared + stage * STAGE, right_tile = left_tile + Left::BYTES;
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
                Left::template read<true>(a_parts[into][i], left_tile, warp_row() + i * 16, step, lane);
#pragma unroll
            for (int j = 0; j < ACROSS; j += 2)
                Right::template read<false>(b_parts[into][j], right_tile, warp_column() + j * 8, step, lane);
        };
        // Makes a share of the fragments ready that were read.
        auto ready = [&](int which, int share) {
#pragma unroll
            for (int e = 0; e < 4; ++e) a_parts[which][share][e] = Arithmetic<T>::factor(a_parts[which][share][e]);
#pragma unroll
            for (int j = share * ACROSS / DOWN; j < (share + 1) * ACROSS / DOWN; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) b_parts[which][j][e] = Arithmetic<T>::factor(b_parts[which][j][e]);
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
#pragma unroll
        for (int share = 0; share < DOWN; ++share) ready(0, share);
#pragma unroll 1
        for (u32 tile = 0; tile < count; ++tile) {
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
                // Between the products of this part the fragments of the next one are made ready.
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
#pragma unroll
                    for (int j = 0; j < ACROSS; ++j) {
                        const int to = i % 2 ? ACROSS - 1 - j : j;
                        Arithmetic<T>::add_product(sums[i][to], a_parts[step % 2][i], b_parts[step % 2][to]);
                    }
                    ready((step + 1) % 2, i);
                }
            }
        }
        await_groups<0>();
        __syncthreads();
    }

    // Leaves the sums in memory of VECTORS * THREADS vectors.
    __device__ __forceinline__ void leave(float4 *to) const
    {
#pragma unroll
        for (int at = 0; at < VECTORS; ++at) {
            const float *four = sums[at / ACROSS][at % ACROSS];
            __stcg(to + at * THREADS + threadIdx.x, make_float4(four[0], four[1], four[2], four[3]));
        }
    }

    // Adds sums that another block has left. Several vectors are on their way at once.
    __device__ __forceinline__ void add(const float4 *from)
    {
        constexpr int AT_ONCE = 8;
#pragma unroll
        for (int first = 0; first < VECTORS; first += AT_ONCE) {
            float4 vectors[AT_ONCE];
#pragma unroll
            for (int at = 0; at < AT_ONCE; ++at) vectors[at] = __ldcg(from + (first + at) * THREADS + threadIdx.x);
#pragma unroll
            for (int at = 0; at < AT_ONCE; ++at) {
                float *to = sums[(first + at) / ACROSS][(first + at) % ACROSS];
                to[0] += vectors[at].x;
                to[1] += vectors[at].y;
                to[2] += vectors[at].z;
                to[3] += vectors[at].w;
            }
        }
    }

    // Stores eight neighbours from a multiple of 16 bytes on.
    static __device__ __forceinline__ void store_eight(T *to, const float *values)
    {
        if constexpr (sizeof(T) == 4) {
            *(float4 *)to = make_float4(values[0], values[1], values[2], values[3]);
            *(float4 *)(to + 4) = make_float4(values[4], values[5], values[6], values[7]);
        } else {
            u32 pairs[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) pairs[e] = Arithmetic<T>::narrowed(values[2 * e], values[2 * e + 1]);
            *(uint4 *)to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }

    // Finishes a warp's part of the sums that lies in lines of 16 bytes: 8 columns a lane. Places are the first ones of the
    // part; there are `rows` rows.
    static __device__ __forceinline__ void finish_eights(const float *part, T *out, const T *c, const T *bias, const Sizes &s,
                                                         i64 rows)
    {
        const u32 lane = threadIdx.x % 32, column = lane % (WIDTH / 8) * 8;
        const float alpha = (float)s.alpha[0], beta = (float)s.beta[0];
        float of_bias[8] = {};
        if (bias) {
#pragma unroll
            for (int e = 0; e < 8; ++e) of_bias[e] = Arithmetic<T>::widened(bias[(column + e) * s.bias_step]);
        }
#pragma unroll 1
        for (int row = lane / (WIDTH / 8); row < HEIGHT && row < rows; row += 32 / (WIDTH / 8)) {
            const float *from = part + row * LINE + column;
            float values[8], of_c[8];
            *(float4 *)values = *(const float4 *)from;
            *(float4 *)(values + 4) = *(const float4 *)(from + 4);
            if (c) load_eight(of_c, c + row * s.c.row + column);
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                values[e] *= alpha;
                if (c) values[e] = fmaf(beta, of_c[e], values[e]);
                values[e] += of_bias[e];
            }
            // One branch for all eight, which are at work together then.
            if (s.activation == RELU) {
#pragma unroll
                for (int e = 0; e < 8; ++e) values[e] = relu(values[e]);
            } else if (s.activation == GELU) {
#pragma unroll
                for (int e = 0; e < 8; ++e) values[e] = gelu(values[e]);
            }
            store_eight(out + row * s.out.row + column, values);
        }
    }

    // The same for any strides and a part of which `columns` columns are inside: neighbours by neighbouring lanes.
    static __device__ __forceinline__ void finish_any(const float *part, T *out, const T *c, const T *bias, const Sizes &s,
                                                      i64 rows, i64 columns)
    {
        const float alpha = (float)s.alpha[0], beta = (float)s.beta[0];
#pragma unroll 1
        for (u32 at = threadIdx.x % 32; at < HEIGHT * WIDTH; at += 32) {
            const u32 row = at / WIDTH, column = at % WIDTH;
            if (row >= rows) break;
            if (column >= columns) continue;
            float value = alpha * part[row * LINE + column];
            if (c) value = fmaf(beta, Arithmetic<T>::widened(c[row * s.c.row + column * s.c.column]), value);
            if (bias) value += Arithmetic<T>::widened(bias[column * s.bias_step]);
            if (s.activation == RELU) value = relu(value);
            if (s.activation == GELU) value = gelu(value);
            out[row * s.out.row + column * s.out.column] = Arithmetic<T>::rounded(value);
        }
    }

    // Finishes the sums and stores them. Each warp leaves them in a part of shared memory of its own and goes over it by
    // rows.
    __device__ __forceinline__ void store(char *memory, T *out, const T *c, const T *bias, const Sizes &s, Place at) const
    {
        const u32 lane = threadIdx.x % 32;
        float *const part = (float *)memory + threadIdx.x / 32 * (HEIGHT * LINE);
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
                float *to = part + (i * 16 + lane / 4) * LINE + j * 8 + lane % 4 * 2;
                *(float2 *)to = make_float2(sums[i][j][0], sums[i][j][1]);
                *(float2 *)(to + 8 * LINE) = make_float2(sums[i][j][2], sums[i][j][3]);
            }
        __syncwarp();
        const i64 row = at.row + warp_row(), column = at.column + warp_column();
        const i64 rows = s.m - row, columns = s.n - column;
        const bool is_whole = columns >= WIDTH && is_aligned(out, s.out) && (!c || is_aligned(c, s.c));
        out += at.batch * s.out.batch + row * s.out.row + column * s.out.column;
        if (c) c += at.batch * s.c.batch + row * s.c.row + column * s.c.column;
        if (bias) bias += column * s.bias_step;
        if (is_whole)
            finish_eights(part, out, c, bias, s, rows);
        else
            finish_any(part, out, c, bias, s, rows, columns);
    }
};

// A tile for each block.
template <class Tile, class T>
__device__ __forceinline__ void product(T *out, const T *a, const T *b, const T *c, const T *bias, const Sizes &s)
{
    extern __shared__ __align__(128) char memory[];
    Tile tile;
    const Place at = Tile::place(blockIdx.x, s);
    tile.multiply(memory, a, b, s, at, 0, (u32)((s.k + Tile::STEP - 1) / Tile::STEP));
    tile.store(memory, out, c, bias, s, at);
}

// What a worker does next: steps of a tile. It is kept in shared memory, since all registers are taken while it is done.
struct Work {
    u32 worker, tile, first, count;
    // The worker's steps of shared tiles: from `begin` on, those before `end` are left.
    u64 begin, end;
    // The next tile that is the worker's alone.
    u32 next;

    // Finds the next steps; there are none left if their number is 0.
    __device__ __forceinline__ void take(u32 steps, u32 tiles)
    {
        first = 0;
        count = steps;
        if (end > begin) {
            tile = (u32)((end - 1) / steps);
            const u64 start = (u64)tile * steps;
            first = start >= begin ? 0 : (u32)(begin - start);
            count = (u32)(end - start) - first;
            end = start + first;
        } else if (next < tiles) {
            tile = next;
            next += gridDim.x;
        } else {
            count = 0;
        }
    }
};

// Workers share the steps of the first `shared_tiles` tiles evenly and take the others in turn. Each goes over its steps
// from the end: so it first leaves the sums of a tile that the next worker finishes, and last finishes one that workers
// before it have left sums of. `left` has room for the sums of each worker. `told` is all zero at the start: a word for
// each worker that is set when its sums are there, and behind them the ticket. Workers have their numbers in the order in
// which they begin, so that one never waits for a worker that has not begun.
template <class Tile, class T>
__device__ __forceinline__ void stream(T *out, const T *a, const T *b, const T *c, const T *bias, float4 *left,
                                       volatile u32 *told, const Sizes &s, u32 shared_tiles)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ Work work;
    const u32 workers = gridDim.x, steps = (u32)((s.k + Tile::STEP - 1) / Tile::STEP);
    const u32 tiles = (u32)s.batches * Tile::down(s) * Tile::across(s);
    const u64 all = (u64)shared_tiles * steps;
    if (threadIdx.x == 0) {
        const u32 worker = atomicAdd((u32 *)told + workers, 1);
        work.worker = worker;
        work.begin = all * worker / workers;
        work.end = all * (worker + 1) / workers;
        work.next = shared_tiles + worker;
        work.take(steps, tiles);
    }
    __syncthreads();
    Tile tile;
#pragma unroll 1
    while (work.count > 0) {
        tile.multiply(memory, a, b, s, Tile::place(work.tile, s), work.first, work.count);
        const u32 worker = work.worker;
        if (work.first + work.count < steps) {
            tile.leave(left + (u64)worker * (Tile::VECTORS * Tile::THREADS));
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) told[worker] = 1;
        } else {
            // Whoever has the first step is the last one asked.
            for (u32 other = worker; work.first > 0 && other-- > 0;) {
                if (threadIdx.x == 0)
                    while (told[other] == 0) {}
                __threadfence();
                __syncthreads();
                tile.add(left + (u64)other * (Tile::VECTORS * Tile::THREADS));
                if (all * other / workers <= (u64)work.tile * steps) break;
            }
            tile.store(memory, out, c, bias, s, Tile::place(work.tile, s));
            __syncthreads();
        }
        if (threadIdx.x == 0) work.take(steps, tiles);
        __syncthreads();
    }
}

// `c` and `bias` may be null. A kernel for each way that the factors lie: their neighbours along the inner dimension (i)
// or along the outer one (o), the left factor first.
#define PRODUCT(name, THREADS, T, ...)                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
        name(T *out, const T *a, const T *b, const T *c, const T *bias, const Sizes sizes)                               \
    {                                                                                                                    \
        product<Tile<T, __VA_ARGS__>>(out, a, b, c, bias, sizes);                                                        \
    }
#define STREAM(name, THREADS, T, ...)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
        name(T *out, const T *a, const T *b, const T *c, const T *bias, float4 *left, u32 *told, const Sizes sizes,      \
             const u32 shared_tiles)                                                                                     \
    {                                                                                                                    \
        stream<Tile<T, __VA_ARGS__>>(out, a, b, c, bias, left, told, sizes, shared_tiles);                               \
    }
#define LAYOUTS(KERNEL, name, THREADS, T, ...)                                                                           \
    KERNEL(name##_ii, THREADS, T, true, true, __VA_ARGS__)                                                               \
    KERNEL(name##_io, THREADS, T, true, false, __VA_ARGS__)                                                              \
    KERNEL(name##_oi, THREADS, T, false, true, __VA_ARGS__)                                                              \
    KERNEL(name##_oo, THREADS, T, false, false, __VA_ARGS__)

// Blocks: tiles of all results.
LAYOUTS(PRODUCT, large_f16, 256, Half, 128, 256, 3, 2, 4)
LAYOUTS(PRODUCT, large_bf16, 256, Brain, 128, 256, 3, 2, 4)
LAYOUTS(PRODUCT, large_tf32, 256, float, 128, 256, 3, 2, 4)
LAYOUTS(PRODUCT, small_f16, 128, Half, 64, 64, 3, 2, 2)
LAYOUTS(PRODUCT, small_bf16, 128, Brain, 64, 64, 3, 2, 2)
LAYOUTS(PRODUCT, small_tf32, 128, float, 64, 64, 3, 2, 2)

// Blocks: workers.
LAYOUTS(STREAM, stream_f16, 256, Half, 128, 256, 3, 2, 4)
LAYOUTS(STREAM, stream_bf16, 256, Brain, 128, 256, 3, 2, 4)

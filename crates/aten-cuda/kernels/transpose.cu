// Copies between tensors whose neighbours in memory differ: those of the source lie along one dimension ("across"), those
// of the target along another ("down"). All further dimensions are a batch.
//
// A block copies one tile. Threads read 16 bytes at a time along the source, turn the small square that they have read
// in registers, and leave it in shared memory, from where they write 16 bytes at a time along the target. So each access
// of a warp to global memory has whole lines of 128 bytes or more, and each access to shared memory goes to all banks
// alike: places in a line of the tile are permuted by the number of the line.
//
// Where addresses or steps are no multiples of 16 bytes, threads move single elements instead.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int RANK = 16;
// Of blocks that move single elements.
constexpr u32 THREADS = 256, SIDE = 32;

// The layout of launch/library/transpose.rs. Steps are in bytes.
struct Shape {
    // Elements of the two dimensions.
    i64 across, down;
    // Between neighbours along `down` in the source, and along `across` in the target.
    i64 source_step, target_step;
    u32 tiles_across, tiles_down;
    int rank;
    int padding;
    // The batch, from the fastest dimension to the slowest.
    i64 sizes[RANK], source_steps[RANK], target_steps[RANK];
};

struct Sixteen { u64 low, high; };

// Where a block's tile lies: its first element in both tensors, and what of the two dimensions is left from there on.
struct Place {
    const char *source;
    char *target;
    i64 across, down;
};

template <int ACROSS, int DOWN, int BYTES>
__device__ __forceinline__ Place place(char *target, const char *source, const Shape &shape)
{
    u32 rest = blockIdx.x;
    const u32 tile_down = rest % shape.tiles_down;
    rest /= shape.tiles_down;
    const u32 tile_across = rest % shape.tiles_across;
    rest /= shape.tiles_across;
    const i64 first_across = (i64)tile_across * ACROSS;
    const i64 first_down = (i64)tile_down * DOWN;
    source += first_across * BYTES + first_down * shape.source_step;
    target += first_down * BYTES + first_across * shape.target_step;
#pragma unroll 1
    for (int dim = 0; dim < shape.rank; ++dim) {
        const u32 size = (u32)shape.sizes[dim], at = rest % size;
        rest /= size;
        source += at * shape.source_steps[dim];
        target += at * shape.target_steps[dim];
    }
    return {source, target, shape.across - first_across, shape.down - first_down};
}

// Turns a square of elements that has a row in each vector.
template <class Word> struct Square;

template <> struct Square<Sixteen> {
    static __device__ __forceinline__ void turn(uint4 *) {}
};

template <> struct Square<u64> {
    static __device__ __forceinline__ void turn(uint4 *rows)
    {
        const uint4 a = rows[0], b = rows[1];
        rows[0] = make_uint4(a.x, a.y, b.x, b.y);
        rows[1] = make_uint4(a.z, a.w, b.z, b.w);
    }
};

template <> struct Square<u32> {
    static __device__ __forceinline__ void turn(uint4 *rows)
    {
        const uint4 a = rows[0], b = rows[1], c = rows[2], d = rows[3];
        rows[0] = make_uint4(a.x, b.x, c.x, d.x);
        rows[1] = make_uint4(a.y, b.y, c.y, d.y);
        rows[2] = make_uint4(a.z, b.z, c.z, d.z);
        rows[3] = make_uint4(a.w, b.w, c.w, d.w);
    }
};

__device__ __forceinline__ u32 &word(uint4 &vector, int at)
{
    return at == 0 ? vector.x : at == 1 ? vector.y : at == 2 ? vector.z : vector.w;
}

template <> struct Square<u16> {
    static __device__ __forceinline__ void turn(uint4 *rows)
    {
        uint4 turned[8];
#pragma unroll
        for (int column = 0; column < 8; column += 2)
#pragma unroll
            for (int row = 0; row < 8; row += 2) {
                const u32 upper = word(rows[row], column / 2), lower = word(rows[row + 1], column / 2);
                word(turned[column], row / 2) = __byte_perm(upper, lower, 0x5410);
                word(turned[column + 1], row / 2) = __byte_perm(upper, lower, 0x7632);
            }
#pragma unroll
        for (int row = 0; row < 8; ++row) rows[row] = turned[row];
    }
};

template <> struct Square<u8> {
    static __device__ __forceinline__ void turn(uint4 *rows)
    {
        uint4 turned[16];
#pragma unroll
        for (int column = 0; column < 16; column += 4)
#pragma unroll
            for (int row = 0; row < 16; row += 4) {
                const u32 a = word(rows[row], column / 4), b = word(rows[row + 1], column / 4);
                const u32 c = word(rows[row + 2], column / 4), d = word(rows[row + 3], column / 4);
                const u32 low_ab = __byte_perm(a, b, 0x5140), low_cd = __byte_perm(c, d, 0x5140);
                const u32 high_ab = __byte_perm(a, b, 0x7362), high_cd = __byte_perm(c, d, 0x7362);
                word(turned[column], row / 4) = __byte_perm(low_ab, low_cd, 0x5410);
                word(turned[column + 1], row / 4) = __byte_perm(low_ab, low_cd, 0x7632);
                word(turned[column + 2], row / 4) = __byte_perm(high_ab, high_cd, 0x5410);
                word(turned[column + 3], row / 4) = __byte_perm(high_ab, high_cd, 0x7632);
            }
#pragma unroll
        for (int row = 0; row < 16; ++row) rows[row] = turned[row];
    }
};

// A vector of which only the first elements may be touched.
template <class Word>
__device__ __forceinline__ uint4 read_some(const char *from, i64 elements)
{
    constexpr int EACH = 16 / sizeof(Word);
    if (elements >= EACH) return __ldcs((const uint4 *)from);
    union { uint4 vector; Word parts[EACH]; } all;
    all.vector = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int at = 0; at < elements; ++at) all.parts[at] = ((const Word *)from)[at];
    return all.vector;
}

template <class Word>
__device__ __forceinline__ void write_some(char *to, i64 elements, uint4 vector)
{
    constexpr int EACH = 16 / sizeof(Word);
    if (elements >= EACH) {
        __stcs((uint4 *)to, vector);
        return;
    }
    union { uint4 vector; Word parts[EACH]; } all;
    all.vector = vector;
#pragma unroll 1
    for (int at = 0; at < elements; ++at) ((Word *)to)[at] = all.parts[at];
}

// A tile of X vectors across and Y * REPEAT squares down, with X * Y threads.
template <class Word, int X, int Y, int REPEAT>
__device__ __forceinline__ void transpose(char *to, const char *from, const Shape &shape)
{
    constexpr int BYTES = sizeof(Word), EACH = 16 / BYTES;
    constexpr int LINE = Y * REPEAT;
    __shared__ uint4 tile[X * EACH * LINE];
    const Place here = place<X * EACH, LINE * EACH, BYTES>(to, from, shape);
    const u32 x = threadIdx.x % X, y = threadIdx.x / X;
    uint4 rows[REPEAT][EACH];
    const bool is_whole = here.across >= X * EACH && here.down >= LINE * EACH;
    const char *source = here.source + x * 16;
    if (is_whole) {
#pragma unroll
        for (int part = 0; part < REPEAT; ++part)
#pragma unroll
            for (int row = 0; row < EACH; ++row)
                rows[part][row] = __ldcs((const uint4 *)(source + ((y + part * Y) * EACH + row) * shape.source_step));
    } else {
#pragma unroll
        for (int part = 0; part < REPEAT; ++part)
#pragma unroll
            for (int row = 0; row < EACH; ++row) {
                const u32 line = (y + part * Y) * EACH + row;
                rows[part][row] = make_uint4(0, 0, 0, 0);
                if (line < here.down)
                    rows[part][row] = read_some<Word>(source + line * shape.source_step, here.across - (i64)x * EACH);
            }
    }
#pragma unroll
    for (int part = 0; part < REPEAT; ++part) {
        Square<Word>::turn(rows[part]);
#pragma unroll
        for (int row = 0; row < EACH; ++row)
            tile[(x * EACH + row) * LINE + ((y + part * Y) ^ (x % 8))] = rows[part][row];
    }
    __syncthreads();
#pragma unroll
    for (int part = 0; part < REPEAT * EACH; ++part) {
        const u32 at = threadIdx.x + part * (X * Y), line = at / LINE, column = at % LINE;
        const uint4 vector = tile[line * LINE + (column ^ (line / EACH % 8))];
        char *target = here.target + line * shape.target_step + column * 16;
        if (is_whole) __stcs((uint4 *)target, vector);
        else if (line < here.across) write_some<Word>(target, here.down - (i64)column * EACH, vector);
    }
}

// Single elements: a tile of SIDE by SIDE of them. Its lines are longer by one bank of shared memory.
template <class Word>
__device__ __forceinline__ void transpose_singly(char *to, const char *from, const Shape &shape)
{
    constexpr int BYTES = sizeof(Word), MORE = BYTES < 4 ? 4 / BYTES : 1;
    __shared__ Word tile[SIDE][SIDE + MORE];
    const Place here = place<SIDE, SIDE, BYTES>(to, from, shape);
    for (u32 at = threadIdx.x; at < SIDE * SIDE; at += THREADS) {
        const u32 line = at / SIDE, column = at % SIDE;
        if (line < here.down && column < here.across)
            tile[line][column] = *(const Word *)(here.source + line * shape.source_step + column * BYTES);
    }
    __syncthreads();
    for (u32 at = threadIdx.x; at < SIDE * SIDE; at += THREADS) {
        const u32 line = at / SIDE, column = at % SIDE;
        if (line < here.across && column < here.down)
            *(Word *)(here.target + line * shape.target_step + column * BYTES) = tile[column][line];
    }
}

// A block for each tile of each part of the batch. Blocks go down first, so that those at work together write whole lines
// of the target; that is faster than reading whole lines of the source.
#define COPIES(bytes, Word, X, Y, REPEAT)                                                                               \
    extern "C" __global__ void __launch_bounds__(X *Y) transpose_##bytes(char *to, const char *from, const Shape shape) \
    {                                                                                                                   \
        transpose<Word, X, Y, REPEAT>(to, from, shape);                                                                 \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                               \
        transpose_singly_##bytes(char *to, const char *from, const Shape shape)                                         \
    {                                                                                                                   \
        transpose_singly<Word>(to, from, shape);                                                                        \
    }

COPIES(1, u8, 16, 8, 1)
COPIES(2, u16, 16, 16, 1)
COPIES(4, u32, 16, 16, 1)
COPIES(8, u64, 16, 16, 1)
COPIES(16, Sixteen, 16, 16, 2)

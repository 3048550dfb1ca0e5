// Running sums and products of rows whose elements are neighbours.
//
// A row is cut into tiles. Blocks take tickets, so that the tiles before a block's own are at work or done, hold their
// tile in registers, and find out what is before it: what a tile has in all is told as soon as it is known, and what all
// groups of tiles up to one have is told by the last tile of that group. A tile combines the tiles before it in its
// group, always in the same order, with what the groups before have. So each element is read once and written once, and
// the result does not depend on which block was faster.
//
// What is told is written as words of 64 bits that have 32 bits of the number and the mark that it is there: a word is
// read whole or not at all, so that nothing has to be ordered.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// The layout of launch/library/scan.rs.
struct Lengths {
    // Elements of a row.
    i64 n;
    // Words that are told: behind them is the ticket.
    i64 told;
    // Tiles of a row.
    u32 tiles;
    // Whether rows begin at multiples of 16 bytes.
    u32 is_aligned;
};

struct Rows {
    void *out;
    const void *in;
    // For each row what its tiles have, then what its groups have. All zero at the start.
    u64 *told;
    Lengths lengths;
};

constexpr u64 IS_THERE = 1ull << 32;
// Tiles of a group: one for each lane of the warp that asks.
constexpr u32 GROUP = 32;
// How far ahead of its own tile a block has memory brought to the cache, so that memory is at work while tiles wait for
// each other. The tiles of all blocks at work are about as much.
constexpr u64 AHEAD = 8 << 20;

struct Half { u16 bits; };
struct Brain { u16 bits; };
template <class T> struct Complex { T re, im; };

__device__ __forceinline__ float widened(Half value)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}
__device__ __forceinline__ float widened(Brain value) { return __uint_as_float((u32)value.bits << 16); }
template <class T> __device__ __forceinline__ T widened(T value) { return value; }

template <class T> struct Narrow {
    static __device__ __forceinline__ T of(T value) { return value; }
};
template <> struct Narrow<Half> {
    static __device__ __forceinline__ Half of(float value)
    {
        Half narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
        return narrow;
    }
};
template <> struct Narrow<Brain> {
    static __device__ __forceinline__ Brain of(float value)
    {
        const u32 bits = __float_as_uint(value);
        Brain narrow;
        narrow.bits = value != value ? 0x7fff : (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        return narrow;
    }
};

struct Sum {
    template <class T> static __device__ __forceinline__ T identity() { return T{}; }
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
    template <class T> static __device__ __forceinline__ Complex<T> of(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
};

struct Product {
    template <class T> static __device__ __forceinline__ T identity() { return T{1}; }
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a * b; }
    template <class T> static __device__ __forceinline__ Complex<T> of(Complex<T> a, Complex<T> b)
    {
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
};

// A number as words of 32 bits.
template <class T> union Words {
    T number;
    u32 words[sizeof(T) / 4];
    __device__ __forceinline__ Words() {}
};

template <class T> __device__ __forceinline__ T of_lane(T value, u32 lane)
{
    Words<T> from, to;
    from.number = value;
#pragma unroll
    for (int at = 0; at < (int)sizeof(T) / 4; ++at) to.words[at] = __shfl_sync(~0u, from.words[at], lane);
    return to.number;
}

template <class T> __device__ __forceinline__ T of_lane_before(T value, u32 distance)
{
    Words<T> from, to;
    from.number = value;
#pragma unroll
    for (int at = 0; at < (int)sizeof(T) / 4; ++at) to.words[at] = __shfl_up_sync(~0u, from.words[at], distance);
    return to.number;
}

// The sums up to each lane, and those before it.
template <class Op, class T> __device__ __forceinline__ T up_to_lane(T value, u32 lane)
{
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const T before = of_lane_before(value, distance);
        if (lane >= distance) value = Op::of(before, value);
    }
    return value;
}

template <class T> __device__ __forceinline__ void tell(volatile u64 *place, T number)
{
    Words<T> told;
    told.number = number;
#pragma unroll
    for (int at = 0; at < (int)sizeof(T) / 4; ++at) place[at] = IS_THERE | told.words[at];
}

// Waits until a number is told.
template <class T> __device__ __forceinline__ T ask(const volatile u64 *place)
{
    constexpr u32 WORDS = sizeof(T) / 4;
    u64 told[WORDS];
    bool is_there;
    do {
        is_there = true;
#pragma unroll
        for (u32 at = 0; at < WORDS; ++at) told[at] = place[at];
#pragma unroll
        for (u32 at = 0; at < WORDS; ++at) is_there = is_there && (told[at] & IS_THERE);
    } while (!is_there);
    Words<T> found;
#pragma unroll
    for (u32 at = 0; at < WORDS; ++at) found.words[at] = (u32)told[at];
    return found.number;
}

// What is before a tile of a row, in one warp. `own` is what the tile has.
template <class Op, class T>
__device__ __forceinline__ T before_tile(u64 *told, u32 tile, u32 tiles, T own, u32 lane)
{
    constexpr u32 WORDS = sizeof(T) / 4;
    u64 *groups = told + (u64)tiles * WORDS;
    const u32 group = tile / GROUP, first = group * GROUP;
    if (lane == 0) tell(told + (u64)tile * WORDS, own);
    T before = Op::template identity<T>();
    if (first + lane < tile) before = ask<T>(told + (u64)(first + lane) * WORDS);
    before = of_lane(up_to_lane<Op>(before, lane), 31);
    T up_to_own = Op::of(before, own);
    if (group > 0) {
        T earlier = Op::template identity<T>();
        if (lane == 0) earlier = ask<T>(groups + (u64)(group - 1) * WORDS);
        earlier = of_lane(earlier, 0);
        before = Op::of(earlier, before);
        up_to_own = Op::of(earlier, up_to_own);
    }
    if (lane == 0 && tile % GROUP == GROUP - 1) tell(groups + (u64)group * WORDS, up_to_own);
    return before;
}

// A tile in the registers of a block: each warp has neighbours, a vector of 16 bytes a lane at a time.
template <class T, class acc, class Op, u32 THREADS, u32 VECTORS>
struct Tile {
    static constexpr u32 EACH = 16 / sizeof(T), SIZE = THREADS * VECTORS * EACH;
    union Vector {
        uint4 whole;
        T parts[EACH];
        __device__ __forceinline__ Vector() {}
    };

    // The first element of the tile, how many are left of the row, and where the thread's first vector is in the tile.
    const T *in;
    T *out;
    i64 left;
    u32 first;
    bool is_whole;
    acc sums[VECTORS][EACH];

    // A vector of which not all may be there, or whose address is no multiple of 16.
    __device__ __forceinline__ uint4 read_some(u32 at) const
    {
        Vector vector;
#pragma unroll 1
        for (u32 e = 0; e < EACH; ++e)
            vector.parts[e] = at + e < left ? in[at + e] : Narrow<T>::of(Op::template identity<acc>());
        return vector.whole;
    }

    __device__ __forceinline__ void write_some(u32 at, uint4 whole) const
    {
        Vector vector;
        vector.whole = whole;
#pragma unroll 1
        for (u32 e = 0; e < EACH && at + e < left; ++e) out[at + e] = vector.parts[e];
    }

    __device__ __forceinline__ void load()
    {
        Vector read[VECTORS];
        if (is_whole) {
#pragma unroll
            for (u32 v = 0; v < VECTORS; ++v) read[v].whole = __ldcs((const uint4 *)(in + first + v * 32 * EACH));
        } else {
#pragma unroll
            for (u32 v = 0; v < VECTORS; ++v) read[v].whole = read_some(first + v * 32 * EACH);
        }
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v)
#pragma unroll
            for (u32 e = 0; e < EACH; ++e) sums[v][e] = widened(read[v].parts[e]);
    }

    // Makes each element what its warp has up to it, and returns what the warp has.
    __device__ __forceinline__ acc scan_warp(u32 lane)
    {
        acc before = Op::template identity<acc>();
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
#pragma unroll
            for (u32 e = 1; e < EACH; ++e) sums[v][e] = Op::of(sums[v][e - 1], sums[v][e]);
            const acc up_to = up_to_lane<Op>(sums[v][EACH - 1], lane), left_of = of_lane_before(up_to, 1);
            const acc base = lane == 0 ? before : Op::of(before, left_of);
#pragma unroll
            for (u32 e = 0; e < EACH; ++e) sums[v][e] = Op::of(base, sums[v][e]);
            before = Op::of(before, of_lane(up_to, 31));
        }
        return before;
    }

    __device__ __forceinline__ void store(acc before)
    {
#pragma unroll
        for (u32 v = 0; v < VECTORS; ++v) {
            const u32 at = first + v * 32 * EACH;
            Vector made;
#pragma unroll
            for (u32 e = 0; e < EACH; ++e) made.parts[e] = Narrow<T>::of(Op::of(before, sums[v][e]));
            if (is_whole) __stcs((uint4 *)(out + at), made.whole);
            else write_some(at, made.whole);
        }
    }
};

// Has the tile that is AHEAD of the ticket's own brought to the cache.
template <u32 THREADS, u32 BYTES> __device__ __forceinline__ void bring_ahead(const Rows &rows, u32 ticket, u64 all)
{
    constexpr u32 LINE = 128;
    const u64 start = (u64)ticket * BYTES + AHEAD;
    if (start + BYTES > all) return;
    const char *from = (const char *)rows.in + start;
#pragma unroll
    for (u32 at = threadIdx.x * LINE; at < BYTES; at += THREADS * LINE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
}

template <class T, class acc, class Op, u32 THREADS, u32 VECTORS> __device__ __forceinline__ void scan(const Rows &rows)
{
    typedef Tile<T, acc, Op, THREADS, VECTORS> Own;
    constexpr u32 WARPS = THREADS / 32;
    __shared__ acc of_warps[WARPS];
    __shared__ u32 taken;
    if (threadIdx.x == 0) taken = atomicAdd((u32 *)(rows.told + rows.lengths.told), 1u);
    __syncthreads();
    const u32 row = taken / rows.lengths.tiles, number = taken % rows.lengths.tiles, groups = (rows.lengths.tiles + GROUP - 1) / GROUP;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 start = row * rows.lengths.n + (i64)number * Own::SIZE;
    Own tile;
    tile.in = (const T *)rows.in + start;
    tile.out = (T *)rows.out + start;
    tile.left = rows.lengths.n - (i64)number * Own::SIZE;
    tile.first = warp * (32 * VECTORS * Own::EACH) + lane * Own::EACH;
    tile.is_whole = tile.left >= Own::SIZE && rows.lengths.is_aligned;
    tile.load();
    bring_ahead<THREADS, Own::SIZE * sizeof(T)>(rows, taken, gridDim.x / rows.lengths.tiles * rows.lengths.n * sizeof(T));
    const acc of_warp = tile.scan_warp(lane);
    if (lane == 0) of_warps[warp] = of_warp;
    __syncthreads();
    if (warp == 0) {
        // What warps have becomes what is before them.
        acc own = lane < WARPS ? of_warps[lane] : Op::template identity<acc>();
        own = up_to_lane<Op>(own, lane);
        const acc all = of_lane(own, 31), left_of = of_lane_before(own, 1);
        u64 *told = rows.told + (u64)row * (rows.lengths.tiles + groups) * (sizeof(acc) / 4);
        const acc before = before_tile<Op>(told, number, rows.lengths.tiles, all, lane);
        if (lane < WARPS) of_warps[lane] = lane == 0 ? before : Op::of(before, left_of);
    }
    __syncthreads();
    tile.store(of_warps[warp]);
}

// A block for each tile of each row. BLOCKS of them fit on a multiprocessor at once.
#define SCAN(name, T, acc, Op, THREADS, VECTORS, BLOCKS)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                       \
        name(void *out, const void *in, u64 *told, const Lengths lengths)                                               \
    {                                                                                                                   \
        scan<T, acc, Op, THREADS, VECTORS>({out, in, told, lengths});                                                   \
    }
#define SCANS(name, T, acc, THREADS, VECTORS, BLOCKS)                                                                   \
    SCAN(cumsum_##name, T, acc, Sum, THREADS, VECTORS, BLOCKS)                                                          \
    SCAN(cumprod_##name, T, acc, Product, THREADS, VECTORS, BLOCKS)

SCANS(f16, Half, float, 256, 8, 2)
SCANS(bf16, Brain, float, 256, 8, 2)
SCANS(f32, float, float, 512, 12, 2)
SCANS(f64, double, double, 256, 12, 3)
SCANS(i64, i64, i64, 256, 12, 3)
SCANS(c64, Complex<float>, Complex<float>, 256, 12, 3)
SCANS(c128, Complex<double>, Complex<double>, 256, 8, 3)

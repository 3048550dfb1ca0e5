// Sums over the devices of a process, by memory that each of them has at the same offset and that all of them reach.
//
// A region of each device begins with what the kernels need; `Place` says where. The regions lie one after another, so that
// that of a rank is found by its number. All kernels of a rank run one after another; a block of a kernel talks with the
// block of the same number on other devices alone, and keeps a count of its own of what it has done with them.
//
// Small sums: each rank pushes its elements to all others, eight bytes at a time, each half with the number of the sum beside
// it, so that what arrives tells itself that it is there: no barrier. What arrives is written to one of two halves in turn: a
// rank that sends for the sum after the next has what others sent for the next one, so that they are done with this one.
//
// Large sums: each rank brings its elements to its own region; after a barrier it adds one part of all ranks' elements, and
// after another takes the other parts from where they were added.
//
// Sums begin with rank 0 and end with the last one on every device, so that all have the same bits.

#include "numbers.cuh"

constexpr u32 RANKS = 16;
constexpr u32 BLOCKS = 32;
// Small sums: units of eight bytes of a block, and of all.
constexpr u32 UNITS = 512;
constexpr u32 SMALL_BLOCKS = 16;
// Bytes that a block brings to its region at once.
constexpr u32 STAGE = 65536;
// Readings in vain between two looks at the clock.
constexpr u32 PATIENCE = 64;
// Ranks whose elements are read at once.
constexpr u32 AT_ONCE = 4;

// Offsets in a region.
enum Place : u64 {
    // Addresses of all regions' memory for programs.
    TABLE = 0,
    // Not zero when nobody is to wait any more.
    ABORTED = 512,
    // Of each block: how many small sums it has done, the barrier that it passed last, its rounds of large sums.
    SUMS = 1024,
    BARRIERS = 2048,
    ROUNDS = 3072,
    // The barrier that a block of another rank has come to: by block, then rank.
    SIGNALS = 4096,
    ARRIVALS = 65536,
};

// Numbers of the launch: the first region, how far they are apart, and this device's place among them.
struct Group {
    u64 base, stride;
    u32 rank, ranks;
    // Where what large sums bring is; of a copy, the place in the other region.
    u64 place;
    // Bytes of the tensor.
    u64 bytes;
    // Packs of each part that a block takes at once in large sums.
    u64 piece;
    // After how long a wait ends the context, in nanoseconds; 0 for never.
    u64 limit;
};

__device__ __forceinline__ u8 *region(const Group &group, u32 rank) { return (u8 *)(group.base + group.stride * rank); }

// A wait, which ends with the context after a time, or without what is waited for when the host says so.
struct Wait {
    const Group &group;
    u64 since = 0;
    u32 tries = 0;
    __device__ __forceinline__ explicit Wait(const Group &group) : group(group) {}
    // Whether to look again.
    __device__ __forceinline__ bool again()
    {
        if (++tries % PATIENCE != 0) return true;
        if (*(volatile u32 *)(region(group, group.rank) + ABORTED) != 0) return false;
        if (group.limit == 0) return true;
        u64 now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (since == 0) since = now;
        else if (now - since > group.limit) __trap();
        return true;
    }
};

__device__ __forceinline__ u32 acquired(const u32 *at)
{
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

__device__ __forceinline__ void release(u32 *at, u32 value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// Waits until the blocks of a number have come here on all devices. What they wrote before can be read then.
__device__ void meet(const Group &group, u32 block, u32 number)
{
    __syncthreads();
    u32 other = threadIdx.x;
    if (other < group.ranks && other != group.rank) {
        release((u32 *)(region(group, other) + SIGNALS) + block * RANKS + group.rank, number);
        const u32 *at = (const u32 *)(region(group, group.rank) + SIGNALS) + block * RANKS + other;
        Wait wait(group);
        while ((int)(acquired(at) - number) < 0 && wait.again()) {}
    }
    __syncthreads();
}

extern "C" __global__ void symmetric_barrier(u8 *own, const Group group)
{
    u32 *count = (u32 *)(own + BARRIERS) + BLOCKS;
    u32 number = *count + 1;
    meet(group, BLOCKS, number);
    if (threadIdx.x == 0) *count = number;
}

struct alignas(16) Pack { u32 words[4]; };

// How elements of a kind are added in a unit of eight bytes.
template <class Word, int COUNT> struct Integers {
    u64 sum;
    __device__ __forceinline__ void begin(u64 first) { sum = first; }
    __device__ __forceinline__ void add(u64 next)
    {
        u64 made = 0;
        for (int place = 0; place < COUNT; ++place) {
            int shift = place * 8 * (int)sizeof(Word);
            made |= (u64)(Word)((Word)(sum >> shift) + (Word)(next >> shift)) << (shift % 64);
        }
        sum = made;
    }
    __device__ __forceinline__ u64 end() const { return sum; }
};

struct Truths {
    u64 sum;
    __device__ __forceinline__ void begin(u64 first) { sum = first; }
    __device__ __forceinline__ void add(u64 next) { sum |= next; }
    __device__ __forceinline__ u64 end() const { return sum; }
};

struct Singles {
    float low, high;
    __device__ __forceinline__ void begin(u64 first)
    {
        low = __uint_as_float((u32)first);
        high = __uint_as_float((u32)(first >> 32));
    }
    __device__ __forceinline__ void add(u64 next)
    {
        low += __uint_as_float((u32)next);
        high += __uint_as_float((u32)(next >> 32));
    }
    __device__ __forceinline__ u64 end() const { return (u64)__float_as_uint(high) << 32 | __float_as_uint(low); }
};

struct Doubles {
    double sum;
    __device__ __forceinline__ void begin(u64 first) { sum = __longlong_as_double((i64)first); }
    __device__ __forceinline__ void add(u64 next) { sum += __longlong_as_double((i64)next); }
    __device__ __forceinline__ u64 end() const { return (u64)__double_as_longlong(sum); }
};

// Floats of 16 bits, by instructions of compute capability 7.5.
struct Half {
    static __device__ __forceinline__ float widened(u16 bits)
    {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
        return wide;
    }
    static __device__ __forceinline__ u16 rounded(float value)
    {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
};

struct Brain {
    static __device__ __forceinline__ float widened(u16 bits) { return __uint_as_float((u32)bits << 16); }
    static __device__ __forceinline__ u16 rounded(float value)
    {
        u32 bits = __float_as_uint(value);
        if (value != value) return 0x7fff;
        return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

// Added as floats of 32 bits, and rounded once.
template <class Narrow> struct Narrows {
    float sums[4];
    static __device__ __forceinline__ float at(u64 unit, int place)
    {
        return Narrow::widened((u16)(unit >> (16 * place)));
    }
    __device__ __forceinline__ void begin(u64 first)
    {
        for (int place = 0; place < 4; ++place) sums[place] = at(first, place);
    }
    __device__ __forceinline__ void add(u64 next)
    {
        for (int place = 0; place < 4; ++place) sums[place] += at(next, place);
    }
    __device__ __forceinline__ u64 end() const
    {
        u32 low = Narrow::rounded(sums[0]) | (u32)Narrow::rounded(sums[1]) << 16;
        u32 high = Narrow::rounded(sums[2]) | (u32)Narrow::rounded(sums[3]) << 16;
        return (u64)high << 32 | low;
    }
};

// Up to eight bytes of a tensor, and zeros behind its end.
__device__ __forceinline__ u64 unit_of(const u8 *from, u64 at, u64 bytes)
{
    if (at + 8 <= bytes && ((u64)from & 7) == 0) return *(const u64 *)(from + at);
    u64 unit = 0;
#pragma unroll 1
    for (u32 byte = 0; byte < 8 && at + byte < bytes; ++byte) unit |= (u64)from[at + byte] << (8 * byte);
    return unit;
}

__device__ __forceinline__ void put_unit(u8 *to, u64 at, u64 bytes, u64 unit)
{
    if (at + 8 <= bytes && ((u64)to & 7) == 0) {
        *(u64 *)(to + at) = unit;
        return;
    }
#pragma unroll 1
    for (u32 byte = 0; byte < 8 && at + byte < bytes; ++byte) to[at + byte] = (u8)(unit >> (8 * byte));
}

__device__ __forceinline__ Pack pack_of(const u8 *from, u64 at, u64 bytes)
{
    if (at + 16 <= bytes && ((u64)from & 15) == 0) return *(const Pack *)(from + at);
    u64 low = unit_of(from, at, bytes), high = unit_of(from, at + 8, bytes);
    return Pack{{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}};
}

__device__ __forceinline__ void put_pack(u8 *to, u64 at, u64 bytes, const Pack &pack)
{
    if (at + 16 <= bytes && ((u64)to & 15) == 0) {
        *(Pack *)(to + at) = pack;
        return;
    }
    put_unit(to, at, bytes, (u64)pack.words[1] << 32 | pack.words[0]);
    put_unit(to, at + 8, bytes, (u64)pack.words[3] << 32 | pack.words[2]);
}

// Where what a rank sends to another arrives.
__device__ __forceinline__ u8 *arrival(const Group &group, u32 to, u32 from, u32 half, u64 unit)
{
    u64 slot = (u64)half * group.ranks + from;
    return region(group, to) + ARRIVALS + (slot * (SMALL_BLOCKS * UNITS) + unit) * 16;
}

struct Line { u64 low, high; };

__device__ __forceinline__ Line line_at(const u8 *at)
{
    Line line;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(line.low), "=l"(line.high) : "l"(at) : "memory");
    return line;
}

__device__ __forceinline__ void push(u8 *at, u64 low, u64 high)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
}

// What a rank has sent.
__device__ __forceinline__ u64 arrived(const Group &group, u32 rank, u64 unit, u32 half, u64 mark, Line line)
{
    Wait wait(group);
    while ((line.low >> 32 != mark || line.high >> 32 != mark) && wait.again()) {
        line = line_at(arrival(group, group.rank, rank, half, unit));
    }
    return line.high << 32 | (u32)line.low;
}

template <class Sum> __device__ __forceinline__ u64 summed(const Group &group, u64 unit, u64 own, u32 half, u64 mark)
{
    Sum sum;
#pragma unroll 1
    for (u32 first = 0; first < group.ranks; first += AT_ONCE) {
        // The readings of several ranks are under way at once.
        Line lines[AT_ONCE];
#pragma unroll
        for (u32 place = 0; place < AT_ONCE; ++place) {
            u32 rank = first + place;
            if (rank < group.ranks && rank != group.rank) lines[place] = line_at(arrival(group, group.rank, rank, half, unit));
        }
#pragma unroll
        for (u32 place = 0; place < AT_ONCE; ++place) {
            u32 rank = first + place;
            if (rank >= group.ranks) break;
            u64 value = rank == group.rank ? own : arrived(group, rank, unit, half, mark, lines[place]);
            if (rank == 0) sum.begin(value);
            else sum.add(value);
        }
    }
    return sum.end();
}

template <class Sum> __device__ void small(u8 *own, const u8 *from, u8 *to, const Group &group)
{
    u32 *count = (u32 *)(own + SUMS) + blockIdx.x;
    u32 number = *(volatile u32 *)count + 1;
    __syncthreads();
    if (threadIdx.x == 0) *count = number;
    u32 half = number % 2;
    // Never zero, as memory is where nothing has arrived.
    u64 mark = number | 0x80000000u;
    u64 first = (u64)blockIdx.x * UNITS, units = (group.bytes + 7) / 8;
    u64 end = first + UNITS < units ? first + UNITS : units;
    for (u64 unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
        u64 value = unit_of(from, unit * 8, group.bytes);
        for (u32 step = 1; step < group.ranks; ++step) {
            u32 other = (group.rank + step) % group.ranks;
            push(arrival(group, other, group.rank, half, unit), mark << 32 | (u32)value, mark << 32 | value >> 32);
        }
        put_unit(to, unit * 8, group.bytes, summed<Sum>(group, unit, value, half, mark));
    }
    // Marks come again after 2^31 sums. What has lain there for so long is cleared before.
    if ((number & 0x3fffffffu) < 2) {
        __syncthreads();
        for (u64 unit = first + threadIdx.x; unit < first + UNITS; unit += blockDim.x) {
            for (u32 rank = 0; rank < group.ranks; ++rank) push(arrival(group, group.rank, rank, half, unit), 0, 0);
        }
        __threadfence_system();
    }
}

template <class Sum> __device__ __forceinline__ Pack added(const Group &group, u64 offset)
{
    Sum low, high;
#pragma unroll 2
    for (u32 rank = 0; rank < group.ranks; ++rank) {
        const u64 *at = (const u64 *)(region(group, rank) + offset);
        u64 first = at[0], second = at[1];
        if (rank == 0) {
            low.begin(first);
            high.begin(second);
        } else {
            low.add(first);
            high.add(second);
        }
    }
    u64 one = low.end(), other = high.end();
    return Pack{{(u32)one, (u32)(one >> 32), (u32)other, (u32)(other >> 32)}};
}

template <class Sum> __device__ void large(u8 *own, const u8 *from, u8 *to, const Group &group)
{
    u32 block = blockIdx.x, ranks = group.ranks;
    u32 *passed = (u32 *)(own + BARRIERS) + block, *done = (u32 *)(own + ROUNDS) + block;
    u32 number = *(volatile u32 *)passed, round = *(volatile u32 *)done;
    u64 packs = (group.bytes + 15) / 16, part = (packs + ranks - 1) / ranks;
    u64 most = group.piece;
    for (u64 start = block * most; start < part; start += gridDim.x * most, ++round) {
        u64 count = part - start < most ? part - start : most;
        u64 stage = group.place + ((u64)(round % 2) * BLOCKS + block) * STAGE;
        for (u32 owner = 0; owner < ranks; ++owner) {
#pragma unroll 1
            for (u64 at = threadIdx.x; at < count; at += blockDim.x) {
                u64 pack = owner * part + start + at;
                if (pack < packs) *(Pack *)(own + stage + (owner * most + at) * 16) = pack_of(from, pack * 16, group.bytes);
            }
        }
        meet(group, block, ++number);
#pragma unroll 1
        for (u64 at = threadIdx.x; at < count; at += blockDim.x) {
            u64 pack = group.rank * part + start + at, offset = stage + (group.rank * most + at) * 16;
            if (pack >= packs) break;
            Pack sum = added<Sum>(group, offset);
            *(Pack *)(own + offset) = sum;
            put_pack(to, pack * 16, group.bytes, sum);
        }
        meet(group, block, ++number);
        for (u32 step = 1; step < ranks; ++step) {
            u32 owner = (group.rank + step) % ranks;
#pragma unroll 1
            for (u64 at = threadIdx.x; at < count; at += blockDim.x) {
                u64 pack = owner * part + start + at;
                if (pack >= packs) break;
                put_pack(to, pack * 16, group.bytes, *(const Pack *)(region(group, owner) + stage + (owner * most + at) * 16));
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *passed = number;
        *done = round;
    }
}

// Copies bytes on the device that asks: to the region of rank `group.rank`, or from there.
__device__ __forceinline__ void copied(u8 *to, const u8 *from, u64 bytes)
{
    u64 packs = (bytes + 15) / 16, all = (u64)gridDim.x * blockDim.x;
    for (u64 pack = (u64)blockIdx.x * blockDim.x + threadIdx.x; pack < packs; pack += all) {
        put_pack(to, pack * 16, bytes, pack_of(from, pack * 16, bytes));
    }
}

extern "C" __global__ void symmetric_put(const u8 *own, const u8 *from, const Group group)
{
    copied(region(group, group.rank) + group.place, from, group.bytes);
}

extern "C" __global__ void symmetric_get(const u8 *own, u8 *to, const Group group)
{
    copied(to, region(group, group.rank) + group.place, group.bytes);
}

#define SUMS_OF(name, Kind)                                                                                                  \
    extern "C" __global__ void symmetric_small_##name(u8 *own, const u8 *from, u8 *to, const Group group)                    \
    {                                                                                                                        \
        small<Kind>(own, from, to, group);                                                                                   \
    }                                                                                                                        \
    extern "C" __global__ void symmetric_large_##name(u8 *own, const u8 *from, u8 *to, const Group group)                    \
    {                                                                                                                        \
        large<Kind>(own, from, to, group);                                                                                   \
    }

typedef Integers<u8, 8> Bytes;
typedef Integers<u16, 4> Shorts;
typedef Integers<u32, 2> Words;
typedef Integers<u64, 1> Longs;

SUMS_OF(truths, Truths)
SUMS_OF(bytes, Bytes)
SUMS_OF(shorts, Shorts)
SUMS_OF(words, Words)
SUMS_OF(longs, Longs)
SUMS_OF(halves, Narrows<Half>)
SUMS_OF(brains, Narrows<Brain>)
SUMS_OF(singles, Singles)
SUMS_OF(doubles, Doubles)

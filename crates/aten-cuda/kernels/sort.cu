// Stable sorts of rows, with the places that the elements had.
//
// Elements are compared by keys: unsigned numbers in the same order, with both zeros equal; for descending orders their
// complement. A NaN is above everything, but below it with a negative sign, unless NAN_GREATEST is asked for.
//
// Rows of up to TILE elements are sorted in shared memory, several rows a block. Longer ones go through a pass for each
// byte of the key: a tile counts its keys of each digit and publishes the counts, ranks its keys, learns from the tiles
// before it how many keys of each digit they have, and writes its own to their places. So a pass reads and writes each
// key once.
//
// Digits are counted by one launch and the elements read again by the first pass, and another stream or thread may change
// them in between. Then the counts are not those of the keys: places outside the row are left out, and places that no
// pass has written are not followed. What the result is then is not specified.

// What elements are.
enum Kind { UNSIGNED8, SIGNED8, SIGNED16, SIGNED32, SIGNED64, HALF, BRAIN, SINGLE, DOUBLE };

// Joined with a kind: the sign of a NaN does not count.
constexpr int NAN_GREATEST = 16;

constexpr unsigned THREADS = 256;
constexpr unsigned WARPS = THREADS / 32;
constexpr unsigned DIGITS = 256;
constexpr unsigned TILE = 2048;
constexpr unsigned PASS_THREADS = 512;

template <class Key>
__device__ __forceinline__ Key order_float(Key bits, Key sign, Key infinity, int kind) {
    Key all = sign | (sign - 1), magnitude = bits & (sign - 1);
    if (magnitude > infinity) return bits & sign && !(kind & NAN_GREATEST) ? 0 : all;
    if (magnitude == 0) return sign;
    return bits & sign ? ~bits & all : bits | sign;
}

// The bits of an element, one above the other in a key.
template <class Key>
__device__ __forceinline__ Key load_bits(const void *from, long long i, int kind);

template <>
__device__ __forceinline__ unsigned load_bits(const void *from, long long i, int kind) {
    switch (kind & ~NAN_GREATEST) {
    case UNSIGNED8:
    case SIGNED8: return ((const unsigned char *)from)[i];
    case SIGNED16:
    case HALF:
    case BRAIN: return ((const unsigned short *)from)[i];
    default: return ((const unsigned *)from)[i];
    }
}

template <>
__device__ __forceinline__ unsigned long long load_bits(const void *from, long long i, int) {
    return ((const unsigned long long *)from)[i];
}

// How the keys of a kind are made.
template <class Key>
struct Order {
    int kind;
    bool is_float;
    // Of integers what is inverted, of floats the sign and the bits of infinity.
    Key sign, infinity;
    // What is inverted last: for descending orders all bits that a key may have.
    Key invert;

    __device__ __forceinline__ Order(int kind, int descending) : kind(kind), is_float(false), sign(0), infinity(0) {
        Key top = Key(1) << (sizeof(Key) * 8 - 1), mask = ~Key(0);
        switch (kind & ~NAN_GREATEST) {
        case UNSIGNED8: mask = 0xff; break;
        case SIGNED8: sign = 0x80, mask = 0xff; break;
        case SIGNED16: sign = 0x8000, mask = 0xffff; break;
        case HALF: is_float = true, sign = 0x8000, infinity = 0x7c00, mask = 0xffff; break;
        case BRAIN: is_float = true, sign = 0x8000, infinity = 0x7f80, mask = 0xffff; break;
        case SINGLE: is_float = true, sign = top, infinity = 0x7f800000u; break;
        case DOUBLE: is_float = true, sign = top, infinity = Key(0x7ffull << 52); break;
        default: sign = top;
        }
        invert = descending ? mask : Key(0);
    }

    __device__ __forceinline__ Key key(Key bits) const {
        return (is_float ? order_float<Key>(bits, sign, infinity, kind) : bits ^ sign) ^ invert;
    }

    // The bits of the only element that has a key, or false where there may be several.
    __device__ __forceinline__ bool element(Key key, Key &bits) const {
        Key ordered = key ^ invert, all = sign | (sign - 1);
        if (!is_float) {
            bits = ordered ^ sign;
            return true;
        }
        bits = ordered & sign ? ordered ^ sign : ~ordered & all;
        return ordered != sign && ordered != all && ordered != 0;
    }
};

// Writes the bits of an element.
template <class Key>
__device__ __forceinline__ void store_bits(void *to, long long at, Key bits, int kind) {
    kind &= ~NAN_GREATEST;
    if (sizeof(Key) == 8) ((unsigned long long *)to)[at] = bits;
    else if (kind == UNSIGNED8 || kind == SIGNED8) ((unsigned char *)to)[at] = (unsigned char)bits;
    else if (kind == SIGNED16 || kind == HALF || kind == BRAIN) ((unsigned short *)to)[at] = (unsigned short)bits;
    else ((unsigned *)to)[at] = (unsigned)bits;
}

// ---- Short rows -------------------------------------------------------------------------------------------------------

// A key with its place: all pairs of a row differ, so that an unstable network sorts them stably.
struct Wide {
    unsigned long long key;
    unsigned place;
};

__device__ __forceinline__ bool above(unsigned long long a, unsigned long long b) { return a > b; }
__device__ __forceinline__ bool above(const Wide &a, const Wide &b) {
    return a.key > b.key || (a.key == b.key && a.place > b.place);
}
__device__ __forceinline__ unsigned place_of(unsigned long long pair) { return unsigned(pair); }
__device__ __forceinline__ unsigned place_of(const Wide &pair) { return pair.place; }
__device__ __forceinline__ void make_pair(unsigned long long &pair, unsigned key, unsigned place) {
    pair = (unsigned long long)key << 32 | place;
}
__device__ __forceinline__ void make_pair(Wide &pair, unsigned long long key, unsigned place) { pair = {key, place}; }

// Bitonic networks of `width` pairs, a power of two, side by side in shared memory. What is behind a row's end has the
// greatest key and the greatest places.
template <class Key, class Pair>
__device__ void sort_rows(Pair *pairs, const void *from, void *values, long long *places, long long rows, unsigned n,
                          unsigned width, unsigned keep, int kind, int descending) {
    const Order<Key> order(kind, descending);
    long long first = (long long)blockIdx.x * (TILE / width);
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS) {
        long long row = first + i / width;
        unsigned at = i % width;
        bool have = row < rows && at < n;
        make_pair(pairs[i], have ? order.key(load_bits<Key>(from, row * n + at, kind)) : ~Key(0), at);
    }
    __syncthreads();
    for (unsigned run = 2; run <= width; run *= 2) {
        for (unsigned step = run / 2; step > 0; step /= 2) {
            for (unsigned pair = threadIdx.x; pair < TILE / 2; pair += THREADS) {
                unsigned low = pair / step * step * 2 + pair % step, high = low + step;
                bool falling = run < width && (low & run) != 0;
                Pair a = pairs[low], b = pairs[high];
                if (above(a, b) != falling) {
                    pairs[low] = b;
                    pairs[high] = a;
                }
            }
            __syncthreads();
        }
    }
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS) {
        long long row = first + i / width;
        unsigned at = i % width;
        if (row >= rows || at >= keep) continue;
        unsigned place = place_of(pairs[i]);
        store_bits(values, row * keep + at, load_bits<Key>(from, row * n + place, kind), kind);
        places[row * keep + at] = place;
    }
}

extern "C" __global__ void sort_rows_32(const void *from, void *values, long long *places, long long rows, unsigned n,
                                        unsigned width, unsigned keep, int kind, int descending) {
    __shared__ unsigned long long pairs[TILE];
    sort_rows<unsigned>(pairs, from, values, places, rows, n, width, keep, kind, descending);
}

extern "C" __global__ void sort_rows_64(const void *from, void *values, long long *places, long long rows, unsigned n,
                                        unsigned width, unsigned keep, int kind, int descending) {
    __shared__ __align__(16) char memory[TILE * sizeof(Wide)];
    sort_rows<unsigned long long>((Wide *)memory, from, values, places, rows, n, width, keep, kind, descending);
}

// ---- Long rows --------------------------------------------------------------------------------------------------------

// Counts the digits of all passes: `counts` has DIGITS numbers for each pass of each row. `parts` blocks share a row.
template <class Key>
__device__ void count_digits(unsigned *here, unsigned long long *counts, const void *from, long long n, unsigned parts,
                             unsigned passes, int kind, int descending) {
    const Order<Key> order(kind, descending);
    for (unsigned i = threadIdx.x; i < passes * DIGITS; i += THREADS) here[i] = 0;
    __syncthreads();
    long long row = blockIdx.x / parts, part = blockIdx.x % parts;
    long long each = (n + parts - 1) / parts, start = part * each, end = start + each < n ? start + each : n;
    for (long long i = start + threadIdx.x; i < end; i += THREADS) {
        Key key = order.key(load_bits<Key>(from, row * n + i, kind));
#pragma unroll
        for (unsigned pass = 0; pass < sizeof(Key); ++pass)
            if (pass < passes) atomicAdd(&here[pass * DIGITS + unsigned(key >> pass * 8 & 0xff)], 1u);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < passes * DIGITS; i += THREADS)
        if (here[i]) atomicAdd(&counts[row * passes * DIGITS + i], (unsigned long long)here[i]);
}

extern "C" __global__ void count_digits_32(unsigned long long *counts, const void *from, long long n, unsigned parts,
                                           unsigned passes, int kind, int descending) {
    __shared__ unsigned here[4 * DIGITS];
    count_digits<unsigned>(here, counts, from, n, parts, passes, kind, descending);
}

extern "C" __global__ void count_digits_64(unsigned long long *counts, const void *from, long long n, unsigned parts,
                                           unsigned passes, int kind, int descending) {
    __shared__ unsigned here[8 * DIGITS];
    count_digits<unsigned long long>(here, counts, from, n, parts, passes, kind, descending);
}

// The sum of what the threads before this one have; a block has one thread for each digit.
template <class Number>
__device__ Number sum_before(Number own) {
    __shared__ Number of_warps[WARPS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Number sum = own;
    for (unsigned step = 1; step < 32; step *= 2) {
        Number left = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    Number earlier = 0;
    for (unsigned w = 0; w < warp; ++w) earlier += of_warps[w];
    __syncthreads();
    return earlier + sum - own;
}

// A block for each pass of each row: counts become the places where the digits begin.
extern "C" __global__ void start_digits(unsigned long long *counts) {
    unsigned long long *own = counts + (long long)blockIdx.x * DIGITS + threadIdx.x;
    unsigned long long count = *own;
    *own = sum_before(count);
}

// What a pass works on. Keys and places alternate between two memories; the first pass reads the elements themselves
// and the last one writes them.
struct Pass {
    const void *elements;
    void *values;
    long long *places;
    const void *keys_in;
    const unsigned *places_in;
    void *keys_out;
    unsigned *places_out;
    const unsigned long long *starts;
    // Of each tile and digit: a mark in the two top bits, a count below. All zero at the start, like the ticket.
    unsigned long long *states;
    unsigned *ticket;
    long long n;
    unsigned tiles;
    unsigned pass;
    unsigned passes;
    int kind;
    int descending;
    // Passes that are made: fewer than there are digits where all keys have the same higher ones.
    unsigned taken;
};

// What a state counts: the keys of the tile's own, or those of all tiles up to it.
constexpr unsigned long long OWN = 1ull << 62;
constexpr unsigned long long ALL = 2ull << 62;
constexpr unsigned long long COUNT = OWN - 1;

// How many keys of the digit are in the tiles before this one, whose own count is published already. Several states are
// read at a time, since each read takes long; those behind the first one that is not there yet are read again.
__device__ __forceinline__ unsigned long long look_back(volatile unsigned long long *states, unsigned tile, unsigned own) {
    constexpr unsigned AT_ONCE = 4;
    unsigned long long sum = 0;
    bool done = tile == 0;
    for (unsigned at = tile; !done;) {
        unsigned long long seen[AT_ONCE];
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; ++i) seen[i] = at > i ? states[(long long)(at - 1 - i) * DIGITS] : 0;
        bool there = true;
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; ++i) {
            there = there && !done && seen[i] != 0;
            if (!there) continue;
            sum += seen[i] & COUNT;
            done = (seen[i] & ALL) != 0;
            --at;
        }
    }
    if (tile != 0) states[(long long)tile * DIGITS] = ALL | (sum + own);
    return sum;
}

// The lanes that have the same digit.
__device__ __forceinline__ unsigned lanes_with(unsigned digit) {
    unsigned peers = ~0u;
#pragma unroll
    for (unsigned bit = 0; bit < 8; ++bit) {
        bool is_set = digit >> bit & 1;
        unsigned set = __ballot_sync(~0u, is_set);
        peers &= is_set ? set : ~set;
    }
    return peers;
}

// What a block of THREADS with EACH keys in each has in shared memory. Counts are done with when keys come.
template <class Key, unsigned THREADS, unsigned EACH>
struct Tile {
    // For each digit: its place among all keys, less its place in the tile.
    long long shifts[DIGITS];
    union {
        // Of each warp, later the rank of its next key.
        unsigned counts[THREADS / 32][DIGITS];
        struct {
            Key keys[THREADS * EACH];
            unsigned places[THREADS * EACH];
        } sorted;
    };
    unsigned of_warps[DIGITS / 32];
    unsigned ticket;
};

template <class Key, unsigned THREADS, unsigned EACH>
struct Sorter {
    typedef Tile<Key, THREADS, EACH> Memory;
    static constexpr unsigned SIZE = THREADS * EACH, WARPS = THREADS / 32;

    const Pass &pass;
    Memory &memory;
    unsigned lane, warp, shift;
    // The first element of the row, the first one of the tile in the row, and how many the tile has.
    long long base, start;
    unsigned valid;
    // The first element of the thread in the tile; further ones follow by 32.
    unsigned first;
    Key keys[EACH];
    unsigned ranks[EACH];

    __device__ __forceinline__ Sorter(const Pass &pass, Memory &memory)
        : pass(pass), memory(memory), lane(threadIdx.x % 32), warp(threadIdx.x / 32), shift(pass.pass * 8), first(warp * 32 * EACH + lane) {}

    __device__ __forceinline__ unsigned digit(Key key) const { return unsigned(key >> shift) & 0xff; }

    // Reads the thread's part of what lies in memory as words.
    template <class Word>
    __device__ __forceinline__ void load_words(const void *from) {
        const Word *words = (const Word *)from + base + start + first;
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j) keys[j] = first + j * 32 < valid ? Key(words[j * 32]) : Key(0);
    }

    // What is behind the end has the last digit and comes last.
    __device__ __forceinline__ void load_keys() {
        if (pass.pass == 0) {
            if (sizeof(Key) == 8) load_words<Key>(pass.elements);
            else if (pass.passes == 4) load_words<unsigned>(pass.elements);
            else if (pass.passes == 2) load_words<unsigned short>(pass.elements);
            else load_words<unsigned char>(pass.elements);
            const Order<Key> order(pass.kind, pass.descending);
#pragma unroll
            for (unsigned j = 0; j < EACH; ++j) keys[j] = order.key(keys[j]);
        } else {
            load_words<Key>(pass.keys_in);
        }
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j)
            if (first + j * 32 >= valid) keys[j] = ~Key(0);
    }

    // Counts the tile's digits, tells the tiles behind, and has for each warp the rank of its first key of each digit.
    // Returns the tile's count of the thread's digit, and the rank of the first key that has it.
    __device__ __forceinline__ unsigned count_digits(volatile unsigned long long *states, unsigned number, unsigned &rank) {
        for (unsigned i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) memory.counts[i / DIGITS][i % DIGITS] = 0;
        __syncthreads();
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j) atomicAdd(&memory.counts[warp][digit(keys[j])], 1u);
        __syncthreads();
        unsigned own = threadIdx.x, count = 0, real = 0, sum = 0;
        if (own < DIGITS) {
            for (unsigned w = 0; w < WARPS; ++w) {
                unsigned of_warp = memory.counts[w][own];
                memory.counts[w][own] = count;
                count += of_warp;
            }
            real = own == DIGITS - 1 ? count - (SIZE - valid) : count;
            states[(long long)number * DIGITS] = (number == 0 ? ALL : OWN) | real;
            sum = count;
            for (unsigned step = 1; step < 32; step *= 2) {
                unsigned left = __shfl_up_sync(~0u, sum, step);
                if (lane >= step) sum += left;
            }
            if (lane == 31) memory.of_warps[warp] = sum;
        }
        __syncthreads();
        if (own < DIGITS) {
            rank = sum - count;
            for (unsigned w = 0; w < warp; ++w) rank += memory.of_warps[w];
            for (unsigned w = 0; w < WARPS; ++w) memory.counts[w][own] += rank;
        }
        __syncthreads();
        return real;
    }

    // The rank of each key in the tile: keys of a digit keep their order.
    __device__ __forceinline__ void rank_keys() {
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j) {
            unsigned own = digit(keys[j]), peers = lanes_with(own);
            unsigned before = __popc(peers & ((1u << lane) - 1)), next = 0;
            if (before == 0) next = atomicAdd(&memory.counts[warp][own], __popc(peers));
            ranks[j] = __shfl_sync(~0u, next, __ffs(peers) - 1) + before;
        }
        __syncthreads();
    }

    // Leaves keys and places in the order of their ranks.
    __device__ __forceinline__ void exchange() {
        unsigned places[EACH];
        if (pass.pass == 0) {
#pragma unroll
            for (unsigned j = 0; j < EACH; ++j) places[j] = unsigned(start) + first + j * 32;
        } else {
            const unsigned *from = pass.places_in + base + start + first;
#pragma unroll
            for (unsigned j = 0; j < EACH; ++j) places[j] = first + j * 32 < valid ? from[j * 32] : 0;
        }
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j) {
            memory.sorted.keys[ranks[j]] = keys[j];
            memory.sorted.places[ranks[j]] = places[j];
        }
    }

    __device__ __forceinline__ void store_keys() {
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j) {
            unsigned i = threadIdx.x + j * THREADS;
            if (i >= valid) break;
            Key key = memory.sorted.keys[i];
            long long to = memory.shifts[digit(key)] + i;
            if (to >= pass.n) continue;
            to += base;
            ((Key *)pass.keys_out)[to] = key;
            pass.places_out[to] = memory.sorted.places[i];
        }
    }

    // Writes the elements themselves, as words. One whose key stands for several is read where it was.
    template <class Word>
    __device__ __forceinline__ void store_elements() {
        const Order<Key> order(pass.kind, pass.descending);
#pragma unroll
        for (unsigned j = 0; j < EACH; ++j) {
            unsigned i = threadIdx.x + j * THREADS;
            if (i >= valid) break;
            Key key = memory.sorted.keys[i], bits;
            unsigned place = memory.sorted.places[i];
            long long to = memory.shifts[digit(key)] + i;
            if (to >= pass.n || place >= pass.n) continue;
            to += base;
            bool is_only = order.element(key, bits);
            pass.places[to] = place;
            ((Word *)pass.values)[to] = is_only ? Word(bits) : ((const Word *)pass.elements)[base + place];
        }
    }

    __device__ __forceinline__ void run() {
        // Tickets are given in the order in which blocks begin, so that whom a tile waits for is at work.
        if (threadIdx.x == 0) memory.ticket = atomicAdd(pass.ticket, 1u);
        __syncthreads();
        long long row = memory.ticket / pass.tiles;
        unsigned number = memory.ticket % pass.tiles;
        base = row * pass.n;
        start = (long long)number * SIZE;
        valid = pass.n - start < SIZE ? unsigned(pass.n - start) : SIZE;
        volatile unsigned long long *states = pass.states + row * pass.tiles * DIGITS + threadIdx.x;
        unsigned rank = 0;
        load_keys();
        unsigned count = count_digits(states, number, rank);
        rank_keys();
        exchange();
        if (threadIdx.x < DIGITS) {
            unsigned long long begin = pass.starts[(row * pass.taken + pass.pass) * DIGITS + threadIdx.x];
            memory.shifts[threadIdx.x] = (long long)(begin + look_back(states, number, count)) - (long long)rank;
        }
        __syncthreads();
        if (pass.pass + 1 < pass.taken) store_keys();
        else if (sizeof(Key) == 8) store_elements<Key>();
        else if (pass.passes == 4) store_elements<unsigned>();
        else if (pass.passes == 2) store_elements<unsigned short>();
        else store_elements<unsigned char>();
    }
};

// A block for each tile of each row, with dynamic shared memory for a Tile.
#define SORTER(name, Key, EACH)                                                                                            \
    extern "C" __global__ void __launch_bounds__(PASS_THREADS, 2) name(const Pass pass) {                                 \
        extern __shared__ __align__(16) char memory[];                                                                    \
        Sorter<Key, PASS_THREADS, EACH>(pass, *(Tile<Key, PASS_THREADS, EACH> *)memory).run();                            \
    }

SORTER(sort_pass_32, unsigned, 14)
SORTER(sort_pass_64, unsigned long long, 10)

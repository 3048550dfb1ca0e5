// Stable sorts of rows, with the places that the elements had.
//
// Elements are compared by keys: unsigned numbers in the same order, with both zeros equal; for descending orders their
// complement. A NaN is above everything, but below it with a negative sign, unless NAN_GREATEST is asked for. Rows of up to TILE elements are sorted in shared memory, several rows a block.
// Longer ones go through a pass for each byte of the key: a tile ranks its keys, learns from the tiles before it how many
// keys of each digit they have (each tile publishes its counts as soon as it has them), and writes its own to their
// places.

// What elements are.
enum Kind { UNSIGNED8, SIGNED8, SIGNED16, SIGNED32, SIGNED64, HALF, BRAIN, SINGLE, DOUBLE };

// Joined with a kind: the sign of a NaN does not count.
constexpr int NAN_GREATEST = 16;

constexpr unsigned THREADS = 256;
constexpr unsigned WARPS = THREADS / 32;
constexpr unsigned DIGITS = 256;
constexpr unsigned TILE = 2048;

template <class Key>
__device__ __forceinline__ Key order_float(Key bits, Key sign, Key infinity, int kind) {
    Key all = sign | (sign - 1), magnitude = bits & (sign - 1);
    if (magnitude > infinity) return bits & sign && !(kind & NAN_GREATEST) ? 0 : all;
    if (magnitude == 0) return sign;
    return bits & sign ? ~bits & all : bits | sign;
}

// The key of an element, for descending orders not yet inverted.
template <class Key>
__device__ __forceinline__ Key load_key(const void *from, long long i, int kind);

template <>
__device__ __forceinline__ unsigned load_key(const void *from, long long i, int kind) {
    switch (kind & ~NAN_GREATEST) {
    case UNSIGNED8: return ((const unsigned char *)from)[i];
    case SIGNED8: return ((const unsigned char *)from)[i] ^ 0x80u;
    case SIGNED16: return ((const unsigned short *)from)[i] ^ 0x8000u;
    case SIGNED32: return ((const unsigned *)from)[i] ^ 0x80000000u;
    case HALF: return order_float<unsigned>(((const unsigned short *)from)[i], 0x8000u, 0x7c00u, kind);
    case BRAIN: return order_float<unsigned>(((const unsigned short *)from)[i], 0x8000u, 0x7f80u, kind);
    default: return order_float<unsigned>(((const unsigned *)from)[i], 0x80000000u, 0x7f800000u, kind);
    }
}

template <>
__device__ __forceinline__ unsigned long long load_key(const void *from, long long i, int kind) {
    unsigned long long bits = ((const unsigned long long *)from)[i], sign = 1ull << 63;
    return (kind & ~NAN_GREATEST) == SIGNED64 ? bits ^ sign : order_float(bits, sign, 0x7ffull << 52, kind);
}

// All bits that a key of the kind may have.
template <class Key>
__device__ __forceinline__ Key key_mask(int kind) {
    kind &= ~NAN_GREATEST;
    if (kind == UNSIGNED8 || kind == SIGNED8) return Key(0xff);
    if (kind == SIGNED16 || kind == HALF || kind == BRAIN) return Key(0xffff);
    return ~Key(0);
}

__device__ __forceinline__ void copy_element(void *to, long long at, const void *from, long long i, int kind) {
    kind &= ~NAN_GREATEST;
    if (kind == UNSIGNED8 || kind == SIGNED8) ((unsigned char *)to)[at] = ((const unsigned char *)from)[i];
    else if (kind == SIGNED16 || kind == HALF || kind == BRAIN) ((unsigned short *)to)[at] = ((const unsigned short *)from)[i];
    else if (kind == SIGNED64 || kind == DOUBLE) ((unsigned long long *)to)[at] = ((const unsigned long long *)from)[i];
    else ((unsigned *)to)[at] = ((const unsigned *)from)[i];
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
    Key invert = descending ? key_mask<Key>(kind) : Key(0);
    long long first = (long long)blockIdx.x * (TILE / width);
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS) {
        long long row = first + i / width;
        unsigned at = i % width;
        bool have = row < rows && at < n;
        make_pair(pairs[i], have ? load_key<Key>(from, row * n + at, kind) ^ invert : ~Key(0), at);
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
        copy_element(values, row * keep + at, from, row * n + place, kind);
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
    for (unsigned i = threadIdx.x; i < passes * DIGITS; i += THREADS) here[i] = 0;
    __syncthreads();
    Key invert = descending ? key_mask<Key>(kind) : Key(0);
    long long row = blockIdx.x / parts, part = blockIdx.x % parts;
    long long each = (n + parts - 1) / parts, start = part * each, end = start + each < n ? start + each : n;
    for (long long i = start + threadIdx.x; i < end; i += THREADS) {
        Key key = load_key<Key>(from, row * n + i, kind) ^ invert;
        for (unsigned pass = 0; pass < passes; ++pass) atomicAdd(&here[pass * DIGITS + unsigned(key >> pass * 8 & 0xff)], 1u);
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
    // Of each tile and digit: a state in the two top bits, a count below.
    unsigned long long *states;
    unsigned *ticket;
    long long n;
    unsigned tiles;
    unsigned pass;
    unsigned passes;
    int kind;
    int descending;
    int padding;
};

constexpr unsigned long long OWN = 1ull << 62;
constexpr unsigned long long ALL = 2ull << 62;
constexpr unsigned long long COUNT = OWN - 1;

// Keys of the digit in the tiles before this one, which then tells the tiles after it.
__device__ __forceinline__ unsigned long long look_back(volatile unsigned long long *states, unsigned tile,
                                                        unsigned long long own) {
    if (tile == 0) {
        states[0] = ALL | own;
        return 0;
    }
    states[(long long)tile * DIGITS] = OWN | own;
    unsigned long long sum = 0;
    for (long long at = (long long)tile - 1;; --at) {
        unsigned long long state;
        do {
            state = states[at * DIGITS];
        } while (state == 0);
        sum += state & COUNT;
        if (state & ALL) break;
    }
    states[(long long)tile * DIGITS] = ALL | (sum + own);
    return sum;
}

template <class Key, unsigned EACH>
struct Tile {
    unsigned of_warps[WARPS][DIGITS];
    Key keys[THREADS * EACH];
    unsigned places[THREADS * EACH];
    // For each digit: its place among all keys, less its place in the tile.
    long long shifts[DIGITS];
    unsigned ticket;
};

// Writes the element of a key. A float whose key stands for several is read where it was.
template <class Key>
__device__ __forceinline__ void store_element(const Pass &pass, long long to, long long from, Key key);

template <>
__device__ __forceinline__ void store_element(const Pass &pass, long long to, long long from, unsigned key) {
    switch (pass.kind & ~NAN_GREATEST) {
    case UNSIGNED8: ((unsigned char *)pass.values)[to] = (unsigned char)key; return;
    case SIGNED8: ((unsigned char *)pass.values)[to] = (unsigned char)(key ^ 0x80u); return;
    case SIGNED16: ((unsigned short *)pass.values)[to] = (unsigned short)(key ^ 0x8000u); return;
    case SIGNED32: ((unsigned *)pass.values)[to] = key ^ 0x80000000u; return;
    case SINGLE:
        if (key != 0x80000000u && key != ~0u && key != 0) {
            ((unsigned *)pass.values)[to] = key & 0x80000000u ? key ^ 0x80000000u : ~key;
            return;
        }
        break;
    }
    copy_element(pass.values, to, pass.elements, from, pass.kind);
}

template <>
__device__ __forceinline__ void store_element(const Pass &pass, long long to, long long from, unsigned long long key) {
    if ((pass.kind & ~NAN_GREATEST) == SIGNED64) ((unsigned long long *)pass.values)[to] = key ^ 1ull << 63;
    else copy_element(pass.values, to, pass.elements, from, pass.kind);
}

template <class Key, unsigned EACH>
__device__ void sort_pass(Tile<Key, EACH> &tile, const Pass &pass) {
    constexpr unsigned SIZE = THREADS * EACH;
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) tile.ticket = atomicAdd(pass.ticket, 1u);
    for (unsigned i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) tile.of_warps[i / DIGITS][i % DIGITS] = 0;
    __syncthreads();
    // Tickets are given in the order in which blocks begin, so that whom a tile waits for is at work.
    long long row = tile.ticket / pass.tiles, base = row * pass.n;
    unsigned number = tile.ticket % pass.tiles;
    long long start = (long long)number * SIZE;
    unsigned valid = pass.n - start < SIZE ? unsigned(pass.n - start) : SIZE;
    Key keys[EACH], invert = pass.descending ? key_mask<Key>(pass.kind) : Key(0);
    unsigned places[EACH], ranks[EACH], shift = pass.pass * 8;
    unsigned first = warp * 32 * EACH + lane;
#pragma unroll
    for (unsigned j = 0; j < EACH; ++j) {
        unsigned i = first + j * 32;
        keys[j] = ~Key(0);
        places[j] = 0;
        if (i >= valid) continue;
        if (pass.pass == 0) {
            keys[j] = load_key<Key>(pass.elements, base + start + i, pass.kind) ^ invert;
            places[j] = unsigned(start + i);
        } else {
            keys[j] = ((const Key *)pass.keys_in)[base + start + i];
            places[j] = pass.places_in[base + start + i];
        }
    }
    // The rank of a key among its warp's keys of the digit. What is behind the end has the last digit and comes last.
#pragma unroll
    for (unsigned j = 0; j < EACH; ++j) {
        unsigned digit = unsigned(keys[j] >> shift & 0xff);
        unsigned peers = __match_any_sync(~0u, digit);
        unsigned before = __popc(peers & ((1u << lane) - 1));
        unsigned earlier = tile.of_warps[warp][digit];
        __syncwarp();
        if (before == 0) tile.of_warps[warp][digit] = earlier + __popc(peers);
        __syncwarp();
        ranks[j] = earlier + before;
    }
    __syncthreads();
    // Each thread has a digit now.
    unsigned digit = threadIdx.x, count = 0;
    for (unsigned w = 0; w < WARPS; ++w) {
        unsigned own = tile.of_warps[w][digit];
        tile.of_warps[w][digit] = count;
        count += own;
    }
    unsigned here = sum_before(count);
    for (unsigned w = 0; w < WARPS; ++w) tile.of_warps[w][digit] += here;
    unsigned real = digit == DIGITS - 1 ? count - (SIZE - valid) : count;
    unsigned long long earlier = look_back(pass.states + row * pass.tiles * DIGITS + digit, number, real);
    unsigned long long begin = pass.starts[(row * pass.passes + pass.pass) * DIGITS + digit];
    tile.shifts[digit] = (long long)(begin + earlier) - (long long)here;
    __syncthreads();
#pragma unroll
    for (unsigned j = 0; j < EACH; ++j) {
        unsigned at = ranks[j] + tile.of_warps[warp][unsigned(keys[j] >> shift & 0xff)];
        tile.keys[at] = keys[j];
        tile.places[at] = places[j];
    }
    __syncthreads();
    bool last = pass.pass + 1 == pass.passes;
    for (unsigned i = threadIdx.x; i < valid; i += THREADS) {
        Key key = tile.keys[i];
        unsigned place = tile.places[i];
        long long to = base + tile.shifts[unsigned(key >> shift & 0xff)] + i;
        if (last) {
            pass.places[to] = place;
            store_element<Key>(pass, to, base + place, key ^ invert);
        } else {
            ((Key *)pass.keys_out)[to] = key;
            pass.places_out[to] = place;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) sort_pass_32(const Pass pass) {
    __shared__ Tile<unsigned, 12> tile;
    sort_pass(tile, pass);
}

extern "C" __global__ void __launch_bounds__(THREADS) sort_pass_64(const Pass pass) {
    __shared__ Tile<unsigned long long, 8> tile;
    sort_pass(tile, pass);
}

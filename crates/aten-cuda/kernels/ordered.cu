// Elements written and added at places that an index tells, in the order of the index: the same bits at every run, and
// those of a loop over the index.
//
// A list of indices is copied to keys and sorted, equal keys staying in order (`sort.cu`). The thread of the first of
// equal keys then adds all of them, one after another; where elements are written, that of the last one writes. Where
// neighbouring threads have neighbouring keys and there are many equal ones, the warp loads what the thread adds. An index
// outside its dimension is reported and becomes the key behind the last place, which nobody uses.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "index.cuh"

// Where the elements of a list lie. The layout of launch/library/ordered.rs.
struct List {
    // Keys of a list.
    unsigned long long n;
    // The bytes of a step in the tensor that is written, and of one in the tensor that is read.
    long long stride;
    long long step;
    // How many places there are: greater keys are not used.
    long long size;
    // 4 or 8 bytes.
    int key_bytes;
    // Whether neighbouring threads have neighbouring keys, rather than neighbouring elements beside the list.
    int keys_first;
    // Whether there is one list.
    int is_only;
    int padding;
};

// The bytes from each operand's first element to its element at a place.
template <int N>
__device__ __forceinline__ void find(const Plan &plan, unsigned long long place, long long (&at)[N]) {
    int last = plan.rank - 1;
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll 1
    for (int dim = 0; dim <= last; ++dim) {
        unsigned long long size = plan.sizes[dim], next, here;
        if (dim == last) next = 0, here = place;
        else if ((place | size) >> 32 == 0) next = unsigned(place) / unsigned(size), here = place - next * size;
        else next = place / size, here = place - next * size;
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] += (long long)here * plan.strides[k][dim];
        place = next;
    }
}

// Operands: the keys, the index.
template <class Key>
__device__ __forceinline__ void make_key(char *keys, const char *index, const Plan &plan, const Along &along, Report *to) {
    unsigned long long place = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= plan.numel) return;
    long long at[2];
    find(plan, place, at);
    long long given = along.index_bytes == 4 ? (long long)*(const int *)(index + at[1]) : *(const long long *)(index + at[1]);
    bool is_inside = given >= 0 && given < along.size;
    if (!is_inside) report(to, along.operation, at[1] / along.index_bytes, given, along.size);
    *(Key *)(keys + at[0]) = is_inside ? Key(given) : Key(along.size);
}

extern "C" __global__ void keys_4(char *keys, const char *index, const Plan plan, const Along along, Report *to) {
    make_key<int>(keys, index, plan, along, to);
}
extern "C" __global__ void keys_8(char *keys, const char *index, const Plan plan, const Along along, Report *to) {
    make_key<long long>(keys, index, plan, along, to);
}

// A thread's key, and what lies beside the list at its element.
struct Own {
    const char *keys;
    const long long *places;
    unsigned long long at, n;
    long long key;
    char *out;
    const char *from;
    bool is_wide;

    __device__ __forceinline__ long long key_of(unsigned long long at) const {
        return is_wide ? ((const long long *)keys)[at] : (long long)((const int *)keys)[at];
    }
};

// Whether the thread's key is the last or the first of equal ones, and one that is used; then all that lies beside the list
// is found. Operands of the plan: the tensor that is written and the one that is read, which do not move along the list, and
// the places, which move from list to list.
template <bool LAST>
__device__ __forceinline__ bool begin(Own &own, char *out, const char *keys, const long long *places, const char *from,
                                      const Plan &plan, const List &list) {
    unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= plan.numel * list.n) return false;
    unsigned long long one = list.keys_first ? list.n : plan.numel, beyond, within;
    if ((thread | one) >> 32 == 0) beyond = unsigned(thread) / unsigned(one);
    else beyond = thread / one;
    within = thread - beyond * one;
    own.is_wide = list.key_bytes == 8;
    own.at = list.keys_first ? within : beyond;
    own.n = list.n;
    auto is_wanted = [&]() {
        own.key = own.key_of(own.at);
        if (own.key >= list.size) return false;
        if (LAST) return own.at + 1 == own.n || own.key_of(own.at + 1) != own.key;
        return own.at == 0 || own.key_of(own.at - 1) != own.key;
    };
    own.keys = keys;
    // Most threads have nothing to do, and are told soon where they need not look for their list.
    if (list.is_only && !is_wanted()) return false;
    long long at[3];
    find(plan, list.keys_first ? beyond : within, at);
    long long row = at[2] / 8;
    own.keys = keys + row * list.key_bytes;
    own.places = places + row;
    if (!list.is_only && !is_wanted()) return false;
    own.out = out + at[0] + own.key * list.stride;
    own.from = from + at[1];
    return true;
}

template <class Word>
__device__ __forceinline__ void write(char *out, const char *keys, const long long *places, const char *from,
                                      const Plan &plan, const List &list) {
    Own own;
    if (!begin<true>(own, out, keys, places, from, plan, list)) return;
    *(Word *)own.out = *(const Word *)(own.from + own.places[own.at] * list.step);
}

#define WRITER(bytes, Word)                                                                                                \
    extern "C" __global__ void write_##bytes(char *out, const char *keys, const long long *places, const char *from,       \
                                             const Plan plan, const List list) {                                           \
        write<Word>(out, keys, places, from, plan, list);                                                                  \
    }

WRITER(1, unsigned char)
WRITER(2, unsigned short)
WRITER(4, unsigned)
WRITER(8, unsigned long long)
WRITER(16, Sixteen)

struct Half {
    unsigned short bits;
    __device__ __forceinline__ float wide() const { return __half2float(__ushort_as_half(bits)); }
    static __device__ __forceinline__ Half of(float value) { return {__half_as_ushort(__float2half_rn(value))}; }
    __device__ __forceinline__ void add(Half other) { *this = of(wide() + other.wide()); }
};

struct Brain {
    unsigned short bits;
    __device__ __forceinline__ float wide() const { return __uint_as_float(unsigned(bits) << 16); }
    static __device__ __forceinline__ Brain of(float value) { return {__bfloat16_as_ushort(__float2bfloat16_rn(value))}; }
    __device__ __forceinline__ void add(Brain other) { *this = of(wide() + other.wide()); }
};

template <class T>
struct Number {
    T value;
    __device__ __forceinline__ void add(Number other) { value += other.value; }
};

template <class T>
struct Pair {
    T re, im;
    __device__ __forceinline__ void add(Pair other) {
        re.add(other.re);
        im.add(other.im);
    }
};

// A sum that is kept in the type of the elements, rounded after each of them: it begins with what is there already.
template <class T>
struct Rounded {
    T value;
    __device__ __forceinline__ void begin(const T &old) { value = old; }
    __device__ __forceinline__ void add(const T &other) { value.add(other); }
    __device__ __forceinline__ T end(const T &) const { return value; }
};

// A sum of short floats in 32 bits, which is added to what is there already and rounded once.
template <class T>
struct Wide {
    float value;
    __device__ __forceinline__ void begin(const T &) { value = 0; }
    __device__ __forceinline__ void add(const T &other) { value += other.wide(); }
    __device__ __forceinline__ T end(const T &old) const { return T::of(old.wide() + value); }
};

// The halves of a complex number are summed on their own.
template <class T>
struct Wide<Pair<T>> {
    Wide<T> re, im;
    __device__ __forceinline__ void begin(const Pair<T> &old) { re.begin(old.re), im.begin(old.im); }
    __device__ __forceinline__ void add(const Pair<T> &other) { re.add(other.re), im.add(other.im); }
    __device__ __forceinline__ Pair<T> end(const Pair<T> &old) const { return {re.end(old.re), im.end(old.im)}; }
};

// How many elements are loaded before the first of them is added.
constexpr int AHEAD = 8;
// The same for each lane of a warp that helps a thread.
constexpr int EACH = 4;

// The value of another lane.
template <class T>
__device__ __forceinline__ T of_lane(const T &value, int lane) {
    constexpr int WORDS = (sizeof(T) + 3) / 4;
    union {
        unsigned words[WORDS];
        T whole;
    } own = {}, other = {};
    own.whole = value;
#pragma unroll
    for (int k = 0; k < WORDS; ++k) other.words[k] = __shfl_sync(~0u, own.words[k], lane);
    return other.whole;
}

// Adds the elements from `start` on whose key a lane of the warp has: all lanes load, and each adds all of them in order.
template <class T, class Sum>
__device__ __forceinline__ Sum add_together(Sum sum, const Own &of, int leader, const List &list) {
    Own own;
    own.is_wide = list.key_bytes == 8;
    own.keys = of_lane(of.keys, leader);
    own.places = of_lane(of.places, leader);
    own.from = of_lane(of.from, leader);
    own.key = of_lane(of.key, leader);
    own.n = list.n;
    sum = of_lane(sum, leader);
    unsigned long long start = of_lane(of.at, leader) + AHEAD;
    for (bool goes_on = true; goes_on; start += 32 * EACH) {
        T values[EACH];
        unsigned counts[EACH];
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            unsigned long long at = start + 32 * k + threadIdx.x % 32;
            bool is_there = at < own.n && own.key_of(at) == own.key;
            values[k] = T();
            if (is_there) values[k] = *(const T *)(own.from + own.places[at] * list.step);
            // Equal keys are neighbours.
            counts[k] = __popc(__ballot_sync(~0u, is_there));
        }
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            if (counts[k] == 32) {
#pragma unroll
                for (int lane = 0; lane < 32; ++lane) sum.add(of_lane(values[k], lane));
            } else {
#pragma unroll 1
                for (int lane = 0; lane < counts[k]; ++lane) sum.add(of_lane(values[k], lane));
            }
        }
        goes_on = counts[EACH - 1] == 32;
    }
    return sum;
}

template <class T, class Sum>
__device__ __forceinline__ void accumulate(char *out, const char *keys, const long long *places, const char *from,
                                           const Plan &plan, const List &list) {
    Own own = {};
    Sum sum = Sum();
    bool is_first = begin<false>(own, out, keys, places, from, plan, list), goes_on = is_first;
    if (is_first) {
        sum.begin(*(const T *)own.out);
        for (unsigned long long start = own.at; goes_on; start += AHEAD) {
            T values[AHEAD];
            bool is_there[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                is_there[k] = start + k < own.n && own.key_of(start + k) == own.key;
                values[k] = T();
                if (is_there[k]) values[k] = *(const T *)(own.from + own.places[start + k] * list.step);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; ++k)
                if (is_there[k]) sum.add(values[k]);
            goes_on = is_there[AHEAD - 1];
            if (list.keys_first) break;
        }
    }
    if (list.keys_first) {
        for (unsigned waiting = __ballot_sync(~0u, goes_on); waiting; waiting &= waiting - 1) {
            int leader = __ffs(waiting) - 1;
            Sum added = add_together<T>(sum, own, leader, list);
            if (threadIdx.x % 32 == leader) sum = added;
        }
    }
    if (is_first) *(T *)own.out = sum.end(*(const T *)own.out);
}

#define ADDER(name, T, Sum)                                                                                                \
    extern "C" __global__ void name(char *out, const char *keys, const long long *places, const char *from,                \
                                    const Plan plan, const List list) {                                                    \
        accumulate<T, Sum<T>>(out, keys, places, from, plan, list);                                                        \
    }

ADDER(add_half, Half, Rounded)
ADDER(add_brain, Brain, Rounded)
ADDER(add_float, Number<float>, Rounded)
ADDER(add_double, Number<double>, Rounded)
ADDER(add_half_pair, Pair<Half>, Rounded)
ADDER(add_float_pair, Pair<Number<float>>, Rounded)
ADDER(add_double_pair, Pair<Number<double>>, Rounded)
ADDER(sum_half, Half, Wide)
ADDER(sum_brain, Brain, Wide)
ADDER(sum_half_pair, Pair<Half>, Wide)

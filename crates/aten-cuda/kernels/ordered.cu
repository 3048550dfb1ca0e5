// Elements written and added at places that an index tells, in the order of the index: the same bits at every run, and
// those of a loop over the index.
//
// A list of indices is copied to keys and sorted, equal keys staying in order (`sort.cu`). The thread of the first of
// equal keys then adds all of them, one after another; where elements are written, that of the last one writes. An index
// outside its dimension is reported and becomes the greatest key, which nobody uses.

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
    *(Key *)(keys + at[0]) = is_inside ? Key(given) : Key((1ull << (sizeof(Key) * 8 - 1)) - 1);
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

// Operands of the plan: the tensor that is written and the one that is read, which do not move along the list, and the
// places, which move from list to list.
__device__ __forceinline__ bool begin(Own &own, char *out, const char *keys, const long long *places, const char *from,
                                      const Plan &plan, const List &list) {
    unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= plan.numel * list.n) return false;
    unsigned long long one = list.keys_first ? list.n : plan.numel, beyond, within;
    if ((thread | one) >> 32 == 0) beyond = unsigned(thread) / unsigned(one);
    else beyond = thread / one;
    within = thread - beyond * one;
    long long at[3];
    find(plan, list.keys_first ? beyond : within, at);
    long long row = at[2] / 8;
    own.is_wide = list.key_bytes == 8;
    own.keys = keys + row * list.key_bytes;
    own.places = places + row;
    own.at = list.keys_first ? within : beyond;
    own.n = list.n;
    own.key = own.key_of(own.at);
    own.out = out + at[0] + own.key * list.stride;
    own.from = from + at[1];
    return own.key < list.size;
}

template <class Word>
__device__ __forceinline__ void write(char *out, const char *keys, const long long *places, const char *from,
                                      const Plan &plan, const List &list) {
    Own own;
    if (!begin(own, out, keys, places, from, plan, list)) return;
    if (own.at + 1 < own.n && own.key_of(own.at + 1) == own.key) return;
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
    __device__ __forceinline__ void add(Half other) {
        bits = __half_as_ushort(
            __float2half_rn(__half2float(__ushort_as_half(bits)) + __half2float(__ushort_as_half(other.bits))));
    }
};

struct Brain {
    unsigned short bits;
    __device__ __forceinline__ void add(Brain other) {
        float sum = __uint_as_float(unsigned(bits) << 16) + __uint_as_float(unsigned(other.bits) << 16);
        bits = __bfloat16_as_ushort(__float2bfloat16_rn(sum));
    }
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

// How many elements are loaded before the first of them is added.
constexpr int AHEAD = 8;

template <class T>
__device__ __forceinline__ void accumulate(char *out, const char *keys, const long long *places, const char *from,
                                           const Plan &plan, const List &list) {
    Own own;
    if (!begin(own, out, keys, places, from, plan, list)) return;
    if (own.at > 0 && own.key_of(own.at - 1) == own.key) return;
    T sum = *(const T *)own.out;
    bool goes_on = true;
    for (unsigned long long start = own.at; goes_on; start += AHEAD) {
        T values[AHEAD];
        bool is_there[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            // Equal keys are neighbours.
            is_there[k] = start + k < own.n && own.key_of(start + k) == own.key;
            values[k] = T();
            if (is_there[k]) values[k] = *(const T *)(own.from + own.places[start + k] * list.step);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k)
            if (is_there[k]) sum.add(values[k]);
        goes_on = is_there[AHEAD - 1];
    }
    *(T *)own.out = sum;
}

#define ADDER(name, T)                                                                                                     \
    extern "C" __global__ void add_##name(char *out, const char *keys, const long long *places, const char *from,          \
                                          const Plan plan, const List list) {                                              \
        accumulate<T>(out, keys, places, from, plan, list);                                                                \
    }

ADDER(half, Half)
ADDER(brain, Brain)
ADDER(float, Number<float>)
ADDER(double, Number<double>)
ADDER(half_pair, Pair<Half>)
ADDER(float_pair, Pair<Number<float>>)
ADDER(double_pair, Pair<Number<double>>)

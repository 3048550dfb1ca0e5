// Elements moved to and from places that other tensors tell, and accumulated there.
//
// An element is moved by its bytes, whatever its type. Offsets are in bytes and of 64 bits; only the division that finds
// a place has a short form. An index outside its dimension is reported and the element left out: a gathered one is zero.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "index.cuh"

template <int N, class Unsigned>
__device__ __forceinline__ void walk(const Plan &plan, Unsigned place, long long (&at)[N]) {
    int last = plan.rank - 1;
#pragma unroll 1
    for (int dim = 0; dim < last; ++dim) {
        Unsigned size = Unsigned(plan.sizes[dim]), next = place / size, here = place - next * size;
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] += (long long)here * plan.strides[k][dim];
        place = next;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += (long long)place * plan.strides[k][last];
}

// The bytes from each operand's first element to its element at a place.
template <int N>
__device__ __forceinline__ void find(const Plan &plan, unsigned long long place, long long (&at)[N]) {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
    if (plan.numel >> 32 == 0) walk<N, unsigned>(plan, unsigned(place), at);
    else walk<N, unsigned long long>(plan, place, at);
}

// Reports indices that are out of range, but for one that stands for none. Operands: the index.
extern "C" __global__ void check_places(const char *index, const Plan plan, const Along along, long long none, Report *to) {
    unsigned long long place = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= plan.numel) return;
    long long at[1];
    find(plan, place, at);
    long long value = *(const long long *)(index + at[0]);
    if (value == none || (value >= 0 && value < along.size)) return;
    report(to, along.operation, at[0] / along.index_bytes, value, along.size);
}

// The index at an offset; false where it is out of range.
__device__ __forceinline__ bool read_index(const char *index, long long at, const Along &along, Report *to,
                                           long long &value) {
    value = along.index_bytes == 4 ? (long long)*(const int *)(index + at) : *(const long long *)(index + at);
    long long given = value;
    if (along.wraps && value < 0) value += along.size;
    if (value >= 0 && value < along.size) return true;
    report(to, along.operation, at / along.index_bytes, given, along.size);
    return false;
}

__device__ __forceinline__ unsigned long long thread() {
    return (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
}

// Operands: the output, the index, the tensor that is read (which does not move along the dimension).
template <class Word>
__device__ void gather(char *out, const char *index, const char *from, const Plan &plan, const Along &along, Report *to) {
    unsigned long long place = thread();
    if (place >= plan.numel) return;
    long long at[3], value;
    find(plan, place, at);
    Word word = {};
    if (read_index(index, at[1], along, to, value)) word = *(const Word *)(from + at[2] + value * along.stride);
    *(Word *)(out + at[0]) = word;
}

// Operands: the tensor that is written (which does not move along the dimension), the index, the source.
template <class Word>
__device__ void scatter(char *out, const char *index, const char *from, const Plan &plan, const Along &along, Report *to) {
    unsigned long long place = thread();
    if (place >= plan.numel) return;
    long long at[3], value;
    find(plan, place, at);
    if (!read_index(index, at[1], along, to, value)) return;
    *(Word *)(out + at[0] + value * along.stride) = *(const Word *)(from + at[2]);
}

// Operands: the output and the source, whose strides may be negative.
template <class Word>
__device__ void move(char *out, const char *from, const Plan &plan) {
    unsigned long long place = thread();
    if (place >= plan.numel) return;
    long long at[2];
    find(plan, place, at);
    *(Word *)(out + at[0]) = *(const Word *)(from + at[1]);
}

#define MOVERS(name, Word)                                                                                                 \
    extern "C" __global__ void gather_##name(char *out, const char *index, const char *from, const Plan plan,              \
                                             const Along along, Report *to) {                                              \
        gather<Word>(out, index, from, plan, along, to);                                                                   \
    }                                                                                                                      \
    extern "C" __global__ void scatter_##name(char *out, const char *index, const char *from, const Plan plan,             \
                                              const Along along, Report *to) {                                             \
        scatter<Word>(out, index, from, plan, along, to);                                                                  \
    }                                                                                                                      \
    extern "C" __global__ void move_##name(char *out, const char *from, const Plan plan) { move<Word>(out, from, plan); }

MOVERS(1, unsigned char)
MOVERS(2, unsigned short)
MOVERS(4, unsigned)
MOVERS(8, unsigned long long)
MOVERS(16, Sixteen)

// Adds to an element of one or two bytes by exchanging the whole word that it lies in.
template <class Small, class Add>
__device__ __forceinline__ void add_small(Small *to, Add add) {
    unsigned long long address = (unsigned long long)to;
    unsigned *word = (unsigned *)(address & ~3ull);
    unsigned shift = unsigned(address & 3) * 8, mask = (sizeof(Small) == 1 ? 0xffu : 0xffffu) << shift;
    unsigned old = *(volatile unsigned *)word, seen;
    do {
        seen = old;
        unsigned sum = unsigned(add(Small(seen >> shift)));
        old = atomicCAS(word, seen, (seen & ~mask) | (sum << shift & mask));
    } while (old != seen);
}

struct AddBool {
    static __device__ void add(unsigned char *to, const unsigned char *from) {
        if (*from) *(volatile unsigned char *)to = 1;
    }
    using Element = unsigned char;
};

struct AddByte {
    static __device__ void add(unsigned char *to, const unsigned char *from) {
        unsigned char value = *from;
        add_small(to, [=](unsigned char old) { return (unsigned char)(old + value); });
    }
    using Element = unsigned char;
};

struct AddShort {
    static __device__ void add(unsigned short *to, const unsigned short *from) {
        unsigned short value = *from;
        add_small(to, [=](unsigned short old) { return (unsigned short)(old + value); });
    }
    using Element = unsigned short;
};

struct AddInt {
    static __device__ void add(unsigned *to, const unsigned *from) { atomicAdd(to, *from); }
    using Element = unsigned;
};

struct AddLong {
    static __device__ void add(unsigned long long *to, const unsigned long long *from) { atomicAdd(to, *from); }
    using Element = unsigned long long;
};

struct AddHalf {
    static __device__ void add(unsigned short *to, const unsigned short *from) {
        float value = __half2float(__ushort_as_half(*from));
        add_small(to, [=](unsigned short old) {
            return __half_as_ushort(__float2half_rn(__half2float(__ushort_as_half(old)) + value));
        });
    }
    using Element = unsigned short;
};

struct AddBrain {
    static __device__ void add(unsigned short *to, const unsigned short *from) {
        float value = __uint_as_float(unsigned(*from) << 16);
        add_small(to, [=](unsigned short old) {
            return __bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(unsigned(old) << 16) + value));
        });
    }
    using Element = unsigned short;
};

struct AddFloat {
    static __device__ void add(float *to, const float *from) { atomicAdd(to, *from); }
    using Element = float;
};

struct AddDouble {
    static __device__ void add(double *to, const double *from) { atomicAdd(to, *from); }
    using Element = double;
};

// The halves of a complex number are added on their own.
template <class Add>
struct AddPair {
    static __device__ void add(typename Add::Element *to, const typename Add::Element *from) {
        Add::add(to, from);
        Add::add(to + 1, from + 1);
    }
    using Element = typename Add::Element;
};

// Operands as for a scatter.
template <class Add>
__device__ void accumulate(char *out, const char *index, const char *from, const Plan &plan, const Along &along,
                           Report *to) {
    unsigned long long place = thread();
    if (place >= plan.numel) return;
    long long at[3], value;
    find(plan, place, at);
    if (!read_index(index, at[1], along, to, value)) return;
    using Element = typename Add::Element;
    Add::add((Element *)(out + at[0] + value * along.stride), (const Element *)(from + at[2]));
}

#define ADDER(name, Add)                                                                                                   \
    extern "C" __global__ void add_##name(char *out, const char *index, const char *from, const Plan plan,                 \
                                          const Along along, Report *to) {                                                 \
        accumulate<Add>(out, index, from, plan, along, to);                                                                \
    }

ADDER(bool, AddBool)
ADDER(byte, AddByte)
ADDER(short, AddShort)
ADDER(int, AddInt)
ADDER(long, AddLong)
ADDER(half, AddHalf)
ADDER(brain, AddBrain)
ADDER(float, AddFloat)
ADDER(double, AddDouble)
ADDER(half_pair, AddPair<AddHalf>)
ADDER(float_pair, AddPair<AddFloat>)
ADDER(double_pair, AddPair<AddDouble>)

// Adds an index's part to combined places. Operands: the places, the index.
extern "C" __global__ void combine(long long *out, const char *index, const Plan plan, const Along along, Report *to) {
    unsigned long long place = thread();
    if (place >= plan.numel) return;
    long long at[2], value;
    find(plan, place, at);
    if (!read_index(index, at[1], along, to, value)) value = 0;
    long long *sum = (long long *)((char *)out + at[0]);
    *sum = (along.first ? 0 : *sum) + value * along.stride;
}

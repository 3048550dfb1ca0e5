// What stands before every elementwise function: names of integers, elements as they lie in memory, and conversions.
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

namespace jiterator {

struct Half {
    uint16_t bits;
};
struct BFloat16 {
    uint16_t bits;
};
struct Bool {
    uint8_t bits;
};

// From an element in memory to the value that is computed with, and back.
template <typename S>
struct Stored {
    typedef S Value;
    static __device__ Value up(S stored) { return stored; }
    static __device__ S down(Value value) { return value; }
};

template <>
struct Stored<Half> {
    typedef float Value;
    static __device__ float up(Half stored) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored.bits));
        return value;
    }
    static __device__ Half down(float value) {
        Half stored;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
        return stored;
    }
};

template <>
struct Stored<BFloat16> {
    typedef float Value;
    static __device__ float up(BFloat16 stored) { return __uint_as_float(uint32_t(stored.bits) << 16); }
    static __device__ BFloat16 down(float value) {
        // To the nearest, halves to the even one. A NaN stays one.
        uint32_t bits = __float_as_uint(value);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        return BFloat16{uint16_t(value == value ? rounded : 0x7fc0u)};
    }
};

template <>
struct Stored<Bool> {
    typedef bool Value;
    static __device__ bool up(Bool stored) { return stored.bits != 0; }
    static __device__ Bool down(bool value) { return Bool{uint8_t(value ? 1 : 0)}; }
};

template <typename To, typename From>
struct Convert {
    static __device__ To of(From value) { return static_cast<To>(value); }
};

template <typename To, typename From>
__device__ To convert(From value) {
    return Convert<To, From>::of(value);
}

}  // namespace jiterator

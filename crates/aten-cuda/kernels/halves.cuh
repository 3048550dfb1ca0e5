// Floats of 16 bits as kernels load and store them, and what becomes of them on compute capability 8.0.

#pragma once

#include "numbers.cuh"

struct Half { u16 bits; };
struct Brain { u16 bits; };

template <class T> struct Element;

template <> struct Element<Half> {
    static __device__ __forceinline__ float widened(Half value)
    {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
        return wide;
    }
    // Two floats rounded, the first one in the lower half.
    static __device__ __forceinline__ u32 narrowed(float first, float second)
    {
        u32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    static __device__ __forceinline__ Half rounded(float value) { return Half{(u16)narrowed(value, 0)}; }
};

template <> struct Element<Brain> {
    static __device__ __forceinline__ float widened(Brain value) { return __uint_as_float((u32)value.bits << 16); }
    static __device__ __forceinline__ u32 narrowed(float first, float second)
    {
        u32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    static __device__ __forceinline__ Brain rounded(float value) { return Brain{(u16)narrowed(value, 0)}; }
};

// The functions that a product ends with. The numbers are those of `Activation` in launch/library/product.

#pragma once

enum { NONE = 0, RELU = 1, GELU = 2 };

template <class Sum> __device__ __forceinline__ Sum activated(Sum value, unsigned activation)
{
    if (activation == RELU) return value < 0 ? 0 : value;
    if (activation != GELU) return value;
    const Sum t = (Sum)0.79788456080286535588 * (value + (Sum)0.044715 * value * value * value);
    return value / (1 + exp(-2 * t));
}

// The numbers that kernels of tiled products take.

#pragma once

#include "numbers.cuh"

struct Strides {
    i64 batch, row, column;
};

// The layout of launch/library/product/tiled.rs.
struct Sizes {
    i64 batches, m, n, k;
    Strides out, a, b, c;
    double alpha[2], beta[2];
    i64 bias_step, activation;
};

enum { NONE = 0, RELU = 1, GELU = 2 };

// A row of a matrix a block: softmax and layer norm, with sums in a fixed order.
#define LEAST (-__int_as_float(0x7F800000)) // minus infinity

// The sum, or with `greatest` the greatest, of what all threads of a block have; every thread gets it.
__device__ float of_block(float value, bool greatest) {
    __shared__ float all[32];
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(~0u, value, step);
        value = greatest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) all[threadIdx.x / 32] = value;
    __syncthreads();
    value = all[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp)
        value = greatest ? fmaxf(value, all[warp]) : value + all[warp];
    return value;
}

extern "C" __global__ void softmax_rows(float *to, const float *from, unsigned columns) {
    to += blockIdx.x * columns, from += blockIdx.x * columns;
    float greatest = LEAST, sum = 0;
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) greatest = fmaxf(greatest, from[i]);
    greatest = of_block(greatest, true);
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(from[i] - greatest);
    sum = of_block(sum, false);
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) to[i] = expf(from[i] - greatest) / sum;
}

extern "C" __global__ void layer_norm_rows(float *to, const float *from, const float *weight, const float *bias,
                                           float epsilon, unsigned columns) {
    to += blockIdx.x * columns, from += blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) sum += from[i];
    float mean = of_block(sum, false) / columns;
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) squares += (from[i] - mean) * (from[i] - mean);
    float scale = rsqrtf(of_block(squares, false) / columns + epsilon);
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x)
        to[i] = fmaf((from[i] - mean) * scale, weight[i], bias[i]);
}

// The same mean by Welford's way, in double.
extern "C" __global__ void welford_rows(double *to, const float *from, unsigned columns) {
    double mean = 0, spread = 0;
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = 0; i < columns; ++i) {
        double value = from[row * columns + i], delta = value - mean;
        mean += delta / (i + 1);
        spread += delta * (value - mean);
    }
    to[row * 2] = mean, to[row * 2 + 1] = spread / columns;
}

// Kernels with a mistake each, beside the same without it: a simulated device that looks for mistakes must name the first
// and let the second pass. `planted/compare.cu` runs them under the tools that a real device has.

// A barrier is missing between what one warp writes and what another reads.
extern "C" __global__ void race_shared(int *out) {
    __shared__ int tile[256];
    tile[threadIdx.x] = threadIdx.x * 3;
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

extern "C" __global__ void race_shared_right(int *out) {
    __shared__ int tile[256];
    tile[threadIdx.x] = threadIdx.x * 3;
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

// The lanes of a warp do not run in step.
extern "C" __global__ void missing_syncwarp(int *out) {
    __shared__ int tile[32];
    tile[threadIdx.x] = threadIdx.x * 5;
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

extern "C" __global__ void missing_syncwarp_right(int *out) {
    __shared__ int tile[32];
    tile[threadIdx.x] = threadIdx.x * 5;
    __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

// One element too many.
extern "C" __global__ void past_end(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = i;
}

extern "C" __global__ void past_end_right(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i;
}

// The last element is not written, and all are read.
extern "C" __global__ void fill(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i;
}

extern "C" __global__ void unwritten(int *out, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + 1;
}

// A vector that begins at the second number.
extern "C" __global__ void misaligned(float *out, const float *in) {
    float4 four = *reinterpret_cast<const float4 *>(in + 4 * threadIdx.x + 1);
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}

extern "C" __global__ void misaligned_right(float *out, const float *in) {
    float4 four = *reinterpret_cast<const float4 *>(in + 4 * threadIdx.x + 4);
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}

// Half of a warp comes to a barrier of the block, and the other half meets it with the next one.
extern "C" __global__ void divergent_barrier(int *out, int half) {
    __shared__ int tile[32];
    if (threadIdx.x < half) {
        tile[threadIdx.x] = threadIdx.x * 7;
        __syncthreads();
    }
    out[threadIdx.x] = threadIdx.x < half ? tile[half - 1 - threadIdx.x] : 0;
    __syncthreads();
    out[32 + threadIdx.x] = tile[threadIdx.x % half];
}

extern "C" __global__ void divergent_barrier_right(int *out, int half) {
    __shared__ int tile[32];
    if (threadIdx.x < half) tile[threadIdx.x] = threadIdx.x * 7;
    __syncthreads();
    out[threadIdx.x] = threadIdx.x < half ? tile[half - 1 - threadIdx.x] : 0;
    __syncthreads();
    out[32 + threadIdx.x] = tile[threadIdx.x % half];
}

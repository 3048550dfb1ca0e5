// Atomic operations of shared and global memory, and what is built on them: locks, flags, a barrier of the grid.
#include <cuda_fp16.h>

extern "C" __global__ void histogram(unsigned *to, const unsigned char *from, unsigned n) {
    __shared__ unsigned here[256];
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) here[i] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&here[from[i]], 1u);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        if (here[i]) atomicAdd(&to[i], here[i]);
}

extern "C" __global__ void index_add_float(float *to, const unsigned *index, const float *from, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&to[index[i]], from[i]);
}

extern "C" __global__ void index_add_half2(__half2 *to, const unsigned *index, const __half2 *from, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&to[index[i]], from[i]);
}

extern "C" __global__ void index_add_double(double *to, const unsigned *index, const double *from, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&to[index[i]], from[i]);
}

// A greatest double, which the hardware has no operation for.
extern "C" __global__ void greatest_double(unsigned long long *to, const double *from, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned long long seen = *to;
        while (from[i] > __longlong_as_double(seen)) {
            unsigned long long old = atomicCAS(to, seen, (unsigned long long)__double_as_longlong(from[i]));
            if (old == seen) break;
            seen = old;
        }
    }
}

// Each operation once a thread, on its own word.
extern "C" __global__ void each_operation(unsigned *w, unsigned long long *d, int *s, long long *sd) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&w[0], i);
    atomicSub(&w[1], i);
    atomicMin(&w[2], i + 5);
    atomicMax(&w[3], i);
    atomicAnd(&w[4], ~(1u << i % 32));
    atomicOr(&w[5], 1u << i % 31);
    atomicXor(&w[6], i * 0x9E3779B9u);
    atomicInc(&w[7], 9);
    atomicDec(&w[8], 9);
    atomicMin(&s[0], 3 - (int)i);
    atomicMax(&s[1], (int)i - 300);
    atomicAdd(&d[0], i * 0x100000001ull);
    atomicMin(&d[1], ~0ull - i);
    atomicMax(&d[2], (unsigned long long)i << 33);
    atomicAnd(&d[3], ~(1ull << i % 64));
    atomicOr(&d[4], 1ull << i % 63);
    atomicXor(&d[5], i * 0x9E3779B97F4A7C15ull);
    atomicMin(&sd[0], -(long long)i);
    atomicMax(&sd[1], (long long)i - 1000);
    // The order is open, the set of tickets is not.
    unsigned ticket = atomicExch(&w[9], i + 1);
    atomicAdd(&d[6], (unsigned long long)ticket);
    unsigned taken = atomicAdd(&w[10], 1u);
    w[16 + taken] = 1 + taken;
}

// Lanes of one warp take a lock in turn; each spins while another holds it.
extern "C" __global__ void lock_of_lanes(unsigned *lock, unsigned *count, unsigned rounds) {
    for (unsigned round = 0; round < rounds; ++round) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0u, 1u) == 0u) {
                __threadfence();
                unsigned held = *(volatile unsigned *)count;
                *(volatile unsigned *)count = held + 1;
                __threadfence();
                atomicExch(lock, 0u);
                done = true;
            }
        }
    }
}

// All blocks, which run at once, wait for each other several times.
extern "C" __global__ void barrier_of_grid(unsigned *to, unsigned *arrived, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    for (unsigned round = 0; round < rounds; ++round) {
        unsigned *from = to + (round % 2) * all, *into = to + (1 - round % 2) * all;
        into[i] = ((volatile unsigned *)from)[(i + blockDim.x + 1) % all] + 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1u);
            while (*(volatile unsigned *)arrived < (round + 1) * gridDim.x) __nanosleep(20);
            __threadfence();
        }
        __syncthreads();
    }
}

// Each block waits for the flag of the one before it and hands a value on.
extern "C" __global__ void chain_of_flags(volatile unsigned *flags, volatile unsigned *values) {
    if (threadIdx.x != 0) return;
    unsigned value = 7;
    if (blockIdx.x > 0) {
        while (flags[blockIdx.x - 1] == 0) {
        }
        __threadfence();
        value = values[blockIdx.x - 1];
    }
    values[blockIdx.x] = value * 3 + blockIdx.x;
    __threadfence();
    flags[blockIdx.x] = 1;
}

// The last block to end sums what all blocks left.
__device__ unsigned blocks_done = 0;
extern "C" __global__ void last_block_sums(unsigned *parts, unsigned *total) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = blockIdx.x * blockIdx.x;
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) sum += ((volatile unsigned *)parts)[i];
        *total = sum;
    }
}

extern "C" __global__ void wait_by_clock(unsigned *to, long long cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    unsigned long long before;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before));
    __nanosleep(1000);
    unsigned long long after;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(after));
    to[threadIdx.x] = (after >= before) + 2 * (clock64() - begin >= cycles);
}

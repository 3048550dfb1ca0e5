// What the lanes of a warp tell each other.

constexpr int KINDS = 16;

extern "C" __global__ void shuffles(int *to, const int *from) {
    unsigned lane = threadIdx.x;
    int value = from[lane], *out = to + lane * KINDS;
    out[0] = __shfl_sync(~0u, value, 5);
    out[1] = __shfl_sync(~0u, value, lane * 7);
    out[2] = __shfl_up_sync(~0u, value, 3);
    out[3] = __shfl_down_sync(~0u, value, 9);
    out[4] = __shfl_xor_sync(~0u, value, 21);
    out[5] = __shfl_sync(~0u, value, 3, 8);
    out[6] = __shfl_up_sync(~0u, value, 1, 16);
    out[7] = __shfl_down_sync(~0u, value, 2, 4);
    out[8] = __shfl_xor_sync(~0u, value, 6, 8);
    out[9] = (int)__shfl_xor_sync(~0u, (double)value * 3, 1);
    out[10] = (int)(__shfl_down_sync(~0u, ((long long)value << 32) + lane, 4) >> 31);
    out[11] = (int)__shfl_sync(~0u, (float)value, 31 - lane);
    // Only the lower half takes part.
    out[12] = -1;
    if (lane < 16) out[12] = __shfl_sync(0xFFFFu, value, (lane + 1) % 16);
    // Lanes of both parities, apart.
    if (lane % 2) out[13] = __shfl_xor_sync(0xAAAAAAAAu, value, 2);
    else out[13] = -__shfl_xor_sync(0x55555555u, value, 4);
    out[14] = out[15] = 0;
}

extern "C" __global__ void votes(unsigned *to, const int *from) {
    unsigned lane = threadIdx.x, *out = to + lane * KINDS;
    int value = from[lane];
    out[0] = __ballot_sync(~0u, value > 0);
    out[1] = __any_sync(~0u, value == 1000000);
    out[2] = __all_sync(~0u, value < 1000000);
    out[3] = __match_any_sync(~0u, value & 3);
    int all;
    out[4] = __match_all_sync(~0u, value & 3, &all);
    out[5] = all;
    out[6] = __match_all_sync(~0u, 77, &all);
    out[7] = all;
    out[8] = __match_any_sync(~0u, (long long)(value & 1) << 40);
    unsigned equal, less, most, more, least;
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(equal));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(less));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(most));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(more));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(least));
    out[9] = equal, out[10] = less, out[11] = most, out[12] = more, out[13] = least;
    out[14] = 0;
    if (lane >= 24) {
        out[14] = __ballot_sync(0xFF000000u, lane % 3 == 0);
        __syncwarp(0xFF000000u);
    }
    __syncwarp();
    out[15] = __ballot_sync(~0u, lane >= 24 ? out[14] != 0 : true);
}

// Each lane counts for itself, and lanes leave the loop one by one; what a warp adds together goes by one atomic.
extern "C" __global__ void aggregate(unsigned *count, unsigned *to, const unsigned *turns) {
    unsigned lane = threadIdx.x % 32, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned turn = 0; turn < turns[i]; ++turn) {
        unsigned active = __activemask(), leader = __ffs(active) - 1, base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(active));
        base = __shfl_sync(active, base, leader);
        unsigned place = base + __popc(active & ((1u << lane) - 1));
        to[place] = i;
    }
}

// Exchange through shared memory with nothing but barriers of the warp.
extern "C" __global__ void warp_barriers(unsigned *to) {
    __shared__ unsigned tile[4][32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, value = threadIdx.x;
    for (unsigned round = 0; round < 5; ++round) {
        tile[warp][lane] = value;
        __syncwarp();
        value = tile[warp][(lane * 5 + round) % 32] * 3 + round;
        __syncwarp();
    }
    to[threadIdx.x] = value;
}
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void reductions(unsigned *to, const unsigned *from) {
    unsigned lane = threadIdx.x, value = from[lane], *out = to + lane * KINDS;
    out[0] = __reduce_add_sync(~0u, value);
    out[1] = __reduce_min_sync(~0u, value);
    out[2] = __reduce_max_sync(~0u, value);
    out[3] = __reduce_and_sync(~0u, value | 0x10u);
    out[4] = __reduce_or_sync(~0u, value);
    out[5] = __reduce_xor_sync(~0u, value);
    out[6] = (unsigned)__reduce_min_sync(~0u, (int)value);
    out[7] = (unsigned)__reduce_max_sync(~0u, (int)value);
    out[8] = __reduce_add_sync(lane < 11 ? 0x7FFu : ~0x7FFu, value);
}
#endif

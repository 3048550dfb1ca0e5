// A running sum over a whole array in one pass: each block looks back at the blocks before it until one has its sum.

// Each block's state: flags in the upper word (1 own sum, 2 sum with all before it), the sum in the lower one.
extern "C" __global__ void look_back_sum(unsigned *to, const unsigned *from, unsigned long long *states,
                                         unsigned *tickets, unsigned n) {
    __shared__ unsigned ticket, before, ends[32];
    if (threadIdx.x == 0) ticket = atomicAdd(tickets, 1);
    __syncthreads();
    unsigned block = ticket, i = block * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned sum = i < n ? from[i] : 0;
    for (unsigned step = 1; step < 32; step *= 2) {
        unsigned left = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == 31) ends[warp] = sum;
    __syncthreads();
    for (unsigned w = 0; w < warp; ++w) sum += ends[w];
    if (threadIdx.x == blockDim.x - 1) {
        volatile unsigned long long *all = states;
        all[block] = (block ? 1ull : 2ull) << 32 | sum;
        unsigned earlier = 0;
        for (int at = (int)block - 1; at >= 0; --at) {
            unsigned long long state;
            do state = all[at];
            while (state >> 32 == 0);
            earlier += (unsigned)state;
            if (state >> 32 == 2) break;
        }
        __threadfence();
        if (block) all[block] = 2ull << 32 | (earlier + sum);
        before = earlier;
    }
    __syncthreads();
    if (i < n) to[i] = before + sum;
}

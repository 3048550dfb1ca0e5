// A step of a radix sort: counts of digits by block, then a stable scatter.

constexpr unsigned DIGITS = 16;

extern "C" __global__ void digit_counts(unsigned *counts, const unsigned *keys, unsigned shift, unsigned n) {
    __shared__ unsigned here[DIGITS];
    if (threadIdx.x < DIGITS) here[threadIdx.x] = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&here[keys[i] >> shift & (DIGITS - 1)], 1u);
    __syncthreads();
    if (threadIdx.x < DIGITS) counts[threadIdx.x * gridDim.x + blockIdx.x] = here[threadIdx.x];
}

// One warp sums all counts in place, each becoming what is before it.
extern "C" __global__ void sum_before(unsigned *counts, unsigned n) {
    unsigned lane = threadIdx.x, carry = 0;
    for (unsigned base = 0; base < n; base += 32) {
        unsigned own = base + lane < n ? counts[base + lane] : 0, sum = own;
        for (unsigned step = 1; step < 32; step *= 2) {
            unsigned left = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += left;
        }
        if (base + lane < n) counts[base + lane] = carry + sum - own;
        carry += __shfl_sync(~0u, sum, 31);
    }
}

// The place of a key among the equal digits of its warp comes from a vote for each bit.
extern "C" __global__ void scatter_by_digit(unsigned *to, unsigned *payload, const unsigned *keys, const unsigned *starts,
                                            unsigned shift, unsigned n) {
    __shared__ unsigned of_warps[32][DIGITS];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (unsigned at = threadIdx.x; at < 32 * DIGITS; at += blockDim.x) of_warps[at / DIGITS][at % DIGITS] = 0;
    __syncthreads();
    bool have = i < n;
    unsigned key = have ? keys[i] : 0, digit = key >> shift & (DIGITS - 1);
    unsigned peers = __ballot_sync(~0u, have);
    for (int bit = 0; bit < 4; ++bit) {
        bool set = digit >> bit & 1;
        unsigned votes = __ballot_sync(~0u, set);
        peers &= set ? votes : ~votes;
    }
    unsigned rank = __popc(peers & ((1u << lane) - 1));
    if (have && rank == 0) of_warps[warp][digit] = __popc(peers);
    __syncthreads();
    if (have) {
        unsigned place = starts[digit * gridDim.x + blockIdx.x] + rank;
        for (unsigned w = 0; w < warp; ++w) place += of_warps[w][digit];
        to[place] = key;
        payload[place] = i;
    }
}

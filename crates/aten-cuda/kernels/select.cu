// Elements that a mask keeps, in their order: counted block by block, the counts summed up, the elements placed.
//
// A mask is bytes one after another, of which all but zero keep. A thread has PER_THREAD neighbouring elements.
//
// Another stream or thread may change the mask between the launches. So each kernel reads the mask for itself, and bounds
// the places that follow from it by the memory that there is: elements for which there is none are left out.

constexpr int THREADS = 256;
constexpr int PER_THREAD = 16;
constexpr int WARPS = THREADS / 32;
constexpr int RANK = 16;

struct Shape {
    int rank;
    int padding;
    // From the last dimension to the first.
    long long sizes[RANK];
};

struct alignas(16) Sixteen {
    unsigned long long words[2];
};

// What is before this thread's number, and the sum of all threads of the block.
__device__ unsigned before(unsigned own, unsigned &all) {
    __shared__ unsigned of_warps[WARPS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = own;
    for (unsigned step = 1; step < 32; step *= 2) {
        unsigned left = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    unsigned earlier = 0;
    all = 0;
    for (unsigned w = 0; w < WARPS; ++w) {
        if (w < warp) earlier += of_warps[w];
        all += of_warps[w];
    }
    __syncthreads();
    return earlier + sum - own;
}

__device__ __forceinline__ unsigned kept_of_thread(const unsigned char *mask, long long start, long long n) {
    unsigned kept = 0;
#pragma unroll 1
    for (int i = 0; i < PER_THREAD; ++i) kept += start + i < n && mask[start + i] != 0;
    return kept;
}

__device__ __forceinline__ long long first_of_thread() {
    return ((long long)blockIdx.x * THREADS + threadIdx.x) * PER_THREAD;
}

extern "C" __global__ void count_kept(long long *counts, const unsigned char *mask, long long n) {
    unsigned all;
    before(kept_of_thread(mask, first_of_thread(), n), all);
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

// One block: each count becomes the sum of those before it, and the sum of all stands behind the last one.
extern "C" __global__ void sum_counts(long long *counts, long long n) {
    __shared__ long long of_warps[WARPS];
    long long carry = 0;
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (long long base = 0; base < n; base += THREADS) {
        long long i = base + threadIdx.x, own = i < n ? counts[i] : 0, sum = own;
        for (unsigned step = 1; step < 32; step *= 2) {
            long long left = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += left;
        }
        if (lane == 31) of_warps[warp] = sum;
        __syncthreads();
        long long earlier = carry;
        for (unsigned w = 0; w < WARPS; ++w) {
            if (w < warp) earlier += of_warps[w];
            carry += of_warps[w];
        }
        if (i < n) counts[i] = earlier + sum - own;
        __syncthreads();
    }
    if (threadIdx.x == 0) counts[n] = carry;
}

// The coordinates of what is kept: `out` has a row of `kept` numbers for each dimension.
extern "C" __global__ void place_coordinates(long long *out, const long long *counts, const unsigned char *mask,
                                             long long n, long long kept, const Shape shape) {
    long long start = first_of_thread();
    unsigned all;
    long long to = counts[blockIdx.x] + before(kept_of_thread(mask, start, n), all);
#pragma unroll 1
    for (int i = 0; i < PER_THREAD && to < kept; ++i) {
        if (start + i >= n || !mask[start + i]) continue;
        long long place = start + i;
#pragma unroll 1
        for (int dim = 0; dim < shape.rank; ++dim) {
            long long next = place / shape.sizes[dim];
            out[(shape.rank - 1 - dim) * kept + to] = place - next * shape.sizes[dim];
            place = next;
        }
        ++to;
    }
}

// The elements that are kept, to an output that has room for `kept`.
template <class Word>
__device__ void place_elements(Word *out, const long long *counts, const unsigned char *mask, const Word *from,
                               long long n, long long kept) {
    long long start = first_of_thread();
    unsigned all;
    long long to = counts[blockIdx.x] + before(kept_of_thread(mask, start, n), all);
#pragma unroll 1
    for (int i = 0; i < PER_THREAD && to < kept; ++i)
        if (start + i < n && mask[start + i]) out[to++] = from[start + i];
}

#define PLACER(name, Word)                                                                                                 \
    extern "C" __global__ void place_##name(Word *out, const long long *counts, const unsigned char *mask,                 \
                                            const Word *from, long long n, long long kept) {                               \
        place_elements<Word>(out, counts, mask, from, n, kept);                                                            \
    }

PLACER(1, unsigned char)
PLACER(2, unsigned short)
PLACER(4, unsigned)
PLACER(8, unsigned long long)
PLACER(16, Sixteen)

// The opposite: kept places take elements one after another from the source, which has `given` of them.
template <class Word>
__device__ void fill_elements(Word *out, const long long *counts, const unsigned char *mask, const Word *from,
                              long long n, long long given) {
    long long start = first_of_thread();
    unsigned all;
    long long next = counts[blockIdx.x] + before(kept_of_thread(mask, start, n), all);
#pragma unroll 1
    for (int i = 0; i < PER_THREAD && next < given; ++i)
        if (start + i < n && mask[start + i]) out[start + i] = from[next++];
}

#define FILLER(name, Word)                                                                                                 \
    extern "C" __global__ void fill_##name(Word *out, const long long *counts, const unsigned char *mask,                  \
                                           const Word *from, long long n, long long given) {                               \
        fill_elements<Word>(out, counts, mask, from, n, given);                                                            \
    }

FILLER(1, unsigned char)
FILLER(2, unsigned short)
FILLER(4, unsigned)
FILLER(8, unsigned long long)
FILLER(16, Sixteen)

// The number of the group that each element of a sorted sequence is in, written to the place it had before. The mask
// says where groups begin. Places of a sort whose elements were changed meanwhile may be anything.
extern "C" __global__ void place_groups(long long *out, const long long *counts, const unsigned char *mask,
                                        const long long *places, long long n) {
    long long start = first_of_thread();
    unsigned all;
    long long group = counts[blockIdx.x] + before(kept_of_thread(mask, start, n), all) - 1;
#pragma unroll 1
    for (int i = 0; i < PER_THREAD && start + i < n; ++i) {
        group += mask[start + i] != 0;
        unsigned long long place = places[start + i];
        if (place < n) out[place] = group;
    }
}

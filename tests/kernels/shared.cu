// Blocks that work together through shared memory, shuffles and barriers.
#define LEAST (-__int_as_float(0x7F800000)) // minus infinity

// Any matrix, by tiles of 32 x 32; the pad keeps a column out of one bank.
extern "C" __global__ void transpose(float *to, const float *from, unsigned rows, unsigned columns) {
    __shared__ float tile[32][33];
    unsigned column = blockIdx.x * 32 + threadIdx.x;
    for (unsigned j = threadIdx.y; j < 32; j += blockDim.y) {
        unsigned row = blockIdx.y * 32 + j;
        if (row < rows && column < columns) tile[j][threadIdx.x] = from[row * columns + column];
    }
    __syncthreads();
    unsigned row = blockIdx.y * 32 + threadIdx.x;
    for (unsigned j = threadIdx.y; j < 32; j += blockDim.y) {
        unsigned across = blockIdx.x * 32 + j;
        if (row < rows && across < columns) to[across * rows + row] = tile[threadIdx.x][j];
    }
}

__device__ int warp_sum(int value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

extern "C" __global__ void block_sums(long long *to, const int *from, unsigned n) {
    __shared__ int of_warps[32];
    int sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += from[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < blockDim.x / 32 ? of_warps[threadIdx.x] : 0);
        if (threadIdx.x == 0) to[blockIdx.x] = sum;
    }
}

// A sum of floats in the order of a tree; all threads halve together.
extern "C" __global__ void tree_sums(float *to, const float *from) {
    extern __shared__ float tree[];
    tree[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) to[blockIdx.x] = tree[0];
}

// The first of the greatest elements of each row.
extern "C" __global__ void argmax_rows(unsigned *to, const float *from, unsigned columns) {
    __shared__ float values[32];
    __shared__ unsigned places[32];
    float best = LEAST;
    unsigned place = ~0u;
    auto take = [&](float value, unsigned at) {
        if (value > best || (value == best && at < place)) best = value, place = at;
    };
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) take(from[blockIdx.x * columns + i], i);
    for (int step = 16; step > 0; step /= 2)
        take(__shfl_down_sync(~0u, best, step), __shfl_down_sync(~0u, place, step));
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best, places[threadIdx.x / 32] = place;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) take(values[warp], places[warp]);
        to[blockIdx.x] = place;
    }
}

// What is before each element in its block, with what the block has altogether in the last place.
extern "C" __global__ void block_scan(unsigned *to, const unsigned *from) {
    __shared__ unsigned ends[32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned own = from[i], sum = own;
    for (unsigned step = 1; step < 32; step *= 2) {
        unsigned before = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += before;
    }
    if (lane == 31) ends[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        unsigned end = lane < blockDim.x / 32 ? ends[lane] : 0;
        for (unsigned step = 1; step < 32; step *= 2) {
            unsigned before = __shfl_up_sync(~0u, end, step);
            if (lane >= step) end += before;
        }
        ends[lane] = end;
    }
    __syncthreads();
    to[blockIdx.x * (blockDim.x + 1) + threadIdx.x] = sum - own + (warp ? ends[warp - 1] : 0);
    if (threadIdx.x == blockDim.x - 1) to[blockIdx.x * (blockDim.x + 1) + blockDim.x] = ends[31];
}

// How many threads have an element above the limit, whether all have, whether any has.
extern "C" __global__ void barrier_votes(int *to, const int *from, int limit) {
    bool above = from[blockIdx.x * blockDim.x + threadIdx.x] > limit;
    int count = __syncthreads_count(above), all = __syncthreads_and(above), any = __syncthreads_or(above);
    to[blockIdx.x * blockDim.x + threadIdx.x] = count | (all != 0) << 16 | (any != 0) << 17;
}

// Half of the block fills a ring that the other half empties, by two named barriers for each place.
extern "C" __global__ void named_barriers(unsigned *to, unsigned rounds) {
    __shared__ unsigned ring[2][64];
    unsigned half = blockDim.x / 2;
    if (threadIdx.x < half) {
        for (unsigned round = 0; round < rounds; ++round) {
            if (round >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + round % 2) : "memory");
            ring[round % 2][threadIdx.x] = round * 1000 + threadIdx.x;
            __threadfence_block();
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + round % 2) : "memory");
        }
    } else {
        for (unsigned round = 0; round < rounds; ++round) {
            asm volatile("bar.sync %0, 128;" ::"r"(1 + round % 2) : "memory");
            to[round * half + threadIdx.x - half] = ring[round % 2][63 - (threadIdx.x - half)];
            if (round + 2 < rounds) asm volatile("bar.arrive %0, 128;" ::"r"(3 + round % 2) : "memory");
        }
    }
}

struct Tail {
    unsigned short from, to;
    double weight;
};

// Dynamic shared memory that holds arrays of three types.
extern "C" __global__ void dynamic_parts(double *to, const unsigned *from, unsigned n) {
    extern __shared__ __align__(16) unsigned char raw[];
    Tail *tails = reinterpret_cast<Tail *>(raw);
    unsigned *words = reinterpret_cast<unsigned *>(raw + n * sizeof(Tail));
    unsigned char *bytes = raw + n * (sizeof(Tail) + 4);
    unsigned i = threadIdx.x;
    words[i] = from[i];
    bytes[n - 1 - i] = (unsigned char)from[i];
    __syncthreads();
    tails[i] = Tail{(unsigned short)words[(i + 1) % n], (unsigned short)(words[(i + 2) % n] >> 16), 0.5 * bytes[i]};
    __syncthreads();
    Tail tail = tails[(i + 3) % n];
    to[i] = tail.weight + tail.from * 2.0 - tail.to;
}

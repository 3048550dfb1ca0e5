// needs 90
//
// Products of a matrix and a vector, in batches, where neighbours in memory lie along the result: as the kernels for
// columns in matmul_vector.cu, but the blocks that share lines are a cluster, and one of them adds the sums of all in
// the order of their ranks. So there is no second kernel.

#include "matmul_vector.cuh"

__device__ __forceinline__ void join_cluster()
{
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// A sum at this place in the shared memory of a block of the cluster.
__device__ __forceinline__ float sum_of(const float *place, u32 block)
{
    float sum;
    asm volatile("{.reg .b32 place; mapa.shared::cluster.u32 place, %1, %2; ld.shared::cluster.f32 %0, [place];}"
                 : "=f"(sum) : "r"((u32)__cvta_generic_to_shared(place)), "r"(block) : "memory");
    return sum;
}
__device__ __forceinline__ double sum_of(const double *place, u32 block)
{
    double sum;
    asm volatile("{.reg .b32 place; mapa.shared::cluster.u32 place, %1, %2; ld.shared::cluster.f64 %0, [place];}"
                 : "=d"(sum) : "r"((u32)__cvta_generic_to_shared(place)), "r"(block) : "memory");
    return sum;
}

// Blocks: columns along x, SHARES blocks of a cluster for each part of them; products of the batch along y. Sizes say
// SHARES too.
template <class T, int WIDTH, int LANES, int UNROLL, int THREADS, int SHARES>
__device__ __forceinline__ void by_columns(T *out, const T *matrix, const T *x, const T *c, const T *bias,
                                           const Sizes &s)
{
    typedef typename Element<T>::Sum Sum;
    constexpr int COLUMNS = LANES * WIDTH;
    __shared__ Sum whole[COLUMNS];
    const u32 rank = blockIdx.x % SHARES;
    const i64 first = (i64)(blockIdx.x / SHARES) * COLUMNS, column = first + threadIdx.x % LANES * WIDTH;
    const i64 begin = s.k * rank / SHARES, end = s.k * (rank + 1) / SHARES, batch = blockIdx.y;
    Sum sums[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) sums[e] = nothing<Sum>();
    matrix += batch * s.matrix_batch;
    x += batch * s.x.batch;
    // The number of columns is a multiple of WIDTH.
    if (column < s.n) add_lines<T, WIDTH, LANES, UNROLL, THREADS>(sums, matrix, x, s, column, begin, end);
    join_lines<T, WIDTH, LANES, THREADS>(sums, whole);
    join_cluster();
    if (rank == 0)
        for (int at = threadIdx.x; at < COLUMNS && first + at < s.n; at += THREADS) {
            Sum sum = whole[at];
#pragma unroll
            for (u32 block = 1; block < SHARES; ++block) sum += sum_of(&whole[at], block);
            store(sum, out, c, bias, s, batch, first + at);
        }
    // No block goes while another may still read its memory.
    join_cluster();
}

#define COLUMNS(name, T, WIDTH, SHARES)                                                                                \
    extern "C" __global__ void __cluster_dims__(SHARES, 1, 1) __launch_bounds__(256, 2)                                \
        name(T *out, const T *matrix, const T *x, const T *c, const T *bias, const Sizes sizes)                        \
    {                                                                                                                  \
        by_columns<T, WIDTH, 8, 8, 256, SHARES>(out, matrix, x, c, bias, sizes);                                       \
    }

COLUMNS(cluster_f16, Half, 8, 4)
COLUMNS(cluster_bf16, Brain, 8, 4)
COLUMNS(cluster_f32, float, 4, 2)
COLUMNS(cluster_f64, double, 2, 2)

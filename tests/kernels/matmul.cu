// A product of f32 matrices by tiles of shared memory: each thread 2 x 2 elements, summed in the order of the columns.

constexpr int TILE = 16;

extern "C" __global__ void matmul(float *c, const float *a, const float *b, int m, int n, int k) {
    __shared__ float left[2 * TILE][TILE], right[TILE][2 * TILE];
    int row = blockIdx.y * 2 * TILE, column = blockIdx.x * 2 * TILE;
    float sums[2][2] = {};
    for (int base = 0; base < k; base += TILE) {
        for (int half = 0; half < 2; ++half) {
            int y = row + half * TILE + threadIdx.y, x = base + threadIdx.x;
            left[half * TILE + threadIdx.y][threadIdx.x] = y < m && x < k ? a[y * k + x] : 0;
            y = base + threadIdx.y, x = column + half * TILE + threadIdx.x;
            right[threadIdx.y][half * TILE + threadIdx.x] = y < k && x < n ? b[y * n + x] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i)
            for (int y = 0; y < 2; ++y)
                for (int x = 0; x < 2; ++x)
                    sums[y][x] = fmaf(left[y * TILE + threadIdx.y][i], right[i][x * TILE + threadIdx.x], sums[y][x]);
        __syncthreads();
    }
    for (int y = 0; y < 2; ++y)
        for (int x = 0; x < 2; ++x) {
            int at = row + y * TILE + threadIdx.y, to = column + x * TILE + threadIdx.x;
            if (at < m && to < n) c[at * n + to] = sums[y][x];
        }
}

// Runs the kernels of `planted.cu` on a real device, for tools such as compute-sanitizer: `compare NAME`, or `compare right`
// for all that are right. The allocator's segment is one allocation with blocks of 4096 bytes.
#include <cstdio>
#include <cstring>

#include "../planted.cu"

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "right";
    bool right = !strcmp(name, "right");
    char *segment;
    cudaMalloc(&segment, 2 << 20);
    int *out = reinterpret_cast<int *>(segment), *in = reinterpret_cast<int *>(segment + 8192);
    float *numbers = reinterpret_cast<float *>(segment + 16384), *sums = reinterpret_cast<float *>(segment + 32768);
    cudaMemset(numbers, 0, 4096);
    auto is = [&](const char *wanted) { return !strcmp(name, wanted); };
    if (is("race_shared")) race_shared<<<1, 256>>>(out);
    if (is("missing_syncwarp")) missing_syncwarp<<<1, 32>>>(out);
    if (is("past_end")) past_end<<<4, 256>>>(out, 1000);
    if (is("unwritten")) {
        fill<<<4, 256>>>(in, 999);
        unwritten<<<4, 256>>>(out, in, 1000);
    }
    if (is("misaligned")) misaligned<<<1, 32>>>(sums, numbers);
    if (is("divergent_barrier")) divergent_barrier<<<1, 32>>>(out, 16);
    if (right) {
        race_shared_right<<<1, 256>>>(out);
        missing_syncwarp_right<<<1, 32>>>(out);
        past_end_right<<<4, 256>>>(out, 1000);
        fill<<<4, 256>>>(in, 1000);
        unwritten<<<4, 256>>>(out, in, 1000);
        misaligned_right<<<1, 32>>>(sums, numbers);
        divergent_barrier_right<<<1, 32>>>(out, 16);
    }
    cudaError_t status = cudaDeviceSynchronize();
    printf("%s: %s\n", name, cudaGetErrorName(status));
    return 0;
}

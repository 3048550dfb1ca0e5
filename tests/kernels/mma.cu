// needs 80
// Products of small matrices by the instructions of tensor cores. One warp a kernel; the numbers are small and whole, so
// that every order of summing gives the same.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ unsigned word(const void *from) { return *static_cast<const unsigned *>(from); }

// c (16 x 8, f32) = a (16 x 16) * b (16 x 8), b by columns. The lane's places follow from its group and its number in it.
template <class T, class Multiply> __device__ void sixteen(float *c, const T *a, const T *b, Multiply multiply) {
    unsigned group = threadIdx.x / 4, place = threadIdx.x % 4;
    unsigned left[4] = {word(a + group * 16 + place * 2), word(a + (group + 8) * 16 + place * 2),
                        word(a + group * 16 + place * 2 + 8), word(a + (group + 8) * 16 + place * 2 + 8)};
    unsigned right[2] = {word(b + group * 16 + place * 2), word(b + group * 16 + place * 2 + 8)};
    float sums[4] = {1, 2, 3, 4};
    multiply(sums, left, right);
    c[group * 8 + place * 2] = sums[0], c[group * 8 + place * 2 + 1] = sums[1];
    c[(group + 8) * 8 + place * 2] = sums[2], c[(group + 8) * 8 + place * 2 + 1] = sums[3];
}

extern "C" __global__ void mma_bf16(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b) {
    sixteen(c, a, b, [](float *s, unsigned *l, unsigned *r) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
            : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "r"(r[0]), "r"(r[1]));
    });
}

extern "C" __global__ void mma_f16(float *c, const __half *a, const __half *b) {
    sixteen(c, a, b, [](float *s, unsigned *l, unsigned *r) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
            : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "r"(r[0]), "r"(r[1]));
    });
}

extern "C" __global__ void mma_f16_sums_f16(__half *c, const __half *a, const __half *b) {
    unsigned group = threadIdx.x / 4, place = threadIdx.x % 4, sums[2] = {0, 0};
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(sums[0]), "+r"(sums[1])
        : "r"(word(a + group * 16 + place * 2)), "r"(word(a + (group + 8) * 16 + place * 2)),
          "r"(word(a + group * 16 + place * 2 + 8)), "r"(word(a + (group + 8) * 16 + place * 2 + 8)),
          "r"(word(b + group * 16 + place * 2)), "r"(word(b + group * 16 + place * 2 + 8)));
    *reinterpret_cast<unsigned *>(c + group * 8 + place * 2) = sums[0];
    *reinterpret_cast<unsigned *>(c + (group + 8) * 8 + place * 2) = sums[1];
}

// c (16 x 8, f32) = a (16 x 8) * b (8 x 8).
extern "C" __global__ void mma_tf32(float *c, const float *a, const float *b) {
    unsigned group = threadIdx.x / 4, place = threadIdx.x % 4;
    auto tf = [](float value) {
        unsigned bits;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
        return bits;
    };
    float s[4] = {};
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "r"(tf(a[group * 8 + place])), "r"(tf(a[(group + 8) * 8 + place])), "r"(tf(a[group * 8 + place + 4])),
          "r"(tf(a[(group + 8) * 8 + place + 4])), "r"(tf(b[group * 8 + place])), "r"(tf(b[group * 8 + place + 4])));
    c[group * 8 + place * 2] = s[0], c[group * 8 + place * 2 + 1] = s[1];
    c[(group + 8) * 8 + place * 2] = s[2], c[(group + 8) * 8 + place * 2 + 1] = s[3];
}

// c (16 x 8, s32) = a (16 x 32) * b (32 x 8).
extern "C" __global__ void mma_int8(int *c, const signed char *a, const signed char *b) {
    unsigned group = threadIdx.x / 4, place = threadIdx.x % 4;
    int s[4] = {-5, -5, -5, -5};
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
        : "r"(word(a + group * 32 + place * 4)), "r"(word(a + (group + 8) * 32 + place * 4)),
          "r"(word(a + group * 32 + place * 4 + 16)), "r"(word(a + (group + 8) * 32 + place * 4 + 16)),
          "r"(word(b + group * 32 + place * 4)), "r"(word(b + group * 32 + place * 4 + 16)));
    c[group * 8 + place * 2] = s[0], c[group * 8 + place * 2 + 1] = s[1];
    c[(group + 8) * 8 + place * 2] = s[2], c[(group + 8) * 8 + place * 2 + 1] = s[3];
}

__device__ unsigned shared_address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

// c (16 x 8 a block) = a (16 x k) * b (k x 8, by rows): tiles come by cp.async, one ahead of the one in use, and reach the
// registers by ldmatrix, b's transposed.
extern "C" __global__ void mma_pipeline(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int n) {
    __shared__ __align__(16) __nv_bfloat16 left[2][16][16], right[2][16][8];
    int lane = threadIdx.x, column = blockIdx.x * 8;
    auto fetch = [&](int stage, int base) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&left[stage][lane / 2][lane % 2 * 8])),
                     "l"(a + lane / 2 * k + base + lane % 2 * 8));
        if (lane < 16)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(&right[stage][lane][0])),
                         "l"(b + (base + lane) * n + column));
        asm volatile("cp.async.commit_group;");
    };
    float s[4] = {};
    fetch(0, 0);
    for (int base = 0, stage = 0; base < k; base += 16, stage ^= 1) {
        if (base + 16 < k) {
            fetch(stage ^ 1, base + 16);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_all;" ::: "memory");
        }
        __syncwarp();
        unsigned l[4], r[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(l[0]), "=r"(l[1]), "=r"(l[2]), "=r"(l[3])
                     : "r"(shared_address(&left[stage][lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(shared_address(&right[stage][lane % 16][0])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                     : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "r"(r[0]), "r"(r[1]));
        __syncwarp();
    }
    for (int half = 0; half < 2; ++half)
        for (int x = 0; x < 2; ++x) c[(lane / 4 + half * 8) * n + column + lane % 4 * 2 + x] = s[half * 2 + x];
}

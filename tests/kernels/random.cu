// Philox 4x32-10: four words from a counter and a key, and normal numbers by Box and Muller.

struct Four {
    unsigned word[4];
};

__device__ Four philox(Four counter, unsigned long long seed) {
    unsigned key0 = (unsigned)seed, key1 = (unsigned)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        unsigned long long left = 0xD2511F53ull * counter.word[0], right = 0xCD9E8D57ull * counter.word[2];
        counter = Four{{(unsigned)(right >> 32) ^ counter.word[1] ^ key0, (unsigned)right,
                        (unsigned)(left >> 32) ^ counter.word[3] ^ key1, (unsigned)left}};
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    return counter;
}

__device__ Four at(unsigned long long offset) {
    return Four{{(unsigned)offset, (unsigned)(offset >> 32), blockIdx.x * blockDim.x + threadIdx.x, 0}};
}

// In (0, 1].
__device__ float unit(unsigned word) { return fmaf((float)word, 2.3283064e-10f, 1.16415321e-10f); }

extern "C" __global__ void philox_words(uint4 *to, unsigned long long seed, unsigned long long offset) {
    Four four = philox(at(offset), seed);
    to[blockIdx.x * blockDim.x + threadIdx.x] = make_uint4(four.word[0], four.word[1], four.word[2], four.word[3]);
}

extern "C" __global__ void philox_uniform(float *to, unsigned long long seed, unsigned long long offset) {
    Four four = philox(at(offset), seed);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[(blockIdx.x * blockDim.x + threadIdx.x) * 4 + i] = unit(four.word[i]);
}

extern "C" __global__ void philox_normal(float *to, unsigned long long seed, unsigned long long offset) {
    Four four = philox(at(offset), seed);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        float radius = sqrtf(-2.0f * logf(unit(four.word[i]))), turn = 6.2831855f * unit(four.word[i + 1]), s, c;
        sincosf(turn, &s, &c);
        to[(blockIdx.x * blockDim.x + threadIdx.x) * 4 + i] = radius * c;
        to[(blockIdx.x * blockDim.x + threadIdx.x) * 4 + i + 1] = radius * s;
    }
}

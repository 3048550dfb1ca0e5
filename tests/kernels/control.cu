// Calls of every kind, switches, tables in constant and global memory, local arrays, what is printed, assertions.
extern "C" __device__ int printf(const char *, ...);
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);
#define assert(right) ((right) ? (void)0 : __assertfail(#right, "control.cu", __LINE__, __func__, 1))

__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__constant__ double weights[3] = {0.5, -1.25, 1e300};
__device__ unsigned short squares[6] = {0, 1, 4, 9, 16, 25};
__device__ float accumulated = 2.5f;
__device__ const char *names[3] = {"first", "second", "third"};

struct Shape {
    int kind;
    char name[4];
    double size;
};
__device__ Shape shapes[2] = {{1, {'a', 'b', 0, 0}, 1.5}, {2, {'z', 0, 0, 0}, -3.25}};

extern "C" __global__ void tables(double *to, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const char *name = names[i % 3];
    unsigned letters = 0;
    for (unsigned at = 0; name[at]; ++at) letters = letters * 31 + name[at];
    Shape shape = shapes[i % 2];
    to[i] = primes[i % 8] * weights[i % 2] + squares[i % 6] + accumulated + letters + shape.kind * shape.size + shape.name[1];
}

__device__ __noinline__ double area(int kind, double a, double b) {
    switch (kind) {
        case 0: return a * b;
        case 1: return a * b / 2;
        case 2: return 3.25 * a * a;
        case 3: return a + b;
        case 4: return b == 0 ? -1 : a / b;
        case 7: return -a;
        case 8: return a - b * floor(a / b);
        default: return 0;
    }
}

extern "C" __global__ void switches(double *to, const double *a, const double *b, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = area(i % 10, a[i], b[i]);
}

using Step = int (*)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int minus(int a, int b) { return a - b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ Step steps[3] = {plus, minus, times};

extern "C" __global__ void function_pointers(int *to, const int *which, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int value = (int)i;
    for (int round = 0; round < 4; ++round) value = steps[which[(i + round) % n]](value, round + 2);
    to[i] = value;
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(unsigned *to) { to[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x / 3); }

struct Animal {
    int legs;
    __device__ Animal(int legs) : legs(legs) {}
    __device__ virtual int sound(int loudness) const = 0;
    __device__ virtual int count() const { return legs; }
};
struct Dog : Animal {
    __device__ Dog() : Animal(4) {}
    __device__ int sound(int loudness) const override { return loudness * 2 + legs; }
};
struct Bird : Animal {
    int wings;
    __device__ Bird(int wings) : Animal(2), wings(wings) {}
    __device__ int sound(int loudness) const override { return loudness - wings; }
    __device__ int count() const override { return legs + wings; }
};

__device__ __noinline__ int ask(const Animal *animal, int loudness) { return animal->sound(loudness) * 100 + animal->count(); }

extern "C" __global__ void virtual_calls(int *to, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Dog dog;
    Bird bird(2 + i % 3);
    to[i] = ask(i % 2 ? (const Animal *)&dog : &bird, (int)i);
}

// A local array that only a run-time index reaches.
extern "C" __global__ void local_arrays(unsigned *to, const unsigned *from, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned char heap[32];
    unsigned long long large[9];
    for (unsigned at = 0; at < 32; ++at) heap[at] = (unsigned char)(from[i] >> at % 25);
    for (unsigned at = 0; at < 9; ++at) large[at] = (unsigned long long)from[i] * from[(i + at) % n];
    // Sort the bytes, then walk them.
    for (int a = 1; a < 32; ++a)
        for (int b = a; b > 0 && heap[b - 1] > heap[b]; --b) {
            unsigned char held = heap[b];
            heap[b] = heap[b - 1], heap[b - 1] = held;
        }
    unsigned mixed = 0;
    for (unsigned at = 0; at < 32; ++at) mixed = mixed * 33 + heap[at] + (unsigned)(large[heap[at] % 9] >> 7);
    to[i] = mixed;
}

extern "C" __global__ void prints(unsigned n) {
    if (threadIdx.x >= n) return;
    printf("thread %u of %s: %5.2f %x %lld %c %%\n", threadIdx.x, names[threadIdx.x % 3], 1.25 * threadIdx.x,
           threadIdx.x * 0xABCu, -1ll << (32 + threadIdx.x), 'A' + (int)threadIdx.x);
}

extern "C" __global__ void asserts(const int *from, int *to, int limit) {
    assert(from[threadIdx.x] < limit);
    to[threadIdx.x] = from[threadIdx.x] + 1;
}

struct Big {
    int values[20];
    double scale;
};

__device__ __noinline__ Big doubled(Big big) {
    for (int &value : big.values) value *= 2;
    big.scale = -big.scale;
    return big;
}

// A struct as parameter of a kernel, and passed to and from a function by value.
extern "C" __global__ void structs_by_value(double *to, Big big, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    big.values[i % 20] += (int)i;
    Big after = doubled(big);
    double sum = 0;
    for (int value : after.values) sum += value;
    to[i] = sum * after.scale;
}

// Memory of the device's heap, taken and given back by each thread; all ones where there was none.
extern "C" __global__ void device_heap(unsigned *to, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned *own = (unsigned *)malloc((i + 1) * sizeof(unsigned));
    if (!own) {
        to[i] = ~0u;
        return;
    }
    for (unsigned at = 0; at <= i; ++at) own[at] = at * at;
    unsigned sum = 0;
    for (unsigned at = 0; at <= i; ++at) sum += own[at];
    free(own);
    to[i] = sum;
}

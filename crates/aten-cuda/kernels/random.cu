// Random numbers as PyTorch draws them: Philox4x32-10 and what each distribution makes of its words.
//
// Which words an element gets follows from the launch that torch would make: `threads` threads go over the elements in
// `steps` steps, and thread t draws block k of its own subsequence t in step k. Here a thread stands for `group`
// neighbours of those, and takes every gridDim.y-th step, so that the shape of the launch is free and the numbers are the
// same.
//
// Kernels rely on: `n` elements exist in the view; gridDim.x blocks of 256 times `group` cover `threads`, which is a
// multiple of 256. Where `place` is not null, it points to the seed and the offset of a generator whose work is captured,
// and `offset` counts from there.
//
// Fused multiplications and additions are written out, so that no option of the compiler decides about a bit.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

// As `DType` numbers them.
enum Type { U8, I8, I16, I32, I64, F16, BF16, F32, F64, BOOL = 12 };

// Elements in the order in which memory is visited, the fastest dimension first. Without dimensions they lie one after
// another.
struct View {
    u32 rank;
    u32 sizes[25];
    u32 strides[25];
};

// What a fill is told.
struct Work {
    u64 seed, offset;
    u32 n, threads, steps, type, group;
};

// Numbers of a distribution.
struct Numbers {
    double a, b, c;
};

struct Four {
    u32 x, y, z, w;
};

// The product, in one instruction.
__device__ void multiply(u32 a, u32 b, u32 &low, u32 &high) {
    asm("{ .reg .b64 both; mul.wide.u32 both, %2, %3; mov.b64 {%0, %1}, both; }" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
}

__device__ Four philox(u64 seed, u64 block, u64 subsequence) {
    u32 key0 = (u32)seed, key1 = (u32)(seed >> 32);
    u32 a = (u32)block, b = (u32)(block >> 32), c = (u32)subsequence, d = (u32)(subsequence >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 left, left_high, right, right_high;
        multiply(a, 0xD2511F53u, left, left_high);
        multiply(c, 0xCD9E8D57u, right, right_high);
        a = right_high ^ b ^ key0;
        b = right;
        c = left_high ^ d ^ key1;
        d = left;
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    return Four{a, b, c, d};
}

// Where a generator stands: its seed, and the number of its next block.
struct Stand {
    u64 seed, block;
};

__device__ Stand stand(u64 seed, u64 offset, const u64 *place) {
    if (place) {
        seed = place[0];
        offset += place[1];
    }
    return Stand{seed, offset >> 2};
}

__device__ u32 byte_of(const View &view, u32 element, u32 size) {
    if (view.rank == 0) return element * size;
    u32 at = 0;
#pragma unroll 1
    for (u32 dim = 0; dim + 1 < view.rank; ++dim) {
        u32 rest = element / view.sizes[dim];
        at += (element - rest * view.sizes[dim]) * view.strides[dim];
        element = rest;
    }
    return at + element * view.strides[view.rank - 1];
}

__device__ u32 size_of(u32 type) {
    switch (type) {
        case U8: case I8: case BOOL: return 1;
        case I16: case F16: case BF16: return 2;
        case I32: case F32: return 4;
        default: return 8;
    }
}

// Stores.

// The nearest bf16; the library's own function is far longer where the hardware has no instruction for it.
__device__ __nv_bfloat16 to_bf16(float value) {
    u32 bits = __float_as_uint(value), odd = bits >> 16 & 1;
    return __ushort_as_bfloat16(value != value ? 0x7fff : (unsigned short)((bits + 0x7fff + odd) >> 16));
}

__device__ void put_float(char *at, u32 type, float value) {
    switch (type) {
        case F16: *(__half *)at = __float2half_rn(value); break;
        case BF16: *(__nv_bfloat16 *)at = to_bf16(value); break;
        default: *(float *)at = value;
    }
}

template <class From> __device__ void put_any(char *at, u32 type, From value) {
    switch (type) {
        case U8: *(u8 *)at = (u8)value; break;
        case I8: *(signed char *)at = (signed char)value; break;
        case I16: *(short *)at = (short)value; break;
        case I32: *(int *)at = (int)value; break;
        case I64: *(s64 *)at = (s64)value; break;
        case F16: *(__half *)at = __float2half_rn((float)value); break;
        case BF16: *(__nv_bfloat16 *)at = to_bf16((float)value); break;
        case F32: *(float *)at = (float)value; break;
        case F64: *(double *)at = (double)value; break;
        default: *(u8 *)at = value != 0;
    }
}

// Draws of a block of words.

__device__ float unit(u32 word) { return fmaf((float)word, 0x1p-32f, 0x1p-33f); }

__device__ double unit(u32 low, u32 high) {
    u64 bits = (u64)low ^ ((u64)high << 21);
    return fma((double)bits, 0x1p-53, 0x1p-54);
}

struct Units {
    static const int count = 4;
    typedef float Value;
    __device__ static void draw(Four four, float *to) {
        to[0] = unit(four.x), to[1] = unit(four.y), to[2] = unit(four.z), to[3] = unit(four.w);
    }
};

struct WideUnits {
    static const int count = 2;
    typedef double Value;
    __device__ static void draw(Four four, double *to) { to[0] = unit(four.x, four.y), to[1] = unit(four.z, four.w); }
};

// sqrtf(-2 * logf(u)) to the bit, for u from 2^-33 to 1: without what the two do for other numbers, and with the factor
// inside the polynomial, where a power of two changes no digit. With u = m * 2^k and g = 2 - 2 * m, the series is that of
// logf(m) in powers of g.
__device__ float radius_of(float u) {
    int bits = __float_as_int(u), exponent = (bits - 0x3f2aaaab) & 0xff800000;
    float g = fmaf(__int_as_float(bits - exponent), -2.0f, 2.0f);
    float series = 0x1.0aa04ep-12f;
    series = fmaf(series, g, 0x1.2073ecp-11f);
    series = fmaf(series, g, 0x1.f19b98p-11f);
    series = fmaf(series, g, 0x1.1e52aap-9f);
    series = fmaf(series, g, 0x1.55b172p-8f);
    series = fmaf(series, g, 0x1.99da16p-7f);
    series = fmaf(series, g, 0x1.fffe44p-6f);
    series = fmaf(series, g, 0x1.5554fp-4f);
    series = fmaf(series, g, 0.25f);
    float square = fmaf(__fmul_rn(g, series), g, g);
    square = fmaf((float)exponent, -0x1.62e43p-23f, square);
    // One step of Newton's method rounds the root of a normal number correctly. That of zero comes out as no number, for
    // which sqrtf(-2 * 0) stands.
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(square));
    float root = __fmul_rn(square, inverse);
    return fmaxf(fmaf(fmaf(-root, root, square), __fmul_rn(inverse, 0.5f), root), -0.0f);
}

__device__ void box_muller(u32 x, u32 y, float *to) {
    const float turn = 6.2831855f * 0x1p-32f;
    float angle = fmaf((float)y, turn, turn / 2), radius = radius_of(unit(x));
    to[0] = __sinf(angle) * radius;
    to[1] = __cosf(angle) * radius;
}

struct Normals {
    static const int count = 4;
    typedef float Value;
    __device__ static void draw(Four four, float *to) {
        box_muller(four.x, four.y, to);
        box_muller(four.z, four.w, to + 2);
    }
};

struct WideNormals {
    static const int count = 2;
    typedef double Value;
    __device__ static void draw(Four four, double *to) {
        u64 bits = (u64)four.z ^ ((u64)four.w << 21);
        double angle = fma((double)bits, 0x1p-52, 0x1p-53), radius = sqrt(-2.0 * log(unit(four.x, four.y))), s, c;
        sincospi(angle, &s, &c);
        to[0] = s * radius, to[1] = c * radius;
    }
};

struct Words {
    static const int count = 4;
    typedef u32 Value;
    __device__ static void draw(Four four, u32 *to) { to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w; }
};

struct WideWords {
    static const int count = 2;
    typedef u64 Value;
    __device__ static void draw(Four four, u64 *to) {
        to[0] = (u64)four.x << 32 | four.y, to[1] = (u64)four.z << 32 | four.w;
    }
};

// Which dtypes a value is stored as, and of which of them dense elements are stored several at a time.
template <u32 types> struct AsFloat {
    static const u32 several = types;
    __device__ static void put(char *at, u32 type, float value) { put_float(at, type, value); }
};

template <u32 types> struct AsDouble {
    static const u32 several = types;
    __device__ static void put(char *at, u32, double value) { *(double *)at = value; }
};

template <u32 types> struct AsAny {
    static const u32 several = types;
    template <class Value> __device__ static void put(char *at, u32 type, Value value) { put_any(at, type, value); }
};

template <class T> struct Stored {
    template <class Value> __device__ static T of(Value value) { return (T)value; }
};

template <> struct Stored<__half> {
    __device__ static __half of(__half value) { return value; }
    __device__ static __half of(float value) { return __float2half_rn(value); }
};

template <> struct Stored<__nv_bfloat16> {
    __device__ static __nv_bfloat16 of(__nv_bfloat16 value) { return value; }
    __device__ static __nv_bfloat16 of(float value) { return to_bf16(value); }
};

const u32 FLOATS = 1 << F32 | 1 << F16 | 1 << BF16;

// Says as which type a value is stored.
template <class T> struct As {
    __device__ operator u32() const { return 0; }
};

// Neighbours that a thread stores at once.
template <class T, int count> struct alignas(sizeof(T) * count) Group {
    T of[count];
};

// Stores values of neighbours from `first` on, and the next ones `threads` elements farther on.
template <class T, int values, int count, class Value, class Make>
__device__ void put_groups(T *to, u32 first, const Work &work, const Value (&drawn)[count][values], Make make) {
    bool is_whole = first + (values - 1) * work.threads + count <= work.n;
#pragma unroll
    for (int i = 0; i < values; ++i) {
        Group<T, count> group;
#pragma unroll
        for (int each = 0; each < count; ++each) group.of[each] = Stored<T>::of(make(drawn[each][i], As<T>()));
        u32 element = first + i * work.threads;
        if (is_whole) {
            *(Group<T, count> *)(to + element) = group;
            continue;
        }
#pragma unroll
        for (int each = 0; each < count; ++each)
            if (element + each < work.n) to[element + each] = group.of[each];
    }
}

// Dense elements: a thread draws for neighbours, whose first, second and so on values lie side by side.
template <class Draw, class Store, class Make>
__device__ void fill_groups(char *to, Stand at, const Work &work, Make make) {
    const int count = sizeof(typename Draw::Value) == 8 ? 2 : 4;
    u32 thread = (blockIdx.x * blockDim.x + threadIdx.x) * count;
    if (thread >= work.threads) return;
#pragma unroll 1
    for (u32 step = blockIdx.y; step < work.steps; step += gridDim.y) {
        u32 first = step * work.threads * Draw::count + thread;
        if (first >= work.n) return;
        typename Draw::Value values[count][Draw::count];
#pragma unroll
        for (int each = 0; each < count; ++each)
            Draw::draw(philox(at.seed, at.block + step, thread + each), values[each]);
        if constexpr (Store::several == FLOATS) {
            if (work.type == F16) put_groups((__half *)to, first, work, values, make);
            if (work.type == BF16) put_groups((__nv_bfloat16 *)to, first, work, values, make);
        }
        if constexpr (Store::several == 1 << F32) put_groups((float *)to, first, work, values, make);
        if constexpr (Store::several == 1 << F64) put_groups((double *)to, first, work, values, make);
        if constexpr (Store::several == 1 << I32) put_groups((int *)to, first, work, values, make);
        if constexpr (Store::several == 1 << I64) put_groups((s64 *)to, first, work, values, make);
    }
}

// Elements one by one, wherever they lie.
template <class Draw, class Store, class Make>
__device__ void fill_singles(char *to, Stand at, const Work &work, const View &view, Make make) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, size = size_of(work.type);
#pragma unroll 1
    for (u32 step = blockIdx.y; step < work.steps; step += gridDim.y) {
        u32 first = step * work.threads * Draw::count + thread;
        if (first >= work.n) return;
        typename Draw::Value values[Draw::count];
        Draw::draw(philox(at.seed, at.block + step, thread), values);
#pragma unroll 1
        for (int i = 0; i < Draw::count; ++i) {
            u32 element = first + i * work.threads;
            if (element >= work.n) break;
            Store::put(to + byte_of(view, element, size), work.type, make(values[0], work.type));
            // The next value comes forward, so that none is looked up by a number.
#pragma unroll
            for (int next = 1; next < Draw::count; ++next) values[next - 1] = values[next];
        }
    }
}

// Goes over the elements, and gives each the value that is made of its draw. The second argument of `make` is `As` the
// type that is stored, or the number of the dtype.
template <class Draw, class Store, class Make>
__device__ void fill(char *to, const u64 *place, const Work &work, const View &view, Make make) {
    Stand at = stand(work.seed, work.offset, place);
    if constexpr (Store::several == FLOATS) {
        // By a loop of its own; asking each step for one of three dtypes slowed 16-bit floats down by 6 to 10 %.
        if (work.group > 1 && work.type == F32) return fill_groups<Draw, AsFloat<1 << F32>>(to, at, work, make);
    }
    if (work.group > 1) return fill_groups<Draw, Store>(to, at, work, make);
    fill_singles<Draw, Store>(to, at, work, view, make);
}

#define FILL(name) \
    extern "C" __global__ void __launch_bounds__(256) \
        name(char *to, const u64 *place, const Work work, const View view, const Numbers numbers)

// a: from, b: to - from, c: to, as the type has them.
struct Uniform {
    float from, range, end;

    __device__ float operator()(float r, As<float>) const {
        float value = fmaf(r, range, from);
        return value == end ? from : value;
    }
    __device__ __half operator()(float r, As<__half>) const {
        __half value = __float2half_rn(fmaf(r, range, from));
        return __half2float(value) == end ? __float2half_rn(from) : value;
    }
    __device__ __nv_bfloat16 operator()(float r, As<__nv_bfloat16>) const {
        __nv_bfloat16 value = to_bf16(fmaf(r, range, from));
        return __bfloat162float(value) == end ? to_bf16(from) : value;
    }
    __device__ float operator()(float r, u32 type) const {
        if (type == F16) return __half2float((*this)(r, As<__half>()));
        return type == BF16 ? __bfloat162float((*this)(r, As<__nv_bfloat16>())) : (*this)(r, As<float>());
    }
};

FILL(uniform_single) {
    Uniform make{(float)numbers.a, (float)numbers.b, (float)numbers.c};
    fill<Units, AsFloat<FLOATS>>(to, place, work, view, make);
}

FILL(uniform_double) {
    fill<WideUnits, AsDouble<1 << F64>>(to, place, work, view, [=](double r, u32) {
        double value = fma(r, numbers.b, numbers.a);
        return value == numbers.c ? numbers.a : value;
    });
}

// a: mean, b: standard deviation.
FILL(normal_single) {
    float mean = (float)numbers.a, deviation = (float)numbers.b;
    fill<Normals, AsFloat<FLOATS>>(to, place, work, view, [=](float r, u32) { return fmaf(r, deviation, mean); });
}

FILL(normal_double) {
    fill<WideNormals, AsDouble<1 << F64>>(to, place, work, view, [=](double r, u32) { return fma(r, numbers.b, numbers.a); });
}

FILL(log_normal_single) {
    float mean = (float)numbers.a, deviation = (float)numbers.b;
    fill<Normals, AsFloat<1 << F32>>(to, place, work, view, [=](float r, u32) { return __expf(fmaf(r, deviation, mean)); });
}

FILL(log_normal_double) {
    fill<WideNormals, AsDouble<0>>(to, place, work, view, [=](double r, u32) { return exp(fma(r, numbers.b, numbers.a)); });
}

// a: -1 / lambda.
FILL(exponential_single) {
    float factor = (float)numbers.a;
    fill<Units, AsFloat<1 << F32>>(to, place, work, view, [=](float r, u32) {
        return factor * (r >= 1.0f - 0x1p-24f ? -0x1p-24f : __logf(r));
    });
}

FILL(exponential_double) {
    fill<WideUnits, AsDouble<0>>(to, place, work, view, [=](double r, u32) {
        return numbers.a * (r >= 1.0 - 0x1p-53 ? -0x1p-53 : log(r));
    });
}

// a: median, b: scale.
FILL(cauchy_single) {
    float median = (float)numbers.a, scale = (float)numbers.b;
    fill<Units, AsFloat<1 << F32>>(to, place, work, view, [=](float r, u32) {
        r = r > 1.0f - 0x1p-23f ? 1.0f - 0x1p-23f : r;
        r = r < 0x1p-23f ? 0x1p-23f : r;
        return fmaf(scale, __tanf(3.14159274f * (r - 0.5f)), median);
    });
}

FILL(cauchy_double) {
    fill<WideUnits, AsDouble<0>>(to, place, work, view, [=](double r, u32) {
        return fma(numbers.b, tan(3.141592653589793 * (r - 0.5)), numbers.a);
    });
}

// a: the probability.
FILL(bernoulli_single) {
    float p = (float)numbers.a;
    fill<Units, AsAny<1 << F32>>(to, place, work, view, [=](float r, u32) { return (u32)(r < p); });
}

FILL(bernoulli_double) {
    fill<WideUnits, AsDouble<0>>(to, place, work, view, [=](double r, u32) { return r < numbers.a ? 1.0 : 0.0; });
}

FILL(geometric_single) {
    float p = (float)numbers.a;
    fill<Units, AsAny<1 << F32>>(to, place, work, view,
                       [=](float r, u32) { return ceilf(__fdiv_rn(__logf(r), __logf(1.0f - p))); });
}

FILL(geometric_double) {
    fill<WideUnits, AsDouble<0>>(to, place, work, view, [=](double r, u32) { return ceil(log(r) / log1p(-numbers.a)); });
}

// Integers from `base` on, fewer than `range` above it.
extern "C" __global__ void __launch_bounds__(256)
    integers(char *to, const u64 *place, const Work work, const View view, u64 range, s64 base) {
    u32 narrow = (u32)range;
    fill<Words, AsAny<1 << I32>>(to, place, work, view, [=](u32 word, u32) { return (s64)(word % narrow) + base; });
}

// The same of 64 bits each. A range of 0 stands for 2^64.
extern "C" __global__ void __launch_bounds__(256)
    wide_integers(char *to, const u64 *place, const Work work, const View view, u64 range, s64 base) {
    fill<WideWords, AsAny<1 << I64>>(to, place, work, view,
                           [=](u64 word, u32) { return (s64)((range ? word % range : word) + (u64)base); });
}

// Draws that go along with an input.

// Like `View`, for whatever size.
struct WideView {
    u64 rank;
    u64 sizes[25];
    u64 strides[25];
};

__device__ u64 byte_of(const WideView &view, u64 element) {
    u64 at = 0;
#pragma unroll 1
    for (u32 dim = 0; dim + 1 < view.rank; ++dim) {
        u64 rest = element / view.sizes[dim];
        at += (element - rest * view.sizes[dim]) * view.strides[dim];
        element = rest;
    }
    return view.rank == 0 ? 0 : at + element * view.strides[view.rank - 1];
}

// What the host finds when it next waits, as in `index.cu`: who reports, the element, and the bits of its number.
struct Report {
    u32 state, operation;
    s64 element;
    double value;
    s64 size;
};

__device__ void report(Report *to, u32 operation, s64 element, double value) {
    if (atomicCAS(&to->state, 0u, 1u) != 0) return;
    volatile Report *slot = to;
    slot->operation = operation;
    slot->element = element;
    slot->value = value;
    slot->size = 0;
    __threadfence_system();
    slot->state = 2;
}

__device__ double get_float(const char *at, u32 type) {
    switch (type) {
        case F16: return __half2float(*(const __half *)at);
        case BF16: return __bfloat162float(*(const __nv_bfloat16 *)at);
        case F32: return *(const float *)at;
        default: return *(const double *)at;
    }
}

// Each thread draws one block for four elements in a row; `to` and `p` have the same sizes. What has no probability is
// reported, and its element left out.
extern "C" __global__ void __launch_bounds__(512)
    bernoulli_of(char *to, const char *p, const u64 *place, u64 seed, u64 offset, u64 n, u32 type, u32 p_type,
                 const WideView view, const WideView p_view, u32 operation, Report *slot) {
    Stand at = stand(seed, offset, place);
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread * 4 >= n) return;
    float r[4];
    Units::draw(philox(at.seed, at.block, thread), r);
#pragma unroll 1
    for (int i = 0; i < 4; ++i, r[0] = r[1], r[1] = r[2], r[2] = r[3]) {
        u64 element = thread * 4 + i;
        if (element >= n) return;
        double probability = get_float(p + byte_of(p_view, element), p_type);
        if (!(probability >= 0 && probability <= 1)) {
            report(slot, operation, element, probability);
            continue;
        }
        put_any(to + byte_of(view, element), type, (u32)((double)r[0] <= probability));
    }
}

// An element times zero or one, and times the scale.
__device__ float dropped(float from, bool keep, float scale) { return __fmul_rn(from, keep ? scale : 0.0f); }

__device__ double dropped(double from, bool keep, double scale) { return __dmul_rn(from, keep ? scale : 0.0); }

__device__ __half dropped(__half from, bool keep, float scale) {
    return __float2half_rn(dropped(__half2float(from), keep, scale));
}

__device__ __nv_bfloat16 dropped(__nv_bfloat16 from, bool keep, float scale) {
    return to_bf16(dropped(__bfloat162float(from), keep, scale));
}

__device__ void drop(char *to, const char *from, bool keep, u32 type, double scale) {
    float narrow = (float)scale;
    switch (type) {
        case F16: *(__half *)to = dropped(*(const __half *)from, keep, narrow); break;
        case BF16: *(__nv_bfloat16 *)to = dropped(*(const __nv_bfloat16 *)from, keep, narrow); break;
        case F32: *(float *)to = dropped(*(const float *)from, keep, narrow); break;
        default: *(double *)to = dropped(*(const double *)from, keep, scale);
    }
}

// As `dropout_groups`, for groups of 16 bytes at multiples of as many. Words below `below` keep their element; a block has
// words for four. Nothing is decided at run time, since most threads take one group only.
template <class T, class Scale>
__device__ void drop_groups(T *to, u8 *mask, const T *from, Stand at, u64 n, u32 threads, u32 below, Scale scale) {
    const int count = 16 / sizeof(T), blocks = (count + 3) / 4;
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 step = blockIdx.y;; step += gridDim.y) {
        u64 first = (step * threads + thread) * count;
        if (first >= n) return;
        Group<T, count> group = *(const Group<T, count> *)(from + first);
        Group<u8, count> kept;
#pragma unroll
        for (int block = 0; block < blocks; ++block) {
            Four four = philox(at.seed, at.block + step * blocks + block, thread);
            u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4 && i < count; ++i) {
                int place = block * 4 + i;
                kept.of[place] = words[i] < below;
                group.of[place] = dropped(group.of[place], words[i] < below, scale);
            }
        }
        *(Group<T, count> *)(to + first) = group;
        *(Group<u8, count> *)(mask + first) = kept;
    }
}

#define DROPOUT(name, T, Scale)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name(T *to, u8 *mask, const T *from, const u64 *place, u64 seed, u64 offset, u64 n, u32 threads, u32 below,    \
             Scale scale) {                                                                                            \
        drop_groups(to, mask, from, stand(seed, offset, place), n, threads, below, scale);                             \
    }

DROPOUT(dropout_half, __half, float)
DROPOUT(dropout_bfloat16, __nv_bfloat16, float)
DROPOUT(dropout_float, float, float)
DROPOUT(dropout_double, double, double)

// Groups of `group` elements in the order of memory: thread t of `threads` takes groups t, t + threads and so on, with
// new words for each; of the words of a block a group of two uses the first two.
extern "C" __global__ void __launch_bounds__(256)
    dropout_groups(char *to, u8 *mask, const char *from, const u64 *place, u64 seed, u64 offset, u64 n, u32 threads,
                   u32 group, u32 type, u32 below, double scale) {
    Stand at = stand(seed, offset, place);
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, size = size_of(type), blocks = group > 4 ? 2 : 1;
    for (u64 step = blockIdx.y;; step += gridDim.y) {
        u64 first = (step * threads + thread) * group;
        if (first >= n) return;
#pragma unroll 1
        for (u32 block = 0; block < blocks; ++block) {
            u32 words[4];
            Words::draw(philox(at.seed, at.block + step * blocks + block, thread), words);
#pragma unroll 1
            for (u32 i = 0; i < 4; ++i, words[0] = words[1], words[1] = words[2], words[2] = words[3]) {
                if (block * 4 + i >= group) break;
                u64 element = first + block * 4 + i;
                drop(to + element * size, from + element * size, words[0] < below, type, scale);
                mask[element] = words[0] < below;
            }
        }
    }
}

// Elements one by one, in row-major order.
extern "C" __global__ void __launch_bounds__(256)
    dropout_single(char *to, u8 *mask, const char *from, const u64 *place, u64 seed, u64 offset, u64 n, u32 threads,
                   u32 type, u32 below, double scale, const WideView to_view, const WideView mask_view,
                   const WideView from_view) {
    Stand at = stand(seed, offset, place);
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 step = blockIdx.y;; step += gridDim.y) {
        u64 first = step * threads * 4 + thread;
        if (first >= n) return;
        u32 words[4];
        Words::draw(philox(at.seed, at.block + step, thread), words);
#pragma unroll 1
        for (u32 i = 0; i < 4; ++i, words[0] = words[1], words[1] = words[2], words[2] = words[3]) {
            u64 element = first + (u64)i * threads;
            if (element >= n) break;
            drop(to + byte_of(to_view, element), from + byte_of(from_view, element), words[0] < below, type, scale);
            mask[byte_of(mask_view, element)] = words[0] < below;
        }
    }
}

// Writes where a generator stands, for what a graph has captured.
extern "C" __global__ void stand_at(u64 *place, u64 seed, u64 offset) {
    place[0] = seed;
    place[1] = offset;
}

// A stable sort of keys with the number of each element, eight bits at a time: `sort_count` counts the digits of each
// tile, `sort_places` adds them up, `sort_move` writes each element where it belongs. Tiles have 8192 elements, and each
// of the eight warps of a block takes 1024 in a row of one.

const u32 TILE = 8192, PART = 1024;

template <class Key> __device__ u32 digit(Key key, Key flip, u32 shift, u32 mask) {
    return (u32)((key ^ flip) >> shift) & mask;
}

template <class Key>
__device__ void count_digits(const Key *keys, u32 n, Key flip, u32 shift, u32 mask, u32 *counts, u32 tiles) {
    __shared__ u32 count[256];
    count[threadIdx.x] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < TILE; i += 256) {
        u32 at = blockIdx.x * TILE + i;
        if (at < n) atomicAdd(&count[digit(keys[at], flip, shift, mask)], 1u);
    }
    __syncthreads();
    counts[threadIdx.x * tiles + blockIdx.x] = count[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(1024) sort_places(u32 *counts, u32 length) {
    __shared__ u32 sums[32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, carry = 0;
    for (u32 start = 0; start < length; start += 1024) {
        u32 at = start + threadIdx.x, own = at < length ? counts[at] : 0, sum = own;
        for (u32 step = 1; step < 32; step *= 2) {
            u32 other = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        u32 before = carry, total = carry;
        for (u32 i = 0; i < 32; ++i) {
            if (i < warp) before += sums[i];
            total += sums[i];
        }
        if (at < length) counts[at] = before + sum - own;
        carry = total;
        __syncthreads();
    }
}

template <class Key>
__device__ void move_elements(const Key *keys, const u32 *numbers, Key *to_keys, u32 *to_numbers, u32 n, Key flip,
                              u32 shift, u32 mask, const u32 *places, u32 tiles) {
    __shared__ u32 next[8][256];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, below = (1u << lane) - 1;
    for (u32 i = lane; i < 256; i += 32) next[warp][i] = 0;
    __syncthreads();
    u32 start = blockIdx.x * TILE + warp * PART;
    for (u32 i = lane; i < PART; i += 32) {
        if (start + i < n) atomicAdd(&next[warp][digit(keys[start + i], flip, shift, mask)], 1u);
    }
    __syncthreads();
    u32 sum = places[threadIdx.x * tiles + blockIdx.x];
    for (u32 i = 0; i < 8; ++i) {
        u32 own = next[i][threadIdx.x];
        next[i][threadIdx.x] = sum;
        sum += own;
    }
    __syncthreads();
    for (u32 i = lane; i < PART; i += 32) {
        bool is_there = start + i < n;
        Key key = is_there ? keys[start + i] : 0;
        u32 own = is_there ? digit(key, flip, shift, mask) : 256;
        // Lanes with the same digit, found bit by bit; lanes past the end have the ninth bit set.
        u32 peers = ~0u;
        for (u32 bit = 0; bit < 9; ++bit) {
            bool set = own >> bit & 1;
            u32 vote = __ballot_sync(~0u, set);
            peers &= set ? vote : ~vote;
        }
        if (is_there) {
            u32 at = next[warp][own] + __popc(peers & below);
            to_keys[at] = key;
            to_numbers[at] = numbers ? numbers[start + i] : start + i;
        }
        __syncwarp();
        if (is_there && (peers & below) == 0) next[warp][own] += __popc(peers);
        __syncwarp();
    }
}

#define SORT(bits) \
    extern "C" __global__ void __launch_bounds__(256) \
        sort_count_##bits(const u##bits *keys, u32 n, u##bits flip, u32 shift, u32 mask, u32 *counts, u32 tiles) { \
        count_digits(keys, n, flip, shift, mask, counts, tiles); \
    } \
    extern "C" __global__ void __launch_bounds__(256) \
        sort_move_##bits(const u##bits *keys, const u32 *numbers, u##bits *to_keys, u32 *to_numbers, u32 n, \
                         u##bits flip, u32 shift, u32 mask, const u32 *places, u32 tiles) { \
        move_elements(keys, numbers, to_keys, to_numbers, n, flip, shift, mask, places, tiles); \
    } \
    /* Shuffles the members of each run of keys that agree in the bits of `mask`, and writes all numbers. */ \
    extern "C" __global__ void __launch_bounds__(256) \
        permute_##bits(const u##bits *keys, u32 *numbers, s64 *to, u32 n, u##bits mask, const u64 *place, u64 seed, \
                       u64 offset) { \
        shuffle_runs(keys, numbers, to, n, mask, stand(seed, offset, place)); \
    }

template <class Key>
__device__ void shuffle_runs(const Key *keys, u32 *numbers, s64 *to, u32 n, Key mask, Stand at) {
    u32 start = blockIdx.x * blockDim.x + threadIdx.x;
    if (start >= n) return;
    Key own = keys[start] & mask;
    if (start > 0 && (keys[start - 1] & mask) == own) return;
    u32 members = 1;
    while (start + members < n && (keys[start + members] & mask) == own) ++members;
    for (u32 last = members - 1, drawn = 0; last > 0; --last, ++drawn) {
        Four four = philox(at.seed, at.block + drawn / 4, start);
        u32 lane = drawn % 4, word = lane == 0 ? four.x : lane == 1 ? four.y : lane == 2 ? four.z : four.w;
        u32 other = word % (last + 1), kept = numbers[start + last];
        numbers[start + last] = numbers[start + other];
        numbers[start + other] = kept;
    }
    for (u32 i = 0; i < members; ++i) to[start + i] = numbers[start + i];
}

SORT(32)
SORT(64)

// Drawing categories.

// Rows of `columns` probabilities: reports one that is infinite, no number or below zero, as `operation`, and a row that
// has none above zero, as the operation after that.
extern "C" __global__ void __launch_bounds__(256)
    check_rows(const char *p, u32 rows, u32 columns, u32 type, u32 operation, Report *slot) {
    u32 size = size_of(type);
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        bool above = false;
        for (u32 column = threadIdx.x; column < columns; column += blockDim.x) {
            double own = get_float(p + ((u64)row * columns + column) * size, type);
            bool bad = !(own >= 0 && own < __longlong_as_double(0x7FF0000000000000ll));
            if (bad) report(slot, operation, (u64)row * columns + column, own);
            // A row with a number that is none is not reported as well.
            above |= bad || own > 0;
        }
        above = __syncthreads_or(above);
        if (threadIdx.x == 0 && !above) report(slot, operation + 1, row, 0);
    }
}

// The quotient as the type of the probabilities has it.
__device__ double quotient(double p, double q, u32 type) {
    if (type == F64) return __ddiv_rn(p, q);
    float single = __fdiv_rn((float)p, (float)q);
    if (type == F16) return __half2float(__float2half_rn(single));
    if (type == BF16) return __bfloat162float(__float2bfloat16_rn(single));
    return single;
}

// For each row the place of the largest p / q, the first of equals.
extern "C" __global__ void __launch_bounds__(256)
    largest_of_rows(const char *p, const char *q, s64 *to, u32 rows, u32 columns, u32 type) {
    __shared__ double values[256];
    __shared__ u32 places[256];
    u32 size = size_of(type), me = threadIdx.x;
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        double best = -1;
        u32 place = 0;
        for (u32 column = me; column < columns; column += 256) {
            u64 at = ((u64)row * columns + column) * size;
            double own = quotient(get_float(p + at, type), get_float(q + at, type), type);
            if (own > best) best = own, place = column;
        }
        values[me] = best, places[me] = place;
        for (u32 half = 128; half > 0; half /= 2) {
            __syncthreads();
            if (me < half) {
                bool larger = values[me + half] > values[me];
                bool first = values[me + half] == values[me] && places[me + half] < places[me];
                if (larger || first) values[me] = values[me + half], places[me] = places[me + half];
            }
        }
        __syncthreads();
        if (me == 0) to[row] = places[0];
        __syncthreads();
    }
}

// Keys whose order is that of p / q from the largest on. Quotients are not below zero, so their bits rise with them.
extern "C" __global__ void __launch_bounds__(256)
    quotient_keys(const char *p, const char *q, u64 *keys, u32 n, u32 type) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, size = size_of(type);
    if (at >= n) return;
    double own = quotient(get_float(p + (u64)at * size, type), get_float(q + (u64)at * size, type), type);
    keys[at] = ~(u64)__double_as_longlong(own == 0 ? 0.0 : own);
}

// The row that each number belongs to, as keys.
extern "C" __global__ void __launch_bounds__(256) row_keys(const u32 *numbers, u32 *keys, u32 n, u32 columns) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) keys[at] = numbers[at] / columns;
}

// The first `samples` of each row.
extern "C" __global__ void __launch_bounds__(256)
    first_of_rows(const u32 *numbers, s64 *to, u32 rows, u32 columns, u32 samples) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < (u64)rows * samples) to[at] = numbers[at / samples * columns + at % samples] % columns;
}

__device__ double rounded(double value, u32 type) {
    switch (type) {
        case F16: return __half2float(__float2half_rn((float)value));
        case BF16: return __bfloat162float(__float2bfloat16_rn((float)value));
        case F32: return (float)value;
        default: return value;
    }
}

// The sum of what the threads of a block of 256 have, and of those up to each thread.
__device__ double sum_up_to(double own, double *parts, double *total) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(~0u, own, step);
        if (lane >= step) own += other;
    }
    __syncthreads();
    if (lane == 31) parts[warp] = own;
    __syncthreads();
    double before = 0;
    *total = 0;
    for (u32 i = 0; i < 8; ++i) {
        if (i < warp) before += parts[i];
        *total += parts[i];
    }
    return before + own;
}

// For each row what its probabilities add up to, up to each of them, over the sum of all.
extern "C" __global__ void __launch_bounds__(256)
    add_up_rows(const char *p, double *sums, u32 rows, u32 columns, u32 type) {
    __shared__ double parts[8];
    u32 size = size_of(type);
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        u64 start = (u64)row * columns;
        double whole = 0, total;
        for (u32 column = threadIdx.x; column < columns; column += 256)
            whole += get_float(p + (start + column) * size, type);
        sum_up_to(whole, parts, &total);
        whole = total;
        double carry = 0;
        for (u32 first = 0; first < columns; first += 256) {
            u32 column = first + threadIdx.x;
            double own = column < columns ? get_float(p + (start + column) * size, type) / whole : 0;
            double sum = carry + sum_up_to(own, parts, &total);
            if (column < columns) sums[start + column] = rounded(sum, type);
            carry += total;
        }
    }
}

// Each thread draws a sample of a row, and the category whose sum reaches it first.
extern "C" __global__ void __launch_bounds__(128)
    sample_rows(const double *sums, const char *p, s64 *to, u32 rows, u32 columns, u32 samples, u32 type,
                const u64 *place, u64 seed, u64 offset) {
    Stand at = stand(seed, offset, place);
    u32 sample = blockIdx.x * blockDim.x + threadIdx.x;
    if (sample >= samples) return;
    u32 subsequence = blockIdx.y * gridDim.x * blockDim.x + sample, drawn = 0, size = size_of(type);
    for (u32 row = blockIdx.y; row < rows; row += gridDim.y, ++drawn) {
        double r = rounded(unit(philox(at.seed, at.block + drawn, subsequence).x), type);
        const double *sum = sums + (u64)row * columns;
        u32 low = 0, high = columns;
        while (low < high) {
            u32 middle = low + (high - low) / 2;
            if (sum[middle] < r) low = middle + 1; else high = middle;
        }
        if (low == columns) low = columns - 1;
        while (low > 0 && get_float(p + ((u64)row * columns + low) * size, type) == 0) --low;
        to[(u64)row * samples + sample] = low;
    }
}

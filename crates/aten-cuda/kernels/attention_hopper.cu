// needs 90a
//
// Attention of 16-bit floats on the tensor cores of compute capability 9.0, forward: what attention.cu computes, by
// products of four warps (wgmma) on tiles that the tensor memory accelerator copies.
//
// A block computes 64 rows of the result for each of its groups of four warps but the first one. Of the first group
// one thread has the tiles copied, as soon as all others are done with what was in their place: the rows of the
// queries once, then keys and values in turn, each into a ring of STAGES tiles. A barrier in memory tells when a tile
// has come, another one when all warps are done with it. What lies outside the tensors comes as zeros.
//
// The other groups multiply the queries by a tile of keys, and while the tensor cores are at it, by the weights of
// the tile before. Then the weights follow from the products: of each row the largest product so far and the sum of
// the weights relative to it are kept, and the result so far is scaled whenever a larger one comes. Each warp's
// registers are in flight from the instruction that begins a product to the one that waits for it; nothing touches
// them in between (`hold` keeps the compiler from moving what does). Every sum has one order, so that results are the
// same at every run.
//
// A tile in shared memory is made of boxes of 64 elements (128 bytes) a line, each as high as the tile; the 8 chunks
// of a line are permuted by its number, as the products take them.

#include "numbers.cuh"

#define INFINITY __int_as_float(0x7f800000)

// Elements from one batch, head or line to the next.
struct Strides {
    i64 batch, head, row;
};

// The layout of launch/library/attention.rs.
struct Sizes {
    // `group` heads of the queries share a head of the keys and values.
    i64 batches, heads, group, queries, keys, width;
    Strides out, query, key, value;
    // The scale of the products times the binary logarithm of e.
    float scale;
    // Whether a query sees only the keys up to its own number.
    int is_causal;
};

// What the driver writes of a tensor (CUtensorMap): width, rows, heads and batches; boxes of 64 elements of a tile's
// rows.
struct __align__(64) Map {
    char bytes[128];
};

struct Half { u16 bits; };
struct Brain { u16 bits; };

// The sums of a product, as operands of an instruction.
#define OUT_8(d, i)                                                                                                     \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),         \
        "+f"(d[i + 7])
#define FOUR_8(d, i) OUT_8(d, i), OUT_8(d, i + 8), OUT_8(d, i + 16), OUT_8(d, i + 24)
#define OUT_32(d) FOUR_8(d, 0)
#define OUT_40(d) OUT_32(d), OUT_8(d, 32)
#define OUT_64(d) OUT_32(d), FOUR_8(d, 32)
#define OUT_88(d) OUT_64(d), OUT_8(d, 64), OUT_8(d, 72), OUT_8(d, 80)
#define OUT_128(d) OUT_64(d), FOUR_8(d, 64), FOUR_8(d, 96)
#define IN_32                                                                                                           \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                              \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define IN_40 IN_32                                                                                                     \
    ", %32, %33, %34, %35, %36, %37, %38, %39"
#define IN_64 IN_32                                                                                                     \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                                  \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define IN_88 IN_64                                                                                                     \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                                  \
    ", %80, %81, %82, %83, %84, %85, %86, %87"
#define IN_128 IN_64                                                                                                    \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                                  \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                                  \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"                      \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Products of 64 rows and COLUMNS columns over 16 elements, begun and not awaited, for each COLUMNS that a kernel
// needs.
template <class T, int COLUMNS> struct Product;

// `sums = a @ b`, or that and `sums` where they are to be added to. Both factors lie in shared memory along the inner
// dimension, as their descriptors say.
#define SHARED(T, NAME, COLUMNS, COUNT, A, B, ADDED)                                                                    \
    static __device__ __forceinline__ void begin(float *d, u64 a, u64 b, int is_added)                                  \
    {                                                                                                                   \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " ADDED ", 0; wgmma.mma_async.sync.aligned.m64n" #COLUMNS           \
                     "k16.f32." NAME "." NAME " {" IN_##COUNT "}, " A ", " B ", p, 1, 1, 0, 0;}"                        \
                     : OUT_##COUNT(d) : "l"(a), "l"(b), "r"(is_added) : "memory");                                      \
    }
// `sums += a @ b` of weights in registers and a factor in shared memory that lies along the outer dimension.
#define REGISTERS(T, NAME, COLUMNS, COUNT, A0, A1, A2, A3, B)                                                           \
    static __device__ __forceinline__ void add(float *d, const u32 *a, u64 b)                                           \
    {                                                                                                                   \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME " {" IN_##COUNT "}, {" A0    \
                     ", " A1 ", " A2 ", " A3 "}, " B ", 1, 1, 1, 1;"                                                    \
                     : OUT_##COUNT(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");                 \
    }
#define PRODUCTS(T, NAME)                                                                                               \
    template <> struct Product<T, 64> {                                                                                 \
        REGISTERS(T, NAME, 64, 32, "%32", "%33", "%34", "%35", "%36")                                                   \
    };                                                                                                                  \
    template <> struct Product<T, 80> {                                                                                 \
        SHARED(T, NAME, 80, 40, "%40", "%41", "%42")                                                                    \
    };                                                                                                                  \
    template <> struct Product<T, 128> {                                                                                \
        SHARED(T, NAME, 128, 64, "%64", "%65", "%66")                                                                   \
        REGISTERS(T, NAME, 128, 64, "%64", "%65", "%66", "%67", "%68")                                                  \
    };                                                                                                                  \
    template <> struct Product<T, 176> {                                                                                \
        SHARED(T, NAME, 176, 88, "%88", "%89", "%90")                                                                   \
    };                                                                                                                  \
    template <> struct Product<T, 256> {                                                                                \
        REGISTERS(T, NAME, 256, 128, "%128", "%129", "%130", "%131", "%132")                                            \
    };
PRODUCTS(Half, "f16")
PRODUCTS(Brain, "bf16")

// Two floats rounded, the first one in the lower half.
template <class T> __device__ __forceinline__ u32 narrowed(float first, float second);
template <> __device__ __forceinline__ u32 narrowed<Half>(float first, float second)
{
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
template <> __device__ __forceinline__ u32 narrowed<Brain>(float first, float second)
{
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

// Before products: what they read in registers has been written.
__device__ __forceinline__ void open_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all groups of products but the last COUNT are done.
template <int COUNT> __device__ __forceinline__ void await_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}

// Nothing that uses these registers is moved across.
template <int COUNT> __device__ __forceinline__ void hold(float *registers)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int COUNT> __device__ __forceinline__ void hold(u32 *registers)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// Where a factor of a product begins in shared memory. Of factors that lie along the outer dimension, `apart` is the
// distance of boxes.
__device__ __forceinline__ u64 descriptor(u32 address, u32 apart)
{
    const u64 eight_lines = 1024, is_permuted = 1;
    return address % (1 << 18) / 16 | (u64)apart / 16 << 16 | eight_lines / 16 << 32 | is_permuted << 62;
}

__device__ __forceinline__ float power_of_two(float exponent)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return power;
}

__device__ __forceinline__ float over_quad(float value, bool is_sum)
{
#pragma unroll
    for (int apart = 1; apart <= 2; apart *= 2) {
        const float other = __shfl_xor_sync(~0u, value, apart);
        value = is_sum ? value + other : fmaxf(value, other);
    }
    return value;
}

// Barriers in shared memory, by address.
__device__ __forceinline__ void make_barrier(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase with this parity is over.
__device__ __forceinline__ void await(u32 barrier, u32 parity)
{
    asm volatile("{.reg .pred p;\nTRY: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra DONE;\nbra TRY;\nDONE:}"
                 ::"r"(barrier), "r"(parity) : "memory");
}

// Begins to copy a box, which `barrier` counts when it comes.
__device__ __forceinline__ void copy_box(u32 to, const Map *map, int column, int row, int head, int batch, u32 barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
                 "[%6];" ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier) : "memory");
}

// A tile in a ring, and how often the ring has gone round.
template <int STAGES> struct Place {
    u32 stage = 0, round = 0;
    __device__ __forceinline__ void advance()
    {
        if (++stage == STAGES) {
            stage = 0;
            round ^= 1;
        }
    }
};

template <class T, int WIDTH, int GROUPS, int KEYS, int STAGES>
__device__ __forceinline__ void attend(T *out, const Map *query, const Map *key, const Map *value, const Sizes &s)
{
    constexpr int ROWS = GROUPS * 64, BOXES = WIDTH / 64;
    constexpr u32 QUERY_BOX = ROWS * 128, QUERY_BYTES = BOXES * QUERY_BOX, BOX = KEYS * 128, BYTES = BOXES * BOX;
    extern __shared__ __align__(1024) char memory[];
    __shared__ __align__(8) u64 barriers[1 + 4 * STAGES];
    // Boxes begin at multiples of 1024 bytes.
    const u32 start = (u32)__cvta_generic_to_shared(memory), queries = (start + 1023) & ~1023u;
    const u32 keys = queries + QUERY_BYTES, values = keys + STAGES * BYTES;
    const u32 queries_came = (u32)__cvta_generic_to_shared(barriers);
    const u32 keys_came = queries_came + 8, keys_left = keys_came + 8 * STAGES;
    const u32 values_came = keys_left + 8 * STAGES, values_left = values_came + 8 * STAGES;
    if (threadIdx.x == 0) {
        make_barrier(queries_came, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            make_barrier(keys_came + 8 * stage, 1);
            make_barrier(values_came + 8 * stage, 1);
            make_barrier(keys_left + 8 * stage, GROUPS * 4);
            make_barrier(values_left + 8 * stage, GROUPS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // Blocks that are at work together share keys and values. With a causal mask the later rows have more to do and
    // begin first.
    const u32 tiles_down = (u32)((s.queries + ROWS - 1) / ROWS);
    const u32 number = blockIdx.x / tiles_down, tile_down = tiles_down - 1 - blockIdx.x % tiles_down;
    const int head = (int)(number % (u32)s.heads), batch = (int)(number / (u32)s.heads), first_row = tile_down * ROWS;
    const int all_keys = (int)s.keys, seen = s.is_causal ? min(all_keys, first_row + ROWS) : all_keys;
    const int tiles = (seen + KEYS - 1) / KEYS;
    // The same for all threads of a warp, which the compiler cannot know of a part of the thread's number.
    const u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0);

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(GROUPS == 3 ? 32 : 24));
        if (threadIdx.x != 0) return;
        auto copy = [&](const Map *map, u32 to, u32 box_bytes, int row, int of_head, u32 came) {
            arrive_and_expect(came, BOXES * box_bytes);
            for (int box = 0; box < BOXES; ++box)
                copy_box(to + box * box_bytes, map, box * 64, row, of_head, batch, came);
        };
        const int shared_head = head / (int)s.group;
        copy(query, queries, QUERY_BOX, first_row, head, queries_came);
        Place<STAGES> place;
        for (int tile = 0; tile < tiles; ++tile, place.advance()) {
            // A barrier's phase before the first one counts as over.
            await(keys_left + 8 * place.stage, place.round ^ 1);
            copy(key, keys + place.stage * BYTES, BOX, tile * KEYS, shared_head, keys_came + 8 * place.stage);
            await(values_left + 8 * place.stage, place.round ^ 1);
            copy(value, values + place.stage * BYTES, BOX, tile * KEYS, shared_head, values_came + 8 * place.stage);
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(GROUPS == 3 ? 160 : 240));
    const u32 own = group - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int own_row = first_row + (int)own * 64;
    float result[WIDTH / 2], scores[KEYS / 2], largest[2], sum[2], shrunk[2];
    u32 weights[KEYS / 4];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) result[i] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        largest[half] = -INFINITY;
        sum[half] = 0;
    }

    const u64 own_queries = descriptor(queries + own * (64 * 128), 16);
    auto multiply_keys = [&](u32 stage) {
        const u64 tile = descriptor(keys + stage * BYTES, 16);
        hold<KEYS / 2>(scores);
        open_products();
#pragma unroll
        for (int step = 0; step < WIDTH / 16; ++step)
            Product<T, KEYS>::begin(scores, own_queries + (step / 4 * QUERY_BOX + step % 4 * 32) / 16,
                                    tile + (step / 4 * BOX + step % 4 * 32) / 16, step > 0);
        close_products();
    };
    auto multiply_values = [&](u32 stage) {
        const u64 tile = descriptor(values + stage * BYTES, BOX);
        hold<WIDTH / 2>(result);
        hold<KEYS / 4>(weights);
        open_products();
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step)
            Product<T, WIDTH>::add(result, weights + 4 * step, tile + step * (16 * 128) / 16);
        close_products();
    };
    // From products to weights, of which the sums are kept, and by what earlier weights shrink.
    auto soften = [&](int tile) {
        const int first_key = tile * KEYS;
        if (first_key + KEYS > (s.is_causal ? min(all_keys, own_row + 1) : all_keys)) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = own_row + (int)(warp * 16 + half * 8 + lane / 4);
                const int left = (s.is_causal ? min(all_keys, row + 1) : all_keys) - first_key - (int)(lane % 4 * 2);
#pragma unroll
                for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (j * 8 + e >= left) scores[j * 4 + half * 2 + e] = -INFINITY;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = largest[half];
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
                most = fmaxf(most, fmaxf(scores[j * 4 + half * 2], scores[j * 4 + half * 2 + 1]));
            most = over_quad(most, false);
            // Of a row that sees nothing yet all weights are zero, not undefined.
            const float shift = most == -INFINITY ? 0 : most * s.scale;
            shrunk[half] = power_of_two(fmaf(largest[half], s.scale, -shift));
            largest[half] = most;
            float added = 0;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float &weight = scores[j * 4 + half * 2 + e];
                    weight = power_of_two(fmaf(weight, s.scale, -shift));
                    added += weight;
                }
            sum[half] = fmaf(sum[half], shrunk[half], added);
        }
    };
    auto round_weights = [&]() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) weights[i] = narrowed<T>(scores[2 * i], scores[2 * i + 1]);
    };

    Place<STAGES> before, place;
    await(queries_came, 0);
    await(keys_came, 0);
    multiply_keys(0);
    await_products<0>();
    hold<KEYS / 2>(scores);
    if (lane == 0) arrive(keys_left);
    soften(0);
    round_weights();
    place.advance();
#pragma unroll 1
    for (int tile = 1; tile < tiles; ++tile) {
        await(keys_came + 8 * place.stage, place.round);
        multiply_keys(place.stage);
        await(values_came + 8 * before.stage, before.round);
        multiply_values(before.stage);
        await_products<1>();
        hold<KEYS / 2>(scores);
        if (lane == 0) arrive(keys_left + 8 * place.stage);
        soften(tile);
        await_products<0>();
        hold<WIDTH / 2>(result);
        if (lane == 0) arrive(values_left + 8 * before.stage);
        round_weights();
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) result[i] *= shrunk[i / 2 % 2];
        before = place;
        place.advance();
    }
    await(values_came + 8 * before.stage, before.round);
    multiply_values(before.stage);
    await_products<0>();
    hold<WIDTH / 2>(result);

    // The group's rows go through its own rows of the queries, which all of its warps are done with, so that they are
    // written in chunks.
    asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
    char *const lines = memory + (queries - start) + own * (64 * 128);
    auto chunk_of = [&](u32 line, u32 chunk) {
        return lines + chunk / 8 * QUERY_BOX + line * 128 + (chunk % 8 ^ line % 8) * 16;
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // A row that sees nothing is zero.
        const float whole = over_quad(sum[half], true), factor = whole == 0 ? 0 : 1 / whole;
        const u32 line = warp * 16 + half * 8 + lane / 4;
#pragma unroll
        for (int j = 0; j < WIDTH / 8; ++j)
            *(u32 *)(chunk_of(line, j) + lane % 4 * 4) =
                narrowed<T>(result[j * 4 + half * 2] * factor, result[j * 4 + half * 2 + 1] * factor);
    }
    __syncwarp();
    out += batch * s.out.batch + head * s.out.head;
#pragma unroll 4
    for (u32 at = lane; at < 16 * WIDTH / 8; at += 32) {
        const u32 line = warp * 16 + at / (WIDTH / 8), chunk = at % (WIDTH / 8);
        const i64 row = own_row + (int)line;
        if (row < s.queries && chunk * 8 < (u32)s.width)
            *(uint4 *)(out + row * s.out.row + chunk * 8) = *(const uint4 *)chunk_of(line, chunk);
    }
}

// Blocks: tiles of rows of all heads of all batches. The tensors themselves are read by way of their maps.
#define KERNEL(name, T, WIDTH, GROUPS, KEYS, STAGES)                                                                    \
    extern "C" __global__ void __launch_bounds__(128 + 128 * GROUPS, 1)                                                 \
        name(T *out, const T *query, const T *key, const T *value, const __grid_constant__ Map query_map,               \
             const __grid_constant__ Map key_map, const __grid_constant__ Map value_map,                                \
             const __grid_constant__ Sizes sizes)                                                                       \
    {                                                                                                                   \
        attend<T, WIDTH, GROUPS, KEYS, STAGES>(out, &query_map, &key_map, &value_map, sizes);                           \
    }
KERNEL(attend_64_f16, Half, 64, 3, 128, 2)
KERNEL(attend_64_bf16, Brain, 64, 3, 128, 2)
KERNEL(attend_128_f16, Half, 128, 2, 176, 2)
KERNEL(attend_128_bf16, Brain, 128, 2, 176, 2)
KERNEL(attend_256_f16, Half, 256, 2, 80, 2)
KERNEL(attend_256_bf16, Brain, 256, 2, 80, 2)

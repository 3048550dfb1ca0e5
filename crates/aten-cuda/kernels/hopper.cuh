// What kernels of compute capability 9.0 share: barriers of shared memory, clusters, the tensor memory accelerator, and the
// frame of products from shared memory (wgmma).

#pragma once

#include "numbers.cuh"

// How the driver describes a matrix to the accelerator.
struct __align__(64) Map {
    u64 words[16];
};

// ---- Barriers of shared memory ----

__device__ __forceinline__ u32 shared_place(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

__device__ __forceinline__ void begin_barrier(u32 barrier, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier at this place of a block of the cluster. To say that memory was read is all it has to do: a
// release for the whole cluster would wait for all that the thread has under way, at every step.
__device__ __forceinline__ void arrive_at(u32 barrier, u32 block)
{
    asm volatile("{.reg .b32 place; mapa.shared::cluster.u32 place, %0, %1;"
                 "mbarrier.arrive.shared::cluster.b64 _, [place];}" ::"r"(barrier), "r"(block) : "memory");
}

// A group is done with a stage: its first threads tell the blocks of the cluster.
template <int CLUSTER> __device__ __forceinline__ void release_stage(u32 barrier)
{
    const u32 thread = threadIdx.x % 128;
    if (CLUSTER > 1) {
        if (thread < CLUSTER) arrive_at(barrier, thread);
    } else if (thread == 0) {
        arrive(barrier);
    }
}

__device__ __forceinline__ void await(u32 barrier, u32 phase)
{
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier), "r"(phase) : "memory");
}

__device__ __forceinline__ u32 cluster_rank()
{
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void join_cluster()
{
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Waits until the work before this launch on the stream is done and seen, and lets the next launch begin.
__device__ __forceinline__ void await_turn()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits for the four warps of a group.
__device__ __forceinline__ void join_group(u32 group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

// ---- The tensor memory accelerator ----

__device__ __forceinline__ void fetch_map(const Map &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The place in a ring of stages, and how often it was gone round.
template <int STAGES> struct Ring {
    u32 stage = 0, phase = 0;
    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// ---- Multiplication ----

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int COUNT> __device__ __forceinline__ void await_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}

// The operands of a product that are its sums.
#define NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_64 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_96 NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_128 NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// How tiles come to shared memory by asynchronous copies, and fragments of them to registers. Compute capability 8.0.

#pragma once

#include "numbers.cuh"

// Copies 16 bytes to shared memory, of which the first `bytes` are read and the others zero. Not awaited.
__device__ __forceinline__ void copy_chunk(u32 to, const void *from, u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups but the last COUNT have come.
template <int COUNT> __device__ __forceinline__ void await_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

// Four matrices of 8 lines of 16 bytes, turned or not; each lane names a line of one of them.
template <bool TURNED> __device__ __forceinline__ void read_matrices(u32 *into, u32 line)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(line) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3]) : "r"(line) : "memory");
}

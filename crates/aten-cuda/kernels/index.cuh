// What kernels that go by an index share: their operands, the dimension that the index is of, and the report of an index
// that is out of range. The layouts are those of launch/library/index.rs.

#pragma once

constexpr int RANK = 16;

// How operands are gone through: dimensions from the fastest to the slowest.
struct Plan {
    unsigned long long numel;
    int rank;
    int operands;
    long long sizes[RANK];
    long long strides[3][RANK];
};

// The dimension that indices are of. `stride` is in bytes of the tensor that they point into.
struct Along {
    long long size;
    long long stride;
    // 4 or 8 bytes.
    int index_bytes;
    // Whether negative indices count from the end.
    int wraps;
    int operation;
    // Whether a combined place begins anew.
    int first;
};

// The first index that was out of range: `state` becomes 1 when somebody begins to write and 2 when all is there.
struct Report {
    unsigned state;
    unsigned operation;
    long long element;
    long long value;
    long long size;
};

struct alignas(16) Sixteen {
    unsigned long long words[2];
};

__device__ void report(Report *to, int operation, long long element, long long value, long long size) {
    if (atomicCAS(&to->state, 0u, 1u) != 0) return;
    volatile Report *slot = to;
    slot->operation = operation;
    slot->element = element;
    slot->value = value;
    slot->size = size;
    __threadfence_system();
    slot->state = 2;
}

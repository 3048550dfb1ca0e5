// Tensors of one device brought together: many small ones are written one after another to one memory by one launch, so that
// one copy takes all of them to another device.
//
// The memory is cut into units of 16 bytes. Each tensor begins at a unit, and a thread writes units, each of one tensor.

#include "numbers.cuh"

constexpr int THREADS = 256;
// Units of a block.
constexpr int PIECE = 1024;
constexpr int TENSORS = 320;

struct Tensors {
    u64 first[TENSORS];
    // Where each tensor ends in the memory, in bytes.
    u32 ends[TENSORS];
    u32 count;
    u32 units;
};

// The unit after the last one of a tensor.
__device__ __forceinline__ u32 after(const Tensors &tensors, u32 tensor) { return (tensors.ends[tensor] + 15) / 16; }

// The first tensor that ends behind a unit.
__device__ __forceinline__ u32 tensor_at(const Tensors &tensors, u32 unit) {
    u32 low = 0, high = tensors.count - 1;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (after(tensors, middle) > unit) high = middle;
        else low = middle + 1;
    }
    return low;
}

struct alignas(16) Unit { u32 words[4]; };

extern "C" __global__ void flatten(Unit *to, const Tensors tensors) {
    u32 unit = blockIdx.x * PIECE + threadIdx.x, end = blockIdx.x * PIECE + PIECE;
    if (end > tensors.units) end = tensors.units;
    if (unit >= end) return;
    u32 tensor = tensor_at(tensors, unit);
    for (; unit < end; unit += THREADS) {
        while (after(tensors, tensor) <= unit) ++tensor;
        u32 start = tensor == 0 ? 0 : after(tensors, tensor - 1);
        u64 from = tensors.first[tensor] + (u64)(unit - start) * 16;
        u32 left = tensors.ends[tensor] - unit * 16;
        Unit *at = to + unit;
        if (left >= 16 && from % 16 == 0) {
            *at = *reinterpret_cast<const Unit *>(from);
        } else if (left >= 16 && from % 4 == 0) {
            for (int word = 0; word < 4; ++word) at->words[word] = reinterpret_cast<const u32 *>(from)[word];
        } else {
            // What the tensor does not fill of its last unit is zeros.
            u8 *bytes = reinterpret_cast<u8 *>(at);
            for (u32 byte = 0; byte < 16; ++byte) bytes[byte] = byte < left ? reinterpret_cast<const u8 *>(from)[byte] : 0;
        }
    }
}

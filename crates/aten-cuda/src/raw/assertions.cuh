// `CUDA_KERNEL_ASSERT2(condition)` in kernels: where it does not hold, the first ones are written down in memory that the host
// reads, and the function returns.
#line 1 "assertions"
namespace aten_cuda_assertions {

struct Failure {
    unsigned line, is_whole, block[3], thread[3];
    char message[128], function[64], kernel[64];
};
struct Slot {
    unsigned count, unused;
    Failure failures[10];
};

template <unsigned N>
__device__ void copy(char (&to)[N], const char* from) {
    unsigned at = 0;
    for (; at + 1 < N && from[at]; ++at) to[at] = from[at];
    to[at] = 0;
}

static __device__ void failed(const char* message, const char* function, unsigned line) {
    Slot* slot = reinterpret_cast<Slot*>(ATEN_CUDA_ASSERTIONS);
    unsigned place = atomicAdd(&slot->count, 1u);
    if (place >= 10) return;
    Failure& failure = slot->failures[place];
    failure.line = line;
    failure.block[0] = blockIdx.x, failure.block[1] = blockIdx.y, failure.block[2] = blockIdx.z;
    failure.thread[0] = threadIdx.x, failure.thread[1] = threadIdx.y, failure.thread[2] = threadIdx.z;
    copy(failure.message, message);
    copy(failure.function, function);
    copy(failure.kernel, ATEN_CUDA_KERNEL);
    __threadfence_system();
    failure.is_whole = 1;
}

}  // namespace aten_cuda_assertions

#define CUDA_KERNEL_ASSERT2(condition)                                          \
    do {                                                                        \
        if (!(condition)) {                                                     \
            aten_cuda_assertions::failed(#condition, __func__, __LINE__);       \
            return;                                                             \
        }                                                                       \
    } while (0)

/* What goes wrong and is answered: calls too early, too much memory, and a kernel that loses the context for good. */

#include "driver.h"
#include "kernels.h"

int main(void) {
    CUmodule module;
    CUfunction write;
    CUdeviceptr memory, nowhere = 4096;
    int count;
    size_t available, total;
    const char *text = NULL;
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    OK(cuInit(0));
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&memory, 1));
    start();
    OK(cuMemGetInfo_v2(&available, &total));
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&memory, total + 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&memory, 0));
    OK(cuMemAlloc_v2(&memory, 1 << 20));
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    SO(strcmp(text, "out of memory") == 0);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(99999, &text));
    SO(text == NULL);

    OK(cuModuleLoadData(&module, KERNELS));
    OK(cuModuleGetFunction(&write, module, "write"));
    void *parameters[] = {&nowhere};
    OK(cuLaunchKernel(write, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&memory, 1));
    return 0;
}

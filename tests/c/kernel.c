/* A kernel from text, launched on a stream over more threads than there is work for. */

#include "driver.h"
#include "kernels.h"

enum { COUNT = 5000, BYTES = COUNT * 4, BLOCK = 128 };

int main(void) {
    CUmodule module, refused;
    CUfunction scale, missing;
    CUstream stream;
    CUdeviceptr to, from;
    uint32_t count = COUNT;
    float factor = 0.5f, *values = malloc(BYTES);
    SO(values != NULL);
    for (int index = 0; index < COUNT; index++) {
        values[index] = (float)index;
    }
    start();
    OK(cuModuleLoadData(&module, KERNELS));
    OK(cuModuleGetFunction(&scale, module, "scale"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&to, BYTES));
    OK(cuMemAlloc_v2(&from, BYTES));
    OK(cuMemcpyHtoD_v2(to, values, BYTES));
    OK(cuMemcpyHtoD_v2(from, values, BYTES));
    void *parameters[] = {&to, &from, &count, &factor};
    for (int round = 0; round < 3; round++) {
        OK(cuLaunchKernel(scale, (COUNT + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0, stream, parameters, NULL));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(values, to, BYTES));
    for (int index = 0; index < COUNT; index++) {
        SO(values[index] == 2.5f * (float)index);
    }
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&missing, module, "scales"));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(scale, 1, 1, 1, 2000, 1, 1, 0, stream, parameters, NULL));
    ANSWERS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&refused, ".version 7.8\n.target sm_75\n.address_size 64\nno\n"));
    OK(cuMemFree_v2(to));
    OK(cuMemFree_v2(from));
    OK(cuStreamDestroy_v2(stream));
    OK(cuModuleUnload(module));
    finish();
    free(values);
    return 0;
}

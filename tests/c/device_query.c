/* Prints what the driver says of itself and of each device. */

#include "driver.h"

static int attribute(int which, CUdevice device) {
    int value = -1;
    OK(cuDeviceGetAttribute(&value, which, device));
    return value;
}

int main(void) {
    int version = 0, count = 0;
    OK(cuDriverGetVersion(&version));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    printf("CUDA %d.%d, %d device(s)\n", version / 1000, version % 1000 / 10, count);
    for (int ordinal = 0; ordinal < count; ordinal++) {
        CUdevice device;
        char name[64];
        size_t bytes;
        OK(cuDeviceGet(&device, ordinal));
        OK(cuDeviceGetName(name, sizeof name, device));
        OK(cuDeviceTotalMem_v2(&bytes, device));
        printf("%d: %s, capability %d.%d, %d multiprocessors, warps of %d, blocks of %d, %zu bytes\n", ordinal, name,
               attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
               attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
               attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
               attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device),
               attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device), bytes);
    }
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&count, count));
    return 0;
}

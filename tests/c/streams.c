/* Two streams that an event orders, functions of the program that run between, and the time from event to event. */

#include "driver.h"

enum { WORDS = 1 << 20, BYTES = WORDS * 4, ROUNDS = 8 };

static void count_up(void *counter) {
    ++*(int *)counter;
}

int main(void) {
    CUstream first, second;
    CUevent begin, filled, end;
    CUdeviceptr memory;
    uint32_t *words;
    int calls = 0;
    float milliseconds = -1;
    start();
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc_v2(&memory, BYTES));
    OK(cuMemAllocHost_v2((void **)&words, BYTES));
    OK(cuEventRecord(begin, first));
    for (unsigned int round = 1; round <= ROUNDS; round++) {
        OK(cuMemsetD32Async(memory, round, WORDS, first));
        OK(cuEventRecord(filled, first));
        OK(cuStreamWaitEvent(second, filled, 0));
        OK(cuMemcpyDtoHAsync_v2(words, memory, BYTES, second));
        OK(cuLaunchHostFunc(second, count_up, &calls));
        OK(cuEventRecord(end, second));
        OK(cuEventSynchronize(end));
        SO(calls == (int)round && words[0] == round && words[WORDS - 1] == round);
        OK(cuStreamWaitEvent(first, end, 0));
    }
    OK(cuEventElapsedTime(&milliseconds, begin, end));
    SO(milliseconds > 0);
    ANSWERS(CUDA_SUCCESS, cuStreamQuery(second));
    OK(cuCtxSynchronize());
    OK(cuMemFreeHost(words));
    OK(cuMemFree_v2(memory));
    OK(cuEventDestroy_v2(begin));
    OK(cuEventDestroy_v2(filled));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    finish();
    return 0;
}

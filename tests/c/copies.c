/* Memory of the device: taken, set, copied both ways and within, at once and on a stream, given back. */

#include "driver.h"

enum { WORDS = 100000, BYTES = WORDS * 4 };

static void at_once(CUdeviceptr here, CUdeviceptr there, uint32_t *words) {
    uint32_t *back = calloc(WORDS, 4);
    SO(back != NULL);
    OK(cuMemcpyHtoD_v2(here, words, BYTES));
    OK(cuMemcpyDtoD_v2(there, here, BYTES));
    OK(cuMemsetD8_v2(there + 4, 0xab, 8));
    OK(cuMemsetD32_v2(there + 12, 77, 2));
    OK(cuMemcpyDtoH_v2(back, there, BYTES));
    SO(back[0] == words[0] && back[1] == 0xabababab && back[2] == 0xabababab && back[3] == 77 && back[4] == 77);
    SO(memcmp(back + 5, words + 5, BYTES - 20) == 0);
    free(back);
}

static void on_a_stream(CUdeviceptr here, CUdeviceptr there, const uint32_t *words) {
    uint32_t *from, *to;
    CUstream stream;
    OK(cuMemAllocHost_v2((void **)&from, BYTES));
    OK(cuMemAllocHost_v2((void **)&to, BYTES));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memcpy(from, words, BYTES);
    memset(to, 0, BYTES);
    OK(cuMemcpyHtoDAsync_v2(here, from, BYTES, stream));
    OK(cuMemcpyDtoDAsync_v2(there, here, BYTES, stream));
    OK(cuMemcpyDtoHAsync_v2(to, there, BYTES, stream));
    OK(cuStreamSynchronize(stream));
    SO(memcmp(to, words, BYTES) == 0);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost(from));
    OK(cuMemFreeHost(to));
}

int main(void) {
    CUdeviceptr here, there;
    size_t before, during, after, total;
    uint32_t *words = malloc(BYTES);
    SO(words != NULL);
    for (uint32_t index = 0; index < WORDS; index++) {
        words[index] = index * 2654435761u;
    }
    start();
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuMemAlloc_v2(&here, BYTES));
    OK(cuMemAlloc_v2(&there, 64 << 20));
    OK(cuMemGetInfo_v2(&during, &total));
    SO(during + (64 << 20) <= before && before <= total);
    at_once(here, there, words);
    on_a_stream(here, there, words);
    OK(cuMemFree_v2(here));
    OK(cuMemFree_v2(there));
    OK(cuMemGetInfo_v2(&after, &total));
    SO(after > during);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(here));
    finish();
    free(words);
    return 0;
}

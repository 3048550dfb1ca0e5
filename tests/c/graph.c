/* Work captured from a stream into a graph and replayed: a copy, a kernel, a copy back. */

#include "driver.h"
#include "kernels.h"

enum { COUNT = 1000, BYTES = COUNT * 4, REPLAYS = 5 };

int main(void) {
    CUmodule module;
    CUfunction scale;
    CUstream stream;
    CUdeviceptr to, from, refused;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    uint32_t count = COUNT;
    float factor = 2, *in, *out;
    start();
    OK(cuModuleLoadData(&module, KERNELS));
    OK(cuModuleGetFunction(&scale, module, "scale"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&to, BYTES));
    OK(cuMemAlloc_v2(&from, BYTES));
    OK(cuMemAllocHost_v2((void **)&in, BYTES));
    OK(cuMemAllocHost_v2((void **)&out, BYTES));
    OK(cuMemsetD32_v2(to, 0, COUNT));
    memset(out, 0, BYTES);
    void *parameters[] = {&to, &from, &count, &factor};

    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemcpyHtoDAsync_v2(from, in, BYTES, stream));
    OK(cuLaunchKernel(scale, COUNT / 100, 1, 1, 100, 1, 1, 0, stream, parameters, NULL));
    OK(cuMemcpyDtoHAsync_v2(out, to, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    SO(nodes == 3 && out[0] == 0);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    factor = 100; /* The launch was captured with its arguments. */
    for (int replay = 1; replay <= REPLAYS; replay++) {
        for (int index = 0; index < COUNT; index++) {
            in[index] = (float)index;
        }
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        for (int index = 0; index < COUNT; index++) {
            SO(out[index] == 2.0f * (float)replay * (float)index);
        }
    }

    /* Asking for memory is not allowed to a thread that captures, and ends the capture. */
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&refused, BYTES));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemcpyHtoDAsync_v2(from, in, BYTES, stream));
    CUgraph none = graph;
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &none));
    SO(none == NULL);

    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(in));
    OK(cuMemFreeHost(out));
    OK(cuMemFree_v2(to));
    OK(cuMemFree_v2(from));
    OK(cuStreamDestroy_v2(stream));
    OK(cuModuleUnload(module));
    finish();
    return 0;
}

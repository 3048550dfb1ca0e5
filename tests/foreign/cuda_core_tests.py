"""cuda.core on the driver that the system's loader finds: device, streams, events, memory, programs, links, graphs.

The compiler is NVRTC; what a kernel writes is read back and compared with what numpy computes.
"""

import ctypes
import sys

import numpy as np
from cuda.core import (
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
)
from tests_by_name import main

SOURCE = r"""
template <typename T>
__global__ void saxpy(T a, const T* x, const T* y, T* out, size_t n) {
    size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (size_t i = first; i < n; i += gridDim.x * (size_t)blockDim.x) out[i] = a * x[i] + y[i];
}

extern "C" __global__ void total(const int* values, int* sum, int n) {
    extern __shared__ int part[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? values[i] : 0;
    __syncthreads();
    for (int width = blockDim.x / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, part[0]);
}
"""


def device():
    """The first device, made current."""
    first = Device(0)
    first.set_current()
    return first


def compiled(first, target="ptx"):
    """The module of the source, by way of PTX."""
    options = ProgramOptions(std="c++17", arch=f"sm_{first.arch}")
    return Program(SOURCE, "c++", options).compile(target, name_expressions=("saxpy<float>", "saxpy<double>"))


def array(buffer, kind):
    """The memory of a pinned buffer as an array."""
    count = buffer.size // np.dtype(kind).itemsize
    pointer = ctypes.cast(int(buffer.handle), ctypes.POINTER(ctypes.c_byte * buffer.size))
    return np.frombuffer(pointer.contents, dtype=kind, count=count)


def test_device_tells_of_itself():
    first = device()
    assert first.device_id == 0 and len(first.name) > 0 and len(first.uuid) == 36
    assert tuple(first.compute_capability) >= (7, 0)
    assert first.properties.max_threads_per_block == 1024 and first.properties.warp_size == 32
    assert first.properties.multiprocessor_count > 0


def test_two_devices_differ():
    one, two = Device(0), Device(1)
    two.set_current()
    assert (one.device_id, two.device_id) == (0, 1) and one.uuid != two.uuid


def test_the_runtime_lists_two_devices():
    assert [one.device_id for one in Device.get_all_devices()] == [0, 1]


def test_streams_wait_for_each_other():
    first = device()
    one, two = first.create_stream(), first.create_stream()
    event = one.record()
    two.wait(event)
    two.wait(one)
    two.sync()
    assert event.is_done and one.handle != two.handle
    one.close()
    two.close()


def test_events_measure():
    first = device()
    stream = first.create_stream()
    begin = stream.record(options=EventOptions(enable_timing=True))
    end = stream.record(options=EventOptions(enable_timing=True))
    end.sync()
    assert end - begin >= 0


def test_memory_is_copied_and_filled():
    first = device()
    stream = first.create_stream()
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(4096), pinned.allocate(4096)
    array(source, np.int32)[:] = np.arange(1024)
    middle = first.memory_resource.allocate(4096, stream=stream)
    middle.copy_from(source, stream=stream)
    middle.copy_to(target, stream=stream)
    stream.sync()
    assert (array(target, np.int32) == np.arange(1024)).all()
    assert middle.is_device_accessible and not middle.is_host_accessible
    middle.close(stream)
    stream.sync()


def saxpy(kind, name):
    """Launches one instance of the template over a length that no block divides, and compares every element."""
    first = device()
    stream = first.create_stream()
    kernel = compiled(first).get_kernel(name)
    count = 10_007
    size = count * np.dtype(kind).itemsize
    random = np.random.default_rng(1)
    pinned = LegacyPinnedMemoryResource()
    host = [pinned.allocate(size) for _ in range(3)]
    for buffer in host[:2]:
        array(buffer, kind)[:] = random.random(count)
    x, y, out = (first.memory_resource.allocate(size, stream=stream) for _ in range(3))
    x.copy_from(host[0], stream=stream)
    y.copy_from(host[1], stream=stream)
    launch(stream, LaunchConfig(grid=16, block=128), kernel, kind(3), x, y, out, np.uint64(count))
    out.copy_to(host[2], stream=stream)
    stream.sync()
    wanted = 3 * array(host[0], kind) + array(host[1], kind)
    np.testing.assert_allclose(array(host[2], kind), wanted, rtol=1e-6)


def test_saxpy_of_floats():
    saxpy(np.float32, "saxpy<float>")


def test_saxpy_of_doubles():
    saxpy(np.float64, "saxpy<double>")


def test_shared_memory_of_a_launch():
    first = device()
    stream = first.create_stream()
    kernel = compiled(first).get_kernel("total")
    count = 5_000
    pinned = LegacyPinnedMemoryResource()
    values, total = pinned.allocate(4 * count), pinned.allocate(4)
    array(values, np.int32)[:] = np.arange(count)
    array(total, np.int32)[:] = 0
    config = LaunchConfig(grid=-(-count // 256), block=256, shmem_size=4 * 256)
    launch(stream, config, kernel, values, total, np.int32(count))
    stream.sync()
    assert array(total, np.int32)[0] == count * (count - 1) // 2


def test_object_code_of_ptx():
    first = device()
    module = ObjectCode.from_ptx(compiled(first).code)
    kernel = module.get_kernel("total")
    assert kernel.attributes.max_threads_per_block() == 1024
    assert kernel.num_arguments == 3
    assert kernel.occupancy.max_active_blocks_per_multiprocessor(256, 1024) > 0


def counted(kernel_of):
    """Launches the kernel `count` of a module on an integer, and compares what it is then."""
    first = device()
    kernel = kernel_of(first).get_kernel("count")
    number = LegacyPinnedMemoryResource().allocate(4)
    array(number, np.int32)[:] = 40
    stream = first.create_stream()
    launch(stream, LaunchConfig(grid=1, block=1), kernel, number)
    stream.sync()
    assert array(number, np.int32)[0] == 42


def test_programs_are_linked():
    def linked(first):
        options = ProgramOptions(arch=f"sm_{first.arch}", relocatable_device_code=True)
        sources = [
            'extern __device__ int next(int); extern "C" __global__ void count(int* n) { *n = next(*n); }',
            "__device__ int next(int n) { return n + 2; }",
        ]
        modules = [Program(source, "c++", options).compile("ptx") for source in sources]
        return Linker(*modules, options=LinkerOptions(arch=f"sm_{first.arch}")).link("cubin")

    counted(linked)


def test_machine_code():
    def assembled(first):
        source = 'extern "C" __global__ void count(int* n) { *n += 2; }'
        return Program(source, "c++", ProgramOptions(arch=f"sm_{first.arch}")).compile("cubin")

    counted(assembled)


def test_graphs_are_built_and_launched_again():
    first = device()
    kernel = compiled(first).get_kernel("total")
    pinned = LegacyPinnedMemoryResource()
    values, total = pinned.allocate(4 * 100), pinned.allocate(4)
    array(values, np.int32)[:] = 1
    array(total, np.int32)[:] = 0
    builder = first.create_graph_builder().begin_building()
    for _ in range(2):
        launch(builder, LaunchConfig(grid=1, block=128, shmem_size=512), kernel, values, total, np.int32(100))
    graph = builder.end_building().complete()
    stream = first.create_stream()
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    assert array(total, np.int32)[0] == 600


def test_a_kernel_that_is_not_there():
    module = compiled(device())
    try:
        module.get_kernel("nobody")
    except Exception as error:
        assert "NOT_FOUND" in str(error), error
    else:
        raise AssertionError("a kernel that is not there was found")


if __name__ == "__main__":
    main(sys.modules[__name__])

"""numba-cuda on the driver that the system's loader finds: kernels that numba compiles from Python.

What a kernel writes is read back and compared with what numpy computes. numba has the driver link the PTX it makes.
"""

import math
import sys

import numpy as np
from numba import cuda, float32, int32
from tests_by_name import main


def test_the_device_is_there():
    assert len(cuda.gpus) == 2
    assert cuda.get_current_device().compute_capability >= (7, 0)


def test_saxpy():
    @cuda.jit
    def saxpy(a, x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a * x[i] + y[i]

    random = np.random.default_rng(1)
    x, y = (random.random(10_007).astype(np.float32) for _ in range(2))
    out = cuda.device_array_like(x)
    saxpy[-(-x.size // 128), 128](np.float32(3), cuda.to_device(x), cuda.to_device(y), out)
    np.testing.assert_allclose(out.copy_to_host(), 3 * x + y, rtol=1e-6)


def test_reduction_in_shared_memory():
    @cuda.jit
    def total(values, sums):
        part = cuda.shared.array(256, float32)
        thread, i = cuda.threadIdx.x, cuda.grid(1)
        part[thread] = values[i] if i < values.size else float32(0)
        cuda.syncthreads()
        width = 128
        while width > 0:
            if thread < width:
                part[thread] += part[thread + width]
            cuda.syncthreads()
            width //= 2
        if thread == 0:
            sums[cuda.blockIdx.x] = part[0]

    values = np.arange(5_000, dtype=np.float32)
    blocks = -(-values.size // 256)
    sums = cuda.device_array(blocks, np.float32)
    total[blocks, 256](cuda.to_device(values), sums)
    padded = np.pad(values, (0, blocks * 256 - values.size)).reshape(blocks, 256)
    np.testing.assert_array_equal(sums.copy_to_host(), padded.sum(axis=1))


def test_atomic_histogram():
    @cuda.jit
    def count(values, bins):
        i = cuda.grid(1)
        if i < values.size:
            cuda.atomic.add(bins, values[i], 1)

    values = np.random.default_rng(1).integers(0, 32, 4_000).astype(np.int32)
    bins = cuda.to_device(np.zeros(32, np.int32))
    count[-(-values.size // 256), 256](cuda.to_device(values), bins)
    np.testing.assert_array_equal(bins.copy_to_host(), np.bincount(values, minlength=32))


def test_shuffles():
    @cuda.jit
    def total(values, sums):
        sum = values[cuda.grid(1)]
        width = 16
        while width > 0:
            sum += cuda.shfl_down_sync(0xFFFFFFFF, sum, width)
            width //= 2
        if cuda.laneid == 0:
            sums[cuda.grid(1) // 32] = sum

    values = np.arange(256, dtype=np.int32)
    sums = cuda.device_array(8, np.int32)
    total[2, 128](cuda.to_device(values), sums)
    np.testing.assert_array_equal(sums.copy_to_host(), values.reshape(8, 32).sum(axis=1))


def test_matrices_in_two_dimensions():
    @cuda.jit
    def product(a, b, out):
        row, column = cuda.grid(2)
        if row < out.shape[0] and column < out.shape[1]:
            sum = float32(0)
            for k in range(a.shape[1]):
                sum += a[row, k] * b[k, column]
            out[row, column] = sum

    random = np.random.default_rng(1)
    a, b = random.random((33, 20)).astype(np.float32), random.random((20, 17)).astype(np.float32)
    out = cuda.device_array((33, 17), np.float32)
    product[(5, 3), (8, 8)](cuda.to_device(a), cuda.to_device(b), out)
    np.testing.assert_allclose(out.copy_to_host(), a @ b, rtol=1e-5)


def test_mathematics_of_doubles():
    @cuda.jit
    def waves(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = math.sin(x[i]) * math.exp(-x[i]) + math.sqrt(x[i])

    x = np.linspace(0, 100, 1_000)
    out = cuda.device_array_like(x)
    waves[4, 256](cuda.to_device(x), out)
    np.testing.assert_allclose(out.copy_to_host(), np.sin(x) * np.exp(-x) + np.sqrt(x), rtol=1e-12)


def test_local_arrays():
    @cuda.jit
    def reversed_digits(values, out):
        i = cuda.grid(1)
        digits = cuda.local.array(8, int32)
        value = values[i]
        for k in range(8):
            digits[k] = value % 10
            value //= 10
        result = 0
        for k in range(8):
            result = result * 10 + digits[k]
        out[i] = result

    values = np.arange(64, dtype=np.int32) * 12_345
    out = cuda.device_array_like(values)
    reversed_digits[1, 64](cuda.to_device(values), out)
    assert out.copy_to_host().tolist() == [int(f"{value:08d}"[::-1]) for value in values]


def test_streams_and_events():
    @cuda.jit
    def double(values):
        i = cuda.grid(1)
        values[i] *= 2

    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    host = cuda.pinned_array(256, np.int64)
    host[:] = np.arange(256)
    begin.record(stream)
    values = cuda.to_device(host, stream=stream)
    double[1, 256, stream](values)
    values.copy_to_host(host, stream=stream)
    end.record(stream)
    end.synchronize()
    np.testing.assert_array_equal(host, 2 * np.arange(256))
    assert cuda.event_elapsed_time(begin, end) >= 0


def test_memory_of_the_host_is_copied_there_and_back():
    @cuda.jit
    def double(values):
        i = cuda.grid(1)
        values[i] *= 2

    values = np.arange(256)
    double[1, 256](values)
    np.testing.assert_array_equal(values, 2 * np.arange(256))


if __name__ == "__main__":
    main(sys.modules[__name__])

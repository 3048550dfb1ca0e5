"""What a program does with memory beside training, under this allocator: prints a line for each check.

Streams, CUDA graphs, running out of memory, limits, figures, snapshots, forks. Exits with 1 if a check fails.

    checks.py [settings]
"""

import os
import pickle
import sys
import tempfile

import torch
import torch_allocator

FAILED = []


def check(name):
    def run(body):
        try:
            said = body()
            print(f"ok     {name}: {said}")
        except Exception as error:
            FAILED.append(name)
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:300]}")

    return run


torch_allocator.enable(sys.argv[1] if len(sys.argv) > 1 else "")
assert torch.cuda.get_allocator_backend() == "pluggable"


@check("streams")
def streams():
    sides = [torch.cuda.Stream() for _ in range(3)]
    for turn in range(200):
        source = torch.full((1 << 20,), float(turn), device="cuda")
        side = sides[turn % 3]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            source.record_stream(side)
            total = source.sum()
        del source
        torch.full((1 << 20,), -1.0, device="cuda")
        assert total.item() == turn * float(1 << 20), turn
    torch.cuda.synchronize()
    return "200 uses on three side streams"


@check("graph")
def graph():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 512)).cuda()
    given = torch.randn(64, 512, device="cuda")
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm), torch.no_grad():
        model(given)
    torch.cuda.current_stream().wait_stream(warm)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(first):
        half = model(given)
    with torch.no_grad(), torch.cuda.graph(second, pool=first.pool()):
        whole = half * 2
    held = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == tuple(first.pool())]
    for _ in range(5):
        given.normal_()
        # Memory of the program must not lie in the graphs' pool.
        torch.full((1 << 20,), float("nan"), device="cuda")
        first.replay()
        second.replay()
        with torch.no_grad():
            assert torch.equal(whole, model(given) * 2)
    assert held, "no memory of the graphs' own"
    count = sum(s["total_size"] for s in held) >> 20
    del half, whole
    first.reset()
    second.reset()
    # PyTorch keeps the workspaces of products that it made while it captured.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    left = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] != (0, 0)]
    assert not left, left
    return f"two graphs in a pool of {count} MiB, equal to eager, all of it given back"


@check("graphed training")
def graphed():
    layer = torch.nn.Linear(256, 256).cuda()
    sample = torch.randn(32, 256, device="cuda", requires_grad=True)
    expected = torch.autograd.grad(layer(sample).square().sum(), layer.weight)[0]
    called = torch.cuda.make_graphed_callables(layer, (sample,))
    loss = called(sample).square().sum()
    found = torch.autograd.grad(loss, layer.weight)[0]
    assert torch.equal(found, expected)
    return "forward and backward captured, gradients equal"


@check("out of memory")
def out_of_memory():
    try:
        torch.empty(1 << 45, device="cuda")
    except torch.OutOfMemoryError as error:
        said = str(error)
    else:
        raise AssertionError("nothing was raised")
    assert "out of memory" in said and torch_allocator.last_error() in said, said
    torch_allocator.forget_error()
    assert torch.ones(1000, device="cuda").sum().item() == 1000
    return f"torch.OutOfMemoryError: {said.splitlines()[0][:150]}"


@check("out of memory in a backward pass")
def out_of_memory_of_another_thread():
    given = torch.ones(1 << 20, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()

    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.sum()

        @staticmethod
        def backward(context, gradient):
            return torch.empty(1 << 45, device="cuda")

    for _ in range(3):
        try:
            Greedy.apply(given).backward()
        except torch.OutOfMemoryError:
            continue
        raise AssertionError("nothing was raised")
    torch_allocator.forget_error()
    assert torch.cuda.memory_allocated() == before
    return "torch.OutOfMemoryError passes the autograd engine, nothing leaks"


@check("other errors")
def other_errors():
    try:
        torch.empty(10, device="cuda:99")
    except RuntimeError as error:
        assert not isinstance(error, torch.OutOfMemoryError)
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    raise AssertionError("nothing was raised")


@check("fraction")
def fraction():
    torch.cuda.set_per_process_memory_fraction(0.05)
    assert abs(torch.cuda.get_per_process_memory_fraction() - 0.05) < 1e-6
    try:
        torch.empty(torch.cuda.get_device_properties(0).total_memory // 10, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    else:
        raise AssertionError("the limit was passed")
    torch.cuda.set_per_process_memory_fraction(1.0)
    return "a limit of 5 % holds"


@check("figures")
def figures():
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == 3 << 20
    del kept
    assert torch.cuda.max_memory_allocated() - before == 3 << 20
    assert "Allocated memory" in torch.cuda.memory_summary() == torch_allocator.memory_summary()
    with tempfile.NamedTemporaryFile() as file:
        torch_allocator.snapshot(file.name)
        held = pickle.load(file)
    assert sum(s["total_size"] for s in held["segments"]) == torch.cuda.memory_reserved()
    assert torch_allocator.library.torch_allocator_is_valid() == 1
    return "torch's functions answer, the books balance"


@check("fork")
def fork():
    kept = torch.ones(10, device="cuda")
    pid = os.fork()
    if pid == 0:
        try:
            torch_allocator.library.torch_allocator_set_raise(None)
            torch_allocator.library.torch_allocator_set_out_of_memory(None)
            address = torch_allocator.library.torch_allocator_alloc(1024, 0, None)
            told = "fork" in torch_allocator.last_error()
            os._exit(0 if address is None and told else 1)
        finally:
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0 and kept.sum().item() == 10, status
    return "refused in the child, the parent goes on"


# The interpreter ends with memory that is still handed out.
KEPT = [torch.empty(1 << 20, device="cuda") for _ in range(10)]
sys.exit(1 if FAILED else 0)

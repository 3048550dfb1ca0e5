"""What `comm.rs` measures, by PyTorch: prints the same lines, and NCCL's all-reduce where there is NCCL.

Needs PyTorch on a machine with at least two CUDA devices. `--small` takes small tensors.
"""

import statistics
import sys
import time

import torch
from torch.cuda import comm, nccl

ROUNDS = 5
SMALL = "--small" in sys.argv
CALLS = 2 if SMALL else 10


def wait(devices):
    for device in devices:
        torch.cuda.synchronize(device)


def seconds(devices, call):
    """Seconds of a call, the median of bursts."""
    for _ in range(3):
        call()
    bursts = []
    for _ in range(ROUNDS):
        wait(devices)
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        wait(devices)
        bursts.append((time.perf_counter() - begin) / CALLS)
    return statistics.median(bursts)


def large(devices, mib):
    """Gibibytes a second of each call on tensors of so many mebibytes."""
    tensors = [torch.full((mib << 18,), 1.5, device=f"cuda:{device}") for device in devices]
    outs = [torch.empty_like(tensor) for tensor in tensors]
    calls = {
        "copy": lambda: outs[1].copy_(tensors[0], non_blocking=True),
        "broadcast": lambda: comm.broadcast(tensors[0], devices),
        "reduce_add": lambda: comm.reduce_add(tensors, 0),
        "scatter": lambda: comm.scatter(tensors[0], devices),
        "gather": lambda: comm.gather(tensors, 0, 0),
    }
    if nccl.is_available(tensors):
        calls["nccl all_reduce"] = lambda: nccl.all_reduce(tensors, outs)
    for name, call in calls.items():
        gib = mib * (len(devices) if name == "gather" else 1) / 1024
        print(f"{name} | {mib} MiB | {gib / seconds(devices, call):.2f} GiB/s")


def coalesced(devices, count):
    """Microseconds of the coalesced forms on so many small tensors."""
    lists = [[torch.full((1000 + 37 * at,), 0.5, device=f"cuda:{device}") for at in range(count)] for device in devices]
    calls = {
        "broadcast_coalesced": lambda: comm.broadcast_coalesced(lists[0], devices),
        "reduce_add_coalesced": lambda: comm.reduce_add_coalesced(lists, 0),
    }
    for name, call in calls.items():
        print(f"{name} | {seconds(devices, call) * 1e6:.1f} us")


def main():
    devices = list(range(torch.cuda.device_count()))
    print(f"torch {torch.__version__} | {len(devices)} devices")
    if len(devices) < 2:
        print("two devices are needed")
        return
    for mib in [1] if SMALL else [1, 64, 1024]:
        large(devices, mib)
    coalesced(devices, 20 if SMALL else 300)


main()

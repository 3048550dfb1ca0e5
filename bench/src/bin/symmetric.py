"""What `symmetric.rs` measures, by NCCL through PyTorch: prints the same lines.

`nccl` is `torch.cuda.nccl.all_reduce` in one process; `dist` is `torch.distributed.all_reduce` with a process for each
device. Needs PyTorch with NCCL on a machine with at least two CUDA devices.
"""

import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.cuda import nccl

ROUNDS = 9
CALLS = 200
SIZES = [8, 64, 512, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 24, 1 << 26, 1 << 30]


def seconds(devices, calls, call):
    """Seconds of a call in bursts until all devices are done; the median."""
    for _ in range(3):
        call()
    bursts = []
    for _ in range(ROUNDS):
        for device in devices:
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        for device in devices:
            torch.cuda.synchronize(device)
        bursts.append((time.perf_counter() - begin) / calls)
    return statistics.median(bursts)


def lines(name, devices, make):
    """Prints a line for each size; `make` gives the call for so many bytes."""
    for size in SIZES:
        call = make(size)
        calls = CALLS if size <= 1 << 24 else CALLS // 20
        burst, alone = seconds(devices, calls, call), seconds(devices, 1, call)
        print(f"{name} | {size} B | {burst * 1e6:.2f} us | alone {alone * 1e6:.2f} us | {size / burst / 2**30:.2f} GiB/s")


def rank(number, count):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", rank=number, world_size=count)

    def make(size):
        tensor = torch.zeros(size // 4, device="cuda")
        return lambda: dist.all_reduce(tensor)

    if number == 0:
        lines("dist", [0], make)
    else:
        for size in SIZES:
            call = make(size)
            calls = CALLS if size <= 1 << 24 else CALLS // 20
            seconds([number], calls, call)
            seconds([number], 1, call)
    dist.destroy_process_group()


def main():
    # Multicast of switches is for NCCL to leave alone too, so that both use the same links.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    devices = list(range(torch.cuda.device_count()))
    print(f"torch {torch.__version__}, NCCL {nccl.version()} | {len(devices)} devices", flush=True)
    if len(devices) < 2:
        print("two devices are needed")
        return

    def make(size):
        tensors = [torch.zeros(size // 4, device=f"cuda:{device}") for device in devices]
        return lambda: nccl.all_reduce(tensors)

    lines("nccl", devices, make)
    multiprocessing.spawn(rank, args=(len(devices),), nprocs=len(devices))


if __name__ == "__main__":
    main()

"""PyTorch beside `accumulations`: prints the same lines. `accumulations.py [cpu|cuda]`."""

import struct
import sys

import torch

COUNT = 3000
device = sys.argv[1] if len(sys.argv) > 1 else "cuda"


def pattern(sizes, dtype):
    count = 1
    for size in sizes:
        count *= size
    numbers = 1 + (torch.arange(count) % 7).double() / 8
    return numbers.view(sizes).to(dtype).to(device)


def show(name, dtype, found):
    last = found.flatten()[-1].double().item()
    print(f"{name} {dtype} {struct.unpack('<Q', struct.pack('<d', last))[0]:016x} {last:.15g}")


for dtype in (torch.float16, torch.bfloat16):
    places = torch.zeros(COUNT, dtype=torch.int64, device=device)
    for row in (1, 2, 32, 33, 64):
        source = pattern((COUNT, row), dtype)
        target = torch.zeros(1, row, dtype=dtype, device=device)
        show(f"index_put/{row}", dtype, target.index_put((places,), source, accumulate=True))
        show(f"index_add/{row}", dtype, target.index_add(0, places, source))
        spread = torch.zeros(COUNT, row, dtype=torch.int64, device=device)
        show(f"scatter_add/{row}", dtype, target.scatter_add(0, spread, source))
    near_one = torch.full((COUNT,), 1.002, dtype=dtype, device=device)
    show("cumprod", dtype, near_one.cumprod(0))
    for sizes in ((COUNT, 1), (COUNT, 3), (20_000, 1)):
        numbers = pattern(sizes, dtype)
        name = f"{sizes[0]}x{sizes[1]}"
        show(f"cumsum/columns/{name}", dtype, numbers.cumsum(0))
        show(f"cumsum/rows/{name}", dtype, numbers.t().contiguous().cumsum(1))
        show(f"logcumsumexp/{name}", dtype, numbers.logcumsumexp(0))
    show("cumsum/flat", dtype, pattern((COUNT,), dtype).cumsum(0))
    numbers = pattern((COUNT, 3), dtype)
    near_one = torch.full((COUNT, 3), 1.002, dtype=dtype, device=device)
    show("sum", dtype, numbers.sum(0))
    show("mean", dtype, numbers.mean(0))
    show("prod", dtype, near_one.prod(0))
    show("var", dtype, numbers.var(0))
    show("std", dtype, numbers.std(0))
    show("norm", dtype, numbers.norm(2, 0))
    show("logsumexp", dtype, numbers.logsumexp(0))

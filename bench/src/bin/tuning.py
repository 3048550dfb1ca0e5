"""PyTorch beside the tuner: reads a line for each product and answers with the microseconds of a call."""

import sys

import torch

SLEEP = 1_000_000
known = (None, None)
for line in sys.stdin:
    batches, rows, inner, outer, kind, copies = line.split()
    batches, rows, inner, outer, copies = (int(word) for word in (batches, rows, inner, outer, copies))
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    dtype = torch.float32 if kind == "tf32" else getattr(torch, kind.removeprefix("torch."))
    if known[0] != line:
        known = (None, None)
        torch.cuda.empty_cache()
        a = torch.randn(batches, rows, inner, device="cuda", dtype=dtype)
        b = [torch.randn(batches, outer, inner, device="cuda", dtype=dtype).transpose(1, 2) for _ in range(copies)]
        if batches == 1:
            a, b = a[0], [weight[0] for weight in b]
        known = (line, (a, b))
    a, b = known[1]
    product = torch.mm if batches == 1 else torch.bmm
    calls = 3 if rows * inner * outer >= 1 << 38 else 24
    product(a, b[0])
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)
    start.record()
    for at in range(calls):
        product(a, b[at % copies])
    end.record()
    end.synchronize()
    print(start.elapsed_time(end) * 1e3 / calls, flush=True)

"""PyTorch's figures for the rows of `tensors`: reads names of rows, answers each with one figure."""

import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

small = "--small" in sys.argv
side = 64 if small else 1 << 14
count = side * side * 2
torch.backends.cuda.matmul.allow_tf32 = False
made = {}


def tensor(name, make):
    """A tensor that is made when a row first needs it; those of other rows go away."""
    if name not in made:
        made.clear()
        torch.cuda.empty_cache()
        made[name] = make()
    return made[name]


def numbers():
    return torch.randn(count, device="cuda")


def square():
    return numbers().view(side * 2, side)


def pair():
    return numbers(), numbers()


def with_row():
    a = square()
    return a, a[0].contiguous()


def ones():
    return torch.ones(1024, device="cuda"), torch.ones(1024, device="cuda")


def with_places():
    return numbers(), torch.randint(0, count, (count // 8,), device="cuda")


def with_rows():
    a = numbers().view(-1, 64)
    rows = a.shape[0]
    return a, torch.randint(0, rows, (rows // 4,), device="cuda"), a[:rows // 4].clone()


def keys():
    return torch.randint(0, 1 << 30, (4096 if small else 1 << 26,), device="cuda", dtype=torch.int32)


def table():
    return torch.randn(16 if small else 1 << 20, 512, device="cuda")


def as_bf16():
    return numbers().to(torch.bfloat16)


rows_of_heads = 96 if small else 8192
pairs = 4 * 32 * rows_of_heads**2 / 1e3


def heads(width):
    return [torch.randn(2, 16, rows_of_heads, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)]


def flash(causal):
    def call(t):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(*t, is_causal=causal)
    return call


# Name, batches, m, k, n, dtype, calls of a burst.
PRODUCTS = [
    ("mm bf16 8192", 1, 8192, 8192, 8192, torch.bfloat16, 2),
    ("mm f16 8192", 1, 8192, 8192, 8192, torch.float16, 2),
    ("mm tf32 8192", 1, 8192, 8192, 8192, torch.float32, 2),
    ("mm f32 8192", 1, 8192, 8192, 8192, torch.float32, 1),
    ("mm bf16 4096", 1, 4096, 4096, 4096, torch.bfloat16, 4),
    ("mm bf16 16 x 4096", 1, 16, 4096, 4096, torch.bfloat16, 40),
    ("bmm f32 64 of 512", 64, 512, 512, 512, torch.float32, 4),
    ("own mm bf16 8192", 1, 8192, 8192, 8192, torch.bfloat16, 2),
    ("own mm f16 8192", 1, 8192, 8192, 8192, torch.float16, 2),
    ("own mm bf16 4096", 1, 4096, 4096, 4096, torch.bfloat16, 4),
    ("own mm f32 1000", 1, 1000, 1000, 1000, torch.float32, 10),
    ("own mm bf16 512", 1, 512, 512, 512, torch.bfloat16, 50),
    ("own mm bf16 1 x 4096", 1, 1, 4096, 4096, torch.bfloat16, 50),
    ("own mm f32 1 x 4096", 1, 1, 4096, 4096, torch.float32, 50),
    ("own bmm bf16 4096 of 64", 4096, 64, 64, 64, torch.bfloat16, 20),
]


def product(name, batches, m, k, n, dtype, calls):
    def make():
        lead = (batches,) if batches > 1 else ()
        return (torch.randn(*lead, m, k, device="cuda", dtype=dtype),
                torch.randn(*lead, k, n, device="cuda", dtype=dtype))

    def call(t):
        torch.backends.cuda.matmul.allow_tf32 = "tf32" in name
        return t[0] @ t[1]

    if small:
        m, k, n = min(m, 64), min(k, 64), min(n, 64)
    return make, call, 2 * batches * m * k * n / 1e3, calls


def linear():
    rows, inner, columns = (64, 64, 64) if small else (8192, 1024, 4096)
    return (torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16),
            torch.randn(columns, inner, device="cuda", dtype=torch.bfloat16).t(),
            torch.randn(columns, device="cuda", dtype=torch.bfloat16))


# Name: how the tensors are made, the call, bytes (GB/s) or operations (TFLOP/s) of a call or None (ns), calls of a burst.
rows = {
    "add f32": (pair, lambda t: t[0] + t[1], 12 * count, 5),
    "copy f32": (numbers, lambda t: t.clone(), 8 * count, 5),
    "fill f32": (numbers, lambda t: t.fill_(1.5), 4 * count, 5),
    "cast f32 to bf16": (numbers, lambda t: t.to(torch.bfloat16), 6 * count, 5),
    "cast bf16 to f32": (as_bf16, lambda t: t.to(torch.float32), 6 * count, 5),
    "relu bf16": (as_bf16, torch.relu, 4 * count, 5),
    "exp f32": (numbers, torch.exp, 8 * count, 5),
    "transposed copy f32": (square, lambda t: t.t().contiguous(), 8 * count, 5),
    "broadcast add f32": (with_row, lambda t: t[0] + t[1], 8 * count, 5),
    "gelu bf16": (as_bf16, torch.nn.functional.gelu, 4 * count, 5),
    "sum f32": (numbers, torch.sum, 4 * count, 5),
    "softmax rows f32": (square, lambda t: torch.softmax(t, -1), 8 * count, 5),
    "cumsum f32": (numbers, lambda t: t.cumsum(0), 8 * count, 5),
    "dropout f32": (numbers, lambda t: torch.nn.functional.dropout(t, 0.4), 9 * count, 5),
    "gather f32": (with_places, lambda t: t[0].gather(0, t[1]), 2 * count, 5),
    "index_add f32": (with_rows, lambda t: t[0].index_add_(0, t[1], t[2]), 3 * count, 5),
    "normal f32": (numbers, lambda t: t.normal_(), count, 5),
    "uniform f32": (numbers, lambda t: t.uniform_(), count, 5),
    "sort 64 Mi i32": (keys, torch.sort, 1 << 26, 2),
    "topk 64 of 512": (table, lambda t: t.topk(64, -1), 1 << 29, 2),
    **{name: product(name, *shape) for name, *shape in PRODUCTS},
    **{name: (linear, lambda t: torch.nn.functional.gelu(torch.addmm(t[2], t[0], t[1]), approximate="tanh"),
              2 * 8192 * 1024 * 4096 / 1e3, 4)
       for name in ("linear gelu bf16", "own linear gelu bf16", "linear gelu bf16 tuned")},
    "attention bf16 128": (lambda: heads(128), flash(False), pairs * 128, 3),
    "attention bf16 128 causal": (lambda: heads(128), flash(True), pairs * 64, 3),
    "attention bf16 64": (lambda: heads(64), flash(False), pairs * 64, 3),
    "attention bf16 256": (lambda: heads(256), flash(False), pairs * 256, 3),
    "small mm": (lambda: torch.randn(64, 64, device="cuda"), lambda t: t @ t, None, 200),
    "small add": (ones, lambda t: t[0] + t[1], None, 200),
    "empty": (lambda: None, lambda t: torch.empty(1024, device="cuda"), None, 200),
}


def figure(name):
    make, call, amount, calls = rows[name]
    given = tensor(name, make)
    call(given)
    torch.cuda.synchronize()
    if amount is None:
        start = time.perf_counter()
        for _ in range(calls):
            call(given)
        elapsed = time.perf_counter() - start
        torch.cuda.synchronize()
        return elapsed / calls * 1e9
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(2_000_000)
    start.record()
    for _ in range(calls):
        call(given)
    end.record()
    end.synchronize()
    return amount / (start.elapsed_time(end) * 1e-3 / calls) * 1e-9


for line in sys.stdin:
    row = line.strip()
    print(figure(row) if row in rows else "nan", flush=True)

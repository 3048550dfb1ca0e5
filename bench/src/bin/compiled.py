"""The programs of `compiled` by torch.compile: prints the same figures, a line for each program.

Needs PyTorch on a CUDA device. The first call is one without anything in torch's own caches of the process.
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F

ROUNDS = 5


def chain(x, y):
    return F.gelu(x * 1.5 + y) * torch.sigmoid(y) - x


def norm(x, w, b):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)) + x


def softmax(x, b):
    return torch.softmax(x.float() * 0.125 + b.float(), -1)


def rms_norm(x, w):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def squares(x, y):
    return ((x - y).float() ** 2).sum()


def twenty(t):
    for _ in range(10):
        t = torch.relu(t + 1.0) * 0.5
    return t


def gpt(state, *layers):
    batch, length, width = state.shape
    heads = width // 64
    for at in range(0, len(layers), 12):
        n1, s1, qkv, qkvb, o, ob, n2, s2, up, upb, down, downb = layers[at : at + 12]
        inner = F.linear(F.layer_norm(state, (width,), n1, s1), qkv, qkvb).reshape(batch, length, 3, heads, 64)
        q, k, v = (inner[:, :, part].transpose(1, 2) for part in range(3))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        state = state + F.linear(attended.transpose(1, 2).reshape(batch, length, width), o, ob)
        inner = F.layer_norm(state, (width,), n2, s2)
        state = state + F.linear(F.gelu(F.linear(inner, up, upb)), down, downb)
    return state


def device_us(call, calls=50):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def host_us(call, calls=50):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) * 1e6 / calls


def peak_mib(call):
    """The most memory that a call takes beyond what was taken before it."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def main():
    torch.manual_seed(0)
    normal = lambda *sizes: torch.randn(*sizes, device="cuda").bfloat16()
    x, y, wide, weight, bias = normal(1 << 26), normal(1 << 26), normal(16384, 4096), normal(4096), normal(4096)
    state, layers, width = normal(8, 1024, 768), [], 768
    for _ in range(12):
        for sizes in [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,),
                      (4 * width, width), (4 * width,), (width, 4 * width), (width,)]:
            layers.append(normal(*sizes) * 0.02)
    programs = {
        "gelu(1.5 x + y) sigmoid(y) - x, bf16": (chain, (x, y)),
        "gelu(layer_norm(X)) + X, bf16": (norm, (wide, weight, bias)),
        "softmax(x s + m) from bf16 in f32": (softmax, (wide, bias)),
        "rms_norm rows, bf16": (rms_norm, (wide, weight)),
        "sum((x - y)^2), bf16": (squares, (x, y)),
        "20 small operations on 1024 f32": (twenty, (torch.randn(1024, device="cuda"),)),
        "12 layers of a GPT block, bf16": (gpt, (state, *layers)),
    }
    print("program | first s | peak MiB | compiled us | eager us | host: compiled us | eager us")
    for name, (function, arguments) in programs.items():
        compiled = torch.compile(function)
        with torch.no_grad():
            begin = time.time()
            compiled(*arguments)
            torch.cuda.synchronize()
            first = time.time() - begin
            ways = [lambda: compiled(*arguments), lambda: function(*arguments)]
            for way in ways:
                for _ in range(4):
                    way()
            device, host = [[], []], [[], []]
            for _ in range(ROUNDS):
                for at, way in enumerate(ways):
                    device[at].append(device_us(way))
                    host[at].append(host_us(way))
            peak = peak_mib(ways[0])
        d, h = [statistics.median(all) for all in device], [statistics.median(all) for all in host]
        print(f"{name} | {first:.2f} | {peak:.1f} | {d[0]:.1f} | {d[1]:.1f} | {h[0]:.1f} | {h[1]:.1f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Trains a model of GPT-2's size for a few steps under one of the allocators and prints one line of JSON.

    train.py native | expandable | plugin | plugin-expandable

Algorithms are deterministic, so that the losses of all runs are equal bit by bit. The first part varies the length of
the sequences, which is what fragments memory; the second keeps it, and its steps are timed.
"""

import hashlib
import json
import os
import statistics
import sys
import time

MODE = sys.argv[1]
if MODE == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402
from torch import nn  # noqa: E402

if MODE.startswith("plugin"):
    import torch_allocator

    torch_allocator.enable("expandable_segments:True" if MODE == "plugin-expandable" else "")

LAYERS, WIDTH, HEADS, WORDS, BATCH, LONGEST = 12, 768, 12, 50257, 4, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def attend(self, x):
        batch, length, _ = x.shape
        q, k, v = self.mix(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def step(model, optimizer, length):
    ids = torch.randint(WORDS, (BATCH, length + 1), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        scores = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    with torch.device("cuda"):
        model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(100, LONGEST, (20,), generator=generator).tolist()
    losses = [step(model, optimizer, length) for length in lengths]
    stats = torch.cuda.memory_stats()
    peak = {name: stats[f"{name}_bytes.all.peak"] for name in ["allocated", "reserved"]}
    times = []
    for _ in range(40):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        losses.append(step(model, optimizer, 512))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    values = torch.stack(losses).cpu()
    print(json.dumps({
        "mode": MODE,
        "losses": hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16],
        "first": values[0].item(),
        "last": values[-1].item(),
        "allocated_mib": peak["allocated"] >> 20,
        "reserved_mib": peak["reserved"] >> 20,
        "used": round(peak["allocated"] / peak["reserved"], 4),
        "step_ms": round(statistics.median(times[5:]) * 1e3, 3),
        "allocations": stats["allocation.all.allocated"],
    }))


main()

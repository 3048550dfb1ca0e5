"""Trains three models for a few steps under one of the allocators and prints a line of JSON for each.

    train.py native | expandable | plugin | plugin-expandable | plugin-elastic

A model of GPT-2's size with sequences of varying length; the same with its weights frozen, adapters of rank 16 and
layers that are computed again in the backward pass; a U-Net with images of varying size. Algorithms are deterministic,
so that the losses of all runs are equal bit by bit. The first steps vary the sizes, which is what fragments memory; the
others keep them and are timed.
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
from torch.utils.checkpoint import checkpoint  # noqa: E402

if MODE.startswith("plugin"):
    import torch_allocator

    settings = {"plugin-expandable": "expandable_segments:True", "plugin-elastic": "backend:elastic"}
    torch_allocator.enable(settings.get(MODE, ""))

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


class Adapted(nn.Module):
    """A frozen layer with an adapter beside it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down, self.up = nn.Linear(inner.in_features, 16, bias=False), nn.Linear(16, inner.out_features, bias=False)

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))


class Model(nn.Module):
    def __init__(self, adapted=False):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.adapted = adapted
        if adapted:
            self.requires_grad_(False)
            for layer in self.layers:
                layer.mix, layer.out = Adapted(layer.mix), Adapted(layer.out)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.adapted else layer(x)
        return self.head(self.norm(x))


class UNet(nn.Module):
    WIDTHS = [3, 64, 128, 256, 512]

    def __init__(self):
        super().__init__()
        pairs = list(zip(self.WIDTHS, self.WIDTHS[1:]))
        self.downs = nn.ModuleList([self.block(before, after, stride=2) for before, after in pairs])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(after, before, 2, stride=2) for before, after in reversed(pairs)])
        self.mixes = nn.ModuleList([self.block(2 * before, before) for before, _ in reversed(pairs)])

    @staticmethod
    def block(before, after, stride=1):
        norm = nn.GroupNorm(1 if after < 8 else 8, after)
        return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1), norm, nn.SiLU(), nn.Conv2d(after, after, 3, 1, 1))

    def forward(self, x):
        kept = []
        for down in self.downs:
            kept.append(x)
            x = down(x)
        for up, mix in zip(self.ups, self.mixes):
            x = mix(torch.cat([up(x), kept.pop()], 1))
        return x


def words_loss(model, length):
    ids = torch.randint(WORDS, (BATCH, length + 1), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        scores = model(ids[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())


def image_loss(model, side):
    clean = torch.rand(8, 3, side, side, device="cuda")
    noise = torch.randn_like(clean)
    with torch.autocast("cuda", torch.bfloat16):
        found = model(clean + noise)
    return nn.functional.mse_loss(found.float(), noise)


def train(name, make, loss_of, sizes, steady):
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = make()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4)

    def step(size):
        loss = loss_of(model, size)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    losses = [step(size) for size in sizes]
    stats = torch.cuda.memory_stats()
    allocated, reserved = (stats[f"{kind}_bytes.all.peak"] for kind in ["allocated", "reserved"])
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        losses.append(step(steady))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    values = torch.stack(losses).cpu()
    print(json.dumps({
        "mode": MODE,
        "model": name,
        "losses": hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12],
        "last": round(values[-1].item(), 5),
        "allocated_mib": allocated >> 20,
        "reserved_mib": reserved >> 20,
        "used": round(allocated / reserved, 4),
        "step_ms": [round(of(times[5:]) * 1e3, 2) for of in (min, statistics.median)],
    }), flush=True)


def main():
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(100, LONGEST, (16,), generator=generator).tolist()
    sides = (16 * torch.randint(8, 24, (16,), generator=generator)).tolist()
    train("gpt2", Model, words_loss, lengths, 512)
    train("lora", lambda: Model(adapted=True), words_loss, lengths, 512)
    train("unet", UNet, image_loss, sides, 256)


main()

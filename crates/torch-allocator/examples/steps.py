"""How long training steps take under each allocator, on one device, so that two of them can be told apart.

    steps.py [seconds for each workload] [workload ...]

Each allocator has three processes with the same model, since two processes of one program differ by where things lie in
them. The processes take turns, a few steps each, in an order drawn anew each round, so that what changes on the host
meets all of them alike; those that wait do nothing. All of them use the same two cores. The time of a process is the
low quartile of its steps: what disturbs a step only makes it longer.

Prints for each workload and allocator the mean of its processes' times, divided by that of native; the range in which 95 %
of such ratios lie when rounds and processes are drawn again from those measured; and the times themselves.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time

MODES = {"native": None, "plugin": "", "plugin, elastic": "backend:elastic"}
PROCESSES = 3


def pairs(torch):
    """Small requests alone: the worst case for an allocator."""
    size = (256,)

    def step():
        for _ in range(1000):
            torch.empty(size, device="cuda")

    return step


def launches(torch):
    """Pointwise operations on small tensors: each makes one, and the host is the bottleneck."""
    given = torch.ones(1000, device="cuda")

    def step():
        x = given
        for _ in range(500):
            x = x * 1.0001
        return x

    return step


def train(torch, model, loss, **options):
    # One thread for both directions: with two, a step's time is that of waking the other.
    torch.autograd.set_multithreading_enabled(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)

    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def encoder(torch, layers, width, heads):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def small(torch):
    """Training of a small transformer: bound by launches."""
    model = encoder(torch, 4, 128, 4)
    given = torch.randn(2, 32, 128, device="cuda")
    return train(torch, model, lambda: model(given).square().mean())


def large(torch):
    """Training of a transformer of GPT-2's size: bound by the device."""
    model = encoder(torch, 12, 768, 12)
    given = torch.randn(16, 512, 768, device="cuda")

    def loss():
        with torch.autocast("cuda", torch.bfloat16):
            return model(given).float().square().mean()

    return train(torch, model, loss, fused=True)


def images(torch):
    """Training of a convolutional network."""
    nn = torch.nn
    layers, before = [], 3
    for after in [64, 128, 256, 256]:
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.GroupNorm(8, after), nn.SiLU(), nn.Conv2d(after, after, 3, 1, 1)]
        before = after
    model = nn.Sequential(*layers).cuda()
    given = torch.randn(32, 3, 256, 256, device="cuda")
    return train(torch, model, lambda: model(given).square().mean())


# With the steps of a turn, and the share of the time.
WORKLOADS = {
    "pairs": (pairs, 10, 0.5), "launches": (launches, 10, 1), "small": (small, 10, 2), "large": (large, 3, 2),
    "images": (images, 5, 1),
}


def worker(mode):
    import torch

    settings = MODES[mode]
    if settings is not None:
        import torch_allocator

        torch_allocator.enable(settings)
    torch.manual_seed(0)
    torch.cuda.init()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-2:]))
    steps = {}
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = json.loads(line)
        if name not in steps:
            steps.clear()
            torch.cuda.empty_cache()
            steps[name] = WORKLOADS[name][0](torch)
            count += 10
        step, times = steps[name], []
        torch.cuda.synchronize()
        for _ in range(count):
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
        # The first step of a turn finds the caches of the processor cold.
        print(json.dumps(times[1:]), flush=True)


def low(turns):
    times = sorted(time for turn in turns for time in turn)
    return times[len(times) // 4]


def time_of(processes, rounds):
    return statistics.mean(low([turns[at] for at in rounds]) for turns in processes)


def range_of(mine, base, rounds):
    ratios = []
    for _ in range(300):
        drawn = random.choices(rounds, k=len(rounds))
        above, below = random.choices(mine, k=PROCESSES), random.choices(base, k=PROCESSES)
        ratios.append(time_of(above, drawn) / time_of(below, drawn))
    ratios.sort()
    return ratios[7], ratios[292]


def measure(workers, name, seconds):
    _, count, share = WORKLOADS[name]

    def turn(worker):
        process = workers[worker]
        process.stdin.write(json.dumps([name, count]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    for worker in workers:
        turn(worker)
    turns = {worker: [] for worker in workers}
    order, end = list(workers), time.perf_counter() + seconds * share
    while time.perf_counter() < end:
        random.shuffle(order)
        for worker in order:
            turns[worker].append(turn(worker))
    by_mode = {mode: [turns[mode, at] for at in range(PROCESSES)] for mode in MODES}
    base = by_mode["native"]
    rounds = range(len(base[0]))
    for mode, processes in by_mode.items():
        ratio = time_of(processes, rounds) / time_of(base, rounds)
        least, most = range_of(processes, base, rounds)
        shown = " ".join(f"{low(turns) * 1e6:.0f}" for turns in processes)
        print(f"{name:9} {mode:16} {ratio:.4f} [{least:.4f}, {most:.4f}]  {shown} us, {len(rounds)} rounds", flush=True)


def main():
    if sys.argv[1:2] == ["worker"]:
        return worker(sys.argv[2])
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    random.seed(0)
    workers = {}
    for at in range(PROCESSES):
        for mode in MODES:
            command = [sys.executable, __file__, "worker", mode]
            workers[mode, at] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for process in workers.values():
        if process.stdout.readline() != "ready\n":
            raise SystemExit("a process did not start")
    for name in sys.argv[2:] or WORKLOADS:
        measure(workers, name, seconds)
    for process in workers.values():
        process.stdin.close()
        process.wait()


main()

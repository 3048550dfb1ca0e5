"""PyTorch's side of `storage`: loads a file onto the device, and prints the rates in GB/s: `peer.py FILE warm|cold`."""
import os
import sys
import time

import torch
from safetensors.torch import load_file

path = sys.argv[1]
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
is_cold = sys.argv[2] == "cold"
for _ in range(1 if is_cold else 3):
    if is_cold:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    start = time.perf_counter()
    tensors = load_file(path, device="cuda")
    torch.cuda.synchronize()
    print(os.path.getsize(path) / (time.perf_counter() - start) / 1e9)
    del tensors

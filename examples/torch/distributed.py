"""A rank of PyTorch beside ranks of `distributed --nccl`: one NCCL communicator of both.

torchrun --nproc-per-node 2 --no-python sh -c 'if [ $RANK = 0 ]; then exec target/release/distributed --nccl; \
    else exec python3 examples/torch/distributed.py; fi'
"""

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.full([3], float(rank + 1), device="cuda")
dist.all_reduce(tensor)
assert tensor.tolist() == [size * (size + 1) / 2] * 3, tensor
# What `barrier` is in `cuda-dist`: a sum of one element.
dist.all_reduce(torch.zeros(1, device="cuda"))
torch.cuda.synchronize()
print(f"PyTorch's rank {rank} of {size}: the sum is {tensor[0].item():g}", flush=True)
dist.destroy_process_group()

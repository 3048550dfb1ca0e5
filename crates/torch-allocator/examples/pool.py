"""PyTorch's own allocator with a memory pool whose segments come from this one."""

import torch
import torch_allocator

pool = torch_allocator.pool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.ones(5 << 20, device="cuda")
outside = torch.ones(5 << 20, device="cuda")
assert torch.cuda.get_allocator_backend() == "native"
assert inside.sum().item() == outside.sum().item() == 5 << 20
mine = torch_allocator.memory_allocated()
assert 20 << 20 <= mine < torch.cuda.memory_reserved(), mine
try:
    with torch.cuda.use_mem_pool(pool):
        torch.empty(1 << 45, device="cuda")
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error)
else:
    raise AssertionError("nothing was raised")
del inside, outside, pool
torch.cuda.empty_cache()
assert torch_allocator.memory_allocated() == 0
print(f"ok     pool: {mine >> 20} MiB of segments served, all given back")

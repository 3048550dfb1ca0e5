"""The caching allocator of this project inside an unmodified PyTorch.

`enable()`, called before anything uses CUDA, makes it the allocator of all of PyTorch's device memory. `pool()` makes a
`torch.cuda.MemPool` whose segments come from it, where PyTorch's own caching should stay. After `enable()`, torch's own
functions (`torch.cuda.memory_stats`, `memory_summary`, `max_memory_reserved`, ...) answer with its figures, which
PyTorch leaves out for allocators that are not its own; the same functions stand here.
"""

import ctypes
import pickle
from pathlib import Path

import torch

from ._library import ALLOC, FREE, AllocatorError, address_of, check, forget_error, last_error, library, path
from ._library import segments as _segments
from ._library import stats as _stats

__all__ = [
    "AllocatorError", "empty_cache", "enable", "forget_error", "is_enabled", "last_error", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_snapshot", "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "pool", "reset_accumulated_memory_stats",
    "reset_peak_memory_stats", "snapshot",
]

# PyTorch's setters and the functions they take.
_HOOKS = {
    "set_init_fn": "torch_allocator_init",
    "set_reset_fn": "torch_allocator_reset",
    "set_memory_fraction_fn": "torch_allocator_memory_fraction",
    "set_base_alloc_fn": "torch_allocator_base_alloc",
    "set_record_stream_fn": "torch_allocator_record_stream",
    "set_begin_allocate_to_pool": "torch_allocator_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "torch_allocator_end_allocate_to_pool",
    "set_release_pool": "torch_allocator_release_pool",
}

# PyTorch's function that throws an error: (function, file, line, text).
_RAISE = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"

# The allocators that PyTorch uses; it keeps pointers into them.
_kept = []
_enabled = False


def enable(settings: str = "") -> None:
    """Makes this PyTorch's allocator of device memory. `settings` are options as `PYTORCH_CUDA_ALLOC_CONF` has them.

    PyTorch changes its allocator once, before the first use of CUDA; later it raises `RuntimeError`.
    """
    global _enabled
    if _enabled:
        raise AllocatorError("torch_allocator is PyTorch's allocator already")
    if settings:
        check(library.torch_allocator_set_settings(settings.encode()))
    torch.cuda.memory.change_current_allocator(_make())
    _answer_for_torch()
    _enabled = True


def is_enabled() -> bool:
    """Whether `enable` was called."""
    return _enabled


def pool(**options) -> "torch.cuda.MemPool":
    """A memory pool of PyTorch's own allocator whose segments come from this one; options are those of `MemPool`."""
    allocator = _make()
    return torch.cuda.MemPool(allocator.allocator(), **options)


def _make() -> "torch.cuda.memory.CUDAPluggableAllocator":
    _raise_by_torch()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path(), ALLOC, FREE)
    for setter, function in _HOOKS.items():
        if hasattr(allocator.allocator(), setter):
            getattr(allocator.allocator(), setter)(address_of(function))
    _kept.append(allocator)
    return allocator


def _raise_by_torch() -> None:
    """Lets a failed request raise. Without PyTorch's function it answers null, which some operations do not notice."""
    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    raises = getattr(c10, _RAISE, None)
    if raises is not None:
        library.torch_allocator_set_raise(ctypes.cast(raises, ctypes.c_void_p))


def _index(device) -> int:
    return torch.cuda._utils._get_device_index(device, optional=True)


def memory_stats_as_nested_dict(device=None) -> dict:
    """Torch's function of that name, with this allocator's figures."""
    if not torch.cuda.is_initialized():
        return {}
    nested = {}
    for name, value in _stats(_index(device)).items():
        *families, last = name.split(".")
        place = nested
        for family in families:
            place = place.setdefault(family, {})
        place[last] = value
    return nested


def memory_stats(device=None) -> dict:
    """Every figure by its flat name, in order."""
    return _stats(_index(device)) if torch.cuda.is_initialized() else {}


def memory_allocated(device=None) -> int:
    """Bytes handed out now."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None) -> int:
    """Most bytes handed out at a time since the peaks were reset."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None) -> int:
    """Bytes held from the driver now."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None) -> int:
    """Most bytes held from the driver at a time since the peaks were reset."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device=None) -> None:
    """Sets every peak to its present value."""
    check(library.torch_allocator_reset_peak_stats(_index(device)))


def reset_accumulated_memory_stats(device=None) -> None:
    """Sets every sum and count to zero."""
    check(library.torch_allocator_reset_accumulated_stats(_index(device)))


def get_per_process_memory_fraction(device=None) -> float:
    """The fraction of a device's memory that may be held."""
    fraction = library.torch_allocator_get_memory_fraction(_index(device))
    if fraction < 0:
        raise AllocatorError(last_error())
    return fraction


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """Torch's table of the figures."""
    memory = torch.cuda.memory
    before, memory.memory_stats = memory.memory_stats, memory_stats
    try:
        return memory.memory_summary(device, abbreviated)
    finally:
        memory.memory_stats = before


def memory_snapshot(mempool_id=None, include_traces: bool = True) -> list:
    """All memory held from the driver, or only that of one pool."""
    return [held for held in _segments() if mempool_id is None or held["segment_pool_id"] == tuple(mempool_id)]


def snapshot(filename=None) -> dict:
    """The memory held, in the form of `torch.cuda.memory._snapshot`; written to a file that torch's viewer reads."""
    held = {"segments": memory_snapshot(), "device_traces": [], "allocator_settings": {}, "external_annotations": []}
    if filename is not None:
        with open(filename, "wb") as file:
            pickle.dump(held, file)
    return held


def empty_cache() -> None:
    """Gives unused memory back to the driver."""
    forget_error()
    library.torch_allocator_reset()
    if last_error():
        raise AllocatorError(last_error())


def _answer_for_torch() -> None:
    """Puts this module's functions in the place of torch's that would refuse to answer."""
    for function in [
        memory_stats, memory_stats_as_nested_dict, reset_peak_memory_stats, reset_accumulated_memory_stats,
        memory_snapshot, get_per_process_memory_fraction,
    ]:
        for module in [torch.cuda, torch.cuda.memory]:
            setattr(module, function.__name__, function)

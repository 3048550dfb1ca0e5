"""The caching allocator of this project inside an unmodified PyTorch.

`enable()`, called before anything uses CUDA, makes it the allocator of all of PyTorch's device memory. `pool()` makes a
`torch.cuda.MemPool` whose segments come from it, where PyTorch's own caching should stay. After `enable()`, torch's own
functions (`torch.cuda.memory_stats`, `memory_summary`, `max_memory_reserved`, ...) answer with its figures, which
PyTorch leaves out for allocators that are not its own; the same functions stand here.

PyTorch is imported when it is needed, so that this module says clearly where it is missing.
"""

import warnings

from ._library import ALLOC, FREE, AllocatorError, address_of, check, forget_error, last_error, library, path
from . import memory
from ._library import snapshot as _snapshot
from ._library import stats as _stats
from ._raise import raise_by

__all__ = [
    "AllocatorError", "empty_cache", "enable", "forget_error", "is_enabled", "last_error", "max_memory_allocated",
    "max_memory_reserved", "memory", "memory_allocated", "memory_reserved", "memory_snapshot", "memory_stats",
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

# The allocators that PyTorch uses; it keeps pointers into them.
_kept = []
_enabled = False


def enable(settings: str = "") -> None:
    """Makes this PyTorch's allocator of device memory. `settings` are options as `PYTORCH_CUDA_ALLOC_CONF` has them.

    PyTorch changes its allocator once, before the first use of CUDA; later it raises `RuntimeError`.
    """
    global _enabled
    torch = _torch()
    if _enabled:
        raise AllocatorError("torch_allocator is PyTorch's allocator already")
    if settings:
        check(library.torch_allocator_set_settings(settings.encode()))
    missing = raise_by(torch)
    if missing:
        warnings.warn(f"this PyTorch has not all that its exceptions are made from: {', '.join(missing)}", stacklevel=2)
    torch.cuda.memory.change_current_allocator(_make(torch))
    _answer_for_torch(torch)
    _enabled = True


def is_enabled() -> bool:
    """Whether `enable` was called."""
    return _enabled


def pool(**options) -> "torch.cuda.MemPool":
    """A memory pool of PyTorch's own allocator whose segments come from this one; options are those of `MemPool`."""
    # Nothing raises here: PyTorch's own allocator takes null for no memory, gives up what it has cached and asks again.
    torch = _torch()
    allocator = _make(torch)
    return torch.cuda.MemPool(allocator.allocator(), **options)


def _torch():
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"torch_allocator is an allocator for PyTorch, which cannot be imported: {error}") from error
    if torch.version.cuda is None:
        raise AllocatorError(f"PyTorch {torch.__version__} was built without CUDA")
    return torch


def _make(torch) -> "torch.cuda.memory.CUDAPluggableAllocator":
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path(), ALLOC, FREE)
    for setter, function in _HOOKS.items():
        if hasattr(allocator.allocator(), setter):
            getattr(allocator.allocator(), setter)(address_of(function))
    _kept.append(allocator)
    return allocator


def _index(device) -> int:
    return _torch().cuda._utils._get_device_index(device, optional=True)


def memory_stats_as_nested_dict(device=None) -> dict:
    """Torch's function of that name, with this allocator's figures."""
    nested = {}
    for name, value in memory_stats(device).items():
        *families, last = name.split(".")
        place = nested
        for family in families:
            place = place.setdefault(family, {})
        place[last] = value
    return nested


def memory_stats(device=None) -> dict:
    """Every figure by its flat name, in order."""
    return _stats(_index(device)) if _torch().cuda.is_initialized() else {}


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
    torchs = _torch().cuda.memory
    before, torchs.memory_stats = torchs.memory_stats, memory_stats
    try:
        return torchs.memory_summary(device, abbreviated)
    finally:
        torchs.memory_stats = before


def memory_snapshot(mempool_id=None, include_traces: bool = True) -> list:
    """All memory held from the driver, or only that of one pool."""
    # The traces that torch's argument is about are not in the answer.
    return _snapshot(mempool_id, include_traces=False)["segments"]


def snapshot(filename=None) -> dict:
    """The memory held and the history, as `memory._snapshot`; written to a file that torch's viewer reads."""
    if filename is None:
        return memory._snapshot()
    return memory._dump_snapshot(filename)


def empty_cache() -> None:
    """Gives unused memory back to the driver."""
    forget_error()
    library.torch_allocator_reset()
    if last_error():
        raise AllocatorError(last_error())


def _answer_for_torch(torch) -> None:
    """Puts this module's functions in the place of torch's that would refuse to answer."""
    for function in [
        memory_stats, memory_stats_as_nested_dict, reset_peak_memory_stats, reset_accumulated_memory_stats,
        memory_snapshot, get_per_process_memory_fraction,
    ]:
        for module in [torch.cuda, torch.cuda.memory]:
            setattr(module, function.__name__, function)
    for name in memory.NAMES:
        setattr(torch.cuda.memory, name, getattr(memory, name))

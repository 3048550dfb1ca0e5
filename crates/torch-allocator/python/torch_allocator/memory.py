"""The history of device memory, with the names, arguments and answers of `torch.cuda.memory`.

`enable` puts these functions into that module, so that programs and tools which call torch's keep working. Stacks are
those of the machine: the functions of Python are not in them.
"""

import contextlib
import os
import pickle

from ._library import AllocatorError, check, library, metadata
from ._library import snapshot as _taken

NAMES = [
    "_dump_snapshot", "_get_memory_metadata", "_record_memory_history", "_set_memory_metadata", "_snapshot",
]

# More entries than any history has.
_ALL = (1 << 63) - 1
# What torch's viewer reads.
_PROTOCOL = 4


def _record_memory_history(enabled="all", *arguments, **named) -> None:
    """Records what happens to memory, or stops and forgets it for `None`; both of torch's forms. Goes for all devices."""
    record = _record_by_words if enabled is None or isinstance(enabled, str) else _record_by_switches
    record(enabled, *arguments, **named)


def _record_by_words(
    enabled="all", context="all", stacks="all", max_entries=_ALL, device=None, clear_history=False, compile_context=False,
    global_record_annotations=False, skip_actions=None,
) -> None:
    if compile_context or global_record_annotations:
        raise AllocatorError("PyTorch tells allocators that are not its own neither what it compiles nor annotations")
    entries = min(int(max_entries), _ALL)
    if entries < 0:
        raise ValueError(f"max_entries is {max_entries}, which is no number of entries")
    text = [None if word is None else str(word).encode() for word in (enabled, context, stacks)]
    skipped = ",".join(skip_actions or []).encode()
    check(library.torch_allocator_record_history(*text, entries, bool(clear_history), skipped))


def _record_by_switches(
    enabled, record_context=True, trace_alloc_max_entries=1, trace_alloc_record_context=False, device=None,
    record_context_cpp=False, clear_history=False, compile_context=False, global_record_annotations=False,
) -> None:
    """Torch's older form."""
    context = "alloc" if trace_alloc_record_context else "state" if record_context else None
    _record_by_words(
        "all" if enabled else None, context, "all" if record_context_cpp else "python", trace_alloc_max_entries, device,
        clear_history, compile_context, global_record_annotations,
    )


def _snapshot(device=None, augment_with_fx_traces=False) -> dict:
    """The memory held, and what happened to it: `segments`, `device_traces`, `allocator_settings`. Of all devices."""
    return _taken()


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False) -> dict:
    """Writes that to a file for torch's viewer, whole or not at all."""
    taken = _snapshot()
    part = f"{os.fspath(filename)}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            pickle.dump(taken, file, protocol=_PROTOCOL)
        os.replace(part, filename)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    return taken


def _set_memory_metadata(text: str) -> None:
    """Sets the text that goes with what this thread does to memory from now on; empty for none."""
    check(library.torch_allocator_set_metadata(text.encode()))


def _get_memory_metadata() -> str:
    """The text that goes with what this thread does."""
    return metadata()

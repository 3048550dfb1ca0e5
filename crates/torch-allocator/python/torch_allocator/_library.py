"""The shared object and the signatures of its functions; knows nothing of torch, so that it can be tested without.

Every function that can fail raises `AllocatorError` with the library's text.
"""

import atexit
import ctypes
import json
import os
from pathlib import Path

ALLOC = "torch_allocator_alloc"
FREE = "torch_allocator_free"


# What PyTorch's exception for memory that runs out is made from: eight addresses.
OUT_OF_MEMORY = ctypes.c_void_p * 8


class AllocatorError(RuntimeError):
    """What the library said of its last error."""


def path() -> str:
    """Where the shared object is: beside this file, or where `TORCH_ALLOCATOR_LIBRARY` says."""
    return os.environ.get("TORCH_ALLOCATOR_LIBRARY") or str(Path(__file__).with_name("libtorch_allocator.so"))


def _open() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path())
    except OSError as error:
        raise ImportError(f"the library of torch_allocator is missing or no library of this machine: {error}") from None
    text = [ctypes.c_char_p, ctypes.c_size_t]
    pool = [ctypes.c_uint64, ctypes.c_uint64]
    signatures = {
        "torch_allocator_last_error": (ctypes.c_ssize_t, text),
        "torch_allocator_forget_error": (None, []),
        "torch_allocator_stats": (ctypes.c_ssize_t, [ctypes.c_int, *text]),
        "torch_allocator_segments": (ctypes.c_ssize_t, text),
        "torch_allocator_record_history": (
            ctypes.c_int,
            [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p],
        ),
        "torch_allocator_take_snapshot": (ctypes.c_ssize_t, [ctypes.c_int, *pool, ctypes.c_int]),
        "torch_allocator_give_snapshot": (ctypes.c_ssize_t, text),
        "torch_allocator_set_metadata": (ctypes.c_int, [ctypes.c_char_p]),
        "torch_allocator_metadata": (ctypes.c_ssize_t, text),
        "torch_allocator_reset_peak_stats": (ctypes.c_int, [ctypes.c_int]),
        "torch_allocator_reset_accumulated_stats": (ctypes.c_int, [ctypes.c_int]),
        "torch_allocator_set_settings": (ctypes.c_int, [ctypes.c_char_p]),
        "torch_allocator_get_memory_fraction": (ctypes.c_double, [ctypes.c_int]),
        "torch_allocator_is_valid": (ctypes.c_int, []),
        "torch_allocator_set_raise": (None, [ctypes.c_void_p]),
        "torch_allocator_set_out_of_memory": (ctypes.c_int, [ctypes.c_void_p]),
        "torch_allocator_shutdown": (None, []),
        "torch_allocator_reset": (None, []),
        "torch_allocator_init": (None, [ctypes.c_int]),
        "torch_allocator_memory_fraction": (None, [ctypes.c_double, ctypes.c_int]),
        ALLOC: (ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]),
        FREE: (None, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]),
        "torch_allocator_record_stream": (None, [ctypes.c_void_p, ctypes.c_void_p]),
        "torch_allocator_base_alloc": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
        "torch_allocator_begin_allocate_to_pool": (None, [ctypes.c_int, *pool, ctypes.c_void_p]),
        "torch_allocator_end_allocate_to_pool": (None, [ctypes.c_int, *pool]),
        "torch_allocator_release_pool": (None, [ctypes.c_int, *pool]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    atexit.register(library.torch_allocator_shutdown)
    return library


library = _open()


def address_of(name: str) -> int:
    """The address of one of the library's functions."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def last_error() -> str:
    """The text of the last error that any thread met; empty if there was none."""
    return _text(library.torch_allocator_last_error)


def forget_error() -> None:
    """Forgets the last error."""
    library.torch_allocator_forget_error()


def stats(device: int) -> dict:
    """Every figure of a device by torch's flat name."""
    lines = _text(library.torch_allocator_stats, device).splitlines()
    return {name: int(value) for name, value in (line.split(" ") for line in lines)}


def snapshot(mempool_id=None, include_traces: bool = True) -> dict:
    """The memory held, or that of one pool, and the history, as torch's `_snapshot` has them."""
    pool = (0, 0, 0) if mempool_id is None else (1, *mempool_id)
    length = library.torch_allocator_take_snapshot(*pool, include_traces)
    if length < 0:
        raise AllocatorError(last_error())
    place = ctypes.create_string_buffer(length + 1)
    library.torch_allocator_give_snapshot(place, length + 1)
    taken = json.loads(place.value)
    for segment in taken["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    for entries in taken["device_traces"]:
        for entry in entries:
            entry["pool_id"] = tuple(entry["pool_id"])
    return taken


def metadata() -> str:
    """The text that goes with what this thread does."""
    return _text(library.torch_allocator_metadata)


def check(status: int) -> None:
    """Raises the last error if a call failed."""
    if status != 0:
        raise AllocatorError(last_error())


def _text(function, *arguments) -> str:
    room = 1 << 16
    while True:
        place = ctypes.create_string_buffer(room)
        length = function(*arguments, place, room)
        if length < 0:
            raise AllocatorError(last_error())
        if length < room:
            return place.value.decode()
        room = length + 1 + length // 8

"""How PyTorch's own exceptions are raised: the names in its libraries that the library makes them from.

`torch.OutOfMemoryError` is made from what its class consists of; other errors are thrown by PyTorch's function for failed
checks. A name that this PyTorch does not have leaves its part out: out of memory is a `RuntimeError` then, and without the
function a request that fails is answered with null, which some of PyTorch's operations do not notice.
"""

import ctypes
from pathlib import Path

from ._library import OUT_OF_MEMORY, last_error, library

# (function, file, line, text)
CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"

_STRING = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE"
_ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

# In the order of the library's structure.
PARTS = [
    "__cxa_allocate_exception", _STRING + "9_M_appendEPKcm", _STRING + "D1Ev", _ERROR,
    "_ZTVN3c1016OutOfMemoryErrorE", "_ZTIN3c1016OutOfMemoryErrorE", "_ZTIN3c105ErrorE", "__cxa_throw",
]


def raise_by(torch) -> list:
    """Lets failed requests raise, and returns what is missing for that: nothing, with a PyTorch that is known."""
    # This one's type is used by PyTorch's own allocator; the others' names are found through what it depends on.
    try:
        where = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10_cuda.so"))
    except OSError as error:
        return [str(error)]
    missing = []
    check_fail = _address(where, CHECK_FAIL, missing)
    if check_fail is not None:
        library.torch_allocator_set_raise(check_fail)
    parts = [_address(where, name, missing) for name in PARTS]
    if None not in parts and library.torch_allocator_set_out_of_memory(OUT_OF_MEMORY(*parts)) != 0:
        missing.append(last_error())
    return missing


def _address(where, name, missing):
    try:
        return ctypes.cast(getattr(where, name), ctypes.c_void_p).value
    except AttributeError:
        missing.append(name)
        return None

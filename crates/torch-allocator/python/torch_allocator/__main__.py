"""Says what is here of what the allocator needs, and tries it where all is here: `python -m torch_allocator`.

Ends with 0 where the allocator works, and with 1 where something is missing.
"""

import sys


def main() -> int:
    try:
        from . import _library
    except ImportError as error:
        print(f"library: {error}")
        return 1
    print(f"library: {_library.path()}")
    try:
        import torch
    except ImportError as error:
        print(f"PyTorch: cannot be imported: {error}; the allocator is there for it: pip install torch")
        return 1
    print(f"PyTorch: {torch.__version__}, for CUDA {torch.version.cuda}")
    if torch.version.cuda is None or not torch.cuda.is_available():
        print("device: none that PyTorch can use")
        return 1
    import torch_allocator

    torch_allocator.enable()
    print(f"device: {torch.cuda.get_device_name()}; allocator: {torch.cuda.get_allocator_backend()}")
    kept = torch.ones(1 << 20, device="cuda")
    held = torch.cuda.memory_allocated()
    print(f"{kept.sum().item():.0f} numbers summed, {held} bytes handed out")
    try:
        torch.empty(1 << 45, device="cuda")
    except RuntimeError as error:
        print(f"memory that runs out is a {type(error).__name__}: {str(error)[:80]}...")
    return 0 if held == 4 << 20 and _library.library.torch_allocator_is_valid() == 1 else 1


sys.exit(main())

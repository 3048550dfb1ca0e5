"""Builds the library by cargo where it can, and puts it beside the package's modules.

A library that was built before (`cargo build --release -p torch-allocator`) is taken as it is where cargo is missing.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
LIBRARY = "libtorch_allocator.so"


def find_or_build() -> Path:
    root = HERE.parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    if shutil.which("cargo"):
        subprocess.check_call(["cargo", "build", "--release", "--package", "torch-allocator"], cwd=root)
    library = target / "release" / LIBRARY
    if not library.exists():
        raise SystemExit(f"{library} is missing and there is no cargo to build it")
    return library


class Build(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            shutil.copy(find_or_build(), HERE / "torch_allocator" / LIBRARY)
        else:
            shutil.copy(find_or_build(), Path(self.build_lib) / "torch_allocator" / LIBRARY)


class OfThisPlatform(Distribution):
    """The wheel has a shared object, so that it is none for any platform."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build}, distclass=OfThisPlatform)

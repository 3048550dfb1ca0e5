"""Compiles CUDA C++ to PTX with NVRTC: `compile.py LIBRARIES HEADERS ARCHITECTURE TARGET [--OPTION...] SOURCE...`.

LIBRARIES is the folder of libnvrtc, HEADERS that of cuda_fp16.h; options go to NVRTC as they are. A source may include
headers that lie beside it. Each SOURCE `name.cu` becomes `TARGET/name.ptx`; one whose first line is `// needs N` is left out for architectures below N. An ARCHITECTURE may
end with a letter, as `90a`.
"""

import ctypes
import glob
import pathlib
import re
import sys


def load(folder):
    """The library. Its built-in functions are loaded first, since it does not look for them beside itself."""
    for name in glob.glob(f"{folder}/libnvrtc-builtins.so.*"):
        ctypes.CDLL(name, mode=ctypes.RTLD_LOCAL)
    return ctypes.CDLL(next(iter(glob.glob(f"{folder}/libnvrtc.so.*[0-9]"))), mode=ctypes.RTLD_LOCAL)


def text_of(library, size, get, program):
    """What one of the library's pairs of functions, for a size and for the text, has to say."""
    length = ctypes.c_size_t()
    size(program, ctypes.byref(length))
    text = ctypes.create_string_buffer(length.value)
    get(program, text)
    return text.value


def compile_one(library, source, options):
    """The PTX of a source; its errors end the program."""
    program = ctypes.c_void_p()
    options = [*options, f"--include-path={source.parent}"]
    library.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    code = library.nvrtcCompileProgram(program, len(options), words)
    if code != 0:
        log = text_of(library, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        sys.exit(f"{source}: NVRTC answers {code}\n{log.decode(errors='replace')}")
    return text_of(library, library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)


def main():
    libraries, headers, architecture, target, *rest = sys.argv[1:]
    sources = [word for word in rest if not word.startswith("--")]
    library = load(libraries)
    options = [f"--gpu-architecture=compute_{architecture}", f"--include-path={headers}", "--std=c++17"]
    options += [word for word in rest if word.startswith("--")]
    pathlib.Path(target).mkdir(parents=True, exist_ok=True)
    for source in map(pathlib.Path, sources):
        needs = re.match(r"// needs (\d+)", source.read_text())
        if needs and int(re.match(r"\d+", architecture)[0]) < int(needs[1]):
            continue
        (pathlib.Path(target) / source.with_suffix(".ptx").name).write_bytes(compile_one(library, source, options))


main()

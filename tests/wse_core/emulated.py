"""The vector forms of the bulk kernels on any host: `vector.h` compiled with intrinsics in plain C.

The compiler, its flags and the header are those of the build; `emulated_intrinsics.h` takes the place of the
instructions.  A kernel may leave a short tail to the scalar form, so `Kernels.run` finishes as `vector.pyx` does.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np

import wse_core
from wse_core import _build_info, numerics

__all__ = ["LEVELS", "OPERATIONS", "Kernels", "build", "compiler", "scalar"]

LEVELS = {"avx2": 1, "avx512": 2}

# operand widths (a, b, k) in letters: h 16 bits, s 32 bits
OPERATIONS = {
    "fmacs": "sss",
    "fmach": "hhh",
    "fmachs": "shh",
    "fadds": "ss",
    "fsubs": "ss",
    "fmuls": "ss",
    "faddh": "hh",
    "fsubh": "hh",
    "fmulh": "hh",
    "faddhs": "hs",
}

SOURCE = """
#define WSE_VEC_EMULATED
#include "emulated_intrinsics.h"
#include "vector.h"
#define EXPORT(NAME, h, TD, TA, TB, DO)                                                                    \\
    Py_ssize_t emulated_##NAME(int level, TD *d, const TA *a, const TB *b, float k, int bias, Py_ssize_t n) \\
    { return kernel_##NAME(level, d, a, b, k, bias, n); }
WSE_EACH(EXPORT)
"""


def scalar(operation, a, b, k, fmt, bias, ftz=False):
    """Return the result of a bulk operation from the scalar forms."""
    if operation == "fmacs":
        return numerics.fma(b, k, a, "f32", bias, ftz)
    if operation == "fmach":
        return numerics.fma(b, k, a, fmt, bias, ftz)
    if operation == "fmachs":
        return numerics.fma_mixed(b, k, a, fmt, bias, ftz)
    if operation == "faddhs":
        return numerics.add_mixed(a, b, fmt, bias, ftz)
    return getattr(numerics, operation[1:4])(a, b, fmt if operation.endswith("h") else "f32", bias, ftz)


def compiler():
    """Return the C compiler of the build, or None if it is gone."""
    return shutil.which(_build_info.COMPILER)


def build(directory, header=None):
    """Compile the kernels into a shared object in `directory` and return its path; `header` replaces vector.h.

    Hardly optimised: with -O3 compiling takes half a minute.
    """
    header = Path(header or Path(wse_core.__file__).with_name("vector.h"))
    source, target = Path(directory, "emulated.c"), Path(directory, "emulated.so")
    source.write_text(SOURCE, encoding="utf-8")
    quote = [word for place in (header.parent, Path(__file__).parent) for word in ("-iquote", str(place))]
    command = [compiler(), *_build_info.C_FLAGS, "-Og", *quote, "-shared", "-fPIC", str(source), "-o", str(target)]
    done = subprocess.run([*command, *_build_info.LINK_FLAGS, "-lm"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"vector.h does not compile with emulated intrinsics:\n{done.stderr}")
    return target


class Kernels:
    """The kernels of a shared object that `build` made, for one of the `LEVELS`."""

    def __init__(self, path, name):
        self.library, self.level = ctypes.CDLL(str(path)), LEVELS[name]

    def run(self, operation, a, b, k=0, *, out=None, fmt="f16", bias=42):
        """Do what `vector.run` does."""
        n, letters = len(a), OPERATIONS[operation]
        if out is None:
            out = np.empty(n, "u2" if operation[-1] == "h" else "u4")
        half = letters[2:] == "h"
        factor = numerics.decode(np.uint16(k), fmt, bias) if half else np.uint32(k).view(np.float32)
        kernel = getattr(self.library, f"emulated_{operation}" + (f"_{fmt}" if "h" in operation[4:] else ""))
        kernel.restype = ctypes.c_ssize_t
        before = a.copy(), b.copy()
        done = kernel(
            self.level,
            *(ctypes.c_void_p(array.ctypes.data) for array in (out, a, b)),
            ctypes.c_float(factor),
            bias,
            ctypes.c_ssize_t(n),
        )
        assert 0 <= done <= n
        assert done == n or (self.level == LEVELS["avx2"] and n - done < 6)  # a mask takes every tail
        out[done:] = scalar(operation, before[0][done:], before[1][done:], k, fmt, bias)
        return out

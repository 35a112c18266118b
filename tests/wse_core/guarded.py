"""Run every bulk operation on operands that end where memory ends: ``python -m tests.wse_core.guarded NAME [OBJECT]``.

NAME is a backend of `vector`, or, with an OBJECT that `tests.wse_core.emulated` built, a level of the emulated kernels.
A kernel that touches memory beyond an operand ends the process with a segmentation fault.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from tests.wse_core.emulated import OPERATIONS, Kernels, scalar
from wse_core import vector

__all__ = ["main"]


def last_page():
    """Return the bytes of a page behind which lies one that must not be touched."""
    room = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    page = np.frombuffer(room, np.uint8, mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page.ctypes.data + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return page


def main(argv):
    """Run lengths that leave every tail; return 1 if a result is wrong."""
    if len(argv) > 1:
        run = Kernels(argv[1], argv[0]).run
    else:
        vector.set_backend(argv[0])
        run = vector.run
    pages = [last_page() for _ in range(3)]
    rng = np.random.default_rng(48)
    for operation, letters in OPERATIONS.items():
        for fmt in ("f16", "cb16"):
            for n in range(1, 40):
                types = ("u2" if letter == "h" else "u4" for letter in operation[-1] + letters[:2])
                out, a, b = (page.view(dtype)[-n:] for page, dtype in zip(pages, types, strict=True))
                for operand in (a, b):
                    operand[:] = rng.integers(0, 1 << 8 * operand.itemsize, n)
                k = 0x3C01 if len(letters) == 3 else 0
                run(operation, a, b, k, out=out, fmt=fmt)
                if not np.array_equal(out, scalar(operation, a, b, k, fmt, 42)):
                    print(f"{operation} {fmt}, {n} elements: wrong result")
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``cs_python`` that keeps the arrays which a host script multiplies and prints.

    python -m tools.docs.recorded ARRAYS.npz SCRIPT [ARGUMENT ...]

Scripts that only print what they expected and what came leave the comparison to the reader; whoever wants to make it
needs the numbers.  The script itself stays as it is: operands of ``numpy.matmul`` and arrays that it prints are written
to the file, in the order in which they were seen.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np

from harness.sdk.python import main as run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    kept: list[np.ndarray] = []
    multiply, say = np.matmul, builtins.print

    def matmul(*operands: Any, **how: Any) -> Any:
        kept.extend(np.array(operand) for operand in operands)
        return multiply(*operands, **how)

    def printed(*values: Any, **how: Any) -> None:
        kept.extend(value.copy() for value in values if isinstance(value, np.ndarray))
        say(*values, **how)

    np.matmul = matmul  # type: ignore[assignment]
    builtins.print = printed
    try:
        status = run(words[1:])
    finally:
        np.matmul, builtins.print = multiply, say
    np.savez(words[0], *kept)
    return status


if __name__ == "__main__":
    sys.exit(main())

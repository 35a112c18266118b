"""``cs_python`` executes a host script with the modules that it expects."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import ModuleType

from harness.sdk.device import checking_memory
from harness.sdk.log import close_all, leaving
from harness.sdk.modules import absent, provided
from harness.sdk.promotion import compiled, scripted
from harness.sdk.runtime import MachineOf, running_on
from wse_core.errors import WseError
from wse_core.params import Machine

__all__ = ["main", "run_script"]

USAGE = """usage: cs_python [--check=memory] SCRIPT [ARGUMENT ...]

Run a host script of a compiled program.

  --check=memory  say on the error output where threads race for a word, where an access leaves the array
                  in which it begins, and where a word without a value is read; status 1 if anywhere"""


def run_script(
    path: str,
    arguments: list[str],
    recording: AbstractContextManager[object] | None = None,
    machine: Machine | MachineOf | None = None,
) -> int:
    """Run a script as the main program, while it is recorded if that is asked for; return its exit status.

    Its programs run on `machine`, or on what that gives for an architecture; default: what compiled layouts run on.
    """
    before, paths, main_module = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        around = (recording or nullcontext(), running_on(machine), provided(), leaving(), scripted(path))
        with ExitStack() as stack, open(path, "rb") as source:
            for entry in around:
                stack.enter_context(entry)
            sys.modules["__main__"] = module = ModuleType("__main__")
            module.__file__ = path
            exec(compiled(source.read(), path), module.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except WseError as error:
        print(f"{_place(error, path)}{error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cerebras":
            raise
        print(f"{_place(error, path)}{absent(error.name)}", file=sys.stderr)
        return 1
    finally:
        close_all()
        sys.argv, sys.path[:] = before, paths  # a script may have added paths of its own
        sys.modules["__main__"] = main_module
    return 0


def _place(error: BaseException, path: str) -> str:
    """Return file and line of the script, or of a module beside it, where an error arose; and what stands there."""
    home = os.path.dirname(os.path.abspath(path))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.dirname(os.path.abspath(frame.filename)).startswith(home) and os.path.isfile(frame.filename)
    ]
    if not frames:
        return ""
    frame = frames[-1]
    text = f"\n    {frame.line}" if frame.line else ""
    return f"{os.path.relpath(frame.filename)}:{frame.lineno}: error:{text}\n"


def _checked(words: list[str]) -> int:
    """Run a script while memory is checked, and say what was found; status 1 if anything was."""
    with checking_memory() as checks:
        status = run_script(words[0], words[1:])
    found = [line for entry in checks for line in entry.report().splitlines()]
    print("\n".join([*found, f"memory: {len(found) or 'no'} finding{'s' * (len(found) != 1)}"]), file=sys.stderr)
    return status or int(bool(found))


def main(arguments: list[str] | None = None) -> int:
    """Run the script that the command line names."""
    words = sys.argv[1:] if arguments is None else arguments
    check = bool(words) and words[0].startswith("--check")
    if check:
        if words[0] != "--check=memory":
            print(f"cs_python: {words[0]} is unknown; --check=memory", file=sys.stderr)
            return 2
        words = words[1:]
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else 2
    if not os.path.isfile(words[0]):
        print(f"cs_python: there is no file {words[0]}", file=sys.stderr)
        return 2
    try:
        return _checked(words) if check else run_script(words[0], words[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

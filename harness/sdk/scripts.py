"""Run the scripts of a tree of programs as they are, with `cslc` and `cs_python` of this project on the path.

The tree is copied first, so that nothing is written into it.  A script is a program's own ``commands_wse2.sh`` or the
like: it compiles, runs the host script, and tells by its exit status whether the program's own check held.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from traces.provenance import ROOT
from wse_core.errors import ConfigError

__all__ = [
    "ScriptOutcome",
    "as_data",
    "as_text",
    "as_verdicts",
    "environment",
    "find_drivers",
    "find_scripts",
    "run_scripts",
]

MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
TOOLS = {"cslc": "compiler", "cs_python": "python"}
OTHERS = {"cs_readelf": "symbols", "sdk_debug_shell": "shell"}
"""Commands that scripts call, and the modules of `harness.sdk` that do their work; of the others no calls are noted."""
CALLS = "WSE_CSL_CALLS"
"""This environment variable has the file in which each call of a tool notes its exit status."""
PLACEHOLDER = "%python_sdk_paint"
"""What stands in the scripts of ten programs of SDK 2.10; those of 1.4 have a call of ``cs_python run.py`` there."""
MISTAKE = re.compile(r"(^|: ?)(fatal )?error:|\b[A-Z]\w*Error\b", re.IGNORECASE)
"""A line that says what is wrong; a largest "absolute error: 0.1" is a result."""
FUNCTION = re.compile(r"^\s*(function\s+\w+|\w+\s*\(\)).*?^\s*\}", re.MULTILINE | re.DOTALL)
ARGUMENT = re.compile(r"\$[1-9@*#]|\$\{[1-9@*#]\}")
"""A script that reads its arguments, outside of functions and without defaults, cannot do its work without them."""
ELSEWHERE = re.compile(
    r"(?<![\w$.{}/~-])(?:\$\{\w+\}|\$\w+|~|/[\w.-]+)(?:/[\w.${}-]+)*/(cslc|cs_python|cs_readelf|sdk_debug_shell)(?![\w.-])"
)
"""A command that matches is called by the place where somebody else's SDK lies."""
CONTAINERS = ("singularity", "apptainer")
"""Each of these commands is for another one in a container: here that is run by itself."""
IN_CONTAINER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$(basename -- "$1")" in
    cslc|cs_python|cs_readelf|sdk_debug_shell) tool=$(basename -- "$1"); shift; exec "$tool" "$@" ;;
    bash|sh|python|python3|make|env) exec "$@" ;;
  esac
  shift
done
echo "error: no command is known behind the image" >&2
exit 127
"""
SOURCED = re.compile(r"^\s*(?:source|\.)\s+[\"']?([\w./-]+)", re.MULTILINE)
"""It finds the file that a script reads into itself."""
BY_PYTHON = re.compile(r"[\"'](?:[^\"'\s]*/)?cslc[\"' ]|\bSdkLayout\(")
"""A Python script is one that compiles if this matches: by a process that it starts, or by itself."""
TIMED_OUT = 124
"""A script that took too long has this exit status, as of the command ``timeout``."""


@dataclass(frozen=True)
class ScriptOutcome:
    """An outcome says what came of a script.

    Attributes
    ----------
    script : str
        Where it lies in the tree.
    status : int
        Its exit status.
    seconds : float
        What it took of the host's time.
    said : str
        The first mistake that it printed if it failed, else its last line.
    calls : tuple of (str, int)
        The calls of `cslc` and `cs_python` that it made, in order, each with its exit status.
    wants : bool
        Whether it reads arguments: it got none.
    """

    script: str
    status: int
    seconds: float
    said: str
    calls: tuple[tuple[str, int], ...] = ()
    wants: bool = False

    def count(self, command: str) -> tuple[int, int]:
        """Return how many calls of a command ended well, and how many there were."""
        found = [status for name, status in self.calls if name == command]
        return sum(status == 0 for status in found), len(found)

    @property
    def verdict(self) -> str:
        """The verdict says how far a script came.

        It is ``passes``, ``runs`` (the script failed by itself), ``compiles`` (a host script failed, or there is none),
        ``fails`` (a program did not compile), ``calls nothing``, or, if it did not pass, ``wants arguments``.
        """
        (compiled, sources), (ran, runs) = self.count("cslc"), self.count("cs_python")
        if self.wants and (self.status or not runs):
            return "wants arguments"
        if not self.calls:
            return "calls nothing"
        if compiled < sources:
            return "fails"
        if not runs or ran < runs:
            return "compiles"
        return "passes" if self.status == 0 else "runs"

    @property
    def failed(self) -> bool:
        """Whether something went wrong: not where a script does nothing but compile, or wants arguments."""
        if self.verdict == "wants arguments":
            return False
        return bool(self.status) or not self.calls or any(status for _, status in self.calls)


def environment(directory: Path) -> dict[str, str]:
    """Return an environment that finds this project's modules, and `cslc` and `cs_python`, written into a directory."""
    for name, module in (TOOLS | OTHERS).items():
        command = directory / name
        call = f"{shlex.quote(sys.executable)} -P -m harness.sdk.{module}"
        note = "true" if name in OTHERS else f'[ -z "${CALLS}" ] || echo "{name} $status" >> "${CALLS}"'
        command.write_text(f'#!/bin/sh\n{call} "$@"\nstatus=$?\n{note}\nexit $status\n', encoding="utf-8")
        command.chmod(0o755)
    for name in CONTAINERS:
        command = directory / name
        command.write_text(IN_CONTAINER, encoding="utf-8")
        command.chmod(0o755)
    paths = [str(directory), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT)}


def find_scripts(tree: Path, pattern: str, only: tuple[str, ...] = (), calling: str = "") -> list[Path]:
    """Return the scripts of a tree, relative to it, in which a word stands.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if not tree.is_dir():
        raise ConfigError("there is no such directory", where=str(tree))
    found = sorted(path.relative_to(tree) for path in tree.rglob(pattern) if path.is_file())
    found = [path for path in found if not only or any(word in path.as_posix() for word in only)]
    if calling:
        found = [path for path in found if calling in (tree / path).read_text(encoding="utf-8", errors="replace")]
    if not found:
        wanted = f" with {' or '.join(only)} in its path" if only else ""
        raise ConfigError(f"there is no {pattern}{wanted}", where=str(tree), hint="--scripts 'run*.sh'")
    return found


def find_drivers(tree: Path, only: tuple[str, ...] = ()) -> list[Path]:
    """Return what compiles the programs of any tree: shell scripts, makefiles, else Python scripts.

    A Python script counts where no other one lies beside it or in a directory above, and none of another kind.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if not tree.is_dir():
        raise ConfigError("there is no such directory", where=str(tree))

    def text(path: Path) -> str:
        return path.read_text(encoding="utf-8", errors="replace")

    files = sorted(path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts)
    found = [path for path in files if path.suffix == ".sh" or path.name in MAKEFILES]
    found = [path for path in found if "cslc" in text(path).lower()]
    read = {
        (path.parent / name).resolve() for path in found for name in SOURCED.findall(text(path)) if path.suffix == ".sh"
    }
    found = [path for path in found if path.resolve() not in read]
    homes = {path.parent for path in found}
    for path in files:
        if path.suffix == ".py" and homes.isdisjoint((path.parent, *path.parent.parents)):
            found += [path] if BY_PYTHON.search(text(path)) else []
    chosen = sorted(path.relative_to(tree) for path in found)
    chosen = [path for path in chosen if not only or any(word in path.as_posix() for word in only)]
    if not chosen:
        wanted = f" with {' or '.join(only)} in its path" if only else ""
        raise ConfigError(f"nothing{wanted} calls cslc", where=str(tree), hint="--scripts 'run*.sh'")
    return chosen


def run_scripts(
    tree: Path, scripts: list[Path], limit: float, begins: Callable[[int, Path], Any] = lambda number, script: None
) -> Iterator[ScriptOutcome]:
    """Run scripts one after the other and yield what came of each.

    Parameters
    ----------
    tree : Path
    scripts : list of Path
        Relative to the tree.
    limit : float
        Seconds that one may take.
    begins : callable, optional
        Called with number and script before each.
    """
    with tempfile.TemporaryDirectory(prefix="csl-scripts-") as text:
        directory = Path(text)
        (directory / "bin").mkdir()
        variables = environment(directory / "bin")
        copy = directory / "tree"
        shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        for number, script in enumerate(scripts):
            begins(number, script)
            yield _run(copy, script, limit, variables)


def _run(tree: Path, script: Path, limit: float, variables: dict[str, str]) -> ScriptOutcome:
    start = time.monotonic()
    notes = Path(variables["PATH"].split(os.pathsep)[0], "calls")
    notes.write_text("", encoding="utf-8")
    variables = {**variables, CALLS: str(notes)}
    text = _fill_in(tree / script)
    command = ["make", "-f"] if script.name in MAKEFILES else ["cs_python"] if script.suffix == ".py" else ["bash"]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [*command, script.name], cwd=tree / script.parent, env=variables, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()]
    calls = tuple((name, int(end)) for name, end in map(str.split, notes.read_text(encoding="utf-8").splitlines()))
    wants = command == ["bash"] and ARGUMENT.search(FUNCTION.sub("", text)) is not None
    return ScriptOutcome(script.as_posix(), status, time.monotonic() - start, _said(status, lines, limit), calls, wants)


def _fill_in(script: Path) -> str:
    """Return a script, with calls that work here.

    Where one of SDK 2.10 has the name of a call that was never filled in, the call is written; where a command lies at
    a place that is not there, or that a variable names, its name alone.
    """
    text = script.read_text(encoding="utf-8", errors="replace")
    made = ELSEWHERE.sub(lambda found: found[0] if Path(found[0]).exists() else found[1], text)
    made = made.replace(PLACEHOLDER, "cs_python run.py")
    if made != text:
        script.write_text(made, encoding="utf-8")
    return text


def _said(status: int, lines: list[str], limit: float) -> str:
    """Return the line that says most about the end of a script."""
    if status == TIMED_OUT:
        return f"took more than {limit:g} s"
    if status:
        wrong = [line for line in lines if MISTAKE.search(line)]
        if wrong:  # a script's own mistake has its line, then what is wrong
            return f"{wrong[0]} {lines[-1]}" if wrong[0].endswith("error:") else wrong[0]
    return lines[-1] if lines else ""


def as_text(outcomes: list[ScriptOutcome]) -> str:
    """Return a table of outcomes and a line with their sum."""
    rows = [("script", "status", "seconds", "said")]
    rows += [(entry.script, str(entry.status), f"{entry.seconds:.1f}", entry.said[:100]) for entry in outcomes]
    width = max(len(row[0]) for row in rows)
    lines = [f"{script:{width}}  {status:>6}  {seconds:>8}  {said}" for script, status, seconds, said in rows]
    good = sum(entry.status == 0 for entry in outcomes)
    return "\n".join([*lines, f"{good} of {len(outcomes)} exit with 0"])


def as_verdicts(outcomes: list[ScriptOutcome]) -> str:
    """Return a table of how far each script came, and a line with their sum."""
    rows: list[tuple[str, ...]] = [("script", "verdict", "cslc", "cs_python", "seconds", "missing")]
    for entry in outcomes:
        counts = ["{}/{}".format(*entry.count(name)) for name in TOOLS]
        missing = "" if entry.verdict == "passes" else entry.said[:100]
        rows.append((entry.script, entry.verdict, *counts, f"{entry.seconds:.1f}", missing))
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    lines = [
        "  ".join([*(f"{cell:{w}}" for cell, w in zip(row, widths, strict=False)), row[5]]).rstrip() for row in rows
    ]
    good = sum(entry.verdict == "passes" for entry in outcomes)
    failed = sum(entry.failed for entry in outcomes)
    return "\n".join([*lines, f"{good} of {len(outcomes)} pass, {failed} fail{'s' * (failed == 1)}"])


def as_data(outcomes: list[ScriptOutcome]) -> dict[str, Any]:
    """Return outcomes as JSON carries them."""
    entries = [{**asdict(entry), "verdict": entry.verdict} for entry in outcomes]
    return {"scripts": entries, "failed": sum(bool(entry.status) for entry in outcomes)}

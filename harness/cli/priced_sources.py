"""A file may hold things to price: programs and layouts of a Python script, or of a layout file in CSL."""

from __future__ import annotations

import linecache
import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.params import Machine

if TYPE_CHECKING:
    from fabric.price.prices import ProgramPrice

__all__ = ["COMMAND", "PricedProgram", "built_by", "price_built", "price_csl", "price_runs", "source_text"]

COMMAND = "the command `wse price`"


@dataclass(frozen=True)
class PricedProgram:
    """A `PricedProgram` is a program of a file with its price.

    Attributes
    ----------
    price : ProgramPrice
    where : str
        On which PEs it is, empty if in no layout.
    """

    price: ProgramPrice
    where: str = ""


class _Built(BaseException):
    """A script has built what it wants to run, and wants to run it; no `except Exception` of the script sees it."""


def _pes(count: int, x: int, y: int) -> str:
    return f"{count} PE{'s' * (count != 1)}, first ({x}, {y})"


def price_built(
    layouts: list[Any], programs: list[Any], machine: Machine | None, **options: Any
) -> list[PricedProgram]:
    """Return the prices of layouts, and of programs that are in none of them.

    Parameters
    ----------
    layouts, programs : list
        As of `built_by`.
    machine : Machine, optional
        Default that of each layout or program.
    **options
        As of `fabric.price.price_layout`.
    """
    price_layout = need("fabric.price.layout", COMMAND).price_layout
    price = need("fabric.price.program", COMMAND).price
    found = []
    for layout in layouts:
        for one in price_layout(layout, machine, **options):
            found.append(PricedProgram(one.price, _pes(one.count, one.x, one.y)))
    placed = {id(program) for layout in layouts for program in layout.programs}
    for program in programs:
        if id(program) not in placed:
            symbols = program.assemble().symbols
            own = {name: value for name, value in (options.get("given") or {}).items() if name in symbols}
            found.append(PricedProgram(price(program, machine, **options | {"given": own})))
    return found


def price_runs(layouts: list[Any], task: str, machine: Machine | None, given: Mapping[str, object]) -> list[float]:
    """Return the cycles of a run of each layout, in which the host launches a task on all PEs in cycle 0.

    Raises
    ------
    UnsupportedError, ProgramError
        See `fabric.price.lines.price_lines`.
    """
    price_lines = need("fabric.price.lines", COMMAND).price_lines
    return [max(price_lines(layout, task, machine, given).values()) for layout in layouts]


def built_by(path: Path, arguments: list[str]) -> tuple[list[Any], list[Any]]:
    """Return the layouts and the programs that a script builds: it runs as far as it would make a fabric.

    Of a script that makes no fabric these are all layouts and programs that its variables hold.

    Parameters
    ----------
    path : Path
    arguments : list of str
        Of the script.

    Raises
    ------
    ConfigError
        The script builds nothing that can be priced, or ends with an error.
    """
    host = need("fabric.host.fabric", COMMAND)
    layout_type = need("fabric.layout.layout", COMMAND).Layout
    program_type = need("fabric.program.program", COMMAND).Program
    layouts: list[Any] = []
    values: Mapping[str, Any] = {}

    def begin(self: object, layout: object = None, *args: object, **more: object) -> None:
        if isinstance(layout, layout_type):
            layouts.append(layout)
        raise _Built

    before, kept, paths = sys.argv, host.Fabric.__init__, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    host.Fabric.__init__ = begin
    try:
        values = runpy.run_path(str(path), run_name="__main__")
    except _Built:
        pass
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ConfigError(f"the script ends with {end.code}", where=str(path)) from None
    finally:
        host.Fabric.__init__ = kept
        sys.argv, sys.path[:] = before, paths
    layouts += [value for value in values.values() if isinstance(value, layout_type) and value not in layouts]
    programs = [value for value in values.values() if isinstance(value, program_type)]
    if not layouts and not programs:
        raise ConfigError("the script builds no program", where=str(path), hint="a Layout or Program in a variable")
    return layouts, programs


def price_csl(path: Path, machine: Machine | None, params: list[str], **options: Any) -> list[PricedProgram]:
    """Return the prices of the programs of a layout file in CSL.

    Raises
    ------
    CslError
        The file has a mistake.
    """
    need("lark", COMMAND)
    projects = need("fabric.csl.projects", COMMAND)
    compile_file = need("fabric.csl.compile", COMMAND).compile_file
    price = need("fabric.price.program", COMMAND).price
    environment = [entry for entry in os.environ.get("CSL_IMPORT_PATH", "").split(":") if entry]
    chosen = projects.Options(params=projects.parse_params(params), import_paths=tuple(environment))
    made, found = compile_file(path, chosen), []
    layout, checked = made.checked.layout, made.checked
    for number, program in enumerate(made.programs):
        emitted = program.emitted
        places = {at: f"{place.file}:{place.line}" for at, place in emitted.places.items()}
        given = options.get("given") or {}
        own = {name: value for name, value in given.items() if name in emitted.image.symbols}
        cost = price(emitted.image, machine, **options | {"given": own, "places": places})
        where = ""
        if layout is not None:
            pairs = zip(layout.classes, checked.program_of, strict=True)
            count = sum(one.count for one, program_number in pairs if program_number == number)
            where = f"{count} PE{'s' * (count != 1)}"
        found.append(PricedProgram(cost, where))
    return found


def source_text(line: str, path: Path) -> str:
    """Return what stands at a source line such as ``file.py:12``, empty if the file is not beside the script."""
    name, _, number = line.rpartition(":")
    if not number.isdigit():
        return ""
    files = (path if name == path.name else path.parent / name, Path(name))
    return next((linecache.getline(str(file), int(number)).strip() for file in files if file.is_file()), "")

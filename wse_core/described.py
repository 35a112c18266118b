"""Whether the description of a fabric can be run: bounds of every address, entry, route, operation, type and shape.

An engine copies descriptions into tables without a look, so that one that was damaged, edited or made by hand would
write where it must not.  `check_fabric` comes before any engine; `check_program` looks at one program, once.  Both say
which field has which value, and what it may be.  What is well formed but wrong for a program (an empty DSR, an address
beyond the data) is left to the run, which has faults for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wse_core import isa
from wse_core.encoding import (
    ALL_PORTS,
    CONDITIONS,
    DIR_R,
    DIRS,
    DSD_KINDS,
    DSD_MEM4D,
    FILE_DEST,
    FILE_REG,
    FILTER_KINDS,
    INJECT_MODES,
    N_BINDINGS,
    N_COLORS,
    N_CONTROL_IDS,
    N_FILTERS,
    N_GENERATORS,
    N_POSITIONS,
    N_REGS,
    N_STATES,
    N_TASK_IDS,
    N_UTS,
    NO_TASK,
    POP_MODES,
    UT_DERIVED,
)
from wse_core.errors import ConfigError
from wse_core.image import DESC_DTYPE, FILTER_DTYPE, MAIN_PRIORITY, ROUTE_DTYPE, FabricSpec, ProgramImage, RouteTable
from wse_core.params import Machine

__all__ = ["DTYPES", "check_fabric", "check_program", "refuse", "whole"]

DTYPES = {"f16": 1, "cb16": 1, "i16": 1, "u16": 1, "f32": 2, "i32": 2, "u32": 2}
"""An element of each type of symbols takes so many words."""
MOST_WORDS = 1 << 15
"""A branch could name at most so many words of code."""
_CHECKED = "_described"
_KNOWN: set[tuple[Any, ...]] = set()
"""Instructions that were found well formed; programs have most of theirs in common."""


def refuse(field: str, value: Any, rule: str, where: str = "") -> ConfigError:
    """Return the error of a field that has a wrong value."""
    shown = repr(value.item() if isinstance(value, np.generic) else value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ConfigError(f"{field} is {shown}, and must be {rule}", where=where or None, field=field, value=value)


def whole(value: Any, least: int, most: int, field: str, where: str = "") -> int:
    """Return a whole number within bounds.

    Raises
    ------
    ConfigError
        For anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise refuse(field, value, f"a whole number in {least} .. {most}", where)
    return int(value)


def array(value: Any, dtype: Any, shape: Sequence[int | None], field: str, where: str = "") -> np.ndarray:
    """Return an array of a type and shape; None is any length.

    Raises
    ------
    ConfigError
        For anything else.
    """
    wanted = np.dtype(dtype)
    if not isinstance(value, np.ndarray) or value.dtype != wanted:
        name = wanted.name if wanted.names is None else f"records of {', '.join(wanted.names)}"
        raise refuse(f"the type of {field}", str(getattr(value, "dtype", type(value).__name__)), name, where)
    fits = value.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, value.shape, strict=True)
    )
    if not fits:
        wish = " x ".join("any" if n is None else str(n) for n in shape)
        raise refuse(f"the shape of {field}", value.shape, wish, where)
    return value


def within(values: np.ndarray, least: int, most: int, field: str, where: str = "") -> None:
    """Check every number of an array.

    Raises
    ------
    ConfigError
        For the first one out of bounds.
    """
    bad = (values < least) | (values > most)
    if bad.any():
        at = np.unravel_index(int(np.argmax(bad)), values.shape)
        raise refuse(f"{field}[{', '.join(map(str, at))}]", values[at], f"in {least} .. {most}", where)


# --- instructions -----------------------------------------------------------------------------------------------------


def _operands(op: isa.Op, a: int, b: int, c: int, d: int) -> str | None:
    """Return what is wrong with the operands of an arithmetic instruction, or None."""
    for name, field, letter in (("a", a, op.types[0]), ("b", b, op.types[1]), ("c", c, op.types[2])):
        file, number = divmod(field, 16)
        if letter == "-" or (name == "c" and field == 0):
            continue
        if file == FILE_REG:
            if number + isa.WORDS[letter] > N_REGS:
                return f"operand {name} a register below {N_REGS}"
        elif file == FILE_DEST and name != "a":
            return f"operand {name} a source DSR or a register"
    if op.types[3] != "-" and d % 16 + isa.WORDS[op.types[3]] > N_REGS:
        return f"operand d a register below {N_REGS}"
    return None


def _extension(imm: int) -> str | None:
    """Return what is wrong with the extension word of a vector operation, or None."""
    get = {name: imm >> low & (1 << bits) - 1 for name, (low, bits) in isa.ASYNC.items()}
    if get["priority"] >= len(isa.PRIORITIES):
        return f"a priority below {len(isa.PRIORITIES)}"
    if get["ut"] >= N_UTS and get["ut"] != UT_DERIVED:
        return f"a microthread below {N_UTS}"
    if max(get["activate"], get["unblock"]) >= N_TASK_IDS:
        return f"a task below {N_TASK_IDS}"
    return None


def _again(imm: int) -> str | None:
    """Return what is wrong with the extension word of a vector operation that is done again, or None."""
    register = isa.again_register(imm)
    if register is None or register >= N_REGS:
        return f"done again as often as a register below {N_REGS} says"
    return None


def _register(field: int, words: int = 1) -> bool:
    return field >> 4 == FILE_REG and field % 16 + words <= N_REGS


def _special(op: isa.Op, a: int, b: int, d: int, imm: int | None, descriptors: int) -> str | None:
    """Return what is wrong with an instruction that is no arithmetic, or None."""
    words = isa.WORDS[op.types[0]]
    needs = op.form in ("ldi", "ld", "st", "br", "route", "in_td", "flt") or op.name in ("jmp", "call", "dsr_load")
    value = imm or 0
    rules: dict[str, Callable[[], bool]] = {
        "ldi": lambda: _register(a, words),
        "ld": lambda: _register(a, words),
        "st": lambda: _register(a, words),
        "br": lambda: _register(a, words) and (b >> 4 != FILE_REG or _register(b, words)) and d < len(CONDITIONS),
        "tsc": lambda: _register(a, 3),
        "rand": lambda: _register(a),
        "in_td": lambda: _register(a) and value < (N_STATES if op.name == "q_state" else N_COLORS),
        "flt": lambda: a < N_FILTERS and value <= 2 and _register(b),
        "task": lambda: a < {"prng": N_GENERATORS, "activate": N_TASK_IDS}.get(op.name, N_TASK_IDS + N_UTS),
        "dsr": lambda: a >> 4 != FILE_REG
        and (value < descriptors if op.name == "dsr_load" else imm is not None or _register(b)),
        "route": lambda: a < N_COLORS and (
            op.name != "route" or value >> 15 == 0
        ) and (op.name != "sw_pos" or value < N_POSITIONS),
    }  # fmt: skip
    if needs and imm is None and op.name != "td_exit":
        return "an instruction with an extension word"
    if op.form in rules and not rules[op.form]():
        return f"a well-formed {op.name}"
    return None


def _wrong(found: tuple[Any, ...], descriptors: int, machine: Machine) -> str | None:
    """Return what an instruction must be if it is not well formed."""
    _, op, a, b, c, d, imm = found
    if op.form not in ("alu", "dfilt"):
        return _special(op, a, b, d, imm, descriptors)
    if isa.is_vector(op, a, b, c):
        if machine.lanes(op) == 0:
            return "an operation that has a vector form"
        if imm is not None:
            return _operands(op, a, b, c, d) or (_extension(imm) if imm & 1 else _again(imm))
    return _operands(op, a, b, c, d)


def _code(image: ProgramImage, machine: Machine, where: str) -> set[int]:
    """Check the instructions; return where they begin."""
    code = array(image.code, np.uint32, [None], "code", where)
    if len(code) > MOST_WORDS:
        raise refuse("the length of code", len(code), f"at most {MOST_WORDS}", where)
    try:
        decoded = isa.decode(code)
    except ValueError as error:
        raise ConfigError(f"code cannot be read: {error}", where=where or None, field="code") from None
    starts = {at for at, *_ in decoded}
    count = len(image.descriptors)
    for found in decoded:
        at, op, *fields, imm = found
        key = (op.code, *fields, imm, machine.preset, count if op.name == "dsr_load" else 0)
        if key not in _KNOWN:
            if (rule := _wrong(found, count, machine)) is not None:
                raise refuse(f"code[{at}]", f"{op.name} ({int(code[at]):#010x})", rule, where)
            _KNOWN.add(key)
        if (op.form == "br" or op.name in ("jmp", "call")) and imm not in starts:
            raise refuse(f"code[{at + 1}]", imm, "where an instruction begins", where)
    return starts


# --- programs ---------------------------------------------------------------------------------------------------------


def check_program(image: ProgramImage, machine: Machine, where: str = "") -> None:
    """Check one program; one that was found right is not looked at again.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine
    where : str
        What messages begin with.

    Raises
    ------
    ConfigError
        For the first field with a value that it cannot have; ``field`` and ``value`` are attributes of the error.
    """
    before = getattr(image, _CHECKED, None)
    if before == machine.preset:
        return
    _descriptors(image, where)
    starts = _code(image, machine, where)
    for field, length in (("entry", N_TASK_IDS), ("control_entry", N_CONTROL_IDS)):
        entries = array(getattr(image, field), np.int32, [length], field, where)
        for k, entry in enumerate(entries.tolist()):
            if entry != -1 and entry not in starts:
                raise refuse(f"{field}[{k}]", entry, "-1, or where an instruction begins", where)
    _sizes(image, machine, where)
    for field in ("data_tasks", "active", "blocked", "high"):
        whole(getattr(image, field), 0, (1 << N_TASK_IDS) - 1, field, where)
    for field in ("inq_color", "outq_color"):
        colors = getattr(image, field)
        if not isinstance(colors, tuple) or len(colors) > N_BINDINGS:
            raise refuse(field, colors, f"a tuple of at most {N_BINDINGS} colors", where)
        for k, color in enumerate(colors):
            whole(color, -1, N_COLORS - 1, f"{field}[{k}]", where)
    if image.half not in ("f16", "cb16"):
        raise refuse("half", image.half, "f16 or cb16", where)
    whole(image.main_priority, 0, max(MAIN_PRIORITY.values()), "main_priority", where)
    if not isinstance(image.registers, bool):
        raise refuse("registers", image.registers, "true or false", where)
    object.__setattr__(image, _CHECKED, machine.preset)


def _descriptors(image: ProgramImage, where: str) -> None:
    found = array(image.descriptors, DESC_DTYPE, [None], "descriptors", where)
    if len(found) >= 1 << 16:
        raise refuse("the length of descriptors", len(found), "below 65,536", where)
    within(found["kind"], 0, len(DSD_KINDS) - 1, "descriptors.kind", where)
    within(found["queue"], 0, N_BINDINGS - 1, "descriptors.queue", where)
    within(found["on_control"], 0, 7, "descriptors.on_control", where)
    many = found[found["kind"] == DSD_MEM4D]
    within(many["ndim"], 1, 4, "descriptors.ndim", where)
    for field in ("control_task", "push_task", "pop_task"):
        tasks = found[field]
        within(tasks[tasks != NO_TASK], 0, N_TASK_IDS - 1, f"descriptors.{field}", where)


def _sizes(image: ProgramImage, machine: Machine, where: str) -> None:
    """Check the sizes of code and data, initial contents and symbols."""
    first = whole(image.code_words, 0, machine["mem.words"], "code_words", where)
    if first < len(image.code) or first % 4:
        raise refuse("code_words", first, f"a multiple of 4, at least {len(image.code)}", where)
    end = whole(image.footprint, first, machine["mem.words"], "footprint", where)
    for k, (address, words) in enumerate(image.data):
        array(words, np.uint16, [None], f"data[{k}]", where)
        whole(address, first, end - len(words), f"addresses[{k}]", where)
    for name, symbol in image.symbols.items():
        if symbol.dtype not in DTYPES:
            raise refuse(f"symbols[{name!r}].dtype", symbol.dtype, " or ".join(DTYPES), where)
        whole(symbol.count, 0, end, f"symbols[{name!r}].count", where)
        whole(symbol.address, 0, end - symbol.words, f"symbols[{name!r}].address", where)


# --- fabrics ----------------------------------------------------------------------------------------------------------


def check_fabric(spec: FabricSpec, where: str = "") -> None:
    """Check the description of a fabric.

    Parameters
    ----------
    spec : FabricSpec
    where : str
        What messages begin with.

    Raises
    ------
    ConfigError
        For the first field with a value that it cannot have; ``field`` and ``value`` are attributes of the error.
    """
    width, height = (whole(getattr(spec, name), 1, 1 << 20, name, where) for name in ("width", "height"))
    index = array(spec.program_index, np.int16, [height, width], "program_index", where)
    within(index, -1, len(spec.programs) - 1, "program_index", where)
    for k, image in enumerate(spec.programs):
        check_program(image, spec.machine, f"{where}: program {k}" if where else f"program {image.name!r}")
    slots = 0
    if spec.filters is not None:
        filters = array(spec.filters, FILTER_DTYPE, [height, width, None], "filters", where)
        slots = filters.shape[2]
        if slots > N_FILTERS:
            raise refuse("the filters of a PE", slots, f"at most {N_FILTERS}", where)
        within(filters["kind"], 0, len(FILTER_KINDS) - 1, "filters.kind", where)
    for color, table in spec.routes.items():
        whole(color, 0, N_COLORS - 1, "a color of routes", where)
        _routes(table, color, (height, width), slots, where)
    bound = {color for image in spec.programs for color in (*image.inq_color, *image.outq_color) if color >= 0}
    for color in sorted(bound - set(spec.routes)):
        raise refuse("the routes", sorted(spec.routes), f"also of color {color}, which a program has a queue of", where)
    for kind, ports in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for k, port in enumerate(ports):
            _port(spec, port, kind, f"{kind}[{k}]", where)
        if len(set(ports)) < len(ports):
            raise refuse(kind, ports, "ports that differ", where)


def _routes(table: RouteTable, color: int, shape: tuple[int, int], slots: int, where: str) -> None:
    field = f"routes[{color}]"
    kinds = array(table.kinds, ROUTE_DTYPE, [None], f"{field}.kinds", where)
    which = table.which
    if which.dtype not in (np.uint8, np.uint16) or which.shape != shape:
        raise refuse(f"{field}.which", f"{which.dtype} {which.shape}", f"whole numbers of shape {shape}", where)
    within(which, 0, len(kinds) - 1, f"{field}.which", where)
    most = {
        "rx": ALL_PORTS, "tx": ALL_PORTS, "valid": (1 << N_POSITIONS) - 1, "pos": N_POSITIONS - 1, "ring": 1,
        "pop": len(POP_MODES) - 1, "teardown": 1, "filter": slots, "swap": 3, "inject": len(INJECT_MODES) - 1,
    }  # fmt: skip
    for name, limit in most.items():
        within(kinds[name], 0, limit, f"{field}.{name}", where)


def _port(spec: FabricSpec, port: Any, kind: str, field: str, where: str) -> None:
    """Check a port of the host: a PE, its side at the edge of the rectangle or its ramp, a color with routes."""
    if not isinstance(port, tuple) or len(port) != 4:
        raise refuse(field, port, "a tuple (x, y, direction, color)", where)
    x = whole(port[0], 0, spec.width - 1, f"{field}.x", where)
    y = whole(port[1], 0, spec.height - 1, f"{field}.y", where)
    d = whole(port[2], 0, len(DIRS) - 1, f"{field}.direction", where)
    color = whole(port[3], 0, N_COLORS - 1, f"{field}.color", where)
    if color not in spec.routes:
        raise refuse(f"{field}.color", color, "a color that has routes", where)
    edges = {"W": x == 0, "E": x == spec.width - 1, "N": y == 0, "S": y == spec.height - 1, "R": True}
    if not edges[DIRS[d]]:
        raise refuse(f"{field}.direction", DIRS[d], f"a side of PE ({x}, {y}) at the edge, or R", where)
    if d == DIR_R and kind == "inputs":
        program = int(spec.program_index[y, x])
        if program < 0 or color not in spec.programs[program].inq_color:
            raise refuse(f"{field}.color", color, f"one of an input queue of PE ({x}, {y})", where)

"""A listing of a program has its instructions, labels, descriptors, tasks and data; it can be read back to words.

`format_instruction` and `parse_instruction` are inverse to each other for every one- or two-word instruction that
`wse_core.isa.decode` accepts, also for words that no assembler would write: those that carry bits in fields without
meaning are shown as ``.word``.

A line of `listing` is ``address: words  instruction  ; remark``; the address counts 16-bit words of SRAM.

Operands: ``r3``, ``dest[2]``, ``src0[1]``, ``src1[4]``, ``#immediate``, ``@code word index``, ``task``, ``color``
numbers as they are; attributes of an asynchronous operation stand in braces.

Timing: none.  Source: the encoding of `wse_core.isa`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_QUEUES
from wse_core.errors import ProgramError
from wse_core.image import ProgramImage
from wse_core.isa import Op

__all__ = ["around", "describe", "format_instruction", "listing", "parse_instruction", "parse_listing"]

_OPERAND = re.compile(r"^(dest|src0|src1)\[(\d+)\]$")


def _operand(field: int) -> str:
    file, number = field >> 4, field & 15
    return f"r{number}" if file == isa.FILE_REG else f"{isa.FILES[file]}[{number}]"


def _parse_operand(text: str) -> int:
    if match := _OPERAND.match(text):
        return isa.FILES.index(match[1]) << 4 | int(match[2])
    if re.fullmatch(r"r\d+", text):
        return isa.FILE_REG << 4 | int(text[1:])
    raise ProgramError(f"{text!r} is not an operand")


def _attributes(imm: int) -> str:
    if not imm & 1:
        return f"{{again r{isa.again_register(imm)}}}"
    get = isa.async_fields(imm)
    parts = [f"priority={get['priority']}"]
    parts += [f"{key}={get[key]}" for key in ("ut", "activate", "unblock") if get[key] is not None]
    return "{async " + " ".join(parts) + "}"


def _parse_attributes(text: str) -> int:
    if match := re.fullmatch(r"{again r(\d+)}", text):
        return isa.again_word(int(match[1]))
    values = dict(part.split("=") for part in text.strip("{}").split()[1:])
    numbers = {key: int(values[key]) for key in ("ut", "activate", "unblock") if key in values}
    return isa.async_word(values["priority"], **numbers)


def _parts(op: Op, a: int, b: int, c: int, d: int, imm: int | None) -> list[str]:
    """Return the operand texts of an instruction; fields not shown are expected to be 0."""
    form = op.form
    if form in ("alu", "dfilt"):
        fields = [f for f, letter in zip((a, b, c, d), op.types, strict=True) if letter != "-"]
        vector = any(f >> 4 != isa.FILE_REG for f in fields)
        parts = [_operand(f) for f in fields]
        if imm is not None and vector:
            parts.append(_attributes(imm))
        elif imm is not None and len(parts) > 2:
            parts[2] = f"#{imm:#x}"
        return parts
    if form == "ldi":
        return [_operand(a), f"#{imm:#x}"]
    if form in ("ld", "st"):
        return [_operand(a), f"[{_operand(b)} + {imm:#x}]" if b else f"[{imm:#x}]"]
    if form == "br":
        return [isa.CONDITIONS[d], _operand(a), _operand(b) if b else "0", f"@{imm}"]
    if form == "jmp":
        return [f"#{imm:#x}" if op.name == "trap" else f"@{imm}"]
    if form == "task":
        return [str(a)]
    if form == "dsr":
        if op.name == "dsr_load":
            return [_operand(a), *([_operand(b)] if b else []), f"descriptor {imm}"]
        return [_operand(a), f"#{imm:#x}" if imm is not None else _operand(b)]
    if form in ("tsc", "rand"):
        return [_operand(a)]
    if form == "route":
        return [f"color {a}"] + ([] if imm is None else [f"#{imm:#x}"])
    if form == "in_td":
        return [_operand(a), f"#{imm:#x}" if op.name == "q_state" else f"color {imm}"]
    if form == "flt":
        return [str(a), _operand(b), f"#{imm:#x}"]
    return []


def _plain(op: Op, a: int, b: int, c: int, d: int, imm: int | None) -> str | None:
    try:
        return " ".join([op.name, ", ".join(_parts(op, a, b, c, d, imm))]).rstrip()
    except (IndexError, TypeError, ValueError):  # an immediate or condition that the form needs is missing
        return None


def format_instruction(op: Op, a: int = 0, b: int = 0, c: int = 0, d: int = 0, imm: int | None = None) -> str:
    """Return an instruction as text.

    Parameters
    ----------
    op, a, b, c, d, imm
        As yielded by `wse_core.isa.decode`.

    Examples
    --------
    >>> format_instruction(isa.BY_NAME["fadds"], 0x02, 0x12, 0x21)
    'fadds dest[2], src0[2], src1[1]'
    """
    words = isa.encode(op, a, b, c, d, imm)
    text = _plain(op, a, b, c, d, imm)
    if text is not None:
        try:
            if parse_instruction(text) == words:
                return text
        except (ProgramError, ValueError, KeyError, IndexError):
            pass
    return ".word " + ", ".join(f"{word:#010x}" for word in words)


def parse_instruction(text: str) -> list[int]:
    """Return the words of an instruction in the form that `format_instruction` writes.

    Raises
    ------
    ProgramError
        Not such a text.
    """
    name, _, rest = text.strip().partition(" ")
    if name == ".word":
        return [int(part, 0) for part in rest.split(",")]
    op = isa.BY_NAME.get(name)
    if op is None:
        raise ProgramError(f"unknown instruction {name!r}")
    brace = rest.find("{")
    imm = None
    if brace >= 0:
        imm, rest = _parse_attributes(rest[brace:]), rest[:brace].rstrip(", ")
    parts = [part.strip() for part in rest.split(",")] if rest.strip() else []
    fields = dict.fromkeys("abcd", 0)
    form = op.form
    if form in ("alu", "dfilt"):
        present = [key for key, letter in zip("abcd", op.types, strict=True) if letter != "-"]
        if len(present) != len(parts):
            raise ProgramError(f"{name} has {len(present)} operands, not {len(parts)}")
        for key, part in zip(present, parts, strict=True):
            if part.startswith("#"):
                imm, fields[key] = int(part[1:], 0), isa.FILE_REG << 4
            else:
                fields[key] = _parse_operand(part)
    elif form in ("ld", "st"):
        fields["a"] = _parse_operand(parts[0])
        inside = parts[1].strip("[]").split("+")
        imm = int(inside[-1], 0)
        if len(inside) == 2:
            fields["b"] = _parse_operand(inside[0].strip())
    elif form == "br":
        fields["d"] = isa.CONDITIONS.index(parts[0])
        fields["a"] = _parse_operand(parts[1])
        fields["b"] = 0 if parts[2] == "0" else _parse_operand(parts[2])
        imm = int(parts[3][1:])
    elif form in ("jmp", "task"):
        if form == "task":
            fields["a"] = int(parts[0])
        else:
            imm = int(parts[0][1:], 0)
    else:
        for key, part in zip("abc", parts, strict=False):
            word = part.split()[-1]
            if part.startswith("#"):
                imm = int(part[1:], 0)
            elif part.startswith("descriptor") or (part.startswith("color") and key == "b"):
                imm = int(word)
            elif part.startswith("color") or part.isdigit():
                fields[key] = int(word)
            else:
                fields[key] = _parse_operand(part)
    return isa.encode(op, **fields, imm=imm)


def listing(image: ProgramImage) -> str:
    """Return a readable listing of a `ProgramImage`.

    Lines of code can be turned back into words with `parse_listing`.
    """
    lines = [
        f"; program {image.name!r}: {image.code_words} words of code, {image.footprint - image.code_words} words "
        f"of data, 16-bit floats are {image.half}"
    ]
    at_label: dict[int, list[str]] = {}
    for name, at in image.labels.items():
        at_label.setdefault(at, []).append(name)
    tasks: dict[int, list[str]] = {}
    for kind, table in (("task", image.entry), ("control task", image.control_entry)):
        for number in np.flatnonzero(table >= 0):
            if kind == "control task" and number < len(image.entry) and table[number] == image.entry[number]:
                continue  # its data task, which a control wavelet starts too
            data = kind == "task" and image.data_tasks >> int(number) & 1
            bits = [
                text
                for text, mask in (("active", image.active), ("blocked", image.blocked), ("high", image.high))
                if kind == "task" and mask >> int(number) & 1
            ]
            text = f"{'data ' * bool(data)}{kind} {number}{' (' + ', '.join(bits) + ')' if bits else ''}"
            tasks.setdefault(int(table[number]), []).append(text)
    bound = (("input", image.inq_color), ("output", image.outq_color))
    queues = [
        f"{kind} queue {q % N_QUEUES} = color {c}" for kind, colors in bound for q, c in enumerate(colors) if c >= 0
    ]
    lines += [f"; {text}" for text in queues]
    for at, op, a, b, c, d, imm in isa.decode(image.code):
        for name in at_label.get(at, []):
            remark = f"  ; {', '.join(tasks[at])}" if at in tasks and not name.startswith(".") else ""
            lines.append(f"{name}:{remark}")
        words = isa.encode(op, a, b, c, d, imm)
        raw = " ".join(f"{word:08x}" for word in words)
        lines.append(f"  {2 * at:5d}: {raw:17s}  {format_instruction(op, a, b, c, d, imm)}{_remark(image, op, imm)}")
    lines += [f"; descriptor {k}: {describe(row, image)}" for k, row in enumerate(image.descriptors)]
    lines += [
        f"; {s.address:5d} {s.name}: {s.count} x {s.dtype}"
        for s in sorted(image.symbols.values(), key=lambda s: s.address)
    ]
    return "\n".join(lines) + "\n"


def parse_listing(text: str) -> NDArray[np.uint32]:
    """Return the code words of a `listing` as uint32, read from its instructions and not from its hex column."""
    words = []
    for line in text.splitlines():
        match = re.match(r"^\s+\d+: (?:[0-9a-f]{8} ?){1,2}\s+(\S.*)$", line)
        if match:
            words += parse_instruction(match[1].split(" ; ")[0])
    return np.array(words, np.uint32)


def around(image: ProgramImage, pc: int, before: int = 2) -> str | None:
    """Return the instructions that end at code word index `pc`, the last one marked, or None if there is no such place.

    A vector operation counts as passed while it runs, so what stopped a PE is the marked instruction or the one before.
    """
    decoded = list(isa.decode(image.code))
    places = [at for at, *_ in decoded]
    if pc not in places:
        return None
    k = places.index(pc)
    lines = []
    for at, op, a, b, c, d, imm in decoded[max(0, k - before) : k + 1]:
        known = [(where, name) for name, where in image.labels.items() if where <= at and not name.startswith(".")]
        where, name = max(known, default=(0, "code"))
        lines.append(
            f"{'>' if at == pc else ' '} {name} + {at - where}: {format_instruction(op, a, b, c, d, imm)}"
            f"{_remark(image, op, imm)}"
        )
    return "\n".join([f"program {image.name!r}, main thread:", *lines])


def describe(row: Any, image: ProgramImage | None = None) -> str:
    """Return a descriptor (one record of `DESC_DTYPE`) as text."""
    kind = im.DSD_KINDS[int(row["kind"])] if row["kind"] < len(im.DSD_KINDS) else f"kind {row['kind']}"
    n = max(1, int(row["ndim"]))
    extents = ["endless" if e == im.ENDLESS else str(e) for e in row["extent"][:n].tolist()]
    parts = [kind, "x".join(extents)]
    if kind in ("fabin", "fabout"):
        colors = () if image is None else image.inq_color if kind == "fabin" else image.outq_color
        queue = int(row["queue"])
        color = f" (color {colors[queue]})" if queue < len(colors) else ""
        parts.append(f"queue {queue % N_QUEUES}{color}")
    else:
        parts.append(f"at {_name_of(int(row['base']), image)}")
        if kind in ("mem1d", "mem4d"):
            parts.append("stride " + ", ".join(map(str, row["stride"][:n].tolist())))
    if kind in ("circular", "fifo"):
        parts.append(
            f"length {row['length']}" + (f" start {row['index']}" if kind == "circular" else f" fifo {row['xdsr']}")
        )
    flags = [
        text
        for bit, text in (
            (im.F_SAVE, "save"),
            (im.F_INDEX, "index"),
            (im.F_CONTROL, "control"),
            (im.F_ADVANCE, "advance_switch"),
            (im.F_ZERO, "zero"),
            (im.F_PACKED, "packed"),
            (im.F_TERMINATE, "terminate"),
            (im.F_FLUSH, "flush"),
        )
        if row["flags"] & bit
    ]
    parts += flags
    for bit, text in ((im.ON_TERMINATE, "terminate"), (im.ON_ACTIVATE, "activate"), (im.ON_UNBLOCK, "unblock")):
        if row["on_control"] & bit:
            parts.append(f"on control {text}" + (f" {row['control_task']}" if bit != im.ON_TERMINATE else ""))
    for key in ("push_task", "pop_task"):
        if kind == "fifo" and row[key] != im.NO_TASK:
            parts.append(f"{key[:-5]} activates {row[key]}")
    return " ".join(parts)


def _name_of(address: int, image: ProgramImage | None) -> str:
    for symbol in image.symbols.values() if image is not None else ():
        if symbol.address <= address < symbol.address + symbol.words:
            offset = address - symbol.address
            return f"{symbol.name} + {offset}" if offset else symbol.name
    return f"{address:#x}"


def _remark(image: ProgramImage, op: Op, imm: int | None) -> str:
    if imm is None:
        return ""
    if op.name == "dsr_load" and imm < len(image.descriptors):
        return f" ; {describe(image.descriptors[imm], image)}"
    if (op.form == "jmp" and op.name != "trap") or op.form == "br":
        names = [name for name, at in image.labels.items() if at == imm]
        return f" ; {names[0]}" if names else ""
    if op.form in ("ld", "st") or op.name == "dsr_base":
        name = _name_of(imm, image)
        return "" if name.startswith("0x") else f" ; {name}"
    return ""

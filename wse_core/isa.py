"""The one op table: every instruction a PE executes, with operands, SIMD lanes, cost class, unit and source.

The table feeds the assembler, the decoder, the disassembler, the compiled engine (``opcodes.pxd`` is generated from it
at build time, the cost and lane arrays at run time), the plain-Python reference, the support matrix in
``docs/accuracy.md`` and the tests.  This module imports only `wse_core.encoding`, so that the build can load it.

Encoding (ours; the machine's is not public).  An instruction is one 32-bit word, optionally followed by a 32-bit
extension word: it takes 2 or 4 SRAM words.

==========  ======  =============================================================================================
bits        field   meaning
==========  ======  =============================================================================================
31 .. 25    op      op code
24          ext     an extension word follows
23 .. 18    a       destination operand
17 .. 12    b       first source operand
11 .. 6     c       second source operand
5 .. 0      d       third source operand (multiplier of a multiply-add), or a condition
==========  ======  =============================================================================================

An operand is ``file << 4 | id``: file 0 = dest DSR, 1 = src0 DSR, 2 = src1 DSR, 3 = register.  An ALU instruction whose
operands are all registers is scalar; its extension word, if any, replaces source c by an immediate (field c is then 0:
a dest DSR is never a source).  With at least one DSR (any file as destination, src0 or src1 as source) it is a vector
operation; its extension word, if any, makes it asynchronous and carries the attributes of `ASYNC`.

Sources: arch §4.2 (SIMD widths), §4.3 (vector builtins), §3 (scalar).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from wse_core.encoding import (
    ASYNC,
    CONDITIONS,
    FILE_DEST,
    FILE_REG,
    FILE_SRC0,
    FILE_SRC1,
    FILES,
    FORMS,
    N_REGS,
    RETURN_DEPTH,
    UT_DERIVED,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "AGAIN",
    "ASYNC",
    "BY_NAME",
    "CONDITIONS",
    "FILES",
    "FILE_DEST",
    "FILE_REG",
    "FILE_SRC0",
    "FILE_SRC1",
    "FORMS",
    "N_REGS",
    "OPS",
    "RETURN_DEPTH",
    "SLOTS",
    "UNSUPPORTED",
    "Op",
    "again_register",
    "again_word",
    "async_fields",
    "async_word",
    "decode",
    "encode",
    "is_vector",
    "opcodes_pxd",
]

NONE = 0  # operand field of an absent operand in non-ALU forms

WORDS = {"h": 1, "i": 1, "s": 2, "l": 2, "-": 0}
"""An element takes so many SRAM words: h = 16-bit float of the program, i = 16-bit integer, s = fp32, l = 32-bit word.
"""


@dataclass(frozen=True)
class Op:
    """An `Op` is the row of one instruction in the op table.

    Attributes
    ----------
    name, code : str, int
    form : str
        ``alu`` (a, b, c, d operands), or the name of the special form (see `FORMS`).
    types : str
        For ``alu``: element types of a, b, c, d in letters of `WORDS`; ``-`` = operand absent.
    lanes : tuple[int, int]
        SIMD elements per cycle (wse2, wse3); 0 = no vector form.
    cost : str
        Cost class: ``int``, ``pair``, ``fp``, ``load``, ``divide``, ``branch``, ``branch32``, ``call``, ``ret``,
        ``dsr_load``, ``dsr_edit``, ``tsc``, ``config``.
    source, doc : str
    """

    name: str
    code: int
    form: str
    types: str
    lanes: tuple[int, int]
    cost: str
    source: str
    doc: str

    @property
    def is_mac(self) -> bool:
        """Whether the op multiplies and accumulates (a = b + c * d)."""
        return self.types[3] != "-"

    @property
    def is_counted(self) -> bool:
        """Whether executions of the scalar op are counted by its code (`wse_core.work`); of the others, which compute
        nothing and take a slot each, it is enough to know how many there are.
        """
        return self.form not in ("none", "dfilt", "ldi", "jmp", "task") and self.name != "dsr_load"


SLOTS = {
    "pair": "ce.pair",
    "branch32": "ce.branch32",
    "divide": "ce.divide",
    "dsr_edit": "ce.dsr_edit",
    "tsc": "ce.tsc_read",
    "config": "ce.config",
}
"""The number of the machine that says how long a scalar instruction of a cost class keeps the pipeline; others keep it
a cycle."""

_T = "arch §4.2"
# fmt: off
_ROWS: list[tuple[Any, ...]] = [
    # name, form, types (a b c d), lanes, cost, source, doc
    ("nop", "none", "----", (0, 0), "int", "arch §3", "nothing, one cycle"),
    ("add16", "alu", "iii-", (4, 8), "int", _T, "a = b + c modulo 2^16"),
    ("sub16", "alu", "iii-", (4, 8), "int", _T, "a = b - c modulo 2^16"),
    ("mul16", "alu", "iii-", (0, 0), "int", "arch §3 (IMUL16)", "a = low half of b * c"),
    ("and16", "alu", "iii-", (4, 8), "int", _T, "a = b and c"),
    ("or16", "alu", "iii-", (4, 8), "int", _T, "a = b or c"),
    ("xor16", "alu", "iii-", (4, 8), "int", _T, "a = b exclusive or c"),
    ("sll16", "alu", "iii-", (1, 4), "int", _T, "a = b << (c and 15)"),
    ("slr16", "alu", "iii-", (1, 4), "int", _T, "a = b >> (c and 15), zeros in"),
    ("sar16", "alu", "iii-", (1, 4), "int", _T, "a = b >> (c and 15), sign in"),
    ("mov16", "alu", "ii--", (4, 8), "int", _T, "a = b"),
    ("clz", "alu", "ii--", (1, 1), "int", _T, "a = leading zeros of b; 16 for 0"),
    ("ctz", "alu", "ii--", (1, 1), "int", _T, "a = trailing zeros of b; 16 for 0"),
    ("popcnt", "alu", "ii--", (1, 1), "int", _T, "a = ones in b"),
    ("add32", "alu", "lll-", (0, 0), "pair", "arch §3", "a = b + c modulo 2^32"),
    ("sub32", "alu", "lll-", (0, 0), "pair", "arch §3", "a = b - c modulo 2^32"),
    ("mul32", "alu", "lll-", (0, 0), "pair", "arch §3 (software on the machine)", "a = low half of b * c"),
    ("and32", "alu", "lll-", (0, 0), "pair", "arch §3", "a = b and c"),
    ("or32", "alu", "lll-", (0, 0), "pair", "arch §3", "a = b or c"),
    ("xor32", "alu", "lll-", (0, 0), "pair", "arch §3", "a = b exclusive or c"),
    ("sll32", "alu", "lli-", (0, 0), "pair", "arch §3", "a = b << (c and 31)"),
    ("slr32", "alu", "lli-", (0, 0), "pair", "arch §3", "a = b >> (c and 31), zeros in"),
    ("sar32", "alu", "lli-", (0, 0), "pair", "arch §3", "a = b >> (c and 31), sign in"),
    ("sx32", "alu", "li--", (0, 0), "int", "arch §3", "a = b with its sign extended to 32 bits"),
    ("zx32", "alu", "li--", (0, 0), "int", "arch §3", "a = b with zeros above"),
    ("mov32", "alu", "ll--", (2, 4), "int", _T, "a = b"),
    ("faddh", "alu", "hhh-", (4, 8), "fp", _T, "a = b + c"),
    ("fsubh", "alu", "hhh-", (4, 8), "fp", _T, "a = b - c"),
    ("fmulh", "alu", "hhh-", (4, 8), "fp", _T, "a = b * c"),
    ("fmaxh", "alu", "hhh-", (1, 8), "fp", _T, "a = maximum(b, c), NaN propagates, -0 < +0"),
    ("fminh", "alu", "hhh-", (1, 1), "fp", "arch §3 (FMINS family)", "a = minimum(b, c)"),
    ("fabsh", "alu", "hh--", (4, 8), "fp", _T, "a = b without its sign"),
    ("fnegh", "alu", "hh--", (4, 8), "fp", _T, "a = b with its sign flipped"),
    ("fmovh", "alu", "hh--", (4, 8), "fp", _T, "a = b"),
    ("fscaleh", "alu", "hhi-", (4, 8), "fp", _T, "a = b * 2^c, one rounding; c signed"),
    ("fdivh", "alu", "hhh-", (0, 0), "divide", "arch §3 (FDIVSS family)", "a = b / c"),
    ("fsqrth", "alu", "hh--", (0, 0), "divide", "arch §3 (FSQRS family)", "a = square root of b"),
    ("fmach", "alu", "hhhh", (4, 8), "fp", _T, "a = b + c * d, one rounding"),
    ("fadds", "alu", "sss-", (2, 4), "fp", _T, "a = b + c"),
    ("fsubs", "alu", "sss-", (2, 4), "fp", _T, "a = b - c"),
    ("fmuls", "alu", "sss-", (1, 1), "fp", _T + " by omission; SPMM", "a = b * c"),
    ("fmaxs", "alu", "sss-", (1, 4), "fp", _T, "a = maximum(b, c), NaN propagates, -0 < +0"),
    ("fmins", "alu", "sss-", (1, 1), "fp", "arch §3 (FMINS)", "a = minimum(b, c)"),
    ("fabss", "alu", "ss--", (2, 4), "fp", _T, "a = b without its sign"),
    ("fnegs", "alu", "ss--", (2, 4), "fp", _T, "a = b with its sign flipped"),
    ("fmovs", "alu", "ss--", (2, 4), "fp", _T, "a = b"),
    ("fscales", "alu", "ssi-", (2, 4), "fp", _T, "a = b * 2^c, one rounding; c signed"),
    ("fdivs", "alu", "sss-", (0, 0), "divide", "arch §3 (FDIVSS)", "a = b / c"),
    ("fsqrts", "alu", "ss--", (0, 0), "divide", "arch §3 (FSQRS)", "a = square root of b"),
    ("fmacs", "alu", "ssss", (1, 1), "fp", _T + " by omission; SPMM", "a = b + c * d, one rounding"),
    ("faddhs", "alu", "shs-", (2, 4), "fp", _T, "a = b + c: b 16-bit, c and a fp32"),
    ("fmachs", "alu", "sshh", (2, 4), "fp", _T, "a = b + c * d: c and d 16-bit, b and a fp32"),
    ("fh2s", "alu", "sh--", (1, 4), "fp", _T, "a = fp32 of b, exact; b 16-bit"),
    ("fs2h", "alu", "hs--", (1, 4), "fp", _T, "a = 16-bit float of b, nearest even; b fp32"),
    ("fh2xp16", "alu", "ih--", (1, 8), "fp", _T, "a = signed 16-bit integer of b, toward zero, saturating"),
    ("fs2xp16", "alu", "is--", (1, 4), "fp", _T, "a = signed 16-bit integer of b, toward zero, saturating"),
    ("xp162fh", "alu", "hi--", (1, 8), "fp", _T, "a = 16-bit float of b, signed"),
    ("xp162fs", "alu", "si--", (1, 4), "fp", _T, "a = fp32 of b, signed"),
    ("fs2xp32", "alu", "ls--", (0, 0), "fp", "arch §3", "a = signed 32-bit integer of b, toward zero, saturating"),
    ("xp322fs", "alu", "sl--", (0, 0), "fp", "arch §3 (XP322FS)", "a = fp32 of b, signed"),
    ("dfilt", "dfilt", "-l--", (1, 1), "int", "arch §4.3",
     "discard data wavelets of fabric input b until its extent in control wavelets has been seen; asynchronous only"),
    ("ldi", "ldi", "i---", (0, 0), "int", "arch §3 (MOVRI)", "register a = immediate"),
    ("ldi32", "ldi", "l---", (0, 0), "int", "arch §3 (MOVRI)", "register pair a = immediate"),
    ("ld16", "ld", "i---", (0, 0), "load", "arch §3 (LD)", "register a = word at b + immediate (b absent: immediate)"),
    ("ld32", "ld", "l---", (0, 0), "load", "arch §3 (LD)", "pair a = 32 bits at b + immediate, even address"),
    ("st16", "st", "i---", (0, 0), "int", "arch §3 (ST)", "word at b + immediate = register a"),
    ("st32", "st", "l---", (0, 0), "int", "arch §3 (ST)", "32 bits at b + immediate = pair a, even address"),
    ("br16", "br", "ii--", (0, 0), "branch", "arch §3 (EQ, LT ...; JC)", "branch if a <condition d> b; b absent: 0"),
    ("br32", "br", "ll--", (0, 0), "branch32", "arch §3", "branch if pair a <condition d> pair b; b absent: 0"),
    ("brh", "br", "hh--", (0, 0), "branch", "arch §3", "branch on 16-bit floats: eq ne lt le, quiet; b absent: +0"),
    ("brs", "br", "ss--", (0, 0), "branch", "arch §3", "branch on fp32: eq ne lt le, quiet; b absent: +0"),
    ("jmp", "jmp", "----", (0, 0), "branch", "arch §3 (JMP)", "branch always"),
    ("call", "jmp", "----", (0, 0), "call", "arch §3", "call the immediate address"),
    ("ret", "none", "----", (0, 0), "ret", "arch §3", "return from call"),
    ("done", "none", "----", (0, 0), "int", "arch §6", "end of the task"),
    ("activate", "task", "----", (0, 0), "int", "arch §3, §6", "set the activated bit of task a"),
    ("block", "task", "----", (0, 0), "int", "arch §3, §6", "set the blocked bit of task a; 32 + k: of microthread k"),
    ("unblock", "task", "----", (0, 0), "int", "arch §3, §6", "clear that bit of task a; 32 + k: of microthread k"),
    ("dsr_load", "dsr", "----", (0, 0), "dsr_load", "arch §5.2",
     "DSR a = descriptor number <immediate> of the program, with base word address b if that is a register"),
    ("dsr_base", "dsr", "i---", (0, 0), "dsr_edit", "arch §5.1", "base word address of DSR a = b or immediate"),
    ("dsr_off", "dsr", "i---", (0, 0), "dsr_edit", "arch §5.1", "base of DSR a += b or immediate, signed words"),
    ("dsr_len", "dsr", "i---", (0, 0), "dsr_edit", "arch §5.1", "extent 0 of DSR a = b or immediate"),
    ("dsr_stride", "dsr", "i---", (0, 0), "dsr_edit", "arch §5.1", "stride 0 of DSR a = b or immediate, signed"),
    ("tsc", "tsc", "i---", (0, 0), "tsc", "arch §10.3", "registers a, a+1, a+2 = 48-bit cycle counter, low first"),
    ("rand16", "rand", "i---", (0, 0), "int", "arch §3", "register a = 16 bits of the active random generator"),
    ("prng", "task", "----", (0, 0), "int", "arch §3", "make random generator a (0-3) the active one"),
    ("sw_pos", "route", "----", (0, 0), "config", "arch §8.2", "switch position of color a = immediate"),
    ("route", "route", "----", (0, 0), "config", "arch §8.3",
     "color a: immediate = rx | tx << 5 | position << 10 | mode << 12 changes one position's sets (`ROUTE_MODES`)"),
    ("td_exit", "route", "----", (0, 0), "config", "arch §8.3", "end teardown of color a"),
    ("in_td", "in_td", "i---", (0, 0), "config", "arch §8.3", "register a = 1 if color <immediate> is in teardown"),
    ("flt_set", "flt", "i---", (0, 0), "config", "arch §8.3",
     "filter a: field <immediate> (0 counter, 1 max, 2 limit) = register b"),
    ("q_state", "in_td", "i---", (0, 0), "config", "arch §6",
     "register a = set of queues: <immediate> 0 inputs that are empty, 1 full inputs, 2 empty outputs, 3 full outputs; "
     "4: number of elements that a FIFO left of the main thread's last operation with one, as it ended it"),
    ("trap", "jmp", "----", (0, 0), "int", "this model", "stop with a ProgramFault carrying the immediate"),
]

# fmt: on

OPS = tuple(Op(name, code, *rest) for code, (name, *rest) in enumerate(_ROWS))
BY_NAME = {op.name: op for op in OPS}

ROUTE_MODES = ("set", "rx", "tx", "off", "add", "remove", "toggle", "switch")
"""What a ``route`` does with its sets: they replace those of the position; only rx (or tx) counts and the other one is
that of position 0; the position is no longer valid; they join, leave, or flip in the position's own.  `switch` leaves
all positions as they are: of its inputs bits 0 and 1 are the pop mode and bit 2 the ring mode, of its outputs bit 0
says that the pop mode is meant and bit 1 that the ring mode is."""

UNSUPPORTED = {
    "addc16": "how the carry of a vector form chains is not public",
    "fnormh": "normalisation is not defined in public documents (numerics.md)",
    "fnorms": "normalisation is not defined in public documents (numerics.md)",
    "map": "a compiler construct: write the loop, or a multiply-add of DSRs with again=register",
    "simd_64": "fabric operands that take two wavelets a step are not modelled",
    "control_transform": "which bits it writes is not public",
    "sparse_counter": "public is when it is off for good, not what passes then; no public program has one",
    "swap_one_axis_one_color": "what comes would be received on both colors of the pair; no public program has it",
    "stochastic_rounding": "known from a patent only",
}
"""What the real machine or its language has and this model refuses, with the reason (support matrix)."""

PRIORITIES = ("low", "medium", "high")


def async_word(
    priority: str = "medium", ut: int | None = None, activate: int | None = None, unblock: int | None = None
) -> int:
    """Return the extension word of an asynchronous vector operation."""
    fields = {"async": 1, "priority": PRIORITIES.index(priority), "ut": UT_DERIVED if ut is None else ut}
    if activate is not None:
        fields |= {"has_activate": 1, "activate": activate}
    if unblock is not None:
        fields |= {"has_unblock": 1, "unblock": unblock}
    return sum(value << ASYNC[name][0] for name, value in fields.items())


AGAIN = 1
"""A synchronous vector operation that is done again and again has this bit in its extension word, which is even."""


def again_word(register: int) -> int:
    """Return the extension word of a synchronous vector operation that is done as often as a register says.

    Each time it issues it takes 1 from the register, and it issues again as long as 1 or more is left.
    """
    return 1 << AGAIN | register << AGAIN + 1


def again_register(word: int | None) -> int | None:
    """Return the register that says how often a synchronous vector operation is done, None for once."""
    return None if word is None or word & 1 or not word >> AGAIN & 1 else word >> AGAIN + 1


def async_fields(word: int) -> dict[str, Any]:
    """Return the attributes in `word` as a dict (inverse of `async_word`)."""
    get = {key: word >> low & (1 << bits) - 1 for key, (low, bits) in ASYNC.items()}
    return {
        "priority": PRIORITIES[get["priority"]],
        "ut": None if get["ut"] == UT_DERIVED else get["ut"],
        "activate": get["activate"] if get["has_activate"] else None,
        "unblock": get["unblock"] if get["has_unblock"] else None,
    }


def is_vector(op: Op, a: int, b: int, c: int) -> bool:
    """Whether an instruction with these operand fields is a vector operation (False for what is not an ALU op)."""
    if op.form not in ("alu", "dfilt"):
        return False
    sources = [field for field, letter in ((b, op.types[1]), (c, op.types[2])) if letter != "-"]
    return (op.types[0] != "-" and a >> 4 != FILE_REG) or any(f >> 4 in (FILE_SRC0, FILE_SRC1) for f in sources)


CODE_AT = 25
"""The op code of an instruction begins at this bit of its word."""


def encode(op: Op, a: int = 0, b: int = 0, c: int = 0, d: int = 0, imm: int | None = None) -> list[int]:
    """Return the list of one or two 32-bit words of an instruction."""
    if (a | b | c | d) & ~63:
        field = next(field for field in (a, b, c, d) if field & ~63)
        raise ValueError(f"operand field {field} of {op.name} does not fit 6 bits")
    word = op.code << CODE_AT | (imm is not None) << 24 | a << 18 | b << 12 | c << 6 | d
    return [word] if imm is None else [word, imm & 0xFFFFFFFF]


Decoded = tuple[int, Op, int, int, int, int, int | None]
"""A decoded instruction is ``(word_index, op, a, b, c, d, imm or None)``."""


def decode(words: Sequence[int] | NDArray[Any]) -> tuple[Decoded, ...]:
    """Return the instructions in a sequence of 32-bit words."""
    return _decoded(tuple(words.tolist() if hasattr(words, "tolist") else map(int, words)))


@lru_cache(maxsize=64)
def _decoded(words: tuple[int, ...]) -> tuple[Decoded, ...]:
    """Return the same as `decode`, kept, because a layout and the engine of each wafer read the same programs one after
    another.
    """
    found: list[Decoded] = []
    index, count = 0, len(words)
    while index < count:
        word = words[index]
        code = word >> CODE_AT
        if code >= len(OPS):
            raise ValueError(f"word {index}: {word:#010x} has no op code")
        at, imm = index, None
        index += 1
        if word >> 24 & 1:
            if index >= count:
                raise ValueError(f"word {at}: the extension word is missing")
            imm = words[index]
            index += 1
        found.append((at, OPS[code], word >> 18 & 63, word >> 12 & 63, word >> 6 & 63, word & 63, imm))
    return tuple(found)


def opcodes_pxd() -> str:
    """Return the text of ``opcodes.pxd``: the op codes as C constants."""
    lines = ["# Generated from wse_core/isa.py by setup.py; do not edit.", "cdef enum:"]
    lines += [f"    OP_{op.name.upper()} = {op.code}" for op in OPS]
    lines += [f"    N_OPS = {len(OPS)}", ""]
    return "\n".join(lines)

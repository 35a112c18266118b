"""Programs of one PE: a Python API that assembles to a `wse_core.image.ProgramImage`.

The concepts are those of CSL, one to one: variables in SRAM, tasks (data, local, control), colors, input and output
queues, DSDs, DSRs, microthreads.  A `Program` collects symbolic instructions; `Program.assemble` picks ids, lays out
code and data and encodes.  One method per row of the op table (`wse_core.isa.OPS`) exists; its docstring is made from
the table.

What the assembler decides, and how:

* *DSRs.*  A descriptor given straight to an operation is loaded right before it, one ``dsr_load`` each.  First sources
  of two-source operations go to file src0, every other source to src1, destinations to dest; an operation whose
  destination is its first source uses one src0 DSR for both.  On WSE-2 a dest DSR and a src0 DSR of one operation carry
  the same id.  Synchronous operations share one id; each microthread has its own, so that a running operation is never
  waited for by another one unless that needs the same microthread anyway.
* *Task ids.*  Local tasks take the lowest free of 24, 25, 26, 27, 28, 30, then colors without an input queue from 23
  down.  29 is the teardown task, 31 is no task.
* *Registers.*  Those of a task are free again at its end, those of a function never overlap with anything.  A data or
  control task finds the data half of its wavelet in R0 and the index half in R1.
* *Scalars.*  An immediate that an instruction cannot hold goes through a register that is free again after it.
* *SRAM.*  Code from word 0, then variables in the order of their declaration, each at the first address that its
  alignment and bank allow.

Timing: none here; costs of what is emitted stand in docs/machine.md.
Sources: arch §4 to §7 (vendor documentation of CSL); the encoding is `wse_core.isa`.
"""
from __future__ import annotations

import dataclasses
import math
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from wse_core import image as im
from wse_core import isa
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.image import ENDLESS, NO_TASK, ProgramImage, Symbol
from wse_core.params import PARAMETERS
from wse_core.params import machine as _machine

__all__ = ["ENDLESS", "Async", "Dsd", "Dsr", "Label", "Program", "Queue", "Reg", "Task", "Var", "decode_array",
           "encode_array"]

_WORDS = {"f16": 1, "cb16": 1, "i16": 1, "u16": 1, "f32": 2, "i32": 2, "u32": 2}
_LETTER = {"f16": "h", "cb16": "h", "i16": "i", "u16": "i", "f32": "s", "i32": "l", "u32": "l"}
_LETTER_NAME = {"h": "16-bit float", "i": "16-bit integer", "s": "f32", "l": "32-bit integer"}
_NUMPY = {"f16": np.float16, "cb16": np.uint16, "f32": np.float32, "i16": np.int16, "u16": np.uint16,
          "i32": np.int32, "u32": np.uint32}
_MOVES = frozenset({"mov16", "mov32"})  # copies of bits: any element type of the right size
_COMMUTE = frozenset(("add16", "mul16", "and16", "or16", "xor16", "add32", "mul32", "and32", "or32", "xor32", "faddh",
                      "fmulh", "fmaxh", "fminh", "fadds", "fmuls", "fmaxs", "fmins"))
_INVERSE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "ltu": "geu", "geu": "ltu",
            "leu": "gtu", "gtu": "leu"}
_SWAPPED = {"gt": "lt", "ge": "le", "gtu": "ltu", "geu": "leu"}
_KINDS = {"16": ("br16", "i"), "32": ("br32", "l"), "h": ("brh", "h"), "s": ("brs", "s")}
_N_DATA_IDS = 24  # ids 0 .. 23 are colors (arch §6)
_LOCAL_IDS = (24, 25, 26, 27, 28, 30, *range(_N_DATA_IDS - 1, -1, -1))
_HERE = os.path.splitext(__file__)[0]


# --- host values and SRAM words ---------------------------------------------------------------------------------------

def encode_array(values, dtype, bias=None, what="value"):
    """Return `values` as SRAM words.

    Parameters
    ----------
    values : array_like
        Numbers.  A numpy array of the unsigned type of the element's size (uint16 or uint32) given for a float type
        is taken as bit patterns.
    dtype : str
        ``f16``, ``cb16``, ``f32``, ``i16``, ``u16``, ``i32`` or ``u32``.
    bias : int, optional
        Exponent bias of cb16; default that of the presets.
    what : str
        Name for messages.

    Returns
    -------
    ndarray[uint16]
        Shape of `values` with the last axis doubled for 32-bit types; a scalar counts as shape (1,).

    Raises
    ------
    ProgramError
        Integer out of range, a complex or otherwise unfit value.
    """
    raw = isinstance(values, np.ndarray) and values.dtype == np.dtype(f"u{2 * _WORDS[dtype]}")
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "fiub":
        raise ProgramError(f"{what}: {array.dtype} is not a kind of number that {dtype} can hold")
    if dtype in ("f16", "f32", "cb16"):
        if raw:
            bits = array
        elif dtype == "cb16":
            from wse_core import numerics

            bias = PARAMETERS["num.cb16_bias"].value if bias is None else bias
            bits = np.asarray(numerics.encode(array.astype(np.float64), "cb16", bias), np.uint16).reshape(array.shape)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                bits = array.astype(_NUMPY[dtype])
    else:
        if array.dtype.kind == "f":
            raise ProgramError(f"{what}: floating point given for {dtype}", hint="convert it with numpy first")
        info = np.iinfo(_NUMPY[dtype])
        if array.size and not (array.min() >= info.min and array.max() <= info.max):
            bad = array[(array < info.min) | (array > info.max)].flat[0]
            raise ProgramError(f"{what}: {bad} is outside {info.min} .. {info.max} of {dtype}")
        bits = array.astype(_NUMPY[dtype])
    return np.ascontiguousarray(bits).astype(bits.dtype.newbyteorder("<"), copy=False).view("<u2").astype(np.uint16,
                                                                                                          copy=False)


def decode_array(words, dtype):
    """Return SRAM words as numbers; inverse of `encode_array`, except that cb16 stays as bit patterns (uint16)."""
    words = np.ascontiguousarray(words, dtype="<u2")
    return words.view(np.dtype(_NUMPY[dtype]).newbyteorder("<")).astype(_NUMPY[dtype], copy=False)


# --- the things a program is made of ----------------------------------------------------------------------------------

@dataclass(frozen=True)
class Reg:
    """A register: `id` 0 .. 15, `size` 1 (16 bits), 2 (an even/odd pair) or 0 (named by number, either)."""

    id: int
    size: int = 0
    name: str = ""

    @property
    def low(self):
        """Low half of a pair."""
        return Reg(self.id, 1, f"{self.name}.low")

    @property
    def high(self):
        """High half of a pair."""
        return Reg(self.id + 1, 1, f"{self.name}.high")

    def __str__(self):
        text = f"r{self.id}" if self.size < 2 else f"r{self.id}:r{self.id + 1}"
        return f"{text} ({self.name})" if self.name else text


class _Registers:
    """``p.r[3]``: a register by number."""

    def __getitem__(self, number):
        if not isinstance(number, int) or not 0 <= number < isa.N_REGS:
            raise ProgramError(f"register {number!r} does not exist", hint=f"p.r[0] .. p.r[{isa.N_REGS - 1}]")
        return Reg(number)


class Label:
    """A place in the code; made by `Program.label` (here) or `Program.new_label` (to be placed later)."""

    def __init__(self, name):
        self.name = name
        self.at = None  # index into the instruction list

    def __repr__(self):
        return f"Label({self.name!r})"


@dataclass(frozen=True)
class Address:
    """SRAM address of a variable plus `offset` words; becomes a number when the program is assembled."""

    var: Var
    offset: int = 0

    @property
    def words(self):
        """Words per element of the variable."""
        return self.var.words_per_element

    def __add__(self, words):
        return Address(self.var, self.offset + words)


class Var:
    """A variable in SRAM: `name`, `count` elements of `dtype`.

    ``var[3]`` is the address of an element, ``var[2:10:2]`` a one-dimensional descriptor.  `address` (in words) is
    known once the program is assembled.
    """

    def __init__(self, program, name, count, dtype, align, bank, words):
        self._program = program
        self.name, self.count, self.dtype = name, count, dtype
        self.align, self.bank, self.init = align, bank, words
        self._address = None

    @property
    def words_per_element(self):
        """SRAM words of one element, 1 or 2."""
        return _WORDS[self.dtype]

    @property
    def words(self):
        """SRAM words taken."""
        return self.count * self.words_per_element

    @property
    def address(self):
        """Word address; assembles the program if that has not happened."""
        if self._address is None:
            self._program.assemble()
        return self._address

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        if isinstance(key, slice):
            indices = range(self.count)[key]
            return self._program.mem1d(self, len(indices), stride=indices.step, offset=indices.start)
        index = key + self.count if key < 0 else key
        if not 0 <= index < self.count:
            raise ProgramError(f"element {key} is outside 0 .. {self.count - 1}", program=self._program.name,
                               symbol=self.name)
        return Address(self, index * self.words_per_element)

    def __iter__(self):
        raise TypeError("a variable of a PE program cannot be iterated; its values exist only on the PE")

    def __repr__(self):
        return f"Var({self.name!r}, {self.count} x {self.dtype})"


@dataclass(frozen=True)
class Queue:
    """An input or output queue bound to a color."""

    kind: str  # "input" or "output"
    id: int
    color: int


@dataclass(frozen=True)
class Dsd:
    """A descriptor: an immutable value that operations take or that `Program.load` puts into a DSR.

    Made by the methods of `Program` (`mem1d`, `mem4d`, `circular`, `fifo`, `fabin`, `fabout`).
    """

    kind: str
    dtype: str | None = None
    extent: tuple | None = None  # None: as long as the other operands
    stride: tuple = (0,)
    base: Address | None = None
    queue: Queue | None = None
    packed: bool | None = None
    flags: int = 0
    index: int | None = None  # fabout: index half; circular: first element
    length: int = 0
    fifo: int = 0
    on_control: tuple = ()
    control_task: object = None
    push_task: object = None
    pop_task: object = None

    def with_extent(self, extent):
        """Return the same descriptor with another (outermost) extent."""
        return dataclasses.replace(self, extent=(_extent(extent, "extent"), *(self.extent or (0,))[1:]))

    def at(self, offset):
        """Return a memory descriptor moved by `offset` elements."""
        if self.base is None:
            raise ProgramError(f"a {self.kind} descriptor has no base address to move")
        return dataclasses.replace(self, base=self.base + offset * self.base.words)

    @property
    def is_fabric(self):
        """Whether it is a fabin or a fabout."""
        return self.queue is not None

    @property
    def is_memory(self):
        """Whether it walks over a variable (mem1d, mem4d, circular)."""
        return self.kind in ("mem1d", "mem4d", "circular")

    @property
    def elements(self):
        """Number of elements: the product of the extents, None if not said."""
        return None if self.extent is None else math.prod(self.extent)

    def __str__(self):
        what = f" of {self.base.var.name!r}" if self.base is not None else ""
        if self.queue is not None:
            what = f" on {self.queue.kind} queue {self.queue.id}, color {self.queue.color}"
        return f"{self.kind}{what}"


class Dsr:
    """A data structure register: `file` (dest, src0, src1) and `id` (known after assembling if not chosen)."""

    def __init__(self, program, file, id, name, where):
        self._program = program
        self.file, self._id, self.name, self.where = file, id, name, where
        self.chosen = id is not None
        self.loads = []  # descriptors ever loaded
        self.group = self  # union-find: DSRs that must carry one id
        self.thread = None  # for those made by the assembler: class of id

    @property
    def id(self):
        """Number in its file; assembles the program if that has not happened."""
        if self._id is None:
            self._program.assemble()
        return self._id

    def __str__(self):
        return f"{self.file} DSR {self.name or ('?' if self._id is None else self._id)}"


@dataclass(frozen=True)
class Async:
    """Attributes of an asynchronous operation; see `Program.async_`."""

    priority: str = "medium"
    ut: int | None = None
    activate: object = None
    unblock: object = None


class Task:
    """A task: its body is emitted inside ``with p.task(...) as t``.

    Attributes
    ----------
    data, index : Reg
        R0 and R1: halves of the wavelet that started a data or control task.
    word : Reg
        R0 and R1 as a pair: all 32 bits.
    id : int
        Task id; known after assembling if not chosen.
    """

    data, index, word = Reg(0, 1, "data"), Reg(1, 1, "index"), Reg(0, 2, "word")

    def __init__(self, program, name, kind, id, high, where):
        self._program = program
        self.name, self.kind, self._id, self.high, self.where = name, kind, id, high, where
        self.label = None

    @property
    def id(self):
        """Task id; assembles the program if that has not happened."""
        if self._id is None:
            self._program.assemble()
        return self._id

    def __repr__(self):
        return f"Task({self.name!r}, {self.kind})"


@dataclass(slots=True, eq=False)
class _Ins:
    """One symbolic instruction: operand fields are ints or `Dsr`, imm is whatever `Program._resolve` understands."""

    op: isa.Op
    a: object = 0
    b: object = 0
    c: object = 0
    d: object = 0
    imm: object = None
    where: str = ""
    body: str = ""


@dataclass(slots=True)
class _Body:
    """The task or function that is being written."""

    name: str
    kind: str
    regs: list


@dataclass(slots=True)
class _TaskRef:
    task: object
    use: str


def _extent(value, what):
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= value <= 0xFFFF:
        raise ProgramError(f"{what} {value!r} is not a number of elements in 0 .. {0xFFFF}",
                           hint=f"ENDLESS ({ENDLESS}) for an operation that never ends")
    return int(value)


def _is_number(value):
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


class Program:
    """A PE program.

    Parameters
    ----------
    name : str
        For messages and listings.
    machine : Machine, optional
        `wse_core.params.machine()`; default wse2.
    half : {"f16", "cb16"}
        What a 16-bit float is in this program.
    main_priority : {"medium_low", "medium", "medium_high", "high"}
        Issue level of the main thread relative to microthreads.

    Examples
    --------
    >>> p = Program("double")
    >>> a = p.array("a", 8, "f32")
    >>> with p.task("main"):
    ...     p.fadds(a, a, a)
    >>> image = p.assemble()
    >>> image.symbols["a"].count
    8
    """

    def __init__(self, name, machine=None, half="f16", main_priority="medium_low"):
        self.name = str(name)
        self.machine = _machine() if machine is None else machine
        if half not in ("f16", "cb16"):
            raise ProgramError(f"half {half!r} is not a 16-bit float", program=name, hint='"f16" or "cb16"')
        if main_priority not in im.MAIN_PRIORITY:
            raise ProgramError(f"main_priority {main_priority!r} is unknown", program=name,
                               hint=", ".join(im.MAIN_PRIORITY))
        self.half, self.main_priority = half, main_priority
        self.r = _Registers()
        self._wse2 = self.machine.preset == "wse2"
        self._preset = 0 if self._wse2 else 1
        self._ins, self._vars, self._labels = [], {}, {}
        self._tasks, self._functions = {}, {}
        self._queues = {"input": {}, "output": {}}
        self._dsrs, self._fifos = [], 0
        self._body = None
        self._global_regs, self._function_regs, self._task_regs = set(), set(), set()
        self._starts, self._blocks, self._unblocks, self._high = [], [], [], []
        self._last_if = None
        self._n_labels = 0
        self._image = None

    def __repr__(self):
        return f"Program({self.name!r}, {len(self._ins)} instructions)"

    # --- errors ---------------------------------------------------------------------------------------------------

    def _where(self):
        """Return ``file:line`` of the caller outside this module and contextlib."""
        frame = sys._getframe(1)
        while frame is not None and (frame.f_code.co_filename.startswith((_HERE, "<string>"))
                                     or frame.f_code.co_filename.endswith("contextlib.py")):
            frame = frame.f_back
        return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else None

    def _error(self, what, hint=None, ins=None, **fields):
        where = fields.pop("where", ins.where if ins is not None else self._where())
        body = ins.body if ins is not None else self._body.name if self._body else None
        index = self._ins.index(ins) if ins is not None else len(self._ins) if self._body else None
        return ProgramError(what, hint=hint, where=where, program=self.name, task=body, instruction=index, **fields)

    def _unsupported(self, feature, what=None):
        return UnsupportedError(f"{what or feature} is not modelled", feature=feature, cause=isa.UNSUPPORTED[feature],
                                where=f"program {self.name!r}, {self._where()}")

    def _changing(self):
        if self._image is not None:
            raise self._error("the program is assembled and cannot be changed any more",
                              hint="write everything before assemble(), Var.address or Layout.build()")

    # --- SRAM -----------------------------------------------------------------------------------------------------

    def array(self, name, count, dtype, init=None, align=None, bank=None):
        """Declare a variable of `count` elements.

        Parameters
        ----------
        name : str
            Symbol; the host reads and writes by it.
        count : int
        dtype : str
            ``f16``, ``cb16``, ``f32``, ``i16``, ``u16``, ``i32``, ``u32``, or ``half`` for the program's 16-bit float.
        init : array_like, optional
            Initial values, fewer than `count` leaves zeros; see `encode_array`.
        align : int, optional
            The address is a multiple of this many words; default 2 for 32-bit types, else 1.
        bank : int, optional
            The address modulo the number of banks; two sources whose banks agree modulo 4 conflict (docs/machine.md).

        Returns
        -------
        Var

        Raises
        ------
        ProgramError
            Name taken, unknown type, impossible alignment, initial values that do not fit.
        """
        return self._variable(name, count, dtype, init, align, bank)

    def scalar(self, name, dtype, init=None, bank=None):
        """Declare a variable of one element; see `array`."""
        return self._variable(name, 1, dtype, init, None, bank)

    def param(self, name, dtype, default=0, count=1):
        """Declare a parameter: a variable that `Layout.set_param` sets per PE before the run.

        Parameters
        ----------
        name, dtype : str
        default : number or array_like
            Value where the layout sets none.
        count : int
            Elements, 1 for a scalar.
        """
        return self._variable(name, count, dtype, default, None, None)

    def _variable(self, name, count, dtype, init, align, bank):
        self._changing()
        dtype = self.half if dtype == "half" else dtype
        if name in self._vars:
            raise self._error("a variable of this name exists already", symbol=name)
        if dtype not in _WORDS:
            raise self._error(f"unknown element type {dtype!r}", symbol=name, hint=", ".join([*_WORDS, "half"]))
        if dtype in ("f16", "cb16") and dtype != self.half:
            raise self._error(f"{dtype} in a program whose 16-bit float is {self.half}", symbol=name,
                              hint=f"Program(..., half={dtype!r}); a PE has one 16-bit float format at a time")
        if not isinstance(count, (int, np.integer)) or count < 1:
            raise self._error(f"{count!r} is not a number of elements", symbol=name)
        align = align or _WORDS[dtype]
        banks = self.machine["mem.banks"]
        if align % _WORDS[dtype]:
            raise self._error(f"alignment {align} does not fit {dtype}, which needs even addresses", symbol=name)
        if bank is not None:
            if not 0 <= bank < banks:
                raise self._error(f"bank {bank} is outside 0 .. {banks - 1}", symbol=name)
            if bank % math.gcd(align, banks):
                raise self._error(f"no address is a multiple of {align} and {bank} modulo {banks}", symbol=name)
        words = None
        if init is not None:
            words = encode_array(init, dtype, self.machine["num.cb16_bias"], f"initial value of {name!r}").ravel()
            if len(words) > count * _WORDS[dtype]:
                raise self._error(f"{len(words) // _WORDS[dtype]} initial values for {count} elements", symbol=name)
        self._vars[name] = var = Var(self, name, int(count), dtype, align, bank, words)
        return var

    # --- queues ---------------------------------------------------------------------------------------------------

    def input_queue(self, q, color):
        """Bind input queue `q` to `color` and return the `Queue`.

        Raises
        ------
        ProgramError
            Queue or color does not exist, or one of the two is bound already.
        """
        return self._queue("input", q, color)

    def output_queue(self, q, color):
        """Bind output queue `q` to `color` and return the `Queue`; errors as `input_queue`."""
        return self._queue("output", q, color)

    def _queue(self, kind, q, color):
        self._changing()
        depths = self.machine["queue.in_depth" if kind == "input" else "queue.out_depth"]
        exist = [i for i, depth in enumerate(depths) if depth]
        if q not in exist:
            raise self._error(f"{kind} queue {q!r} does not exist on {self.machine.preset}",
                              hint=f"queues {exist[0]} .. {exist[-1]}")
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.machine["router.colors"]:
            raise self._error(f"color {color!r} of {kind} queue {q} is not routable",
                              hint=f"colors 0 .. {self.machine['router.colors'] - 1}")
        bound = self._queues[kind]
        if q in bound:
            raise self._error(f"{kind} queue {q} is bound twice, to colors {bound[q].color} and {color}")
        for other in bound.values():
            if other.color == color:
                raise self._error(f"color {color} is bound to two {kind} queues, {other.id} and {q}")
        bound[q] = Queue(kind, q, int(color))
        return bound[q]

    def _find_queue(self, kind, source):
        if isinstance(source, Queue):
            if self._queues[source.kind].get(source.id) is not source:
                raise self._error(f"{source} belongs to another program")
            if source.kind != kind:
                raise self._error(f"an {source.kind} queue given where an {kind} queue belongs")
            return source
        for queue in self._queues[kind].values():
            if queue.color == source:
                return queue
        raise self._error(f"no {kind} queue is bound to color {source!r}",
                          hint=f"p.{kind}_queue(q, {source!r}) first; a plain number is a color, a queue is the object "
                               "that this call returns")

    # --- descriptors ----------------------------------------------------------------------------------------------

    def mem1d(self, var, extent=None, stride=1, offset=0, save=False, index=False, dtype=None, check=True):
        """Describe a one-dimensional walk over a variable.

        Parameters
        ----------
        var : Var
        extent : int, optional
            Elements; default all from `offset` on in steps of `stride`, for stride 0 as many as the operation has.
        stride, offset : int
            Elements; the stride is a signed byte.
        save : bool
            The DSR keeps the advanced base after an operation (save_address); needs an explicit DSR.
        index : bool
            The index half of each wavelet of the source is added to the word address (wavelet_index_offset).
        dtype : str, optional
            Another element type of the same size (a view).
        check : bool
            Refuse walks that leave the variable.
        """
        dtype = self._view(var, dtype)
        if not -128 <= stride <= 127:
            raise self._error(f"stride {stride} of a one-dimensional descriptor is outside -128 .. 127",
                              symbol=var.name, hint="p.mem4d takes strides of 16 bits")
        if extent is None and stride:
            room = var.count - offset if stride > 0 else offset + 1
            extent = max(0, -(-room // abs(stride)))
        if extent is not None:
            extent = _extent(extent, f"extent of {var.name!r}")
            if check and not index and extent not in (0, ENDLESS):
                self._inside(var, offset, offset + (extent - 1) * stride)
        flags = im.F_SAVE * bool(save) | im.F_INDEX * bool(index)
        return Dsd("mem1d", dtype, None if extent is None else (extent,), (stride,),
                   Address(var, offset * var.words_per_element), flags=flags)

    def mem4d(self, var, extents, strides=None, offset=0, dtype=None, check=True):
        """Describe a walk in up to four dimensions, outermost first.

        Parameters
        ----------
        var : Var
        extents : sequence of int
        strides : sequence of int, optional
            Elements per dimension; default row-major and dense.  At most three may differ from 1.
        offset : int
            First element.
        dtype, check
            As in `mem1d`.
        """
        dtype = self._view(var, dtype)
        extents = tuple(_extent(n, f"extent of {var.name!r}") for n in extents)
        if not 1 <= len(extents) <= 4:
            raise self._error(f"{len(extents)} dimensions; a descriptor has one to four", symbol=var.name)
        if strides is None:
            strides = [math.prod(extents[k + 1:]) for k in range(len(extents))]
        strides = tuple(int(s) for s in strides)
        if len(strides) != len(extents):
            raise self._error(f"{len(extents)} extents but {len(strides)} strides", symbol=var.name)
        if sum(s != 1 for s in strides) > 3:
            raise self._error(f"strides {strides}: at most three may differ from 1", symbol=var.name,
                              hint="the machine has three stride registers")
        if any(not -32768 <= s <= 32767 for s in strides):
            raise self._error(f"strides {strides} do not fit 16 bits", symbol=var.name)
        if check and 0 not in extents:
            ends = [(n - 1) * s for n, s in zip(extents, strides, strict=True)]
            self._inside(var, offset + sum(min(e, 0) for e in ends), offset + sum(max(e, 0) for e in ends))
        return Dsd("mem4d", dtype, extents, strides, Address(var, offset * var.words_per_element))

    def circular(self, var, extent=None, start=0, save=False, dtype=None):
        """Describe a circular buffer over all of `var`, from element `start` on."""
        dtype = self._view(var, dtype)
        if not 0 <= start < var.count:
            raise self._error(f"start {start} is outside 0 .. {var.count - 1}", symbol=var.name)
        extent = var.count if extent is None else _extent(extent, f"extent of {var.name!r}")
        return Dsd("circular", dtype, (extent,), (1,), Address(var), index=start, length=var.count,
                   flags=im.F_SAVE * bool(save))

    def fifo(self, var, extent=None, activate_push=None, activate_pop=None, terminate=False):
        """Allocate a FIFO with `var` as its storage.

        Parameters
        ----------
        var : Var
        extent : int, optional
            Elements of an operation that takes its length from this operand; default: from the others.
        activate_push, activate_pop : task, optional
            Local task to activate whenever a step pushes to, or pops from, the FIFO.
        terminate : bool
            Full or empty ends an operation instead of suspending it.
        """
        self._changing()
        number = self._fifos
        if number >= self.machine["dsr.xdsr"]:
            raise self._error(f"more than {self.machine['dsr.xdsr']} FIFOs", symbol=var.name)
        self._fifos += 1
        extent = None if extent is None else (_extent(extent, f"extent of {var.name!r}"),)
        return Dsd("fifo", self._view(var, None), extent, (1,), Address(var), length=var.count, fifo=number,
                   flags=im.F_TERMINATE * bool(terminate), push_task=activate_push, pop_task=activate_pop)

    def fabin(self, source, extent, packed=None, on_control=None, dtype=None, simd=None):
        """Describe wavelets arriving from the fabric.

        Parameters
        ----------
        source : Queue or int
            Input queue, or the color that an input queue is bound to.
        extent : int
            Elements; `ENDLESS` for an operation that never ends.
        packed : bool, optional
            Two 16-bit elements per wavelet; default True for 16-bit types (the vendor's simd_32).
        on_control : dict, optional
            What a control wavelet does: keys ``terminate`` (bool), ``activate`` and ``unblock`` (a task; the same one
            if both are given).
        dtype : str, optional
            Element type; default: that of the operation.
        simd : str, optional
            The vendor's name of a packing, ``simd_32``.
        """
        queue = self._find_queue("input", source)
        packed = self._simd(simd, packed)
        on_control = dict(on_control or {})
        actions, bits = set(), 0
        if on_control.pop("terminate", False):
            bits |= im.ON_TERMINATE
        for key, bit in (("activate", im.ON_ACTIVATE), ("unblock", im.ON_UNBLOCK)):
            if (task := on_control.pop(key, None)) is not None:
                bits |= bit
                actions.add(task)
        if on_control:
            raise self._error(f"on_control: unknown key {next(iter(on_control))!r}",
                              hint="terminate, activate, unblock")
        if len(actions) > 1:
            raise self._error("on_control: activate and unblock name different tasks",
                              hint="a descriptor has room for one task")
        return Dsd("fabin", self._fabric_type(dtype), (_extent(extent, "extent of fabin"),), queue=queue, packed=packed,
                   on_control=(bits,), control_task=next(iter(actions), None))

    def fabout(self, target, extent, packed=None, control=False, advance_switch=False, zero=False, index=None,
               dtype=None, simd=None, control_transform=False):
        """Describe wavelets leaving for the fabric.

        Parameters
        ----------
        target : Queue or int
            Output queue, or the color that an output queue is bound to.
        extent : int
            Elements.
        packed : bool, optional
            Two 16-bit elements per wavelet; default True for 16-bit types unless `index` or `control` is given.
        control : bool
            Each wavelet is a control wavelet (payloads: `fabric.control`).
        advance_switch : bool
            A control wavelet that advances switches follows the last element.
        zero : bool
            Each element of the memory source is set to zero once sent.
        index : int, optional
            Upper half of each wavelet, for unpacked 16-bit elements.
        dtype, simd
            As in `fabin`.
        """
        queue = self._find_queue("output", target)
        if control_transform:
            raise self._unsupported("control_transform")
        packed = self._simd(simd, packed)
        if index is not None:
            if packed:
                raise self._error("index has no place in packed wavelets", hint="packed=False")
            if not 0 <= index <= 0xFFFF:
                raise self._error(f"index {index} of fabout does not fit 16 bits")
            packed = False
        if control and packed is None:
            packed = False
        flags = (im.F_CONTROL * bool(control) | im.F_ADVANCE * bool(advance_switch) | im.F_ZERO * bool(zero)
                 | im.F_INDEX * (index is not None))
        return Dsd("fabout", self._fabric_type(dtype), (_extent(extent, "extent of fabout"),), queue=queue,
                   packed=packed, flags=flags, index=index)

    def _inside(self, var, *elements):
        for element in elements:
            if not 0 <= element < var.count:
                raise self._error(f"the descriptor reaches element {element}, outside 0 .. {var.count - 1}",
                                  symbol=var.name, hint="check=False if the DSR will be moved before it is used")

    def _view(self, var, dtype):
        if not isinstance(var, Var):
            raise self._error(f"{var!r} is not a variable of this program")
        if var._program is not self:
            raise self._error(f"the variable belongs to program {var._program.name!r}", symbol=var.name)
        dtype = self.half if dtype == "half" else dtype or var.dtype
        if dtype not in _WORDS or _WORDS[dtype] != var.words_per_element:
            raise self._error(f"{dtype!r} is not a type of the size of {var.dtype}", symbol=var.name)
        if dtype in ("f16", "cb16") and dtype != self.half:
            raise self._error(f"{dtype} in a program whose 16-bit float is {self.half}", symbol=var.name)
        return dtype

    def _fabric_type(self, dtype):
        dtype = self.half if dtype == "half" else dtype
        if dtype is not None and (dtype not in _WORDS or (dtype in ("f16", "cb16") and dtype != self.half)):
            raise self._error(f"unknown element type {dtype!r} in a program whose 16-bit float is {self.half}")
        return dtype

    def _simd(self, simd, packed):
        if simd is None:
            return packed
        if simd in ("simd_64", "simd_32_or_64"):
            raise self._unsupported("simd_64", simd)
        if simd != "simd_32":
            raise self._error(f"unknown packing {simd!r}", hint="simd_32, or packed=False")
        return True

    # --- registers ------------------------------------------------------------------------------------------------

    def reg16(self, name=""):
        """Return a free 16-bit register; inside a task it is free again at the task's end."""
        return self._register(name, 1)

    def reg32(self, name=""):
        """Return a free even/odd pair of registers."""
        return self._register(name, 2)

    def regs(self, count, name=""):
        """Return `count` consecutive free 16-bit registers, for example three for `tsc`."""
        first = self._register(name, count, aligned=False)
        return tuple(Reg(first.id + k, 1, f"{name}[{k}]") for k in range(count))

    def pair(self, even):
        """Return the pair of registers `even` and `even` + 1.

        Raises
        ------
        ProgramError
            The number is odd.
        """
        if even % 2:
            raise self._error(f"register pair r{even}:r{even + 1}: the first register of a pair is even")
        return Reg(self.r[even].id, 2)

    def free(self, *regs):
        """Give registers of the task or function being written back before its end."""
        for reg in regs:
            if self._body is None or reg not in self._body.regs:
                raise self._error(f"{reg} is not a register of the task being written")
            self._body.regs.remove(reg)

    def _taken(self):
        """Return (registers that may not be handed out here, order of search)."""
        kind = self._body.kind if self._body else "global"
        own = {k for reg in (self._body.regs if self._body else ()) for k in range(reg.id, reg.id + max(1, reg.size))}
        if kind == "function":
            return self._global_regs | self._function_regs | self._task_regs | {0, 1}, range(isa.N_REGS - 1, -1, -1)
        if kind == "global":
            return self._global_regs | self._function_regs | self._task_regs | {0, 1}, range(2, isa.N_REGS)
        taken = self._global_regs | self._function_regs | own
        return (taken, (*range(2, isa.N_REGS), 0, 1)) if kind == "local" else (taken | {0, 1}, range(2, isa.N_REGS))

    def _register(self, name, size, aligned=True):
        self._changing()
        taken, order = self._taken()
        for first in order:
            ids = range(first, first + size)
            if (aligned and size == 2 and first % 2) or ids[-1] >= isa.N_REGS or any(k in taken for k in ids):
                continue
            reg = Reg(first, size, name)
            if self._body is None:
                self._global_regs.update(ids)
            else:
                self._body.regs.append(reg)
                (self._function_regs if self._body.kind == "function" else self._task_regs).update(ids)
            return reg
        raise self._error(f"no {size} free register{'s' * (size > 1)} for {name or 'a value'}; "
                          f"taken: {', '.join(f'r{k}' for k in sorted(taken))}",
                          hint="p.free(reg) gives one back; variables in SRAM hold what is not needed at once")

    # --- DSRs -----------------------------------------------------------------------------------------------------

    def dsr(self, file, id=None, name=""):
        """Reserve a data structure register.

        Parameters
        ----------
        file : {"dest", "src0", "src1"}
        id : int, optional
            Number in its file; default: the assembler's choice, the same for DSRs that must be paired.
        name : str
            For messages.

        Returns
        -------
        Dsr
        """
        self._changing()
        if file not in isa.FILES[:3]:
            raise self._error(f"unknown DSR file {file!r}", hint=", ".join(isa.FILES[:3]))
        if id is not None:
            if not 0 <= id < self.machine["dsr.count"]:
                raise self._error(f"{file} DSR {id} does not exist", hint=f"0 .. {self.machine['dsr.count'] - 1}")
            if any(d.file == file and d._id == id for d in self._dsrs):
                raise self._error(f"{file} DSR {id} is reserved twice")
        dsr = Dsr(self, file, id, name, self._where())
        self._dsrs.append(dsr)
        return dsr

    def load(self, dsr, dsd):
        """Load descriptor `dsd` into `dsr` (CSL: load_to_dsr); `dsd` may be a variable."""
        dsd = self._as_dsd(dsd)
        self._own(dsr)
        if dsd.extent is None:
            raise self._error(f"{dsd} does not say how many elements", hint="give an extent; only a descriptor that is "
                              "passed to an operation takes its length from the others")
        self._fits(dsd, dsr.file)
        dsr.loads.append(dsd)
        self._emit("dsr_load", a=dsr, imm=(dsd, dsr))

    dsr_load = load

    def dsr_base(self, dsr, base):
        """Set the base word address of `dsr`: a variable, an element's address, a register or a number."""
        self._edit("dsr_base", dsr, base)

    def dsr_off(self, dsr, words):
        """Move the base of `dsr` by signed `words`: a register or a number."""
        self._edit("dsr_off", dsr, words)

    def dsr_len(self, dsr, extent):
        """Set the (outermost) extent of `dsr`: a register or a number."""
        self._edit("dsr_len", dsr, extent)

    def dsr_stride(self, dsr, stride):
        """Set the (outermost) stride of `dsr` in elements: a register or a number."""
        self._edit("dsr_stride", dsr, stride)

    def _edit(self, op, dsr, value):
        self._own(dsr)
        if isinstance(value, Reg):
            self._emit(op, a=dsr, b=self._reg_field(value, "i", op))
        elif isinstance(value, (Var, Address)) and op == "dsr_base":
            self._emit(op, a=dsr, imm=value if isinstance(value, Address) else Address(value))
        else:
            self._emit(op, a=dsr, imm=self._imm(value, "i", op))

    def _own(self, dsr):
        if not isinstance(dsr, Dsr) or dsr._program is not self:
            raise self._error(f"{dsr!r} is not a DSR of this program")

    def _fits(self, dsd, file):
        if dsd.kind == "fabout" and file != "dest":
            raise self._error(f"{dsd} can only be a destination, so it belongs into a dest DSR, not {file}")
        if dsd.kind == "fabin" and file == "dest":
            raise self._error(f"{dsd} can only be a source, so it belongs into a src0 or src1 DSR")
        if dsd.kind == "fifo" and file == "src0":
            raise self._error(f"{dsd}: a FIFO cannot be the first source", hint="a src1 or dest DSR")

    def _as_dsd(self, value):
        if isinstance(value, Var):
            return self.mem1d(value)
        if not isinstance(value, Dsd):
            raise self._error(f"{value!r} is not a descriptor")
        if value.base is not None and value.base.var._program is not self:
            raise self._error(f"{value} belongs to program {value.base.var._program.name!r}")
        if value.queue is not None and self._queues[value.queue.kind].get(value.queue.id) is not value.queue:
            raise self._error(f"{value} belongs to another program")
        return value

    # --- emission -------------------------------------------------------------------------------------------------

    def _emit(self, name, a=0, b=0, c=0, d=0, imm=None):
        self._changing()
        if self._body is None:
            raise self._error(f"{name}: an instruction outside a task or function", hint='with p.task("main"): ...')
        ins = _Ins(isa.BY_NAME[name], a, b, c, d, imm, self._where(), self._body.name)
        self._ins.append(ins)
        return ins

    def _imm(self, value, letter, what):
        """Return `value` as the bits of an element of type `letter`."""
        if isinstance(value, (Var, Address)) and letter == "i":
            return Address(value) if isinstance(value, Var) else value
        if not _is_number(value):
            raise self._error(f"{what}: {value!r} is neither a register nor a number")
        if letter in "hs":
            words = encode_array(float(value), self.half if letter == "h" else "f32", self.machine["num.cb16_bias"])
        else:
            bits = 16 if letter == "i" else 32
            if isinstance(value, (float, np.floating)):
                raise self._error(f"{what}: {value} given where a {_LETTER_NAME[letter]} belongs")
            if not -1 << bits - 1 <= value < 1 << bits:
                raise self._error(f"{what}: {value} does not fit {bits} bits")
            return int(value) & (1 << bits) - 1
        return int(words[0]) | (int(words[1]) << 16 if letter == "s" else 0)

    def _reg_field(self, reg, letter, what):
        """Return the operand field of a register that holds an element of type `letter`."""
        if not isinstance(reg, Reg):
            raise self._error(f"{what}: {reg!r} is not a register")
        need = 1 if letter in "hi" else 2
        if reg.size not in (0, need):
            raise self._error(f"{what}: {reg} has {16 * reg.size} bits, a {_LETTER_NAME[letter]} has {16 * need}",
                              hint="p.reg16() and p.reg32() make registers of either size; .low and .high are the "
                                   "halves of a pair")
        if need == 2 and reg.id % 2:
            raise self._error(f"{what}: register pair r{reg.id}:r{reg.id + 1}: the first register of a pair is even")
        return isa.FILE_REG << 4 | reg.id

    def async_(self, priority="medium", ut=None, activate=None, unblock=None):
        """Return attributes for the ``async_`` argument of an operation.

        Parameters
        ----------
        priority : {"low", "medium", "high"}
            Issue level of the microthread.
        ut : int, optional
            Microthread; default: the number of the output queue of a fabout destination, else of the input queue of
            the first fabin source.  WSE-2 knows no other for operations on the fabric.
        activate, unblock : task, optional
            Task (name, `Task`, or id; for `unblock` also a color) to activate or unblock on completion.
        """
        if priority not in isa.PRIORITIES:
            raise self._error(f"priority {priority!r} is unknown", hint=", ".join(isa.PRIORITIES))
        if ut is not None and not 0 <= ut < self.machine["ut.count"]:
            raise self._error(f"microthread {ut} does not exist", hint=f"0 .. {self.machine['ut.count'] - 1}")
        return Async(priority, ut, activate, unblock)

    def _operation(self, op, args, async_, attributes):
        """Emit an ``alu`` op: scalar if all operands are registers and numbers, else a vector operation."""
        letters = [letter for letter in op.types if letter != "-"]
        if len(args) != len(letters):
            raise self._error(f"{op.name} takes {len(letters)} operands, not {len(args)}")
        if attributes:
            if async_ is None or async_ is False:
                raise self._error(f"{op.name}: {', '.join(attributes)} given to a synchronous operation",
                                  hint="async_=True")
            if isinstance(async_, Async):
                raise self._error(f"{op.name}: attributes both in async_ and beside it")
        if async_ is True:
            async_ = self.async_(**attributes)
        elif async_ is False:
            async_ = None
        args = [self._as_dsd(arg) if isinstance(arg, (Var, Dsd)) else arg for arg in args]
        if any(isinstance(arg, (Dsd, Dsr)) for arg in args):
            self._vector(op, args, letters, async_)
        elif async_ is not None:
            raise self._error(f"{op.name}: a scalar instruction cannot be asynchronous")
        else:
            self._scalar(op, args, letters)

    def _scalar(self, op, args, letters):
        dst, *sources = args
        a = self._reg_field(dst, letters[0], f"{op.name} destination")
        if len(sources) > 1 and not isinstance(sources[0], Reg) and isinstance(sources[1], Reg) and op.name in _COMMUTE:
            sources[:2] = sources[1], sources[0]
        if len(sources) == 1 and not isinstance(sources[0], Reg) and op.name in ("mov16", "mov32", "fmovh", "fmovs"):
            imm = self._imm(sources[0], self._moved(op, sources[0], letters[1]), f"{op.name} source")
            self._emit("ldi" if letters[0] in "hi" else "ldi32", a=a, imm=imm)
            return
        fields, imm, held = [], None, []
        for k, (source, letter) in enumerate(zip(sources, letters[1:], strict=True)):
            if isinstance(source, Reg):
                fields.append(self._reg_field(source, letter, f"{op.name} source {k + 1}"))
            elif k == 1:
                imm = self._imm(source, letter, f"{op.name} source 2")
                fields.append(isa.FILE_REG << 4)  # any register: the extension word takes its place
            else:
                fields.append(self._held(source, letter, op, held))
        self._emit(op.name, a, *fields, imm=imm)
        self._release(held)

    @staticmethod
    def _moved(op, value, letter):
        """Return the type of an immediate: a float that is copied as bits stays a float."""
        if op.name in _MOVES and isinstance(value, (float, np.floating)):
            return "h" if letter == "i" else "s"
        return letter

    def _held(self, value, letter, op, held):
        """Load an immediate into a register that lives until `_release` and return its operand field."""
        imm = self._imm(value, self._moved(op, value, letter), f"{op.name} source")
        if letter in "hi":
            reg = self._register("", 1)
            self._emit("ldi", a=isa.FILE_REG << 4 | reg.id, imm=imm)
        else:
            reg = self._register("", 2)
            self._emit("ldi32", a=isa.FILE_REG << 4 | reg.id, imm=imm)
        held.append(reg)
        return isa.FILE_REG << 4 | reg.id

    def _release(self, held):
        for reg in held:
            self._body.regs.remove(reg)

    # --- vector operations ----------------------------------------------------------------------------------------

    def _vector(self, op, args, letters, async_):
        dst, *sources = args
        self._check_operands(op, dst, sources, letters, async_)
        b, c, scalar = [*sources, None, None][:3]
        if isinstance(b, Dsd) and b.kind == "fifo" and isinstance(c, (Dsd, Dsr)):
            if op.name not in _COMMUTE or (isinstance(c, Dsd) and c.kind == "fifo"):
                raise self._error(f"{op.name}: a FIFO cannot be the first of two sources")
            b, c = c, b
        operands = [x for x in (b, c, dst) if isinstance(x, (Dsd, Dsr))]  # in the order that decides the length
        self._check_fabric(op, operands, dst, b)
        in_place = isinstance(b, Dsd) and b.kind != "fifo" and dst == b
        complete = dict(zip(map(id, operands), self._lengths(op, operands), strict=True))
        dst, b, c = (complete.get(id(x), x) for x in (dst, b, c))
        thread = self._thread(op, complete.values(), async_)

        held, loads, fields = [], [], []
        files = self._files(b, c, in_place)
        for k, source in enumerate((b, c, scalar)[:len(sources)]):
            if isinstance(source, Dsr):
                fields.append(source)
            elif isinstance(source, Dsd):
                fields.append(self._auto(files[k], source, thread, loads))
            elif isinstance(source, Reg):
                fields.append(self._reg_field(source, letters[k + 1], f"{op.name} source {k + 1}"))
            else:
                fields.append(self._held(source, letters[k + 1], op, held))
        if isinstance(dst, Reg):
            a = self._reg_field(dst, letters[0], f"{op.name} destination")
        elif isinstance(dst, Dsr):
            a = dst
        elif in_place and files[0] == "src0":
            a = fields[0]
        else:
            a = self._auto("dest", dst, thread, loads)
        for dsr, dsd in loads:
            self._emit("dsr_load", a=dsr, imm=(dsd, dsr))
        ins = self._emit(op.name, a, *fields, imm=async_)
        if self._wse2:
            self._pair(ins)
        self._release(held)

    @staticmethod
    def _files(b, c, in_place):
        """Return the DSR files for descriptors given as first and second source."""
        first = "src0" if c is not None or in_place else "src1"
        if (isinstance(c, Dsr) and c.file == "src0") or (isinstance(b, Dsd) and b.kind == "fifo"):
            first = "src1"
        return first, "src0" if isinstance(b, Dsr) and b.file == "src1" else "src1"

    def _check_operands(self, op, dst, sources, letters, async_):
        """Refuse operands that no vector operation has in these places."""
        what = op.name
        if not op.lanes[self._preset]:
            raise self._error(f"{what} has no vector form on {self.machine.preset}",
                              hint="write a loop of scalar instructions")
        if len(sources) == 3 and isinstance(sources[2], (Dsd, Dsr)):
            raise self._error(f"{what}: the multiplier is a scalar, not {sources[2]}")
        for k, (arg, letter) in enumerate(zip((dst, *sources), letters, strict=True)):
            if isinstance(arg, Dsd):
                self._check_type(op, arg, letter, "destination" if k == 0 else f"source {k}")
            elif isinstance(arg, Dsr):
                self._own(arg)
        if not isinstance(dst, (Dsd, Dsr, Reg)) or (isinstance(dst, Dsd) and dst.kind == "fabin") or (
                isinstance(dst, Dsr) and dst.file == "src1"):
            raise self._error(f"{what}: {dst} cannot be the destination")
        for k, source in enumerate(sources):
            if not (isinstance(source, (Dsd, Dsr, Reg, Address)) or _is_number(source)):
                raise self._error(f"{what}: {source!r} cannot be a source")
            if isinstance(source, Dsd) and source.kind == "fabout":
                raise self._error(f"{what}: {source} cannot be a source")
            if isinstance(source, Dsr) and source.file == "dest":
                raise self._error(f"{what}: {source} cannot be source {k + 1}",
                                  hint="a src0 DSR can be both source and destination")
        if async_ is not None and isinstance(dst, Reg):
            raise self._error(f"{what}: an asynchronous operation cannot return into a register",
                              hint="a destination in memory (stride 0 for a sum)")
        fabric = [x.queue for x in sources if isinstance(x, Dsd) and x.is_fabric]
        if len(fabric) == 2 and fabric[0] == fabric[1]:
            raise self._error(f"{what}: both sources take wavelets from color {fabric[0].color}")

    def _auto(self, file, dsd, thread, loads):
        if dsd.flags & im.F_SAVE:
            raise self._error(f"{dsd}: save_address needs an explicit DSR, a loaded copy would be thrown away",
                              hint=f'd = p.dsr("{file}"); p.load(d, ...)')
        self._fits(dsd, file)
        dsr = Dsr(self, file, None, "", self._where())
        dsr.thread = thread
        dsr.loads.append(dsd)
        loads.append((dsr, dsd))
        return dsr

    def _check_type(self, op, dsd, letter, place):
        if dsd.dtype is None:
            return
        actual = _LETTER[dsd.dtype]
        fits = _WORDS[dsd.dtype] == isa.WORDS[letter] if op.name in _MOVES else actual == letter
        if not fits:
            raise self._error(f"{op.name} {place}: {dsd} has elements of type {dsd.dtype}, the operation wants "
                              f"{_LETTER_NAME[letter]}", hint="dtype=... of the descriptor gives a view of equal size"
                              if _WORDS[dsd.dtype] == isa.WORDS[letter] else None)

    def _packing(self, dsd, letter):
        """Return whether a fabric operand of an op moves two elements per wavelet."""
        if isa.WORDS[letter] == 2:
            return False
        return True if dsd.packed is None else dsd.packed

    def _check_fabric(self, op, operands, dst, b):
        letters = {id(dst): op.types[0]}
        letters.setdefault(id(b), op.types[1])
        found = []
        for operand in operands:
            for dsd in operand.loads if isinstance(operand, Dsr) else [operand]:
                if dsd.is_fabric:
                    letter = letters.get(id(operand), op.types[2])
                    found.append((dsd, self._packing(dsd, letter)))
        if len({packed for _, packed in found}) > 1:
            text = ", ".join(f"{dsd}: {'two elements' if packed else 'one element'} per wavelet"
                             for dsd, packed in found)
            raise self._error(f"{op.name}: fabric operands disagree on packing ({text})",
                              hint="packed=False for the 16-bit operand")
        if isinstance(dst, Dsd):
            if dst.flags & im.F_ZERO and dst.kind == "fabout" and not (
                    isinstance(b, Dsr) or (isinstance(b, Dsd) and b.is_memory)):
                raise self._error(f"{op.name}: {dst} clears its first source, which must be in memory")
            if dst.kind == "mem1d" and dst.flags & im.F_INDEX:
                if isinstance(b, (Reg, Dsd)) and not found:
                    raise self._error(f"{op.name}: {dst} takes its offset from wavelets, but no source is fabric")
                if any(packed for _, packed in found):
                    raise self._error(f"{op.name}: packed wavelets have no index half for {dst}", hint="packed=False")

    def _lengths(self, op, operands):
        """Return `operands` with the extents that were left open filled in, and refuse walks past their end."""
        length = None
        for operand in operands:
            if isinstance(operand, Dsr):
                known = {dsd.elements for dsd in operand.loads}
                length = known.pop() if len(known) == 1 else -1
            else:
                length = operand.elements
            if length is not None:
                break
        if length is None:
            raise self._error(f"{op.name}: no operand says how many elements", hint="give one of them an extent")
        may_end = any(isinstance(x, Dsd) and x.on_control and x.on_control[0] & im.ON_TERMINATE for x in operands)
        result = []
        for k, operand in enumerate(operands):
            if isinstance(operand, Dsd) and operand.extent is None:
                if length < 0 and k == 0:
                    raise self._error(f"{op.name}: {operand} has no extent and comes first", hint="give it one")
                operand = operand.with_extent(length if length >= 0 else 1)
            elif (not may_end and isinstance(operand, Dsd) and operand.kind not in ("circular", "fifo")
                  and not operand.flags & im.F_INDEX and length > operand.elements and operand.elements != ENDLESS):
                raise self._error(f"{op.name}: the operation has {'endless' if length == ENDLESS else length} elements "
                                  f"(those of {operands[0]}), {operand} only {operand.elements}",
                                  hint="stride=0 without an extent repeats one element" if operand.is_memory else None)
            result.append(operand)
        return result

    def _thread(self, op, operands, async_, ins=None):
        """Return the microthread of an operation, -1 for the main thread; check what WSE-2 allows.

        A DSR that is loaded only further down in the code leaves the microthread open (8); `assemble` asks again.
        """
        if async_ is None:
            return -1
        is_open = any(isinstance(x, Dsr) and not x.loads for x in operands)
        fabric = [d for x in operands for d in (x.loads if isinstance(x, Dsr) else [x])]
        out = [d.queue.id for d in fabric if d.kind == "fabout"]
        into = [d.queue.id for d in fabric if d.kind == "fabin"]
        derived = (out or into or [None])[0]
        if derived is None and is_open:
            return 8 if async_.ut is None else async_.ut
        if derived is None and not any(d.kind == "fifo" for d in fabric):
            raise self._error(f"{op.name}: an asynchronous operation needs an operand on the fabric or a FIFO", ins=ins)
        if async_.ut is None:
            if derived is None:
                raise self._error(f"{op.name}: without an operand on the fabric the microthread must be named", ins=ins,
                                  hint="ut=0 .. 7")
            return derived
        if self._wse2 and derived is not None and async_.ut != derived:
            raise self._error(f"{op.name}: microthread {async_.ut} asked for, but WSE-2 runs this operation on "
                              f"microthread {derived}, the number of its queue", ins=ins,
                              hint="leave ut out, or bind another queue")
        return async_.ut

    def _pair(self, ins):
        """WSE-2: a dest DSR and a src0 DSR of one operation carry the same id."""
        dest = [x for x in (ins.a,) if isinstance(x, Dsr) and x.file == "dest"]
        src0 = [x for x in (ins.b, ins.c) if isinstance(x, Dsr) and x.file == "src0"]
        for left in dest:
            for right in src0:
                self._unite(left, right, ins)

    def _unite(self, left, right, ins):
        def root(dsr):
            while dsr.group is not dsr:
                dsr = dsr.group
            return dsr

        a, b = root(left), root(right)
        if a is b:
            return
        if a._id is not None and b._id is not None and a._id != b._id:
            raise self._error(f"{ins.op.name}: {left} and {right} are used together; on WSE-2 a dest DSR and a src0 "
                              "DSR of one operation must have the same id", ins=ins,
                              hint=f'p.dsr("{right.file}", id={a._id}), or leave the choice to the assembler')
        if (a._id is None and b._id is not None) or (a.thread is not None and b.thread is None):
            a, b = b, a
        b.group = a

    # --- special vector form --------------------------------------------------------------------------------------

    def dfilt(self, source, async_=True, **attributes):
        """Discard data wavelets of a fabin until its extent in control wavelets has been seen; asynchronous only."""
        if isinstance(source, Dsr):
            self._own(source)
        elif not isinstance(source, Dsd) or source.kind != "fabin":
            raise self._error(f"dfilt: {source} is not a fabin")
        if not async_:
            raise self._error("dfilt: asynchronous only", hint="async_=True")
        async_ = self.async_(**attributes) if async_ is True else async_
        loads = []
        thread = self._thread(isa.BY_NAME["dfilt"], [source], async_)
        b = source if isinstance(source, Dsr) else self._auto("src1", self._as_dsd(source), thread, loads)
        for dsr, dsd in loads:
            self._emit("dsr_load", a=dsr, imm=(dsd, dsr))
        self._emit("dfilt", b=b, imm=async_)

    # --- scalar instructions of special form -----------------------------------------------------------------------

    def nop(self):
        """Do nothing for a cycle."""
        self._emit("nop")

    def ldi(self, dst, value):
        """Load a number, or the address of a variable, into a 16-bit register; a float is encoded in the half type."""
        letter = "h" if isinstance(value, (float, np.floating)) else "i"
        self._emit("ldi", a=self._reg_field(dst, "i", "ldi"), imm=self._imm(value, letter, "ldi"))

    def ldi32(self, dst, value):
        """Load a number into a register pair; a float is encoded as f32."""
        letter = "s" if isinstance(value, (float, np.floating)) else "l"
        self._emit("ldi32", a=self._reg_field(dst, "l", "ldi32"), imm=self._imm(value, letter, "ldi32"))

    def ld16(self, dst, base, offset=0, index=None):
        """Load 16 bits.

        Parameters
        ----------
        dst : Reg
        base : Var, Address, Reg or int
            Variable, ``var[i]``, a register with a word address, or a word address.
        offset : int
            Words to add.
        index : Reg, optional
            Register with words to add, when `base` is no register.
        """
        self._memory("ld16", dst, base, offset, index)

    def ld32(self, dst, base, offset=0, index=None):
        """Load 32 bits into a register pair from an even address; see `ld16`."""
        self._memory("ld32", dst, base, offset, index)

    def st16(self, src, base, offset=0, index=None):
        """Store a 16-bit register; see `ld16`."""
        self._memory("st16", src, base, offset, index)

    def st32(self, src, base, offset=0, index=None):
        """Store a register pair to an even address; see `ld16`."""
        self._memory("st32", src, base, offset, index)

    def _memory(self, op, reg, base, offset, index):
        wide = op.endswith("32")
        a = self._reg_field(reg, "l" if wide else "i", op)
        if isinstance(base, Reg):
            if index is not None:
                raise self._error(f"{op}: base and index are both registers; one address register fits the instruction")
            index, imm = base, self._imm(offset, "i", op)
        elif isinstance(base, (Var, Address)):
            base = Address(base) if isinstance(base, Var) else base
            if base.var._program is not self:
                raise self._error(f"{op}: the variable belongs to program {base.var._program.name!r}",
                                  symbol=base.var.name)
            if base.words != 1 + wide:
                raise self._error(f"{op}: the variable has elements of type {base.var.dtype}", symbol=base.var.name,
                                  hint=f"{op[:2]}{16 * base.words}")
            imm = base + offset
        else:
            imm = self._imm(base + offset if _is_number(base) else base, "i", op)
        b = 0 if index is None else self._reg_field(index, "i", f"{op} address")
        self._emit(op, a=a, b=b, imm=imm)

    def tsc(self, dst):
        """Read the 48-bit cycle counter into three consecutive registers, low first; `dst` from `regs` (3) or a Reg."""
        first = dst[0] if isinstance(dst, (tuple, list)) else dst
        if isinstance(dst, (tuple, list)) and [reg.id for reg in dst] != [first.id + k for k in range(3)]:
            raise self._error("tsc: three consecutive registers needed", hint="p.regs(3)")
        if not isinstance(first, Reg) or first.id + 2 >= isa.N_REGS:
            raise self._error(f"tsc: {first} and the two registers after it do not exist")
        self._emit("tsc", a=isa.FILE_REG << 4 | first.id)

    def store_tsc(self, var):
        """Read the cycle counter and store it as three 16-bit words at `var` (u16, at least 3 elements).

        The counter is sampled in the first cycle; the stores follow.
        """
        base = Address(var) if isinstance(var, Var) else var
        low = self.regs(3, "tsc")
        self.tsc(low)
        for k, reg in enumerate(low):
            self.st16(reg, base, offset=k)
        self._release([r for r in self._body.regs if r.id == low[0].id and r.size == 3])

    def rand16(self, dst):
        """Draw 16 bits from the active random generator into a register."""
        self._emit("rand16", a=self._reg_field(dst, "i", "rand16"))

    def prng(self, number):
        """Make random generator `number` (0 .. 3) the active one."""
        if number not in range(4):
            raise self._error(f"prng: generator {number!r} does not exist", hint="0 .. 3")
        self._emit("prng", a=number)

    def trap(self, code=0):
        """Stop the machine with a ProgramFault that carries `code`."""
        self._emit("trap", imm=self._imm(code, "l", "trap"))

    # --- router configuration --------------------------------------------------------------------------------------

    def _color(self, color, what):
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.machine["router.colors"]:
            raise self._error(f"{what}: color {color!r} is not routable",
                              hint=f"colors 0 .. {self.machine['router.colors'] - 1}")
        return int(color)

    def sw_pos(self, color, position):
        """Set the switch position of `color` at this PE's router."""
        if position not in range(4):
            raise self._error(f"sw_pos: position {position!r} is outside 0 .. 3")
        self._emit("sw_pos", a=self._color(color, "sw_pos"), imm=position)

    def route(self, color, rx, tx, position=0):
        """Rewrite one switch position of `color` at this PE: `rx`, `tx` are strings of directions W E N S R."""
        if position not in range(4):
            raise self._error(f"route: position {position!r} is outside 0 .. 3")
        word = position << 10
        for shift, text, key in ((0, rx, "rx"), (5, tx, "tx")):
            for letter in text:
                if letter not in im.DIRS:
                    raise self._error(f"route: {letter!r} in {key} is not a direction", hint="W E N S R")
                word |= 1 << shift + im.DIRS.index(letter)
        self._emit("route", a=self._color(color, "route"), imm=word)

    def td_exit(self, color):
        """End teardown of `color` at this PE."""
        self._emit("td_exit", a=self._color(color, "td_exit"))

    def in_td(self, dst, color):
        """Set a register to 1 if `color` is in teardown at this PE, else to 0."""
        self._emit("in_td", a=self._reg_field(dst, "i", "in_td"), imm=self._color(color, "in_td"))

    def flt_set(self, filter, field, value):
        """Set a field of a counter filter of this PE.

        Parameters
        ----------
        filter : int
            Number of the filter at this PE: filters are numbered from 0 in the order of their colors.
        field : {"counter", "max", "limit"}
        value : Reg or int
        """
        names = ("counter", "max", "limit")
        if field not in names:
            raise self._error(f"flt_set: unknown field {field!r}", hint=", ".join(names))
        if not isinstance(filter, int) or not 0 <= filter < max(1, self.machine["router.filters"]):
            raise self._error(f"flt_set: filter {filter!r} does not exist")
        held = []
        b = (self._reg_field(value, "i", "flt_set") if isinstance(value, Reg)
             else self._held(value, "i", isa.BY_NAME["flt_set"], held))
        self._emit("flt_set", a=filter, b=b, imm=names.index(field))
        self._release(held)

    # --- tasks and functions --------------------------------------------------------------------------------------

    @contextmanager
    def task(self, name, kind="local", id=None, color=None, priority="low"):
        """Write a task: its body is what is emitted inside the ``with``; it ends by itself.

        Parameters
        ----------
        name : str
        kind : {"local", "data", "control"}
            Started by activation, by each data wavelet of `color`, or by a control wavelet with its id.
        id : int, optional
            Local: 0 .. 30, 29 = the teardown task.  Control: 0 .. 63 without 31.
        color : int
            Of a data task; an input queue is chosen if none is bound to it.
        priority : {"low", "high"}
            Of the picker; high before low.

        Yields
        ------
        Task
        """
        self._changing()
        where = self._where()
        if self._body is not None:
            raise self._error(f"task {name!r} begins inside {self._body.kind} {self._body.name!r}")
        if name in self._tasks or name in self._functions:
            raise self._error(f"two tasks or functions are called {name!r}")
        if kind not in ("local", "data", "control"):
            raise self._error(f"unknown kind of task {kind!r}", hint="local, data, control")
        if priority not in ("low", "high"):
            raise self._error(f"task {name!r}: unknown priority {priority!r}", hint="low, high")
        if (color is None) == (kind == "data"):
            raise self._error(f"task {name!r}: a data task, and no other, has a color")
        if kind == "data":
            if id not in (None, color):
                raise self._error(f"data task {name!r}: its id is its color {color}, not {id}")
            id = self._color(color, f"data task {name!r}")
        elif id is not None:
            top = im.N_CONTROL_IDS if kind == "control" else im.N_TASK_IDS
            if not isinstance(id, (int, np.integer)) or not 0 <= id < top or id == im.TASK_NULL:
                raise self._error(f"{kind} task {name!r}: id {id!r} is outside 0 .. {top - 1} or is {im.TASK_NULL}, "
                                  "the id of none")
        if id is not None:
            for other in self._tasks.values():
                if other._id == id and (other.kind == "control") == (kind == "control"):
                    raise self._error(f"tasks {other.name!r} and {name!r} have the same id {id}")
        task = self._tasks[name] = Task(self, name, kind, None if id is None else int(id), priority == "high", where)
        task.label = self._labels[name] = Label(name)
        task.label.at = len(self._ins)
        self._body = _Body(name, kind, [])
        try:
            yield task
            self._emit("done")
        finally:
            self._body = None
            self._last_if = None

    @contextmanager
    def function(self, name):
        """Write a function, called by `call`; it returns at its end."""
        self._changing()
        if self._body is not None:
            raise self._error(f"function {name!r} begins inside {self._body.kind} {self._body.name!r}")
        if name in self._tasks or name in self._functions:
            raise self._error(f"two tasks or functions are called {name!r}")
        label = self._functions[name] = self._labels[name] = Label(name)
        label.at = len(self._ins)
        self._body = _Body(name, "function", [])
        try:
            yield label
            self._emit("ret")
        finally:
            self._body = None
            self._last_if = None

    def done(self):
        """End the task (emitted by itself at the end of a task's body)."""
        self._emit("done")

    def ret(self):
        """Return from a function (emitted by itself at its end)."""
        self._emit("ret")

    def call(self, name):
        """Call a function by name; it may be written later.  At most eight calls deep."""
        self._emit("call", imm=name if isinstance(name, (str, Label)) else str(name))

    def activate(self, task):
        """Set the activated bit of a task (name, `Task` or id)."""
        self._emit("activate", a=_TaskRef(task, "activate"))

    def block(self, task):
        """Set the blocked bit of a task (name, `Task` or id; a color is an id)."""
        self._emit("block", a=_TaskRef(task, "block"))

    def unblock(self, task):
        """Clear the blocked bit of a task (name, `Task` or id; a color is an id)."""
        self._emit("unblock", a=_TaskRef(task, "unblock"))

    def start(self, task):
        """Begin with `task` activated (CSL: activate at comptime)."""
        self._changing()
        self._starts.append((_TaskRef(task, "start"), self._where()))

    def blocked(self, task):
        """Begin with `task` (or a color) blocked."""
        self._changing()
        self._blocks.append((_TaskRef(task, "blocked"), self._where()))

    def unblocked(self, task):
        """Begin with a color unblocked although it has no data task, so that control wavelets on it start tasks."""
        self._changing()
        self._unblocks.append((_TaskRef(task, "unblocked"), self._where()))

    # --- control flow ---------------------------------------------------------------------------------------------

    def new_label(self, name=None):
        """Return a label to be put somewhere later by `place`."""
        self._n_labels += 1
        name = f".{self._n_labels}" if name is None else name
        if name in self._labels:
            raise self._error(f"label {name!r} exists already")
        label = self._labels[name] = Label(name)
        return label

    def place(self, label):
        """Put a label here."""
        self._changing()
        if self._body is None:
            raise self._error(f"label {label.name!r} outside a task or function")
        if label.at is not None:
            raise self._error(f"label {label.name!r} is placed twice")
        label.at = len(self._ins)
        return label

    def label(self, name=None):
        """Put a new label here and return it."""
        return self.place(self.new_label(name))

    def jump(self, target):
        """Jump to a label (object or name, which may be placed later)."""
        self._emit("jmp", imm=target)

    jmp = jump

    def branch(self, cond, a, b, target, kind=None):
        """Jump to `target` if ``a cond b``.

        Parameters
        ----------
        cond : str
            ``eq ne lt le gt ge`` (signed, or floating point), ``ltu leu gtu geu`` (unsigned).
        a : Reg
        b : Reg or number
            A number other than 0 goes through a free register.
        target : Label or str
        kind : {"16", "32", "h", "s"}, optional
            Integers of 16 or 32 bits, 16-bit floats, f32; default: from the sizes of the registers, and float if `b`
            is a Python float.
        """
        op, letter = self._kind(kind, a, b)
        if cond not in _INVERSE:
            raise self._error(f"{op}: unknown condition {cond!r}", hint=" ".join(_INVERSE))
        if letter in "hs" and cond.endswith("u"):
            raise self._error(f"{op}: no unsigned comparison of floats", hint="eq ne lt le gt ge")
        held = []
        if isinstance(b, (Reg,)) and cond in _SWAPPED:
            a, b, cond = b, a, _SWAPPED[cond]
        x = self._reg_field(a, letter, op) if isinstance(a, Reg) else self._held(a, letter, isa.BY_NAME[op], held)
        if isinstance(b, Reg):
            y = self._reg_field(b, letter, op)
        elif cond not in _SWAPPED and _is_number(b) and b == 0:
            y = 0
        else:
            y = self._held(b, letter, isa.BY_NAME[op], held)
        if cond in _SWAPPED:
            x, y, cond = y, x, _SWAPPED[cond]
        self._emit(op, a=x, b=y, d=isa.CONDITIONS.index(cond), imm=target)
        self._release(held)

    def br16(self, cond, a, b, target):
        """`branch` on 16-bit integers."""
        self.branch(cond, a, b, target, "16")

    def br32(self, cond, a, b, target):
        """`branch` on 32-bit integers."""
        self.branch(cond, a, b, target, "32")

    def brh(self, cond, a, b, target):
        """`branch` on 16-bit floats; quiet, false with NaN except ne."""
        self.branch(cond, a, b, target, "h")

    def brs(self, cond, a, b, target):
        """`branch` on f32; quiet, false with NaN except ne."""
        self.branch(cond, a, b, target, "s")

    def _kind(self, kind, a, b):
        if kind is None:
            sizes = {x.size for x in (a, b) if isinstance(x, Reg)} - {0}
            wide = 2 in sizes
            floating = any(isinstance(x, (float, np.floating)) for x in (a, b))
            kind = ("s" if wide else "h") if floating else ("32" if wide else "16")
        if kind not in _KINDS:
            raise self._error(f"unknown kind of comparison {kind!r}", hint=", ".join(_KINDS))
        return _KINDS[kind]

    def _branch_unless(self, cond, a, b, target, kind):
        """Jump to `target` unless ``a cond b``: exact also for NaN."""
        letter = self._kind(kind, a, b)[1]
        if cond not in _INVERSE:
            raise self._error(f"unknown condition {cond!r}", hint=" ".join(_INVERSE))
        if letter in "il" or cond in ("eq", "ne"):
            self.branch(_INVERSE[cond], a, b, target, kind)
            return
        body = self.new_label()
        self.branch(cond, a, b, body, kind)
        self.jump(target)
        self.place(body)

    @contextmanager
    def loop(self, count, index=False, counter=None):
        """Repeat the body `count` times.

        Parameters
        ----------
        count : int or Reg
            A register is copied, and may be 0.
        index : bool
            Count up in a second register as well (one instruction more per turn).
        counter : Reg, optional
            16-bit register to count down in; default: a free one.

        Yields
        ------
        Reg
            With `index` the register that holds 0, 1, 2 ..., else the one that holds `count` .. 1.
        """
        down = counter or self._register("loop", 1)
        up = self._register("index", 1) if index else None
        end = None
        if isinstance(count, Reg):
            end = self.new_label()
            self.mov16(down, count)
            self.branch("eq", down, 0, end, "16")
        else:
            if not isinstance(count, (int, np.integer)) or not 0 <= count <= 0xFFFF:
                raise self._error(f"loop: {count!r} is not a number of turns in 0 .. {0xFFFF}")
            if count == 0:
                end = self.new_label()
                self.jump(end)
            self.ldi(down, int(count))
        if up is not None:
            self.ldi(up, 0)
        start = self.label()
        yield up if index else down
        if up is not None:
            self.add16(up, up, 1)
        self.sub16(down, down, 1)
        self.branch("ne", down, 0, start, "16")
        if end is not None:
            self.place(end)
        for reg in (up, None if counter is not None else down):
            if reg is not None:
                self._body.regs.remove(reg)

    @contextmanager
    def while_(self, cond, a, b, kind=None):
        """Repeat the body while ``a cond b`` holds; arguments as `branch`."""
        end = self.new_label()
        start = self.label()
        self._branch_unless(cond, a, b, end, kind)
        yield
        self.jump(start)
        self.place(end)

    @contextmanager
    def if_(self, cond, a, b, kind=None):
        """Execute the body if ``a cond b`` holds; arguments as `branch`.  `else_` may follow."""
        end = self.new_label()
        self._branch_unless(cond, a, b, end, kind)
        yield
        self.place(end)
        self._last_if = end

    @contextmanager
    def else_(self):
        """Execute the body if the condition of the `if_` right before did not hold."""
        skip = self._last_if
        if skip is None or skip.at != len(self._ins):
            raise self._error("else_ without an if_ right before it")
        end = self.new_label()
        self.jump(end)
        skip.at = len(self._ins)
        yield
        self.place(end)

    # --- assembling -----------------------------------------------------------------------------------------------

    def assemble(self):
        """Return the `ProgramImage`; the program cannot be changed any more.

        Raises
        ------
        ProgramError
            Unknown names, ids or DSRs that run out or clash, code and data that exceed the SRAM.
        """
        if self._image is None:
            if self._body is not None:
                raise self._error(f"assemble() inside {self._body.kind} {self._body.name!r}")
            self._image = _Assembler(self).image()
        return self._image

    def listing(self):
        """Return the assembled program as readable text (`fabric.disasm.listing`)."""
        from fabric import disasm

        return disasm.listing(self.assemble())


class _Assembler:
    """One pass over a finished `Program`; the order of everything is that of the source, so results are equal."""

    def __init__(self, program):
        self.p = program
        self.descriptors, self.numbers = [], {}
        self.entry = np.full(im.N_TASK_IDS, -1, np.int32)
        self.control_entry = np.full(im.N_CONTROL_IDS, -1, np.int32)

    def image(self):
        p = self.p
        self.pick_queues()
        self.pick_task_ids()
        self.pick_dsrs()
        self.check_explicit_dsrs()
        self.sizes = {}  # DSR -> words per element of the operations on it
        for ins in p._ins:
            if ins.op.form in ("alu", "dfilt"):
                for x, letter in zip((ins.a, ins.b, ins.c), ins.op.types, strict=False):
                    if isinstance(x, Dsr):
                        self.sizes.setdefault(id(x), set()).add(isa.WORDS[letter])
        offsets = np.zeros(len(p._ins) + 1, np.int64)
        for k, ins in enumerate(p._ins):
            offsets[k + 1] = offsets[k] + 1 + (ins.imm is not None)
        self.offsets = offsets
        n_code = int(offsets[-1])
        code_words = -(-2 * n_code // 4) * 4
        footprint = self.place_variables(code_words)
        for task in p._tasks.values():
            (self.control_entry if task.kind == "control" else self.entry)[task._id] = offsets[task.label.at]
        words = []
        for ins in p._ins:
            fields = [self.field(x, ins) for x in (ins.a, ins.b, ins.c, ins.d)]
            words += isa.encode(ins.op, *fields, imm=None if ins.imm is None else self.immediate(ins))
        code = _frozen(np.array(words, np.uint32))
        descriptors = np.zeros(len(self.descriptors), im.DESC_DTYPE)
        for k, row in enumerate(self.descriptors):
            descriptors[k] = row
        active, blocked, high = self.initial_bits()
        in_color = self.bound("input", "queue.in_depth")
        out_color = self.bound("output", "queue.out_depth")
        data = tuple((var._address, _frozen(np.array(var.init, np.uint16))) for var in p._vars.values()
                     if var.init is not None and np.any(var.init))
        symbols = {name: Symbol(name, var._address, var.count, var.dtype) for name, var in p._vars.items()}
        labels = {name: int(offsets[label.at]) for name, label in p._labels.items() if label.at is not None}
        data_tasks = sum(1 << t._id for t in p._tasks.values() if t.kind == "data")
        return ProgramImage(
            name=p.name, code=code, code_words=code_words, footprint=footprint, descriptors=_frozen(descriptors),
            entry=_frozen(self.entry), control_entry=_frozen(self.control_entry), data_tasks=data_tasks, active=active,
            blocked=blocked, high=high, inq_color=in_color, outq_color=out_color, half=p.half,
            main_priority=im.MAIN_PRIORITY[p.main_priority], data=data, symbols=symbols, labels=labels)

    def bound(self, kind, key):
        colors = [-1] * len(self.p.machine[key])
        for queue in self.p._queues[kind].values():
            colors[queue.id] = queue.color
        return tuple(colors)

    # --- ids ------------------------------------------------------------------------------------------------------

    def pick_queues(self):
        """Bind an input queue to the color of each data task that has none."""
        p = self.p
        queues = p._queues["input"]
        for task in p._tasks.values():
            if task.kind != "data" or any(q.color == task._id for q in queues.values()):
                continue
            free = [k for k, depth in enumerate(p.machine["queue.in_depth"]) if depth and k not in queues]
            if not free:
                raise p._error(f"data task {task.name!r}: no input queue left for color {task._id}", where=task.where)
            queues[free[0]] = Queue("input", free[0], task._id)

    def pick_task_ids(self):
        p = self.p
        colors = {q.color for q in p._queues["input"].values()}
        used = {t._id for t in p._tasks.values() if t.kind != "control" and t._id is not None}
        control = {t._id for t in p._tasks.values() if t.kind == "control" and t._id is not None}
        for task in p._tasks.values():
            if task.kind == "local" and task._id in colors:
                raise p._error(f"local task {task.name!r}: id {task._id} is a color with an input queue, whose "
                               "wavelets share its bits", where=task.where, hint="leave id out, or take another")
            if task._id is not None:
                continue
            if task.kind == "control":
                free = [k for k in range(im.N_CONTROL_IDS) if k not in control and k != im.TASK_NULL]
                pool = control
            else:
                free = [k for k in _LOCAL_IDS if k not in used and k not in colors]
                pool = used
            if not free:
                raise p._error(f"task {task.name!r}: no task id is left", where=task.where)
            task._id = free[0]
            pool.add(free[0])

    def task_id(self, ref, where=None):
        """Return the id that a reference means, checking that it can be used so."""
        p = self.p
        target = ref.task
        if isinstance(target, Task):
            if p._tasks.get(target.name) is not target:
                raise p._error(f"{ref.use}: task {target.name!r} belongs to another program", where=where)
        elif isinstance(target, str):
            if target not in p._tasks:
                raise p._error(f"{ref.use}: there is no task {target!r}", where=where,
                               hint=f"tasks: {', '.join(p._tasks) or 'none'}")
            target = p._tasks[target]
        else:
            if not isinstance(target, (int, np.integer)) or not 0 <= target < im.N_TASK_IDS:
                raise p._error(f"{ref.use}: {target!r} is not a task", where=where)
            owner = [t for t in p._tasks.values() if t.kind != "control" and t._id == target]
            if not owner:
                if ref.use in ("activate", "start"):
                    raise p._error(f"{ref.use}: no task has the id {target}", where=where)
                return int(target)
            target = owner[0]
        if target.kind == "control":
            raise p._error(f"{ref.use}: {target.name!r} is a control task; only a control wavelet starts it",
                           where=where)
        return target._id

    def initial_bits(self):
        p = self.p
        bits = {}
        for key, refs in (("start", p._starts), ("blocked", p._blocks), ("unblocked", p._unblocks)):
            bits[key] = 0
            for ref, where in refs:
                bits[key] |= 1 << self.task_id(ref, where)
        bound = {t._id for t in p._tasks.values() if t.kind != "control"}
        empty = sum(1 << c for c in range(_N_DATA_IDS) if c not in bound)
        blocked = (empty | bits["blocked"]) & ~bits["unblocked"]
        high = sum(1 << t._id for t in p._tasks.values() if t.high and t.kind != "control")
        return bits["start"], blocked, high

    # --- DSRs -----------------------------------------------------------------------------------------------------

    def pick_dsrs(self):
        """Give every DSR its number: chosen ones, their partners, free ones, then those made by the assembler."""
        p = self.p
        count = p.machine["dsr.count"]
        auto = [x for ins in p._ins for x in (ins.a, ins.b, ins.c) if isinstance(x, Dsr) and x.thread is not None]
        own = list(p._dsrs)
        taken = {file: {} for file in isa.FILES[:3]}
        groups = {}
        for dsr in own:
            groups.setdefault(self.root(dsr), []).append(dsr)
        for members in groups.values():
            for dsr in members:
                if dsr.chosen:
                    taken[dsr.file][dsr._id] = dsr
        for root, members in groups.items():
            files = [d.file for d in members]
            if len(set(files)) < len(files):
                twice = next(f for f in files if files.count(f) > 1)
                both = [d for d in members if d.file == twice]
                raise p._error(f"{both[0]} and {both[1]} are both used with one and the same partner; on WSE-2 a dest "
                               "DSR and a src0 DSR of one operation must have the same id", where=both[1].where,
                               hint="one partner for each, or load one DSR with both descriptors in turn")
            chosen = {d._id for d in members if d.chosen}
            number = chosen.pop() if chosen else next(
                (k for k in range(count) if all(k not in taken[f] for f in files)), None)
            for dsr in members:
                holder = taken[dsr.file].get(number) if number is not None else dsr
                if number is None or holder not in (None, dsr):
                    raise p._error(f"{dsr}: no number left in its file" if number is None else
                                   f"{dsr} must have number {number} like its partner, which {holder} has",
                                   where=dsr.where)
                taken[dsr.file][number] = dsr
                dsr._id = number
            root._id = members[0]._id
        self.pick_automatic(auto, taken, count)

    def root(self, dsr):
        while dsr.group is not dsr:
            dsr = dsr.group
        return dsr

    def pick_automatic(self, auto, taken, count):
        p = self.p
        free = [k for k in range(count) if all(k not in taken[f] for f in taken)]
        threads = sorted({d.thread for d in auto})
        number = {}
        for k, thread in enumerate(threads):
            if not free:
                raise p._error("the program reserves all DSRs, none is left for descriptors given to operations",
                               hint="fewer p.dsr(...), or load all descriptors explicitly")
            number[thread] = free[min(k, len(free) - 1)]
        for dsr in auto:
            if dsr._id is not None:
                continue
            root = self.root(dsr)
            if root.thread is None:  # partner of a DSR that the program reserved
                number_here = root._id
                holder = taken[dsr.file].get(number_here)
                if holder is not None:
                    raise p._error(f"a descriptor must go into {dsr.file} DSR {number_here}, the partner of {root}, "
                                   f"but the program reserves that one as {holder}", where=dsr.where,
                                   hint="load that descriptor explicitly")
                dsr._id = number_here
            else:
                dsr._id = number[dsr.thread]

    def check_explicit_dsrs(self):
        """Check operations on DSRs that the program loads itself against everything it ever loads into them."""
        p = self.p
        extended = {}
        for ins in p._ins:
            if ins.op.form not in ("alu", "dfilt", "dsr"):
                continue
            for key, x, letter in zip("abc", (ins.a, ins.b, ins.c), ins.op.types, strict=False):
                if not isinstance(x, Dsr):
                    continue
                if not x.loads:
                    raise p._error(f"{ins.op.name}: nothing is ever loaded into {x}", ins=ins, hint="p.load(dsr, dsd)")
                for dsd in x.loads:
                    if ins.op.form == "dfilt" and dsd.kind != "fabin":
                        raise p._error(f"dfilt: {dsd} is not a fabin", ins=ins)
                    if key == "a" and dsd.kind == "fabin" and ins.op.form == "alu":
                        raise p._error(f"{ins.op.name}: {dsd} cannot be the destination", ins=ins)
                    if dsd.kind in ("circular", "mem4d"):
                        extended[(x.file, x._id)] = dsd
                    if ins.op.form == "alu" and x.thread is None:
                        try:
                            p._check_type(ins.op, dsd, letter, "destination" if key == "a" else "source")
                        except ProgramError as error:
                            raise p._error(error.what, hint=error.hint, ins=ins) from None
            if ins.op.form == "alu":
                self.check_packing(ins)
            if isinstance(ins.imm, Async):
                p._thread(ins.op, [x for x in (ins.b, ins.c, ins.a) if isinstance(x, Dsr)], ins.imm, ins)
        n = p._fifos + len(extended)
        if n > p.machine["dsr.xdsr"]:
            raise p._error(f"{p._fifos} FIFOs and {len(extended)} DSRs with circular or four-dimensional descriptors "
                           f"need {n} extended DSRs, the PE has {p.machine['dsr.xdsr']}")

    def check_packing(self, ins):
        p = self.p
        seen = set()
        for x, letter in zip((ins.a, ins.b, ins.c), ins.op.types, strict=False):
            if isinstance(x, Dsr):
                seen |= {(p._packing(dsd, letter)) for dsd in x.loads if dsd.is_fabric}
        if len(seen) > 1:
            raise p._error(f"{ins.op.name}: its fabric operands are loaded with packed and with unpacked descriptors",
                           ins=ins, hint="packed=False, or packed=True, for all of them")

    def packed(self, dsd, dsr):
        """Return the packed flag of a fabric descriptor that is loaded into `dsr`."""
        if not dsd.is_fabric:
            return False
        sizes = {_WORDS[dsd.dtype]} if dsd.dtype is not None else self.sizes.get(id(dsr), set())
        if sizes == {2}:
            return False
        if dsd.packed is not None:
            return dsd.packed
        if len(sizes) > 1:
            raise self.p._error(f"{dsr} holds {dsd} for operations on 16-bit and on 32-bit elements", where=dsr.where,
                                hint="dtype=... or packed=... of the descriptor")
        return True

    # --- code -----------------------------------------------------------------------------------------------------

    def field(self, x, ins):
        if isinstance(x, Dsr):
            return isa.FILES.index(x.file) << 4 | x._id
        if isinstance(x, _TaskRef):
            return self.task_id(x, ins.where)
        return x

    def immediate(self, ins):
        imm = ins.imm
        if isinstance(imm, Address):
            return imm.var._address + imm.offset & 0xFFFF
        if isinstance(imm, Async):
            activate = None if imm.activate is None else self.task_id(_TaskRef(imm.activate, "activate"), ins.where)
            unblock = None if imm.unblock is None else self.task_id(_TaskRef(imm.unblock, "unblock"), ins.where)
            return isa.async_word(imm.priority, imm.ut, activate, unblock)
        if isinstance(imm, tuple):
            return self.descriptor(*imm, ins)
        if isinstance(imm, (str, Label)):
            return self.target(imm, ins)
        return imm

    def target(self, imm, ins):
        p = self.p
        label = p._labels.get(imm) if isinstance(imm, str) else imm
        if ins.op.name == "call" and (label is None or p._functions.get(label.name) is not label):
            raise p._error(f"call: there is no function {imm if isinstance(imm, str) else imm.name!r}", ins=ins,
                           hint=f"functions: {', '.join(p._functions) or 'none'}")
        if label is None or p._labels.get(label.name) is not label:
            raise p._error(f"{ins.op.name}: there is no label {imm!r}", ins=ins)
        if label.at is None:
            raise p._error(f"{ins.op.name}: label {label.name!r} is never placed", ins=ins)
        return int(self.offsets[label.at])

    def descriptor(self, dsd, dsr, ins):
        """Return the number of a descriptor in the program's table."""
        row = np.zeros((), im.DESC_DTYPE)
        row["kind"] = im.DSD_KINDS.index(dsd.kind)
        row["flags"] = dsd.flags | (im.F_PACKED if self.packed(dsd, dsr) else 0)
        for key in ("control_task", "push_task", "pop_task"):
            task = getattr(dsd, key)
            if task is None:
                row[key] = NO_TASK
            else:
                use = "unblock" if key == "control_task" and not dsd.on_control[0] & im.ON_ACTIVATE else "activate"
                row[key] = self.task_id(_TaskRef(task, use), ins.where)
        if dsd.queue is not None:
            row["queue"] = dsd.queue.id
        if dsd.on_control:
            row["on_control"] = dsd.on_control[0]
        if dsd.base is not None:
            row["base"] = dsd.base.var._address + dsd.base.offset & 0xFFFF
        row["index"], row["length"], row["xdsr"] = dsd.index or 0, dsd.length, dsd.fifo
        row["ndim"] = len(dsd.extent)
        row["extent"][:len(dsd.extent)] = dsd.extent
        row["stride"][:len(dsd.stride)] = dsd.stride
        key = row.tobytes()
        if key not in self.numbers:
            self.numbers[key] = len(self.descriptors)
            self.descriptors.append(row)
        return self.numbers[key]

    # --- SRAM -----------------------------------------------------------------------------------------------------

    def place_variables(self, code_words):
        p = self.p
        banks = p.machine["mem.banks"]
        gaps, end = [], code_words
        for var in p._vars.values():
            for k, (low, high) in enumerate(gaps):
                at = self.fit(var, low, banks)
                if at + var.words <= high:
                    gaps[k:k + 1] = [g for g in ((low, at), (at + var.words, high)) if g[0] < g[1]]
                    break
            else:
                at = self.fit(var, end, banks)
                if at > end:
                    gaps.append((end, at))
                end = at + var.words
            var._address = at
        footprint = -(-end // 4) * 4
        if footprint > p.machine["mem.words"]:
            sizes = {"code": code_words} | {f"{v.name!r}": v.words for v in p._vars.values()}
            lines = ", ".join(f"{name} {words}" for name, words in sorted(sizes.items(), key=lambda item: -item[1]))
            for var in p._vars.values():
                var._address = None
            raise p._error(f"the program needs {footprint} words, a PE has {p.machine['mem.words']}", where=None,
                           hint=f"smaller or fewer variables; words per part: {lines}")
        return footprint

    @staticmethod
    def fit(var, at, banks):
        at = -(-at // var.align) * var.align
        if var.bank is not None:
            while at % banks != var.bank:
                at += var.align
        return at


def _frozen(array):
    array.setflags(write=False)
    return array


# --- one method per row of the op table -------------------------------------------------------------------------------

def _lanes_text(op):
    return f"{op.lanes[0]} / {op.lanes[1]} elements per cycle (wse2 / wse3)" if any(op.lanes) else "scalar only"


def _operation_method(op):
    names = ["dst", "a", "b", "scalar"][: sum(letter != "-" for letter in op.types)]
    kinds = ", ".join(f"{n}: {_LETTER_NAME[t]}" for n, t in zip(names, op.types.replace("-", ""), strict=True))

    def method(self, *args, async_=None, **attributes):
        self._operation(op, args, async_, attributes)

    method.__name__ = method.__qualname__ = op.name
    method.__doc__ = (
        f"{op.name}({', '.join(names)}): {op.doc}\n\n        In the table's words a is the destination, b, c and d are "
        f"the sources in order.\n        {kinds}.\n        Vector form: {_lanes_text(op)}. Cost class {op.cost}. "
        f"Source: {op.source}.\n        Keywords: async_=True or Program.async_(...), or its attributes beside "
        "async_=True.\n        ")
    return method


def _refusal(feature):
    def method(self, *args, **kwargs):
        raise self._unsupported(feature)

    method.__name__ = method.__qualname__ = feature
    method.__doc__ = f"Not modelled: {isa.UNSUPPORTED[feature]}."
    return method


for _op in isa.OPS:
    if _op.form == "alu":
        setattr(Program, _op.name, _operation_method(_op))
for _feature in ("addc16", "fnormh", "fnorms", "map"):
    setattr(Program, _feature, _refusal(_feature))

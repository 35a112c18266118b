"""A unit of assembly is all that becomes one `wse_core.image.ProgramImage`, without any front end.

A compiler and the Python sugar (`fabric.program.program.Program`) both stand on `Unit`.  It takes variables, queues,
data structure registers, tasks, functions, labels and symbolic instructions, each with its place in the source, refuses
what no PE can have, and assembles.

```python
unit = Unit("count")
n = unit.variable("n", 1, "u16", init=[41])
unit.begin_task("main", at=Place("count.csl", 3))
unit.emit("ld16", a=unit.register_field(Reg(2), "i", "ld16"), imm=Address(n), at=Place("count.csl", 4, 9))
...
unit.end(at=Place("count.csl", 6))
image = unit.assemble()
```

What the assembler decides, and how:

* *Task ids.*  Local tasks take the lowest free of 24, 25, 26, 27, 28, 30, then colors without an input queue from 23
  down.  29 is the teardown task, 31 is no task.
* *DSRs.*  Those without a chosen number get the first that is free, with the same number for DSRs that must be paired;
  those of `automatic_dsr` one number per thread.
* *SRAM.*  Code from word 0, then variables in the order of their declaration, each at the first address that its
  alignment and bank allow.

Timing: none.  Sources: arch §4 to §7; the encoding is `wse_core.isa`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fabric.asm.assembler import Assembler
from fabric.asm.hints import HINTS
from fabric.asm.instruction import HERE, LETTER_NAME, MOVES, At, Body, Instruction, SourcePlace, TaskRef
from fabric.asm.operands import Address, Dsr, Label, Queue, Reg, Task, Var, is_number
from fabric.asm.values import WORDS, encode_array, encode_number
from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_QUEUES
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.image import ProgramImage
from wse_core.params import Machine
from wse_core.params import machine as _machine

__all__ = ["Unit"]


class Unit:
    """A `Unit` holds the code and the data of one PE.

    Parameters
    ----------
    name : str
        For messages and listings.
    machine : Machine, optional
        `wse_core.params.machine()`; default wse2.
    half : {"f16", "cb16"}
        What a 16-bit float is.
    main_priority : {"medium_low", "medium", "medium_high", "high"}
        Issue level of the main thread relative to microthreads.
    registers : bool
        Whether loads and stores of 16 bits reach registers by their addresses.
    here : callable, optional
        Returns the `SourcePlace` that the front end is at, or None; asked where no place is passed.
    hints : mapping
        What errors suggest, in the words of the front end; see `fabric.asm.hints`.

    Attributes
    ----------
    instructions : list of Instruction
    variables, labels, tasks, functions : dict
        By name.
    queues : dict[str, dict[int, Queue]]
        By kind and number.
    body : Body or None
        The task or function that is being written.
    undone : int
        How often something was taken back (`fabric.asm.mark`); who remembers what was written asks for it.
    data_from : int
        Word at which variables begin, if the code is not longer: programs that follow one another on a PE and declare
        the same variables first have them at the same place.
    dense : bool
        Whether code may take half of its words in memory if the program does not fit otherwise.
    """

    def __init__(
        self,
        name: str,
        machine: Machine | None = None,
        half: str = "f16",
        main_priority: str = "medium_low",
        registers: bool = False,
        here: Callable[[], SourcePlace | None] | None = None,
        hints: Mapping[str, str] = HINTS,
    ) -> None:
        self.name = str(name)
        self.hints = hints
        self.machine: Machine = _machine() if machine is None else machine
        if half not in ("f16", "cb16"):
            raise ProgramError(f"half {half!r} is not a 16-bit float", program=name, hint='"f16" or "cb16"')
        if main_priority not in im.MAIN_PRIORITY:
            raise ProgramError(
                f"main_priority {main_priority!r} is unknown", program=name, hint=", ".join(im.MAIN_PRIORITY)
            )
        self.half, self.main_priority, self.registers = half, main_priority, registers
        self.here: Callable[[], SourcePlace | None] = here or _nowhere
        self.instructions: list[Instruction] = []
        self.variables: dict[str, Var] = {}
        self.labels: dict[str, Label] = {}
        self.tasks: dict[str, Task] = {}
        self.shared_ids: frozenset[int] = frozenset()  # of local tasks whose color only brings control wavelets
        self.functions: dict[str, Label] = {}
        self.queues: dict[str, dict[int, Queue]] = {"input": {}, "output": {}}
        self.dsrs: list[Dsr] = []
        self.united: list[Dsr] = []  # those that joined the group of another, in order
        self.fifos = 0
        self.data_from = 0
        self.dense = False
        self.body: Body | None = None
        self.starts: list[tuple[TaskRef, SourcePlace | None]] = []
        self.blocks: list[tuple[TaskRef, SourcePlace | None]] = []
        self.unblocks: list[tuple[TaskRef, SourcePlace | None]] = []
        self.labels_made = 0
        self.undone = 0
        self._image: ProgramImage | None = None

    def __repr__(self) -> str:
        return f"Unit({self.name!r}, {len(self.instructions)} instructions)"

    # --- errors -------------------------------------------------------------------------------------------------------

    def place(self, at: At) -> SourcePlace | None:
        """Return the place that `at` stands for."""
        return self.here() if at is HERE else at  # type: ignore[return-value]

    def error(
        self, what: str, hint: str | None = None, ins: Instruction | None = None, at: At = HERE, **fields: Any
    ) -> ProgramError:
        """Return an error about this unit: about an instruction, a place, or where the front end is."""
        where = ins.at if ins is not None else self.place(at)
        body = ins.body if ins is not None else self.body.name if self.body else None
        index = self.instructions.index(ins) if ins is not None else len(self.instructions) if self.body else None
        text = None if where is None else str(where)
        return ProgramError(what, hint=hint, where=text, program=self.name, task=body, instruction=index, **fields)

    def hint(self, key: str, **names: Any) -> str:
        """Return a hint in the words of the front end."""
        return self.hints[key].format(**names)

    def unsupported(self, feature: str, what: str | None = None, at: At = HERE) -> UnsupportedError:
        """Return the error for something that the real machine has and the model has not."""
        return UnsupportedError(
            f"{what or feature} is not modelled",
            feature=feature,
            cause=isa.UNSUPPORTED[feature],
            where=f"program {self.name!r}, {self.place(at)}",
        )

    def changing(self) -> None:
        """Refuse a change after the unit has been assembled."""
        if self._image is not None:
            raise self.error("the program is assembled and cannot be changed any more", hint=self.hint("assembled"))

    # --- instructions -------------------------------------------------------------------------------------------------

    def emit(
        self, name: str, a: Any = 0, b: Any = 0, c: Any = 0, d: Any = 0, *, imm: Any = None, at: At = HERE
    ) -> Instruction:
        """Append an instruction to the task or function that is being written; see `Instruction` for the operands."""
        if self._image is not None:
            self.changing()
        if self.body is None:
            raise self.error(f"{name}: an instruction outside a task or function", hint=self.hint("body"), at=at)
        place = self.here() if at is HERE else at
        ins = Instruction(isa.BY_NAME[name], a, b, c, d, imm, place, self.body.name)  # type: ignore[arg-type]
        if name == "dsr_load" and isinstance(imm, tuple):
            dsd, dsr = imm
            dsr.loads.append(dsd)
        self.instructions.append(ins)
        return ins

    def immediate(self, value: object, letter: str, what: str) -> int | Address:
        """Return `value` as the bits of an element of type `letter` of the op table; `what` names it in messages."""
        if isinstance(value, (Var, Address)) and letter == "i":
            return Address(value) if isinstance(value, Var) else value
        if not is_number(value):
            raise self.error(f"{what}: {value!r} is neither a register nor a number")
        if letter in "hs":
            dtype = self.half if letter == "h" else "f32"
            words = encode_number(float(value), dtype, self.machine["num.cb16_bias"])
            return words[0] | (words[1] << 16 if letter == "s" else 0)
        bits = 16 if letter == "i" else 32
        if isinstance(value, (float, np.floating)):
            raise self.error(f"{what}: {value} given where a {LETTER_NAME[letter]} belongs")
        if not -1 << bits - 1 <= value < 1 << bits:
            raise self.error(f"{what}: {value} does not fit {bits} bits")
        return int(value) & (1 << bits) - 1

    def register_field(self, reg: object, letter: str, what: str) -> int:
        """Return the operand field of a register that holds an element of type `letter`."""
        if not isinstance(reg, Reg):
            raise self.error(f"{what}: {reg!r} is not a register")
        need = 1 if letter in "hi" else 2
        if reg.size not in (0, need):
            raise self.error(
                f"{what}: {reg} has {16 * reg.size} bits, a {LETTER_NAME[letter]} has {16 * need}",
                hint=self.hint("register"),
            )
        if need == 2 and reg.id % 2:
            raise self.error(f"{what}: register pair r{reg.id}:r{reg.id + 1}: the first register of a pair is even")
        return isa.FILE_REG << 4 | reg.id

    @staticmethod
    def immediate_type(op: isa.Op, value: object, letter: str) -> str:
        """Return the type of an immediate operand: a float that is copied as bits stays a float."""
        if op.name in MOVES and isinstance(value, (float, np.floating)):
            return "h" if letter == "i" else "s"
        return letter

    # --- tasks, functions, labels -------------------------------------------------------------------------------------

    def begin_task(
        self,
        name: str,
        kind: str = "local",
        id: int | None = None,
        color: int | None = None,
        high: bool = False,
        at: At = HERE,
    ) -> Task:
        """Begin a task: what is emitted until `end` is its body.

        Parameters
        ----------
        name : str
        kind : {"local", "data", "control"}
            Started by activation, by each data wavelet of `color`, or by a control wavelet with its id.
        id : int, optional
            Local: 0 .. 30, 29 = the teardown task.  Control: 0 .. 63 without 31.
        color : int
            Of a data task; an input queue is chosen if none is bound to it.
        high : bool
            Chosen by the picker before those that are not.
        at : SourcePlace, optional
        """
        self.changing()
        at = self.place(at)
        self._check_body("task", name, at)
        if kind not in ("local", "data", "control"):
            raise self.error(f"unknown kind of task {kind!r}", hint="local, data, control", at=at)
        if (color is None) == (kind == "data"):
            raise self.error(f"task {name!r}: a data task, and no other, has a color", at=at)
        if kind == "data":
            color = self.color(color, f"data task {name!r}", at)
            chosen = "that of its queue" if self.machine["task.by_queue"] else f"its color {color}"
            if id not in (None, None if self.machine["task.by_queue"] else color):
                raise self.error(f"data task {name!r}: its id is {chosen}, not {id}", at=at)
            id = None if self.machine["task.by_queue"] else color
        elif id is not None:
            top = im.N_CONTROL_IDS if kind == "control" else im.N_TASK_IDS
            least = N_QUEUES if kind == "local" and self.machine["task.by_queue"] else 0
            if not isinstance(id, (int, np.integer)) or not least <= id < top or id == im.TASK_NULL:
                raise self.error(
                    f"{kind} task {name!r}: id {id!r} is outside {least} .. {top - 1} or is {im.TASK_NULL}, the id of "
                    f"none on {self.machine.preset}",
                    at=at,
                )
        if id is not None:
            for other in self.tasks.values():
                if other.number == id and (other.kind == "control") == (kind == "control"):
                    raise self.error(f"tasks {other.name!r} and {name!r} have the same id {id}", at=at)
        task = self.tasks[name] = Task(self, name, kind, None if id is None else int(id), color, high, at)
        task.label = self._begin(name, kind)
        return task

    def begin_function(self, name: str, at: At = HERE) -> Label:
        """Begin a function, to be called by ``call``: what is emitted until `end` is its body."""
        self.changing()
        self._check_body("function", name, at)
        label = self.functions[name] = self._begin(name, "function")
        return label

    def end(self, at: At = HERE) -> None:
        """End the task or function that is being written with ``done`` or ``ret``."""
        if self.body is None:
            raise self.error("end of a task or function outside of one", at=at)
        self.emit("ret" if self.body.kind == "function" else "done", at=at)
        self.body = None

    def _check_body(self, what: str, name: str, at: At) -> None:
        if self.body is not None:
            raise self.error(f"{what} {name!r} begins inside {self.body.kind} {self.body.name!r}", at=at)
        if name in self.tasks or name in self.functions:
            raise self.error(f"two tasks or functions are called {name!r}", at=at)

    def _begin(self, name: str, kind: str) -> Label:
        label = self.labels[name] = Label(name)
        label.at = len(self.instructions)
        self.body = Body(name, kind)
        return label

    def new_label(self, name: str | None = None, at: At = HERE) -> Label:
        """Return a label to be put somewhere later by `place_label`."""
        self.labels_made += 1
        name = f".{self.labels_made}" if name is None else name
        if name in self.labels:
            raise self.error(f"label {name!r} exists already", at=at)
        label = self.labels[name] = Label(name)
        return label

    def place_label(self, label: Label, at: At = HERE) -> Label:
        """Put a label before the next instruction."""
        self.changing()
        if self.body is None:
            raise self.error(f"label {label.name!r} outside a task or function", at=at)
        if label.at is not None:
            raise self.error(f"label {label.name!r} is placed twice", at=at)
        label.at = len(self.instructions)
        return label

    def start(self, task: object, at: At = HERE) -> None:
        """Begin with a task (`Task`, name or id) activated."""
        self.changing()
        self.starts.append((TaskRef(task, "start"), self.place(at)))

    def block(self, task: object, at: At = HERE) -> None:
        """Begin with a task or color blocked."""
        self.changing()
        self.blocks.append((TaskRef(task, "blocked"), self.place(at)))

    def unblock(self, task: object, at: At = HERE) -> None:
        """Begin with a color, or an input queue, unblocked although it has no data task."""
        self.changing()
        self.unblocks.append((TaskRef(task, "unblocked"), self.place(at)))

    # --- variables, queues, DSRs --------------------------------------------------------------------------------------

    def variable(
        self,
        name: str,
        count: int,
        dtype: str,
        init: ArrayLike | None = None,
        align: int | None = None,
        bank: int | None = None,
        at: At = HERE,
    ) -> Var:
        """Declare a variable; see `fabric.program.memory.ProgramMemory.array`."""
        self.changing()
        dtype = self.half if dtype == "half" else dtype
        if name in self.variables:
            raise self.error("a variable of this name exists already", symbol=name, at=at)
        if dtype not in WORDS:
            raise self.error(f"unknown element type {dtype!r}", symbol=name, hint=", ".join([*WORDS, "half"]), at=at)
        if dtype in ("f16", "cb16") and dtype != self.half:
            raise self.error(
                f"{dtype} in a program whose 16-bit float is {self.half}",
                symbol=name,
                hint=self.hint("half", dtype=dtype),
                at=at,
            )
        if not isinstance(count, (int, np.integer)) or count < 1:
            raise self.error(f"{count!r} is not a number of elements", symbol=name, at=at)
        align = align or WORDS[dtype]
        banks = self.machine["mem.banks"]
        if align % WORDS[dtype]:
            raise self.error(f"alignment {align} does not fit {dtype}, which needs even addresses", symbol=name, at=at)
        if bank is not None:
            if not 0 <= bank < banks:
                raise self.error(f"bank {bank} is outside 0 .. {banks - 1}", symbol=name, at=at)
            if bank % math.gcd(align, banks):
                raise self.error(f"no address is a multiple of {align} and {bank} modulo {banks}", symbol=name, at=at)
        words = None
        if init is not None:
            words = encode_array(init, dtype, self.machine["num.cb16_bias"], f"initial value of {name!r}").ravel()
            if len(words) > count * WORDS[dtype]:
                raise self.error(
                    f"{len(words) // WORDS[dtype]} initial values for {count} elements", symbol=name, at=at
                )
        self.variables[name] = var = Var(self, name, int(count), dtype, align, bank, words)
        return var

    def queue(self, kind: str, q: int, color: int, at: At = HERE, shared: bool = False) -> Queue:
        """Bind a queue of a kind (``input`` or ``output``) to a color; the same pair again gives the same one.

        With `shared` the queue may have one color more, and the color of an output several queues: operations name
        both, as on WSE-2.  Their microthread is that of the queue, their wavelets wait with those of their color.
        """
        self.changing()
        depths = self.machine["queue.in_depth" if kind == "input" else "queue.out_depth"]
        exist = [i for i, depth in enumerate(depths) if depth]
        if q not in exist:
            raise self.error(
                f"{kind} queue {q!r} does not exist on {self.machine.preset}",
                hint=f"queues {exist[0]} .. {exist[-1]}",
                at=at,
            )
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.machine["router.colors"]:
            needed = int(color) + 1 if isinstance(color, (int, np.integer)) else None
            raise self.error(
                f"color {color!r} of {kind} queue {q} is not routable",
                limit="routes",
                needed=needed,
                available=self.machine["router.colors"],
                hint=f"colors 0 .. {self.machine['router.colors'] - 1}",
                at=at,
            )
        bound = self.queues[kind]
        if shared and q in bound and bound[q].color != color:
            q += N_QUEUES
        if q in bound and bound[q].color == color:
            return bound[q]
        if q in bound:
            raise self.error(
                f"{kind} queue {q % N_QUEUES} is bound twice, to colors {bound[q].color} and {color}", at=at
            )
        for other in bound.values():
            if other.color == color and not (shared and kind == "output"):
                raise self.error(
                    f"color {color} is bound to two {kind} queues, {other.number} and {q % N_QUEUES}", at=at
                )
        bound[q] = Queue(kind, q, int(color))
        return bound[q]

    def color(self, color: object, what: str, at: At = HERE) -> int:
        """Return `color` as a number, or refuse one that routers do not have."""
        colors = self.machine["router.colors"]
        if not isinstance(color, (int, np.integer)) or not 0 <= color < colors:
            raise self.error(f"{what}: color {color!r} is not routable", hint=f"colors 0 .. {colors - 1}", at=at)
        return int(color)

    def dsr(self, file: str, id: int | None = None, name: str = "", at: At = HERE) -> Dsr:
        """Reserve a data structure register; see `fabric.program.dsrs.Dsrs.dsr`."""
        self.changing()
        if file not in isa.FILES[:3]:
            raise self.error(f"unknown DSR file {file!r}", hint=", ".join(isa.FILES[:3]), at=at)
        if id is not None:
            if not 0 <= id < self.machine["dsr.count"]:
                raise self.error(f"{file} DSR {id} does not exist", hint=f"0 .. {self.machine['dsr.count'] - 1}", at=at)
            if any(d.file == file and d.number == id for d in self.dsrs):
                raise self.error(f"{file} DSR {id} is reserved twice", at=at)
        dsr = Dsr(self, file, id, name, self.place(at))
        self.dsrs.append(dsr)
        return dsr

    def automatic_dsr(self, file: str, thread: int, at: At = HERE) -> Dsr:
        """Return a DSR for one descriptor of one operation: all those of a thread (-1 = main) share a number."""
        dsr = Dsr(self, file, None, "", self.place(at))
        dsr.thread = thread
        return dsr

    def fifo(self, at: At = HERE, symbol: str | None = None) -> int:
        """Reserve a FIFO and return its number."""
        self.changing()
        if self.fifos >= self.machine["dsr.xdsr"]:
            raise self.error(f"more than {self.machine['dsr.xdsr']} FIFOs", symbol=symbol, at=at)
        self.fifos += 1
        return self.fifos - 1

    # --- the image ----------------------------------------------------------------------------------------------------

    def assemble(self) -> ProgramImage:
        """Return the image; the unit cannot be changed any more.

        Raises
        ------
        ProgramError
            Unknown names, ids or DSRs that run out or clash, code and data that exceed the SRAM.
        """
        if self._image is None:
            if self.body is not None:
                raise self.error(f"assemble() inside {self.body.kind} {self.body.name!r}")
            self._image = Assembler(self).image()
        return self._image


def _nowhere() -> None:
    """Return no place, for a front end that passes all of its places."""

"""A loader hands these to a machine: program images and the description of one fabric.

`fabric` builds these; the compiled engine (`fabric.engine.engine`) and the plain-Python reference
(`wse_core.reference`) both run from them, so that the two start from the same bits.  The numbers in them (kinds, flags,
fields) come from `wse_core.encoding`; the record layouts here have C twins, and `wse_core.twins` compares sizes and
offsets when the engine is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wse_core.encoding import (
    CMD_ADV,
    CMD_NOP,
    CMD_RST,
    CMD_TEARDOWN,
    DIR_E,
    DIR_N,
    DIR_R,
    DIR_S,
    DIR_W,
    DIRS,
    DSD_CIRCULAR,
    DSD_FABIN,
    DSD_FABOUT,
    DSD_FIFO,
    DSD_KINDS,
    DSD_MEM1D,
    DSD_MEM4D,
    DSD_NONE,
    ENDLESS,
    F_ADVANCE,
    F_CONTROL,
    F_FLUSH,
    F_INDEX,
    F_PACKED,
    F_SAVE,
    F_TERMINATE,
    F_ZERO,
    FILTER_COUNTER,
    FILTER_NONE,
    FILTER_RANGE,
    N_CONTROL_IDS,
    N_TASK_IDS,
    NO_TASK,
    ON_ACTIVATE,
    ON_TERMINATE,
    ON_UNBLOCK,
    POP_MODES,
    TASK_NULL,
    TASK_TEARDOWN,
    UT_LEVELS,
)
from wse_core.params import Machine

__all__ = [
    "CMD_ADV",
    "CMD_NOP",
    "CMD_RST",
    "CMD_TEARDOWN",
    "DESC_DTYPE",
    "DIRS",
    "DIR_E",
    "DIR_N",
    "DIR_R",
    "DIR_S",
    "DIR_W",
    "DSD_CIRCULAR",
    "DSD_FABIN",
    "DSD_FABOUT",
    "DSD_FIFO",
    "DSD_KINDS",
    "DSD_MEM1D",
    "DSD_MEM4D",
    "DSD_NONE",
    "ENDLESS",
    "FILTER_COUNTER",
    "FILTER_DTYPE",
    "FILTER_NONE",
    "FILTER_RANGE",
    "F_ADVANCE",
    "F_CONTROL",
    "F_FLUSH",
    "F_INDEX",
    "F_PACKED",
    "F_SAVE",
    "F_TERMINATE",
    "F_ZERO",
    "MAIN_PRIORITY",
    "NO_TASK",
    "N_CONTROL_IDS",
    "N_TASK_IDS",
    "ON_ACTIVATE",
    "ON_TERMINATE",
    "ON_UNBLOCK",
    "POP_MODES",
    "ROUTE_DTYPE",
    "STEP",
    "TASK_NULL",
    "TASK_TEARDOWN",
    "UT_PRIORITY",
    "FabricSpec",
    "ProgramImage",
    "RouteTable",
    "Symbol",
]

STEP = ((-1, 0), (1, 0), (0, -1), (0, 1))  # (dx, dy) of W, E, N, S; x grows east, y south (docs/machine.md)

DESC_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("queue", "u1"),
        ("xdsr", "u1"),  # xdsr: FIFO number
        ("on_control", "u1"),
        ("control_task", "u1"),
        ("push_task", "u1"),
        ("pop_task", "u1"),
        ("base", "<u2"),  # word address
        ("index", "<u2"),  # fabout: upper half of outgoing 16-bit wavelets when F_INDEX is set
        ("length", "<u2"),  # circular buffer or FIFO: capacity [elements]
        ("ndim", "u1"),
        ("pad", "u1"),
        ("extent", "<u2", 4),  # [elements], outermost dimension first
        ("stride", "<i2", 4),  # [elements]
    ]
)
"""A descriptor (DSD), which is also the content of a DSR, is a record of 32 bytes.  `control_task` is activated or
unblocked on a control wavelet at a fabin; `push_task` / `pop_task` when a step pushes to / pops from a FIFO what
another had to wait for.
"""

ROUTE_DTYPE = np.dtype(
    [
        ("rx", "u1", 4),
        ("tx", "u1", 4),  # sets of directions (bit d) per switch position
        ("valid", "u1"),  # set of valid positions (bit p); position 0 valid = color used here
        ("pos", "u1"),
        ("ring", "u1"),
        ("pop", "u1"),  # 0 no_pop, 1 always_pop, 2 pop_on_advance, 3 pop_on_advance_nop
        ("teardown", "u1"),
        ("filter", "u1"),  # 0 none, k = filter k - 1 of this PE
        ("swap", "u1"),  # bit 0: x axis, bit 1: y axis
        ("inject", "u1"),  # 0 off, 1 low priority, 2 high priority
    ]
)
"""The routing of one color at one PE is a record of 16 bytes."""

FILTER_DTYPE = np.dtype(
    [
        ("kind", "u1"),  # 0 none, 1 counter, 2 range
        ("count_data", "u1"),
        ("count_control", "u1"),
        ("filter_control", "u1"),
        ("counter", "<u2"),
        ("max", "<u2"),
        ("limit", "<u2"),
        ("min_idx", "<u2"),
        ("max_idx", "<u2"),
        ("pad", "<u2"),
    ]
)
"""A filter of wavelets is a record of 16 bytes."""

# Levels of issue priority (docs/machine.md, "Issue").
MAIN_PRIORITY = {"medium_low": 1, "medium": 2, "medium_high": 3, "high": 4}
UT_PRIORITY = tuple(UT_LEVELS * k for k in range(3))  # low, medium, high


@dataclass(frozen=True)
class Symbol:
    """A symbol is a named array in SRAM: word address, number of elements, numpy dtype of the host's view."""

    name: str
    address: int
    count: int
    dtype: str  # "f16", "cb16", "f32", "i16", "u16", "i32", "u32"

    @property
    def words(self) -> int:
        """The array takes so many words of SRAM."""
        return self.count * (2 if self.dtype in ("f32", "i32", "u32") else 1)


@dataclass(frozen=True)
class ProgramImage:
    """A program image is one assembled PE program, shared by every PE that runs it.

    Attributes
    ----------
    name : str
    code : ndarray[uint32]
        Encoded instructions; they occupy SRAM words 0 .. code_words - 1.
    code_words : int
        ``2 * len(code)`` rounded up to a multiple of 4; half of that of a program in CSL that would not fit.
    footprint : int
        First SRAM word that the program does not use; a multiple of 4. Data live in code_words .. footprint - 1.
    descriptors : ndarray[DESC_DTYPE]
    entry, control_entry : ndarray[int32], shape (32,), (64,)
        Code word index of each local or data task and of each control task; -1 = unbound.
    data_tasks : int
        Bit set of the ids that are data tasks.
    active, blocked, high : int
        Initial activated bits, initial blocked bits, bits of high-priority tasks.
    inq_color, outq_color : tuple[int, ...]
        Color bound to each input / output queue; -1 = none.
    half : str
        ``f16`` or ``cb16``: what a 16-bit float is in this program.
    main_priority : int
        Issue level of the main thread.
    data : tuple[(address, ndarray[uint16]), ...]
        Initial contents of SRAM; the rest starts as zero.
    symbols : dict[str, Symbol]
    lines : dict[int, str]
        Where vector operations stand in their source, by code word.
    registers : bool
        Whether loads and stores of 16 bits reach the registers of router, queues and clock by their addresses
        (docs/machine.md); else an address beyond the data is a fault.
    undefined : tuple[str, ...]
        Variables that have no value at the beginning, for checks of memory (`fabric.host.checks`).
    """

    name: str
    code: np.ndarray
    code_words: int
    footprint: int
    descriptors: np.ndarray
    entry: np.ndarray
    control_entry: np.ndarray
    data_tasks: int
    active: int
    blocked: int
    high: int
    inq_color: tuple[int, ...]
    outq_color: tuple[int, ...]
    half: str = "f16"
    main_priority: int = MAIN_PRIORITY["medium_low"]
    data: tuple[tuple[int, np.ndarray], ...] = ()
    symbols: dict[str, Symbol] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    registers: bool = False
    undefined: tuple[str, ...] = ()

    def recoloured(self, colors: Mapping[int, int], name: str) -> ProgramImage:
        """Return the image with other colors for some of those that its queues are bound to.

        It is the program as it would be written with these colors if no task and no instruction names them.
        """
        into, out = (tuple(colors.get(color, color) for color in had) for had in (self.inq_color, self.outq_color))
        return replace(self, name=name, inq_color=into, outq_color=out)


class RouteTable:
    """A `RouteTable` is the routing of one color: the few records that occur, and which of them each PE has.

    Indexed as the array of records that it stands for: ``table["rx"]``, ``table[y, x]``, ``table[mask]``; what is
    returned is a copy.  A whole wafer has hundreds of thousands of PEs and seldom ten kinds of them.

    Parameters
    ----------
    kinds : ndarray[ROUTE_DTYPE], shape (n,)
    which : ndarray of uint8 or uint16, shape (height, width)
        Number of each PE's record.
    """

    def __init__(self, kinds: np.ndarray, which: np.ndarray) -> None:
        self.kinds, self.which = kinds.view(), which.view()
        self.kinds.setflags(write=False)
        self.which.setflags(write=False)

    @classmethod
    def of(cls, records: np.ndarray) -> RouteTable:
        """Return the table of an array[ROUTE_DTYPE] of shape (height, width)."""
        records = np.ascontiguousarray(records, ROUTE_DTYPE)
        number = np.zeros(records.size, np.intp)
        for half in records.view(np.uint64).reshape(-1, 2).T:  # whole numbers are sorted several times as fast
            found, which = np.unique(half, return_inverse=True)
            number = number * len(found) + which
        _, first, which = np.unique(number, return_index=True, return_inverse=True)
        small = np.min_scalar_type(len(first) - 1)
        return cls(records.reshape(-1)[first], which.reshape(records.shape).astype(small))

    @property
    def shape(self) -> tuple[int, ...]:
        """The table has this shape: its rows and columns of PEs."""
        return self.which.shape

    @property
    def dtype(self) -> np.dtype:
        """The records of the table have this numpy type."""
        return self.kinds.dtype

    @property
    def nbytes(self) -> int:
        """Both arrays of the table together take so many bytes."""
        return self.kinds.nbytes + self.which.nbytes

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, str):
            return self.kinds[where][self.which]
        return self.kinds[self.which[where]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.kinds[self.which]

    def count(self, field: str) -> int:
        """Return the number of PEs in whose record a field is not 0."""
        n = len(self.kinds)
        some = self.kinds[field].reshape(n, -1).any(axis=1)
        return int(np.bincount(self.which.reshape(-1), minlength=n)[some].sum())

    def filtered(self, slots: np.ndarray) -> RouteTable:
        """Return the table with another filter per PE: its number from 1, or 0, shape (height, width)."""
        base = int(slots.max(initial=0)) + 1
        pairs, which = np.unique(self.which.astype(np.intp) * base + slots, return_inverse=True)
        kinds = self.kinds[pairs // base]
        kinds["filter"] = pairs % base
        return RouteTable(kinds, which.reshape(self.shape).astype(np.min_scalar_type(len(kinds) - 1)))


@dataclass(frozen=True)
class FabricSpec:
    """A fabric specification describes a validated fabric, ready to run.

    Attributes
    ----------
    machine : Machine
    width, height : int
    programs : tuple[ProgramImage, ...]
    program_index : ndarray[int16], shape (height, width)
        Program of each PE; -1 = router only.
    routes : dict[int, RouteTable]
        Per used color, shape (height, width).
    filters : ndarray[FILTER_DTYPE] or None
        Shape (height, width, n_filters); None if no PE uses a filter.
    inputs, outputs : tuple[(x, y, direction, color), ...]
        Ports of the host: (x, y) is the PE, direction its side at the rectangle's edge, or R, the ramp of any PE.
    """

    machine: Machine
    width: int
    height: int
    programs: tuple[ProgramImage, ...]
    program_index: np.ndarray
    routes: dict[int, RouteTable]
    filters: np.ndarray | None = None
    inputs: tuple[tuple[int, int, int, int], ...] = ()
    outputs: tuple[tuple[int, int, int, int], ...] = ()

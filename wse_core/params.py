"""Every modelled number, once, with unit, source and confidence.

A *preset* (``wse2``, ``wse3``) is a column of this table; a `Machine` is a preset with overrides.  The compiled engine,
the plain-Python reference, the documentation (``docs/accuracy.md``) and ``wse doctor --assumptions`` all read this
file.  No number of the hardware is written anywhere else.

Confidence: *published* (vendor document, vendor tool or peer-reviewed paper), *inferred* (derived from published
measurements), *assumed* (no public evidence; the most defensible choice).

Sources, short: architecture reference sections are cited as "arch §n"; HPDC24 = Luczynski et al., arXiv 2404.15888;
SPMM = pr0f3ss/SpMM_Cerebras cycle tables (WSE-2 fabric simulator); CSL = vendor's CSL language documentation.  Other
measured programs are named as in ``harness/validation/calibration.json``; `wse validate` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from wse_core.errors import ConfigError
from wse_core.schema import Field, close_match, suggestion

__all__ = ["PARAMETERS", "PRESETS", "Machine", "Param", "machine"]

PRESETS = ("wse2", "wse3")
CONFIDENCES = ("published", "inferred", "assumed")


@dataclass(frozen=True)
class Param:
    """One modelled number.

    Attributes
    ----------
    name : str
        Key, dotted by part of the machine.
    values : Mapping[str, Any]
        Value per preset.
    unit, source, confidence, doc : str
        Unit of the value, where it comes from, how sure it is, and what it means.
    choices : tuple
        Legal values, empty if any value of the same type within [low, high] is legal.
    """

    name: str
    values: Mapping[str, Any]
    unit: str
    source: str
    confidence: str
    doc: str
    low: int = 0
    high: int = 2**31 - 1
    choices: tuple = ()

    @property
    def value(self):
        """Value of the default preset (wse2)."""
        return self.values["wse2"]

    @property
    def field(self) -> Field:
        """Type and limits, as `wse_core.schema` checks them."""
        kind, length = type(self.value), len(self.value) if isinstance(self.value, tuple) else None
        low, high = (None, None) if kind is str else (self.low, self.high)
        return Field(self.name, kind, self.doc, low, high, self.choices, self.unit, length)

    def check(self, value: Any) -> Any:
        """Return `value`, or what a text means, in the parameter's type; `ConfigError` if it is not legal."""
        where = f"machine.{self.name}"
        if isinstance(value, str):
            return self.field.parse(value, where)
        return self.field.check(value, where)


_rows: list[Param] = []


def _p(name, wse2, unit, source, confidence, doc, wse3=None, **limits):
    values = {"wse2": wse2, "wse3": wse2 if wse3 is None else wse3}
    _rows.append(Param(name, MappingProxyType(values), unit, source, confidence, doc, **limits))


# A table: a row is read as a whole.
# fmt: off
# --- scale -------------------------------------------------------------------------------------------------------
_p("fabric.width", 757, "PEs", "arch §1: --fabric-dims of a real system", "published", "PEs along x (east)", 762, low=1,
   high=65535)
_p("fabric.height", 996, "PEs", "arch §1: --fabric-dims of a real system", "published", "PEs along y (south)", 1172,
   low=1, high=65535)
_p("clock.ghz", 0.85, "GHz", "arch §1: vendor's host scripts convert cycles at 0.85", "published",
   "conversion of cycles to seconds only; no cycle count depends on it", low=0, high=100)
_p("wafer.io_gbit_per_s", 1200, "Gb/s", "weight streaming white paper: 1.2 Tb/s of I/O", "published",
   "system input and output bandwidth")

# --- memory of a PE ------------------------------------------------------------------------------------------------
_p("mem.words", 24576, "16-bit words", "arch §2: 48 kB per PE, word addressed", "published",
   "size of a PE's SRAM, code and data together", low=256, high=32768)
_p("mem.banks", 8, "banks", "arch §2 (CSL appendix)", "published", "consecutive words lie in consecutive banks",
   low=1, high=64)
_p("mem.read_ports", 2, "reads/cycle", "arch §2 (CSL appendix; HC34)", "published",
   "memory operands a step can read at once; a third memory source costs a further cycle", low=1, high=2)
_p("mem.conflict_rule", "bank", "rule", "tiled stencils of 64 x 64 cells (Jorineg): 1.15 and 1.35 cycles per element "
   "and operation; the CSL appendix (arch §2) can be read as mod4", "inferred",
   "bank: two reads of the same bank conflict, fp32 words at a distance of 0 modulo 4; mod4: banks that agree modulo "
   "half their number, a distance of 0 modulo 2; none: never", "none",
   choices=("mod4", "bank", "none"))
_p("mem.conflict_cycles", 1, "cycles/step", "SPMM: fp32 step takes 2 cycles with a conflict, 1 without", "inferred",
   "added to a SIMD step whose two reads conflict; nothing issues meanwhile", high=64)
_p("mem.write_cycles", 1, "cycles/step", "dense local products (SPMM GEMM_benchmark): 2.18 cycles per element with "
   "both vectors strided by a multiple of four words", "inferred",
   "added to a SIMD step that reads from the bank in which all elements of the destination lie", 0, high=64)

# --- scalar pipeline -----------------------------------------------------------------------------------------------
_p("ce.int_latency", 1, "cycles", "arch §3: one scalar instruction per cycle", "inferred",
   "issue of an integer instruction to issue of one that uses its result", low=1, high=64)
_p("ce.load_latency", 2, "cycles", "trace of a matrix product (MIMD_dataflow): 22 cycles from one 5-element fmacs to "
   "the next with 15 scalar instructions between, so one stall; white paper: one cycle", "inferred",
   "the same for a load", low=1, high=64)
_p("ce.fp_latency", 2, "cycles", "arch §3: dependent floating point issues every 2 cycles (WSE-3)", "inferred",
   "the same for floating point", low=1, high=64)
_p("ce.branch_taken", 6, "cycles", "arch §3 (WSE-3 measurement)", "inferred", "issue of a taken branch to its target",
   low=1, high=64)
_p("ce.branch_not_taken", 1, "cycles", "tiled stencils (Jorineg): 110 cycles for ten tasks that count completions and "
   "16 set-ups; WSE-3: 3 (arch §3)", "inferred", "issue of an untaken branch to the next instruction", 3, low=1,
   high=64)
_p("ce.call", 6, "cycles", "arch §3 default: call and return 10 together", "assumed", "issue of a call to its target",
   low=1, high=64)
_p("ce.ret", 4, "cycles", "arch §3 default: call and return 10 together", "assumed",
   "issue of a return to the next instruction", low=1, high=64)
_p("ce.divide", 50, "cycles", "cycle-models.md: about 50 cycles, comments in vendor examples", "published",
   "issue slots taken by a divide or square root (library routines on the machine)", low=1, high=1024)
_p("ce.dsr_load", 6, "cycles", "SUMMA (CS-2) and sparse products (SPMM): 20-21 cycles for three DSR loads and an issue",
   "inferred",
   "issue of the load of a descriptor into a DSR to the next instruction of the thread; microthreads may issue "
   "meanwhile", low=1, high=64)
_p("ce.dsr_dimension", 3, "cycles", "tiled stencils (Jorineg), radii 2 to 6: 8 to 10 cycles to set up an operation "
   "over a plane", "inferred", "the same, for each further dimension of a descriptor of several", high=64)
_p("ce.dsr_edit", 1, "cycles", "SUMMA with library broadcasts (CS-2), tiles of 4 and 8: 21 cycles for three loads with "
   "offsets and the issue", "inferred",
   "issue slots taken by changing one field of a DSR", low=1, high=64)
_p("ce.tsc_read", 5, "cycles", "SPMM: n + 6 between two time stamps, n + 1 issue to issue", "inferred",
   "issue slots of a 48-bit time-stamp read; the counter is sampled in the first", low=1, high=64)
_p("ce.config", 2, "cycles", "arch §2: configuration registers are memory mapped", "assumed",
   "issue slots of a write to a router's configuration", low=1, high=64)

# --- vector operations ----------------------------------------------------------------------------------------------
_p("vec.drain", 0, "cycles", "one-cell stencil (Jorineg): 12 cycles for 6 operations of one element; log of a matrix "
   "product: 15 cycles for 14 elements", "inferred",
   "after the last step of a synchronous vector operation, before the thread's next issue", high=64)
_p("vec.start", 0, "cycles", "the same: n + 1 cycles issue to issue", "inferred",
   "between issue of a vector operation and its first step, beyond the next cycle", high=64)
_p("vec.stride4_lanes", 2, "elements", "arch §4.2: the page says two things; 2 is the cautious one", "assumed",
   "SIMD width for a stride that is 4 modulo 8", 2, low=1, high=8)
_p("dsr.count", 16, "per file", "arch §5.2: WSE-3 has 16; unknown for WSE-2", "assumed",
   "DSRs in each of the files dest, src0, src1", low=1, high=16)
_p("dsr.xdsr", 16, "registers", "arch §5.2: not public; a stencil that keeps all descriptors (Jorineg) needs 11",
   "assumed", "extended DSRs: FIFOs, circular buffers, 4-D descriptors", low=1, high=64)

# --- threads and tasks ------------------------------------------------------------------------------------------------
_p("ut.count", 8, "microthreads", "arch §5.4", "published", "microthreads besides the main thread", low=1, high=8)
_p("task.start", 3, "cycles", "arch §6 (WSE-3); 201 cycles from a send of 196 words to the task after it "
   "(csl-experiments, WSE-2 simulator)", "inferred", "picker's choice to first instruction",
   high=64)
_p("task.priority_rule", "lowest", "rule", "arch §6: order inside a level not published", "assumed",
   "among tasks of one priority: lowest id first, or round_robin", choices=("lowest", "round_robin"))

# --- queues -----------------------------------------------------------------------------------------------------------
_p("queue.in_depth", (6, 6, 4, 4, 2, 2, 2, 2), "wavelets", "arch §5.3 (CSL types)", "published",
   "depth of each input queue", (8, 8, 4, 4, 4, 4, 4, 4), low=0, high=11)
_p("queue.out_depth", (2, 2, 6, 6, 2, 2, 0, 0), "wavelets", "arch §5.3 (CSL types); wse3 depths assumed", "published",
   "depth of each output queue; 0 means that the queue does not exist", (2, 2, 6, 6, 2, 2, 2, 2), low=0, high=12)

# --- router -----------------------------------------------------------------------------------------------------------
_p("router.colors", 24, "colors", "arch §7", "published", "routable colors", low=1, high=24)
_p("router.hop", 1, "cycles", "arch §8.4", "published", "router to router", 2, low=1, high=8)
_p("router.depth", 2, "wavelets", "arch §8.1: not public; enough for full rate", "assumed",
   "buffer per color and input port; a hop of h cycles needs h + 1 for full rate", 3, low=1, high=8)
_p("ramp.in", 2, "cycles", "HPDC24: ramp latency about 2", "published", "router to CE input queue", low=1, high=8)
_p("ramp.out", 2, "cycles", "HPDC24: ramp latency about 2", "published", "CE output queue to router", low=1, high=8)
_p("ramp.execute", 1, "cycles", "HPDC24: 2 T_R + 1 per dependent stage; SPMM: 6 cycles per PE", "published",
   "step of a vector operation to its result entering the output queue", low=1, high=8)
_p("ramp.in_buffer", 2, "wavelets", "one register per cycle of the ramp, so that a queue of depth 2 runs at full rate",
   "assumed", "registers of the off-ramp per color, beyond the input queue's depth", 2, low=0, high=4)
_p("router.filters", 6, "filters", "arch §8.3 (SDK 1.4 notes)", "published", "filters per PE", low=0, high=6)

# --- numerics ---------------------------------------------------------------------------------------------------------
_p("num.cb16_bias", 42, "", "CSL types page: 6.0 is 0x5900", "inferred", "exponent bias of CB16", low=1, high=62)
_p("num.ftz", 0, "flag", "numerics.md section 2: no public statement", "assumed", "flush subnormals to zero", high=1)

# --- counters and generators ------------------------------------------------------------------------------------------
_p("tsc.bits", 48, "bits", "arch §10.3", "published", "width of the time-stamp counter", low=16, high=63)
_p("prng.seed", 0xDEADBEEF, "", "arch §3 (CSL builtins)", "published", "initial state of the random generators",
   low=1, high=2**32 - 1)
_p("prng.steps", 128, "steps/draw", "arch §3 (CSL builtins)", "published", "LFSR steps per 16-bit draw",
   low=1, high=4096)

# fmt: on

PARAMETERS: Mapping[str, Param] = MappingProxyType({row.name: row for row in _rows})
"""All modelled numbers by name, in the order of this file."""


class Machine(Mapping):
    """A preset with overrides: an immutable mapping from parameter name to value.

    ``machine("wse2")["router.hop"]`` is 1.  Equal machines compare and hash equal.
    """

    __slots__ = ("_values", "preset")

    def __init__(self, preset: str, values: Mapping[str, Any]):
        self.preset = preset
        self._values = MappingProxyType(dict(values))

    def __getitem__(self, name):
        return self._values[name]

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)

    def __hash__(self):
        return hash((self.preset, tuple(self._values.items())))

    def __eq__(self, other):
        return isinstance(other, Machine) and dict(self) == dict(other) and self.preset == other.preset

    def __repr__(self):
        changed = {k: v for k, v in self.items() if v != PARAMETERS[k].values[self.preset]}
        return f"machine({self.preset!r}{''.join(f', {k}={v!r}' for k, v in changed.items())})"

    def replace(self, overrides: Mapping[str, Any] | None = None, /, **more) -> Machine:
        """Return a machine with some numbers changed; ``router_hop=2`` may stand for ``router.hop``."""
        values = dict(self._values)
        for key, value in {**(overrides or {}), **more}.items():
            values[_resolve(key)] = PARAMETERS[_resolve(key)].check(value)
        return Machine(self.preset, values)


def _resolve(key: str) -> str:
    if key in PARAMETERS:
        return key
    for name in PARAMETERS:
        if name.replace(".", "_") == key:
            return name
    raise ConfigError(f"unknown machine parameter {key!r}", where="machine", hint=_known(key), key=key)


def _known(key: str) -> str:
    """Return which number may have been meant; there are too many to list."""
    near = close_match(key, PARAMETERS)
    return f"{f'did you mean {near}? ' if near else ''}wse doctor --assumptions lists all"


def machine(preset: str = "wse2", overrides: Mapping[str, Any] | None = None, /, **more) -> Machine:
    """Build a `Machine`.

    Parameters
    ----------
    preset : {"wse2", "wse3"}
        Column of the table to start from.
    overrides, **more
        Numbers to change, by name (``{"router.hop": 2}`` or ``router_hop=2``).

    Raises
    ------
    ConfigError
        Unknown preset or parameter, or a value outside its range.

    Examples
    --------
    >>> machine("wse2", {"router.hop": 2})["router.hop"]
    2
    """
    if preset not in PRESETS:
        raise ConfigError(
            f"unknown machine preset {preset!r}", where="machine", hint=suggestion(preset, PRESETS), key="preset"
        )
    base = Machine(preset, {name: p.values[preset] for name, p in PARAMETERS.items()})
    return base.replace(overrides, **more)

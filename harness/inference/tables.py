"""The paper's tables 2 to 8 are set beside the composed model: every cell with program, clock, value and error.

Program A is that of the authors, B a correct one with f32 sums, *resident*, in table 4, the closed form of the decoder
that runs here (`harness.inference.running`).  All stand at both clocks, `clock.ghz` and `infer.script_ghz`, since text
and scripts of the authors disagree.  No constant is chosen per table or per model.  A cell that is off by more than
`FAR` carries its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.networks.inference.decoder import Decoder
from harness.inference import comparators, published, recorded
from harness.inference.capacity import DecoderMemory, by_arithmetic
from harness.inference.costs import all_reduce, cdiv, matrix_vector, mesh_gemm
from harness.inference.ledger import PartCost, wafer_energy
from harness.inference.requests import PROGRAMS, RequestCycles, clocks, request, transition
from harness.inference.running import running
from harness.models.presets import PRESETS
from wse_core.params import Machine
from wse_core.work import Energy

__all__ = ["FAR", "TABLES", "PublishedCell", "cells", "fixed_cache", "ratios"]

FAR = 0.15
"""A cell needs a reason if it is off by more than this share."""

TOKENS = 4096
SETTING = f"{TOKENS}/{TOKENS}"
"""Table 8 has requests of so many tokens in and out."""

CACHED = 4096
"""Tokens of the cache of the published program, in every table: its steps take as long after 2,048 tokens as after
4,096 (table 2, solved for them)."""


@dataclass(frozen=True)
class PublishedCell:
    """A `PublishedCell` is a published cell and one modelled value for it.

    Attributes
    ----------
    table, model, system, setting : str
        Which cell.
    program : str
        ``A``, ``B``, ``as run`` (`harness.inference.recorded`), or who is compared with, *fitted* if constants were
        taken from published cells.
    gigahertz : float or None
        Clock of the modelled value; None if it has no time.
    published, modelled : float
    unit : str
    reason : str
        Why it is far off, if it is.
    """

    table: str
    model: str
    system: str
    setting: str
    program: str
    gigahertz: float | None
    published: float
    modelled: float
    unit: str
    reason: str = ""

    @property
    def error(self) -> float:
        """The modelled value is off by this share of the published one."""
        return self.modelled / self.published - 1

    def as_dict(self) -> dict[str, Any]:
        """Return the cell as a row of a table."""
        return {
            "table": self.table,
            "model": self.model,
            "system": self.system,
            "setting": self.setting,
            "program": self.program,
            "gigahertz": self.gigahertz,
            "published": self.published,
            "modelled": self.modelled,
            "error": self.error,
            "unit": self.unit,
            "reason": self.reason if abs(self.error) > FAR else "",
        }


def _reason(machine: Machine, phase: str, program: str, gigahertz: float, low: bool) -> str:
    """Return why a rate of WaferLLM is far from the published one."""
    slow, fast = clocks(machine)
    if program == "A" and phase == "prefill" and gigahertz == slow:
        return f"clock: the cells of prefill agree at {fast:g} GHz"
    if program == "A" and phase != "decode" and gigahertz == fast:
        return "small tiles: what stands around the multiply-adds of a product takes longer here than on the wafer"
    if program == "A" and phase == "request" and gigahertz == slow:
        return f"prefill outweighs 128 steps, and agrees at {fast:g} GHz"
    if program == "A":
        return f"clock: the cells of decode agree at {slow:g} GHz"
    if low:
        return "f32 sums: half of the multiply-adds a cycle, and products are most of the time"
    if phase == "prefill":
        return "keys and values have their true width, where program A's are as wide as the hidden state"
    if gigahertz == fast:
        return f"clock: the steps agree at {slow:g} GHz"
    return "true widths of keys and values, and scores summed in head groups only"


Cycles = Callable[[Machine, Decoder, int], float]

T10 = {"prefill": comparators.t10_prefill, "decode": comparators.t10_decode}
LADDER: dict[str, Cycles] = {"prefill": comparators.ladder_prefill, "decode": comparators.ladder_decode}
COMPARED: dict[str, dict[str, Cycles]] = {"T10": T10, "Ladder": LADDER}  # type: ignore[dict-item]


def _compared(system: str, phase: str) -> str:
    """Return what a modelled value of another system is called: a fit, if its constants are taken from the cells."""
    return system if (system, phase) == ("T10", "decode") else f"{system}, fitted"


def _phases(machine: Machine, name: str) -> Iterator[PublishedCell]:
    """Yield the cells of table 3 or 4."""
    table, found, sides, per = {
        "prefill": ("3", published.PREFILL, published.PREFILL_SIDES, CACHED),
        "decode": ("4", published.DECODE, published.DECODE_SIDES, 1),
    }[name]
    for (model, system), values in found.items():
        decoder = PRESETS[model]
        for side, value in zip(sides, values, strict=True):
            at = (table, model, system, f"{side} x {side}")
            if system == "WaferLLM":
                for program, module in PROGRAMS.items():
                    cycles = getattr(module, name)(machine, decoder, side, side, CACHED).cycles
                    for clock in clocks(machine):
                        rate = per * clock * 1e9 / cycles
                        reason = _reason(machine, name, program, clock, rate < value)
                        yield PublishedCell(*at, program, clock, value, rate, "tokens/s", reason)
                run = recorded.as_run(name, decoder, side, CACHED) if recorded.has_runs(machine) else None
                if run is not None:
                    cycles = decoder.layers * run.cycles
                    for clock in clocks(machine):
                        rate = per * clock * 1e9 / cycles
                        reason = _reason(machine, name, "A", clock, rate < value)
                        yield PublishedCell(*at, "as run", clock, value, rate, "tokens/s", reason)
                if name == "decode":
                    cycles = running(machine, decoder, side, side, CACHED).cycles
                    for clock in clocks(machine):
                        rate = clock * 1e9 / cycles
                        reason = _reason(machine, name, "B", clock, rate < value)
                        yield PublishedCell(*at, "resident", clock, value, rate, "tokens/s", reason)
                continue
            cycles = COMPARED[system][name](machine, decoder, side)
            clock = clocks(machine)[0]
            note = published.MISPRINTS.get((name, model, system, side), "")
            yield PublishedCell(
                *at, _compared(system, name), clock, value, per * clock * 1e9 / cycles, "tokens/s", note
            )


def prefill_cells(machine: Machine) -> Iterator[PublishedCell]:
    """Yield the cells of table 3: prefill of 4,096 tokens."""
    return _phases(machine, "prefill")


def decode_cells(machine: Machine) -> Iterator[PublishedCell]:
    """Yield the cells of table 4: decode."""
    return _phases(machine, "decode")


def fixed_cache(machine: Machine, program: str, model: str, prompt: int, tokens: int) -> RequestCycles:
    """Return a request of table 2, every step over a cache of fixed length."""
    big, small = published.REQUEST_SIDES[model]
    return request(machine, program, PRESETS[model], (big, big), (small, small), prompt, tokens, CACHED)


def recorded_request(machine: Machine, model: str, prompt: int, tokens: int) -> float | None:
    """Return the cycles of a request of table 2 by recorded runs of both phases; None: there are too few."""
    decoder, (big, small) = PRESETS[model], published.REQUEST_SIDES[model]
    first = recorded.as_run("prefill", decoder, big, prompt)
    step = recorded.as_run("decode", decoder, small, CACHED)
    if first is None or step is None or not recorded.has_runs(machine):
        return None
    return decoder.layers * (first.cycles + tokens * step.cycles) + transition(machine, decoder, big)


def request_cells(machine: Machine) -> Iterator[PublishedCell]:
    """Yield the cells of table 2: whole requests."""
    slow = clocks(machine)[0]
    for (model, system), values in published.REQUESTS.items():
        decoder, (big, small) = PRESETS[model], published.REQUEST_SIDES[model]
        for each, value in zip(published.REQUEST_COLUMNS, values, strict=True):
            at = ("2", model, system, f"{each.prompt}/{each.tokens}")
            if system == "WaferLLM":
                for program in PROGRAMS:
                    found = fixed_cache(machine, program, model, each.prompt, each.tokens)
                    for clock in clocks(machine):
                        rate = found.rate(clock)
                        reason = _reason(machine, "request", program, clock, rate < value)
                        yield PublishedCell(*at, program, clock, value, rate, "tokens/s", reason)
                run = recorded_request(machine, model, each.prompt, each.tokens)
                if run is not None:
                    for clock in clocks(machine):
                        rate = each.tokens * clock * 1e9 / run
                        reason = _reason(machine, "request", "A", clock, rate < value)
                        yield PublishedCell(*at, "as run", clock, value, rate, "tokens/s", reason)
                grown = request(machine, "B", decoder, (big, big), (small, small), each.prompt, each.tokens)
                yield PublishedCell(
                    *at,
                    "B, growing cache",
                    slow,
                    value,
                    grown.rate(slow),
                    "tokens/s",
                    "published steps do not grow with the cache",
                )
                continue
            before: Any = {"T10": comparators.t10_prefill, "Ladder": comparators.ladder_prefill}[system]
            cycles = before(machine, decoder, big, each.prompt)
            cycles += each.tokens * COMPARED[system]["decode"](machine, decoder, big)
            rate = each.tokens * slow * 1e9 / cycles
            reason = "the prefill of 2,048 tokens: its constants are those of 4,096" if each.prompt < CACHED else ""
            yield PublishedCell(*at, _compared(system, "request"), slow, value, rate, "tokens/s", reason)


def capacity_cells(machine: Machine) -> Iterator[PublishedCell]:
    """Yield the cells of table 5: tokens of a cache, by arithmetic with declared inputs and as program B runs."""
    for model, (side, regions, layers, reserved, concat, shift) in published.CAPACITY.items():
        decoder = PRESETS[model]
        memory = DecoderMemory(machine, decoder, side, side)
        whole = cdiv(decoder.layers, regions)
        running = memory.tokens(whole)
        plain = by_arithmetic(machine, decoder, side, whole, 0)
        solved = by_arithmetic(machine, decoder, side, layers, reserved)
        first = f"{whole} layers on a PE, nothing reserved"
        second = f"{layers:.4g} layers on a PE, {reserved:,} bytes reserved"
        parts = memory.parts(whole, side)
        other = parts["code"] + parts["vectors"]
        third = f"{whole} layers on a PE, {other:,} bytes of code and vectors: the program that runs"
        why = {
            first: "nothing reserved for code: the inputs of the printed cell are not printed",
            third: "keys and queries of a column are whole rotary pairs, and the program takes room",
        }
        for system, value, (a, b, c) in (
            ("concat", concat, (plain.concat, solved.concat, running // side)),
            ("shift", shift, (plain.shift, solved.shift_bytes, running)),
        ):
            at = ("5", model, system, f"{side} x {side}")
            for label, modelled in ((first, a), (second, b), (third, c)):
                yield PublishedCell(*at, label, None, value, modelled, "tokens", why.get(label, ""))


def _kernel(machine: Machine, table: str, size: int) -> PartCost:
    """Return the cycles of MeshGEMV (6) or MeshGEMM (7) with f16 sums."""
    side = published.KERNEL_SIDE
    tile = cdiv(size, side)
    if table == "6":
        return matrix_vector(machine, tile, tile, "same") + all_reduce(machine, side, tile, "f16", 2)
    return mesh_gemm(machine, side, side, tile, tile, tile, "same")


ENERGY_REASONS = {
    "6": "published: the power of table 7, though PEs wait most of the time; here who waits takes `energy.cycle` alone",
    "7": "no constant is taken from the table; published: 27.0 times an A100 in all four cells of tables 6 and 7",
    "8": "published: 22.5 times an A100, whatever the PEs do; here one region of the wafer works, and who waits takes "
    "`energy.cycle` alone",
}
"""Energies of a table, and powers behind them, are far from the published ones for these reasons."""


def _energies(
    machine: Machine, at: tuple[str, str, str, str], energy: Energy, times: tuple[float, float], ratio: float
) -> Iterator[PublishedCell]:
    """Yield the row of an energy against an A100, and those of the power behind it, one per clock.

    Parameters
    ----------
    machine : Machine
    at : tuple of str
        Table, model, setting and program.
    energy : Energy
        Of the wafer, at the lower clock.
    times : (float, float)
        Published seconds of the wafer and of the A100.
    ratio : float
        Published energy of the A100 over that of the wafer.
    """
    table, model, setting, program = at
    why, gpu = ENERGY_REASONS[table], published.A100_WATTS * times[1]
    modelled = gpu / energy.joules
    yield PublishedCell(table, model, "energy", setting, program, None, ratio, modelled, "ratio", why)
    implied, slow = gpu / ratio / times[0], clocks(machine)[0]
    for clock in clocks(machine):
        watts = energy.watts * clock / slow
        yield PublishedCell(table, model, "power", setting, program, clock, implied, watts, "W", why)


def kernel_cells(machine: Machine) -> Iterator[PublishedCell]:
    """Yield the cells of tables 6 and 7: products alone, and their energy against an A100."""
    pes = published.KERNEL_SIDE**2
    for table, found, system in (("6", published.GEMV, "MeshGEMV"), ("7", published.GEMM, "MeshGEMM")):
        for size, (seconds, gpu, ratio) in found.items():
            cost, kind = _kernel(machine, table, size), f"{size // 1024}K, 720 x 720"
            for clock in clocks(machine):
                time = float(cost) / (clock * 1e9)
                reason = f"clock: the tables agree at {clocks(machine)[0]:g} GHz"
                yield PublishedCell(table, "", system, kind, "kernel", clock, seconds, time, "s", reason)
            energy = wafer_energy(machine, [(cost, pes)], cost)
            yield from _energies(machine, (table, "", kind, "kernel"), energy, (seconds, gpu), ratio)


def inference_cells(machine: Machine) -> Iterator[PublishedCell]:
    """Yield the cells of table 8: a whole inference against an A100."""
    for model, (rate, gpu, ratio) in published.INFERENCE.items():
        for program in PROGRAMS:
            found = fixed_cache(machine, program, model, TOKENS, TOKENS)
            for clock in clocks(machine):
                modelled = found.rate(clock)
                reason = _reason(machine, "request", program, clock, modelled < rate)
                at = ("8", model, "WaferLLM", SETTING, program, clock)
                yield PublishedCell(*at, rate, modelled, "tokens/s", reason)
            times = TOKENS / rate, TOKENS / gpu
            yield from _energies(machine, ("8", model, SETTING, program), found.energy(machine), times, ratio)


TABLES: dict[str, Callable[[Machine], Iterator[PublishedCell]]] = {
    "2": request_cells,
    "3": prefill_cells,
    "4": decode_cells,
    "5": capacity_cells,
    "6": kernel_cells,
    "7": kernel_cells,
    "8": inference_cells,
}


def cells(machine: Machine, table: str) -> list[PublishedCell]:
    """Return the cells of a table of the paper, by its number."""
    return [cell for cell in TABLES[table](machine) if cell.table == table]


def ratios(found: Sequence[PublishedCell], model: str, program: str, gigahertz: float) -> dict[str, float]:
    """Return the last over the first rate of a row, published and modelled: whether more PEs help."""
    row = [
        cell
        for cell in found
        if (cell.model, cell.system, cell.program, cell.gigahertz) == (model, "WaferLLM", program, gigahertz)
    ]
    return {"published": row[-1].published / row[0].published, "modelled": row[-1].modelled / row[0].modelled}

"""An all-reduce gives every PE the sum of vectors over rows, columns or a rectangle.

What moves
    ``star``, ``chain``, ``tree``, ``two_phase``, ``optimal``: the reduce of that name (see
    `fabric.kernels.collectives.reduce`), then a broadcast of the sum by the routers from the PE that has it.  ``ring``
    and ``folded_ring``: a ring all-reduce (see `fabric.kernels.collectives.pieces.ring_allreduce`) on each line.
    ``auto`` takes the fastest one by the closed forms.  ``xy`` reduces along the rows, then along column 0, and
    broadcasts in two dimensions; rings go along all rows, then all columns.

Colors and queues
    Those of the reduces, one color more for the broadcast; three per ring.  Queue 2 for the first line, 3 for the
    second, the next one for the broadcast.

Order of additions (bit exact)
    That of the reduce or of the ring; a broadcast copies bits.

Cycles
    From the first time stamp of a PE to the latest second one, all PEs starting together.  For reduce and broadcast the
    closed form of the reduce, and from there on

        2 ce.dsr_load + 1 + vec.start + W + D router.hop + ramp.execute + ramp.out + ramp.in + vec.drain

    with W wavelets and D the hops to the farthest PE.  For rings `RingAllreduce.estimate`.

Sources
    Luczynski et al., HPDC 2024 (arXiv 2404.15888).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fabric.asm.operands import Var
from fabric.kernels.collectives import costs
from fabric.kernels.collectives.pieces.flood import flood_line, flood_rectangle
from fabric.kernels.collectives.pieces.lines import Areas, Line, compose
from fabric.kernels.collectives.pieces.ring_allreduce import RingAllreduce
from fabric.kernels.collectives.pieces.sums import admit, color_pool, lines_of, pick_sums, reduces
from fabric.kernels.collectives.reduce import model_cycles, plain_sums, program, reduce_params, reference
from fabric.kernels.kit.check import BLOCK, Check, check_sum
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.kit.kernel import kernel
from fabric.kernels.kit.plmr import Plan, PlmrDevice
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared, joined
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["RINGS", "allreduce"]

RINGS = {"ring": "plain", "folded_ring": "folded"}
FEW = 1 << 24
"""Results of at most so many bytes are kept, as one of the arrays of a run."""


class _Case:
    """A case is a sum over the lines of a form, which every PE gets.

    Attributes
    ----------
    machine, form, width, height, n, dtype, sums
        As the kernel's.
    """

    def __init__(self, machine: Machine, form: str, width: int, height: int, n: int, dtype: str, sums: str) -> None:
        self.machine, self.form, self.width, self.height = machine, form, width, height
        self.n, self.dtype, self.sums = n, dtype, sums
        self.wire, self.b = costs.Wire.of(machine), wavelets_of(n, sums)


class _Broadcast(_Case):
    """The lines are reduced, then the routers broadcast the sum."""

    def __init__(self, algorithm: str, group: int, *case: Any) -> None:
        super().__init__(*case)
        self.group = group
        self.lines = lines_of(self.form, self.width, self.height)
        self.pieces = reduces(self.lines, algorithm, group, self.n, self.dtype, self.sums, self.machine, spare=1)
        self.name = "+".join(r.tree.name for r in self.pieces)
        self.distance = sum(len(line) - 1 for line in self.lines)
        self.colors = sum(r.tree.colors for r in self.pieces) + (self.distance > 0)
        self.padded = self.n
        pes = len(self.lines[0]) * self.lines[0].copies if self.form != "xy" else self.width * self.height
        self.hops = sum(r.hops for r in self.pieces) + (self.b * pes if self.distance else 0)
        self.additions = sum(r.additions for r in self.pieces)

    def admit(self) -> None:
        """Refuse what needs more than the machine has."""
        admit(self.machine, "allreduce", (self.width, self.height), self.pieces, extra=int(self.distance > 0))

    def expected(self) -> int:
        """Return the closed form of the cycles."""
        m, now = self.machine, self.machine["ce.tsc_read"]
        for piece in self.pieces:
            now = piece.end(now, m)
        if not self.distance:
            return now
        queue = 2 + len(self.lines)
        return now + timing.transfer(m, self.b, self.distance, queue, queue)

    def cost(self) -> float:
        """Return the published cost."""
        return model_cycles(self.form, self.pieces, self.width, self.height, self.b, self.group, self.wire)[0] + (
            costs.broadcast(self.distance + 1, self.b, self.wire)
        )

    def layout(self) -> Layout:
        """Return the `Layout` of all PEs."""
        layout = Layout(self.width, self.height, self.machine)
        color = color_pool(self.machine)[self.colors - 1]
        queue, n = 2 + len(self.lines), self.n
        first = "sends" if self.distance else "alone"
        every: Line | Areas
        if self.form == "xy":
            every, others = Areas([(0, 0, self.width, self.height), (0, 0, 1, 1)]), ["takes", first]
        else:
            every, others = self.lines[0], [first, *["takes"] * (len(self.lines[0]) - 1)]

        def after(p: Program, roles: tuple[Any, ...], total: Var) -> None:
            move = p.mov32 if self.sums == "f32" else p.mov16
            if roles[0] == "sends":
                move(p.fabout(p.output_queue(queue, color), n), total)
            elif roles[0] == "takes":
                move(total, p.fabin(p.input_queue(queue, color), n))

        parts: list[tuple[Line | Areas, Sequence[Hashable]]] = [(r.line, r.roles()) for r in self.pieces]
        parts.append((every, others))
        compose(layout, parts, lambda roles: program(roles, self.pieces, n, self.dtype, self.sums, self.machine, after))
        for piece in self.pieces:
            piece.routes(layout)
        if self.distance and self.form == "xy":
            flood_rectangle(layout, color, self.width, self.height)
        elif self.distance:
            flood_line(self.lines[0], layout, color)
        return layout


class _Rings(_Case):
    """Each of the lines has a ring all-reduce."""

    def __init__(self, algorithm: str, *case: Any) -> None:
        super().__init__(*case)
        self.name = algorithm
        self.lines = lines_of(self.form, self.width, self.height)
        if self.form == "xy":
            self.lines[1] = Line.columns(self.width, self.height)
        pool = color_pool(self.machine)
        self.pieces = [
            RingAllreduce(
                line,
                tuple(pool[(3 * k + i) % len(pool)] for i in range(3)),
                self.n,
                self.dtype if k == 0 else self.sums,
                self.sums,
                RINGS[algorithm],
                2 + k,
            )
            for k, line in enumerate(self.lines)
        ]
        self.colors = 3 * len(self.pieces)
        self.padded = max(piece.padded for piece in self.pieces)
        self.hops = sum(piece.hops for piece in self.pieces)
        self.additions = sum(piece.additions for piece in self.pieces)

    def admit(self) -> None:
        """Refuse what needs more than the machine has."""
        plan = Plan(
            f"allreduce by {self.name}",
            self.width,
            self.height,
            0,
            self.colors,
            max(piece.ring.hops for piece in self.pieces),
            sum(piece.roundings for piece in self.pieces),
            sum(2 * len(piece.line) - 2 for piece in self.pieces),
        )
        PlmrDevice.of(self.machine).admit(plan, where="kernel allreduce")

    def expected(self) -> int:
        """Return the closed form of the cycles."""
        now = self.machine["ce.tsc_read"]
        for piece in self.pieces:
            now = piece.estimate(now, self.machine)
        return now

    def cost(self) -> float:
        """Return the published cost."""
        return sum(costs.ring(len(line), self.b, self.wire) for line in self.lines)

    def _program(self, roles: tuple[Any, ...]) -> Program:
        p = Program(f"ring {roles}", self.machine, half="cb16" if self.dtype == "cb16" else "f16")
        x = p.array("x", self.padded, self.dtype)
        total = p.array("total", self.padded, self.sums) if self.sums != self.dtype else x
        stamps = Stamps(p)
        with p.task("main"):
            stamps.start()
            value = x
            for piece, role in zip(self.pieces, roles, strict=True):
                piece.emit(p, role, value, total)
                value = total
            stamps.stop()
        p.assemble()
        return p

    def layout(self) -> Layout:
        """Return the `Layout` of all PEs."""
        layout = Layout(self.width, self.height, self.machine)
        compose(layout, [(piece.line, piece.roles()) for piece in self.pieces], self._program)
        for piece in self.pieces:
            piece.routes(layout)
        return layout


@kernel(
    "allreduce",
    "sum of vectors over rows, columns or a rectangle, in every PE: reduce and broadcast, or rings",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888",
    reduce_params((*costs.ALGORITHMS, *RINGS)),
)
def allreduce(
    machine: Machine,
    algorithm: str,
    form: str,
    width: int,
    height: int,
    n: int,
    group: int,
    dtype: str,
    sums: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `allreduce`; see the head of this module."""
    sums = pick_sums(dtype, sums, "kernel allreduce")
    given, result = Arithmetic.of(machine, dtype), Arithmetic.of(machine, sums)

    def build(n: int) -> tuple[_Broadcast | _Rings, Layout]:
        common_part = (machine, form, width, height, n, dtype, sums)
        names = ("auto", *RINGS) if algorithm == "auto" else (algorithm,)
        cases = [
            _Rings(name, *common_part) if name in RINGS else _Broadcast(name, group, *common_part) for name in names
        ]
        case = min(cases, key=lambda case: case.expected())
        case.admit()
        layout = case.layout()
        layout.build()
        return case, layout

    case, layout = fit("kernel allreduce", machine, build, {"n": n}, {"n": (1, n)})
    x = given.random(np.random.default_rng(seed), (height, width, n), data, terms=width * height)
    written = np.pad(x, ((0, 0), (0, 0), (0, case.padded - n))) if case.padded > n else x
    session = Session(layout, [("x", written, 0, 0)], expected=case.expected)

    def totals(y: int, rows: int) -> Bits:
        return session.read("total" if dtype != sums else "x", 0, y, width, rows)[..., :n]

    # Of all PEs of a wafer the results are as large as what they hold: they are read by rows while they are compared.
    few = height * width * n * 2 * result.words <= FEW
    total = totals(0, height) if few else np.zeros(0, result.bits_dtype)
    first, last = session.stamps(0, 0, width, height)

    def compare() -> Check:
        expected, roundings = reference(form, case.pieces, x, given, result)
        adds = dtype != sums or any(len(line) > 1 for line in case.lines)
        terms = expected, *plain_sums(form, x, given, adds)
        wanted = [np.broadcast_to(values, (height, width, n)) for values in terms]
        parts, step = [], max(1, BLOCK // (width * n))
        for y in range(0, height, step):
            got = total[y : y + step] if few else totals(y, min(step, height - y))
            bits, plain, magnitude = (values[y : y + step] for values in wanted)
            parts.append(check_sum(result, got, bits, plain, magnitude, roundings, width * height))
        return joined(parts, height * width * n)

    check = compared(compare)
    span = {"row": (width, 1), "column": (1, height)}.get(form, (width, height))
    return report(
        session,
        check,
        last.max() - first[0, 0],
        expected_cycles=case.expected(),
        expected_hops=case.hops,
        expected_macs=0,
        model_cycles=case.cost(),
        lower_bound=costs.lower_bound_allreduce(*span, case.b, case.wire),
        additions=case.additions,
        algorithms=case.name,
        colors=case.colors,
        arrays={"total": total} if few else {},
    )

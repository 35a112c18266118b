"""Pooling goes over the taps of all windows of a channel at once; a command per channel.

Upsampling
    A pixel goes to a whole window as the gradient of a mean does, and sums of windows are means, both without a
    division: the shape of the windows says so, and no command is its own.

Padding
    A plane is copied into one with a border, of minus infinity for largest pixels, of zeros for means, and its taps are
    read there.  Gradients are added in another such plane, the inner part of which is what they are.

Rounding
    Largest pixels are exact; a mean is a sum in f32, tap after tap, times 1 over the taps, rounded once.  Gradients are
    added to the pixels tap after tap, in f32, rounded each time.

Cycles
    Per tap two vector operations over a plane of the result forward; back fourteen for a largest pixel, five for a
    mean.  Padding takes another over the plane that is given, forward and back, and for largest pixels two back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from fabric.asm.operands import Dsr, Var
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.operations import APART
from fabric.networks.graph.windows import Window, window_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import SHAPE, PoolShape, shape_number, shapes_of

if TYPE_CHECKING:
    pass

__all__ = ["AVERAGE_POOL", "MAX_POOL", "UPSAMPLE", "bordered"]

PLANES = {"planes": "pointer: planes that pooling gives"}
MAX = {
    "pool_max": "the next of the planes: the largest pixel of each window of the next plane of aux rows",
    "pool_max_back": "the next of the planes: gradients of the largest pixels",
}
MEAN = {
    "pool_mean": "the next of the planes: the mean of each window of the next plane of aux rows",
    "pool_mean_back": "the next of the planes: gradients of all pixels of a window",
}
BORDER = {
    "pool_blank": "data = bits of what all of the padded planes are filled with; copies begin",
    "pool_in": "the next plane of the source within its border",
    "pool_out": "pointer: planes of gradients of what was padded",
    "pool_inner": "the next of these planes: what the padded plane of gradients has within its border",
}
LOWEST = 0xFF800000


def bordered(network: Network) -> Mapping[str, str]:
    """Return the commands of pooling with padding, if a network has such."""
    return BORDER if any(isinstance(shape, PoolShape) and shape.copies for shape in shapes_of(network)) else {}


def forward(w: StepWriter, step: NetworkStep, name: str) -> None:
    """Write pooling, a channel after the other."""
    x, y = step.reads[0], step.writes[0]
    window, rows = window_of(step.node, x.rows), f"{w.plan.array(x)}.rows"
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    if window.bordered:
        _border(w, name, rows)
        w.tell(planes=f"{w.plan.array(y)}.rows")
        w.each(y, "pool_in", name, unit=window.out_plane)
    else:
        w.tell(aux=rows, planes=f"{w.plan.array(y)}.rows")
        w.each(y, name, unit=window.out_plane)
    w.tell(shape=0)


def back(w: StepWriter, step: NetworkStep, name: str) -> None:
    """Write the gradients of what was pooled."""
    delta, x = step.reads[0], w.plan.network.tensors[step.node.inputs[0]]
    window, below = window_of(step.node, x.rows), w.plan.array(step.writes[0])
    largest, names = name == "pool_max_back", [name]
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(delta=w.plan.array(delta), planes="padded" if window.bordered else below)
    if largest:
        rows = f"{w.plan.activation(x.name)}.rows"
        if window.bordered:  # the shape knows where the copy is
            _border(w, name, rows)
            w.tell(row=f"{w.plan.activation(step.node.name)}.rows")
        else:
            w.tell(aux=rows, row=f"{w.plan.activation(step.node.name)}.rows")
    if window.bordered:  # behind the pointers that set the same descriptors
        w.tell(pool_out=below)
        names = [*["pool_in"] * largest, name, "pool_inner"]
    w.each(delta, *names, unit=window.out_plane)
    w.tell(shape=0)


def enlarge(w: StepWriter, step: NetworkStep) -> None:
    """Write what repeats pixels, a channel after the other."""
    x, y = step.reads[0], step.writes[0]
    w.tell(shape=shape_number(w.plan.network, step.node, step.direction))
    w.tell(delta=f"{w.plan.array(x)}.rows", planes=f"{w.plan.array(y)}.rows")
    w.each(x, "pool_mean_back", unit=_larger(step).out_plane)
    w.tell(shape=0)


def reduce(w: StepWriter, step: NetworkStep) -> None:
    """Write the sums of gradients of pixels that were one."""
    delta, below = step.reads[0], step.writes[0]
    w.tell(shape=shape_number(w.plan.network, step.node, step.direction))
    w.tell(aux=w.plan.array(delta), planes=w.plan.array(below))
    w.each(below, "pool_mean", unit=_larger(step).out_plane)
    w.tell(shape=0)


def _larger(step: NetworkStep) -> Window:
    """Return the windows over the larger image."""
    return window_of(step.node, (step.reads if step.direction == "back" else step.writes)[0].rows)


def _border(w: StepWriter, name: str, rows: str) -> None:
    """Write what is outside of the planes, and where those lie that get a border."""
    outside = w.half.encode(-math.inf if name.startswith("pool_max") else 0.0)
    w.tell(pool_blank=int(outside), source=rows)


class PoolTasks:
    """Both kinds of pooling have their tasks here.

    Parameters
    ----------
    code : ProgramCode

    Attributes
    ----------
    sums, left, other : Dsr
        f32 numbers of a plane of the result, to read; the first two to write too.
    again : Dsr
        Reads the sums.
    into_other, moved : Dsr
        Write other; the latter, which only largest pixels need, from the sums.
    inside, found : Dsr
        Of a copy with a border what is within it: to write what is given, to read gradients.
    first : Var or None
        How far behind the beginning of the copies what is given begins.
    out : Dsr
        The plane that results; on the way back, a tap of the gradients of windows.
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        self.base = p.reg16("plane of results")
        # A destination goes with one source 0 only, and there are few: those of products are borrowed.
        self.sums, self.again, self.out = code.plane, code.product.again, code.product.result
        self.left, self.other, self.into_other = code.gradient.factor, code.gradient.other, code.gradient.taken
        self.moved = p.dsr("dest") if "pool_max" in code.ids else None
        self.inside, self.found = code.writes["delta"], code.gradient.own
        self.first = p.scalar("first place within a border", "u16", 0) if "pool_in" in code.ids else None
        code.pool = self

    def load(self, shape: PoolShape) -> None:
        """Emit the loads of the descriptors of a window in a direction, and its numbers."""
        code, p, tokens, w, back = self.code, self.code.p, self.code.tokens, shape.window, shape.back
        (height, width), anywhere = w.around, code.held["a0"]
        rows, line, plane = w.out_plane * tokens, width * tokens, height * width * tokens
        for dsr, var in (
            (self.sums, code.product.partial),
            (self.again, code.product.partial),
            (self.left, code.gradient.product),
            (self.other, code.gradient.gradient),
            (self.into_other, code.gradient.gradient),
            (self.moved, code.gradient.gradient),
        ):
            if dsr is not None:
                p.load(dsr, p.mem1d(var, rows))
        place, given = (code.held["padded"], (shape.copies - 1) * plane) if shape.copies else (anywhere, 0)
        extents, strides = [w.out_height, w.out_width, tokens], [w.strides[0] * line, w.strides[1] * tokens, 1]
        taps = p.mem4d(anywhere, extents, strides, check=False)
        result = p.mem1d(anywhere, rows, check=False)
        p.load(code.reads["aux"], p.mem4d(place, extents, strides, offset=given, check=False))
        p.load(self.out, taps if back else result)
        if back:
            p.load(code.reads["label"], taps)
            p.load(code.reads["row"], result)
            p.load(code.reads["delta"], result)
            p.load(code.writes["aux"], p.mem1d(anywhere, plane, check=False))
        if self.first is not None and shape.copies:
            self.bordered(self.first, w, given, back)
        onward = 0 if shape.copies else plane  # copies have one place for all planes
        code.shapes.set(
            plane=onward,
            result=rows,
            height=w.kernel_height,
            width=w.kernel_width,
            gap=(width - w.kernel_width) * tokens,
            rest=onward - w.kernel_height * line,
        )
        code.shapes.set_factor(1.0 if shape.sums else 1 / (w.taps * shape.strips))
        code.shapes.set_strips(shape.strips)

    def bordered(self, place: Var, window: Window, given: int, back: bool) -> None:
        """Emit the loads of descriptors of planes without their border: of what is given, and of their copies."""
        code, p, tokens, w = self.code, self.code.p, self.code.tokens, window
        line = w.around[1] * tokens
        inner, first = ([w.height, w.width, tokens], [line, tokens, 1]), w.before[0] * line + w.before[1] * tokens
        plane = p.mem1d(code.held["a0"], w.plane * tokens, save=True, check=False)
        p.load(code.product.column_x, plane)
        p.load(self.inside, p.mem4d(code.held["padded"], *inner, check=False))
        words = p.reg16("number")
        p.ldi(words, given + first)
        p.st16(words, place)
        p.free(words)
        if back:
            p.load(code.writes["row"], plane)
            p.load(self.found, p.mem4d(code.held["padded"], *inner, offset=first, check=False))

    def tasks(self) -> None:
        """Write the tasks of the kinds that the program has."""
        code, p, aux = self.code, self.code.p, self.code.reads["aux"]
        with code.command("planes") as t:
            place = code.place(t.data)
            p.mov16(self.base, place)
            p.dsr_base(code.reads["label"], place)
            p.dsr_base(self.out, place)
        if self.first is not None:
            self.border_tasks(self.first)
        if "pool_max" in code.ids:
            with code.command("pool_max"):
                p.mov32(self.sums, LOWEST)
                with self.taps(aux):
                    p.fh2s(self.into_other, aux)
                    p.fmaxs(self.sums, self.sums, self.other)
                self.landed()
            with code.command("pool_max_back"):
                self.cleared()
                p.mov32(self.left, 1.0)  # 1 where no tap was the largest yet
                with self.taps(aux, code.reads["label"], self.out):
                    self.hits()
                    p.fh2s(self.sums, code.reads["delta"])
                    p.fmuls(self.sums, self.sums, self.other)
                    self.added()
                p.mov32(self.sums, 0)
                self.onward(code.reads["row"], code.reads["delta"])
        if "pool_mean" in code.ids:
            with code.command("pool_mean"):
                with self.taps(aux):
                    p.fh2s(self.into_other, aux)
                    p.fadds(self.sums, self.sums, self.other)
                code.over_strips(code.product.sums)
                p.fmuls(self.sums, self.sums, code.shapes.factor)
                self.landed()
            with code.command("pool_mean_back"):
                self.cleared()
                with self.taps(code.reads["label"], self.out):
                    p.fh2s(self.sums, code.reads["delta"])
                    p.fmuls(self.sums, self.sums, code.shapes.factor)
                    self.added()
                p.mov32(self.sums, 0)
                self.onward(code.reads["delta"])

    def border_tasks(self, place: Var) -> None:
        """Write the tasks of planes with a border."""
        code, p = self.code, self.code.p
        with code.command("pool_blank") as t:
            p.fmovh(code.held["padded"], t.data)
            p.dsr_base(self.inside, code.held["padded"])  # the pointer to gradients has moved it
            words = p.reg16("number")
            p.ld16(words, place)
            p.dsr_off(self.inside, words)
            p.free(words)
        with code.command("pool_in"):
            p.fmovh(self.inside, code.product.column_x)
        with code.command("pool_out") as t:
            p.dsr_base(code.writes["row"], code.place(t.data))
        with code.command("pool_inner"):
            p.fmovh(code.writes["row"], self.found)

    @contextmanager
    def taps(self, *walks: Dsr) -> Iterator[None]:
        """Emit what is done per tap of the windows; some descriptors go from tap to tap, then to the next plane."""
        code, p = self.code, self.code.p
        height = code.shapes.number("height")
        with p.loop(height, counter=height):
            width = code.shapes.number("width")
            with p.loop(width, counter=width):
                yield
                for walk in walks:
                    p.dsr_off(walk, code.tokens)
            p.free(width)
            self.onward(*walks, by="gap")
        p.free(height)
        self.onward(*walks, by="rest")

    def onward(self, *walks: Dsr, by: str = "result") -> None:
        """Emit the way of descriptors by a number of the shape."""
        words = self.code.shapes.number(by)
        for walk in walks:
            self.code.p.dsr_off(walk, words)
        self.code.p.free(words)

    def landed(self) -> None:
        """Emit the rounding of the sums into the next plane of results, and zero them."""
        p = self.code.p
        p.fs2h(self.out, self.again)
        p.mov32(self.sums, 0)
        self.onward(self.out)

    def cleared(self) -> None:
        """Emit zeros for a plane of gradients."""
        code, p = self.code, self.code.p
        plane, into = code.shapes.number("plane"), code.writes["aux"]
        p.dsr_base(into, self.base)
        p.fmovh(into, 0.0)
        p.add16(self.base, self.base, plane)
        p.free(plane)

    def hits(self) -> None:
        """Emit other = 1 where a tap is the first one as large as the result, else 0."""
        code, p = self.code, self.code.p
        p.fh2s(self.into_other, code.reads["aux"])
        p.fh2s(self.sums, code.reads["row"])
        p.fsubs(self.sums, self.sums, self.other)
        p.fmuls(self.sums, self.sums, -APART)
        p.fmaxs(self.sums, self.sums, -1.0)
        p.fadds(self.sums, self.sums, 1.0)
        assert self.moved is not None
        p.mov32(self.moved, self.sums)
        p.fmuls(self.into_other, self.left, self.other)
        p.fsubs(self.left, self.left, self.other)

    def added(self) -> None:
        """Emit the addition of the sums to the gradients of the tap."""
        p = self.code.p
        p.fh2s(self.into_other, self.code.reads["label"])
        p.fadds(self.sums, self.sums, self.other)
        p.fs2h(self.out, self.again)


MAX_POOL = Lowering(
    SHAPE | PLANES | MAX,
    {"forward": partial(forward, name="pool_max"), "back": partial(back, name="pool_max_back")},
    {"forward": ("forward, {place}", "pool"), "back": ("backward, {place}", "pool back")},
    tasks_of=PoolTasks,
)
"""The largest pixels of windows have this form in weight streaming."""

AVERAGE_POOL = Lowering(
    SHAPE | PLANES | MEAN,
    {"forward": partial(forward, name="pool_mean"), "back": partial(back, name="pool_mean_back")},
    {"forward": ("forward, {place}", "pool"), "back": ("backward, {place}", "pool back")},
    tasks_of=PoolTasks,
)
"""The means of windows have this form in weight streaming."""

UPSAMPLE = Lowering(
    SHAPE | PLANES | MEAN,
    {"forward": enlarge, "back": reduce},
    {"forward": ("forward, {place}", "upsample"), "back": ("backward, {place}", "upsample back")},
    tasks_of=PoolTasks,
)
"""Pixels that are repeated have this form in weight streaming."""

"""Images get other sides by rows of pixels times constants, which lie in the memory of a PE; a command per channel.

What moves
    Nothing: whole images lie in a PE.  Columns of all rows of pixels are made first, in the scratch plane that other
    operations pad, then rows.

Memory
    Constants of each way: per line of the result a number of lines, and for each of them how far it lies behind the one
    before, and its factor; what several images have in common is there once.

Rounding
    Sums in f32, lines in their order, by multiply-adds from zero on; rounded once for columns and once for rows.

Cycles
    A line of n numbers times a factor takes n / 2 and some 17, that it is begun and rounded n and some 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fabric.asm.operands import Dsr, Reg
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import SHAPE, ResampleShape, shape_number, shapes_of
from wse_core.formats import Arithmetic

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["CONSTANTS", "RESAMPLE", "ResampleTasks", "constants_of"]

CONSTANTS = "constants of lines"
"""A PE has those of all images that get other sides in an array of this name."""
COMMANDS = {"resample": "the next plane of rows: weighted sums of the rows and columns of the next plane of aux rows"}


@lru_cache(maxsize=64)
def constants_of(network: Network, tokens: int, half: Arithmetic) -> tuple[np.ndarray, Mapping[ResampleShape, int]]:
    """Return the constants of all shapes of a network, and where those of each begin."""
    words, begins = list[int](), dict[ResampleShape, int]()
    for shape in shapes_of(network):
        if isinstance(shape, ResampleShape):
            begins[shape] = len(words)
            words += _constants(shape, tokens, half)
    return np.array(words, np.int64).astype(np.uint16), begins


def _constants(shape: ResampleShape, tokens: int, half: Arithmetic) -> list[int]:
    """Return the words that a PE finds for a shape, in the order in which it reads them."""
    given, line, found = shape.width * tokens, len(shape.columns) * tokens, list[int]()
    ways = (
        (shape.columns, tokens, shape.height * given, -line),  # behind the plane the next one comes
        (shape.rows_of_result, line, 0, 0),
    )
    for lines, apart, onward, back in ways:
        at = 0
        for parts in lines:
            found.append(len(parts))
            for number, factor in parts:
                found += [number * apart - at, int(half.encode(factor))]
                at = number * apart
        found += [onward - at, back]
    return found


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write what makes images of other sides, a channel after the other."""
    _resampled(w, step, ".rows")


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write what makes gradients of the images that were given."""
    _resampled(w, step, "")


def _resampled(w: StepWriter, step: NetworkStep, part: str) -> None:
    network, node = w.plan.network, step.node
    result = ("out_height", "out_width") if step.direction == "forward" else ("height", "width")
    w.tell(shape=shape_number(network, node, step.direction))
    w.tell(aux=w.plan.array(step.reads[0]) + part, row=w.plan.array(step.writes[0]) + part)
    w.each(step.writes[0], "resample", unit=node.size(result[0]) * node.size(result[1]))
    w.tell(shape=0)


class ResampleTasks:
    """A program has this to give images other sides.

    Descriptors of products and gradients are borrowed for sums.

    Parameters
    ----------
    code : ProgramCode

    Attributes
    ----------
    sums : Dsr
        f32 numbers of a line, to add to.
    again : Dsr
        The same, to read.
    made, taken : Dsr
        Columns of the scratch plane, to write, and its rows, to read.
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        words, self.begins = constants_of(code.network, code.tokens, code.half)
        self.constants = p.array(CONSTANTS, len(words), "u16", init=words)
        self.sums, self.again = code.product.total, code.gradient.other
        self.made, self.taken = code.writes["delta"], code.reads["delta"]
        code.resampling = self

    def load(self, shape: ResampleShape) -> None:
        """Emit the loads of the descriptors of a shape, and its numbers."""
        code, p, tokens = self.code, self.code.p, self.code.tokens
        given, line, scratch = shape.width * tokens, len(shape.columns) * tokens, code.held["padded"]
        for dsr in (self.sums, self.again):
            p.load(dsr, p.mem1d(code.product.partial, shape.rows * tokens))
        for dsr, var, apart in ((code.reads["aux"], code.held["a0"], given), (self.made, scratch, line)):
            p.load(dsr, p.mem4d(var, [shape.height, tokens], [apart, 1], check=False))
        p.load(self.taken, p.mem1d(scratch, line, check=False))
        p.load(code.writes["row"], p.mem1d(code.held["a0"], line, check=False))
        code.shapes.set(
            gap=self.begins[shape],
            plane=shape.height * tokens,
            width=len(shape.columns),
            result=line,
            height=len(shape.rows_of_result),
        )

    def tasks(self) -> None:
        """Write the task of a channel."""
        code, p = self.code, self.code.p
        with code.command("resample"):
            at = p.reg16("place of the next constant")
            first = code.shapes.number("gap")
            p.ldi(at, self.constants)
            p.add16(at, at, first)
            p.free(first)
            self._lines(at, code.reads["aux"], self.made, "width", "plane", "")
            self._lines(at, self.taken, code.writes["row"], "height", "result", "result")
            p.free(at)

    def _lines(self, at: Reg, given: Dsr, result: Dsr, count: str, length: str, onward: str) -> None:
        """Emit lines, as many and as long as numbers say; the next one comes behind `onward`, or one pixel."""
        code, p, shapes = self.code, self.code.p, self.code.shapes
        words = shapes.number(length)
        for dsr in (self.sums, self.again):
            p.dsr_len(dsr, words)
        p.free(words)
        lines = shapes.number(count)
        with p.loop(lines, counter=lines):
            parts, word = p.reg16("parts"), p.reg16("constant")
            p.ld16(parts, at)
            p.add16(at, at, 1)
            with p.loop(parts, counter=parts):
                p.ld16(word, at)
                p.dsr_off(given, word)
                p.ld16(word, at, offset=1)
                p.fmachs(self.sums, self.sums, given, word)
                p.add16(at, at, 2)
            p.free(parts, word)
            p.fs2h(result, self.again)
            p.mov32(self.sums, 0)  # products begin with zeros too
            if onward:
                words = shapes.number(onward)
                p.dsr_off(result, words)
                p.free(words)
            else:
                p.dsr_off(result, code.tokens)
        p.free(lines)
        for dsr in (given, result):
            word = p.reg16("constant")
            p.ld16(word, at)
            p.dsr_off(dsr, word)
            p.add16(at, at, 1)
            p.free(word)


RESAMPLE = Lowering(
    SHAPE | COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "resample"), "back": ("backward, {place}", "resample back")},
    tasks_of=ResampleTasks,
)
"""Images that get other sides have this form in weight streaming."""

"""Sums of groups of columns (layout B) are joined in rows of PEs below the mesh: one row for each column of a group.

What moves
    A group of columns has all features of its tokens.  What leaves at the south of its column k, a sum over the group's
    tokens, goes on to row k below the mesh; there the sums of column k of all groups are added from west to east, and
    leave the wafer below the last group.  Every column has a row of its own, so that three colors do for any number of
    columns, and no way crosses another one of its color.

Colors
    6 or 7 (`fabric.kernels.streamed.gradient.DOWN`): sums of a group, as they leave the mesh.  8 and 9: sums of all
    groups so far, by parity of the group that they come from.  10: sums of all groups, to the southern edge.

Order of additions (bit exact)
    That of `fabric.kernels.streamed.gradient`: each group's sum to that of the groups before it.

Cycles
    An operation without an end adds a number from the north to one from the west as soon as both are there.  A ramp
    lets one wavelet through per cycle, so that numbers of a column leave `INTERVAL` cycles apart.

Source: weight streaming white paper, section 7.2, figure 16; the rows of their own are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from fabric.kernels.streamed.gradient import DOWN
from fabric.layout.layout import Layout
from fabric.layout.streams import Stream
from fabric.program.program import Program
from wse_core.encoding import ENDLESS
from wse_core.params import Machine

__all__ = ["INTERVAL", "QUEUES", "join_groups", "joining_rows"]

CROSSING, LEAVING = (8, 9), 10
INTERVAL = 2
QUEUES = 2, 3, 4
"""The own sums and those from the west come through these input queues, and leave through this output queue."""


def joining_rows(columns: int, groups: int) -> int:
    """Return how many rows of PEs below the mesh join the sums of groups of so many columns."""
    return columns if groups > 1 else 0


def joining_program(group: int, groups: int, down: int, machine: Machine) -> Program:
    """Return the program of the PE that adds the sums of a group to those of the groups before it, one by one.

    Parameters
    ----------
    group, groups : int
    down : int
        Color of the group's own sums.
    machine : Machine
    """
    last = group == groups - 1
    p = Program(f"sums of group {group} of {groups}", machine)
    own, before, sent = QUEUES
    sums = p.fabin(p.input_queue(own, down), ENDLESS, dtype="f32")
    on = p.fabout(p.output_queue(sent, LEAVING if last else CROSSING[group % 2]), ENDLESS, dtype="f32")
    with p.task("join") as task:
        if group:
            west = p.fabin(p.input_queue(before, CROSSING[(group - 1) % 2]), ENDLESS, dtype="f32")
            p.fadds(on, west, sums, async_=True)
        else:
            p.mov32(on, sums, async_=True)
    p.start(task)
    p.assemble()
    return p


def join_groups(layout: Layout, columns: int, groups: int, height: int) -> Sequence[Stream]:
    """Place and route what joins the sums of groups, below a mesh of so many rows; return the streams, one per column.

    Parameters
    ----------
    layout : Layout
        It has `joining_rows` rows more than the mesh.
    columns, groups, height : int
        Of the mesh: columns of a group, groups, rows.
    """
    down, machine = DOWN[(height - 1) % 2], layout.machine
    programs = [joining_program(group, groups, down, machine) for group in range(groups)]
    for column in range(columns):
        y = height + column
        for group, program in enumerate(programs):
            x = group * columns + column
            layout.place(program, x, y)
            layout.route(down, (x, height, 1, column + 1), rx="N", tx="S")
            layout.route(down, (x, y), rx="N", tx="R")
            if group < groups - 1:
                color = CROSSING[group % 2]
                layout.route(color, (x, y), rx="R", tx="E")
                layout.route(color, (x + 1, y, columns, 1), rx="W", tx="E")
                layout.route(color, (x + columns, y), rx="W", tx="R")
                continue
            layout.route(LEAVING, (x, y, 1, columns - column), rx="N", tx="S")
            layout.route(LEAVING, (x, y), rx="R", tx="S")
    first, bottom = (groups - 1) * columns, height + columns - 1
    return [layout.output_stream(first + column, bottom, "S", LEAVING) for column in range(columns)]

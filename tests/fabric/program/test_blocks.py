"""A block of a program that fails leaves nothing behind: the corrected cell of a notebook runs."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from fabric import Fabric, Layout, Program
from wse_core.errors import ProgramError


def managers(cls):
    """Return the names of what a class offers for a ``with``."""
    return {
        name
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
        and hasattr(member, "__wrapped__")
        and inspect.isgeneratorfunction(inspect.unwrap(member))
    }


BLOCKS = {
    "task": lambda p: p.task("part"),
    "function": lambda p: p.function("part"),
    "loop": lambda p: p.loop(3, index=True),
    "while_": lambda p: p.while_("lt", p.r[4], 2),
    "if_": lambda p: p.if_("eq", p.r[4], 0),
    "else_": lambda p: p.else_(),
}
"""Each context manager of `Program`, as a block of the task ``main`` or beside it."""


def test_every_context_manager_is_here():
    assert managers(Program) == set(BLOCKS)
    assert managers(Layout) == set()


def body(p, a):
    """Write what changes every part of a program, with a typo at the end."""
    before = p.unit.labels["there"]
    p.array("inside", 4, "f32", init=[1.0])
    queue = p.input_queue(2, 5)
    dest, source = p.dsr("dest"), p.dsr("src0")
    p.load(dest, a)
    p.load(source, a)
    p.fadds(dest, source, a)
    p.load(p.outside, a)
    p.fmuls(p.outside, p.outside, 1.0)
    p.fmovs(a, p.fabin(queue, 8), async_=True)
    p.fifo(p.scalar("ring", "f32"))
    p.start("main")
    p.block("main")
    p.unblock("main")
    p.blocked(7)
    p.unblocked(6)
    p.reg32("wide")
    with p.if_("eq", p.r[2], 1):
        p.place(before)
        with p.loop(2):
            p.fadds(a, a, 1.0)
    p.activate("main")
    p.fadd(a, a, a)


def described(p):
    """Return all that a program is, names and numbers only."""
    unit = p.unit
    dsrs = {id(dsr): k for k, dsr in enumerate(unit.dsrs)}
    return {
        "instructions": [(ins.op.name, ins.body) for ins in unit.instructions],
        "names": [list(x) for x in (unit.variables, unit.labels, unit.tasks, unit.functions, *unit.queues.values())],
        "places": [(label.name, label.at) for label in unit.labels.values()],
        "dsrs": [(dsr.file, len(dsr.loads), dsrs.get(id(dsr.root))) for dsr in unit.dsrs],
        "bits": [len(unit.starts), len(unit.blocks), len(unit.unblocks), unit.fifos, unit.labels_made],
        "registers": p.registers.state(),
        "last if": None if p.blocks.last_if is None else p.blocks.last_if[0].name,
    }


def write(kind, mistakes):
    """Return a program with one block of a kind, which fails `mistakes` times before it is written right."""
    p = Program("cell")
    a = p.array("a", 8, "f32")
    p.outside = p.dsr("src0", name="outside")
    p.new_label("there")

    def attempt():
        for wrong in [True] * mistakes + [False]:
            before = described(p)
            try:
                with BLOCKS[kind](p):
                    if wrong:
                        body(p, a)
                    p.fadds(a, a, 2.0)
            except AttributeError as error:
                assert "'fadd'" in str(error)
                assert described(p) == before
            else:
                assert not wrong

    if kind in ("task", "function"):
        attempt()
    with p.task("main"):
        p.ldi(p.r[4], 0)
        if kind not in ("task", "function"):
            if kind == "else_":
                with p.if_("eq", p.r[4], 1):
                    p.fadds(a, a, 4.0)
            attempt()
            if kind == "while_":
                p.nop()
        elif kind == "task":
            p.activate("part")
        else:
            p.call("part")
        p.place(p.unit.labels["there"])
    p.unit.dsrs.remove(p.outside)  # nothing was loaded into it
    return p


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_mistake_in_a_block_leaves_nothing_behind(kind):
    once, again = write(kind, 0).assemble(), write(kind, 2).assemble()
    assert np.array_equal(once.code, again.code)
    assert np.array_equal(once.entry, again.entry)
    assert once.symbols == again.symbols


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("kind", sorted(set(BLOCKS) - {"while_"}))
def test_the_corrected_cell_runs(kind, backend):
    p = write(kind, 1)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    assert fabric.run(10_000).status == "complete"
    assert fabric.read("a").ravel().tolist() == [6.0 if kind == "loop" else 2.0] * 8


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_a_task_that_failed_and_was_never_corrected_is_not_in_the_program(backend):
    p = Program("cell")
    a = p.array("a", 8, "f32")
    with p.task("main"):
        p.fadds(a, a, 1.0)
    with pytest.raises(AttributeError), p.task("t2"):
        p.fadd(a, a, a)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.run()
    assert fabric.read("a").ravel().tolist() == [1.0] * 8


def test_a_block_inside_that_fails_and_is_caught_costs_only_itself():
    p = Program("cell")
    a = p.array("a", 8, "f32")
    with p.task("main"):
        p.fadds(a, a, 1.0)
        with pytest.raises(ProgramError), p.loop(2):
            p.fadds(a, a)
        p.fadds(a, a, 2.0)
    assert [ins.op.name for ins in p.unit.instructions if ins.op.form == "alu"] == ["fadds", "fadds"]


def test_an_interrupt_takes_a_block_back_too():
    p = Program("cell")
    with pytest.raises(KeyboardInterrupt), p.task("main"):
        raise KeyboardInterrupt
    assert p.unit.tasks == {}
    assert p.unit.body is None


def test_what_was_checked_in_a_block_that_failed_is_checked_anew():
    """The same operation on the same DSRs, which the corrected cell loads with something else."""
    p = Program("cell")
    into, out = p.input_queue(0, 1), p.output_queue(0, 2)
    dest, source = p.dsr("dest"), p.dsr("src1")

    def write(packed):
        p.load(dest, p.fabout(out, 8))
        p.load(source, p.fabin(into, 8, packed=packed))
        p.fmovh(dest, source)

    with pytest.raises(ZeroDivisionError), p.task("main"):
        write(True)
        raise ZeroDivisionError
    with pytest.raises(ProgramError, match="disagree on packing"), p.task("main"):
        write(False)
    with p.task("main"):
        write(True)
    assert [ins.op.name for ins in p.unit.instructions] == ["dsr_load", "dsr_load", "fmovh", "done"]

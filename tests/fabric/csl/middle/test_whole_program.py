"""Passes that look at all functions of a program: what leads to memory, notes, DSRs of the program, products."""

from __future__ import annotations

import pytest

from fabric.csl.ir import StaticMemory, Template
from fabric.csl.ir.machine import ExplicitDsr, IrProgram
from fabric.csl.ir.reader import read
from fabric.csl.optimise import dead, frames, memory, partners, products
from tests.fabric.csl.middle.texts import lines, text


def test_memory_that_nothing_leads_to():
    """A descriptor, a FIFO, an address in a register or in other memory lead to it; loads and stores do not."""
    names = ("a", "b", "c", "d", "e", "f")
    memories = {name: StaticMemory(name, 4, "u16") for name in names}
    function = read(
        "\n".join(f"@{name} = memory(u16, 4)" for name in names)
        + "\nfifo#1 = storage(memory=@d)\nfn f():\n  b1:\n    v1 = load [@a]\n    store v1 [@a+1]\n    v2 = const @b\n"
        "    dsr_load [src1#1, mem1d(base=@c)]\n    dsr_load [src1#2, fifo(fifo=fifo#1)]\n    store @e [@a]\n    ret"
    )
    found = {sym.memory.name: sym.memory for i in function.instructions() for sym in memory.addresses(i)} | {
        "f": memories["f"]
    }
    found["a"].relocations[0] = next(
        sym for i in function.instructions() for sym in memory.addresses(i) if sym.memory.name == "a"
    )
    program = IrProgram([function], list(found.values()))
    memory.set_apart(program)
    assert {name for name, made in found.items() if made.apart} == {"f"}
    del found["a"].relocations[0]
    memory.set_apart(program)
    assert {name for name, made in found.items() if made.apart} == {"a", "f"}


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ("dsr_load [src1:1, mem1d(base=@a+3, extents=(2,))]", True),
        ("dsr_load [src1:1, mem1d(base=@b, extents=(2,))]", False),
        ("dsr_load [src1:1, mem1d(base=@a, flags=1)]", False),
        ("dsr_load [src1:1, mem4d(base=@a)]", False),
        ("dsr_base v1 [src1:1]", False),
        ("dsr_len v1 [src1:1]", True),
    ],
)
def test_dsrs_that_lead_to_one_memory(more, known):
    one = read(text("v1 = rand16\ndsr_load [src1:1, mem1d(base=@a)]\nret"))
    other = read(text(f"v1 = rand16\n{more}\nret"))
    held = {sym.memory.name: sym.memory for i in one.instructions() for sym in memory.addresses(i)}
    for instr in other.instructions():  # both are of one program
        if instr.op == "dsr_load" and instr.data[1].base.memory.name in held:
            dsr, t = instr.data
            base = type(t.base)(held[t.base.memory.name], t.base.offset)
            instr.data = (dsr, Template(t.kind, base, t.extents, flags=t.flags))
    memory.name_apart(IrProgram([one, other]))
    assert one.named is other.named
    assert (one.named[ExplicitDsr("src1", 1)] is not None) == known


def test_notes_that_nothing_loads_are_not_stored():
    head = "@n = memory(u16, 1, noted=True)\n@m = memory(u16, 1, noted=True)\n@a = memory(u16, 1)\nfn f():\n  b1:\n"
    body = "    v1 = rand16\n    v2 = add16 v1, 3\n    store v2 [@n]\n    store v1 [@m]\n    store v1 [@a]\n"
    function = read(f"{head}{body}    v3 = load [@m]\n    store v3 [@a]\n    ret")
    told = []
    assert {made.name for made in dead.remove_notes([function], told.append)} == {"n"}
    assert told == [function]
    assert lines(function) == [
        "v1 = rand16", "store v1 [@m]", "store v1 [@a]", "v2 = load [@m]", "store v2 [@a]", "ret",
    ]  # fmt: skip


PARTNER = "dsr_load [dest:1, mem1d(base=@a)]\ndsr_load [src0#1, mem1d(base=@a)]\nvector v1 [add16(dest:1, src0#1, 0)]"


@pytest.mark.parametrize(
    ("rest", "settled"),
    [
        ("dsr_load [src0:1, mem1d(base=@a)]\nvector v1 [add16(dest:2, src0:1, 0)]", True),
        ("vector v1 [add16(dest:2, src0:1, 0)]", False),
        ("dsr_load [src0:1, mem1d(base=@a)]\nv2=r2 = call [&g]\nvector v1 [add16(dest:2, src0:1, 0)]", False),
        ("vector v1 [add16(dest:2, src0:2, 0)]", False),
    ],
    ids=["loaded", "disturbed", "call", "not named"],
)
def test_partners(rest, settled):
    """The DSR beside one that the program chose is the partner of it, if all uses of that one come after loads."""
    body = f"v1 = rand16\n{PARTNER}\n{rest}\nret"
    function = read(text(body))
    partners.settle_partners([function])
    assert ("src0#1" not in "\n".join(lines(function))) == settled
    if settled:
        assert lines(function) == body.replace("src0#1", "src0:1").splitlines()


def test_partners_in_a_loop():
    """What is loaded in a turn is not there in the next, if the operation came between."""
    inside = f"{PARTNER}\nvector v1 [add16(dest:2, src0:1, 0)]"
    begin = "v1 = rand16\ndsr_load [src0:1, mem1d(base=@a)]\njmp [b2]\nb2: depth 1"
    body = f"{begin}\n{inside}\nbr v1, 3 [br16, ne, b2, b3]\nb3:\nret"
    function = read(text(body))
    partners.settle_partners([function])
    assert lines(function) == body.splitlines()
    body = body.replace(inside, "\n".join(reversed(inside.rsplit("\n", 1))))
    function = read(text(body))
    partners.settle_partners([function])
    assert lines(function) == body.splitlines()


def test_products_are_calls_of_a_routine():
    routine = read(
        "fn product(v1=r2, v2=r3) result=1 places=(2, 3):\n  b1:\n    v3=r2 = mul16 v1=r2, v2=r3\n    ret v3=r2"
    )
    one, other = (read(text(f"v1 = rand16\nv2 = {op} v1, 11\nstore v2 [@a]\nret")) for op in ("mul16", "add16"))
    changed = []
    assert products.expand([other], lambda: 1 / 0, changed.append) == [other]
    assert products.expand([one, other], lambda: routine, changed.append) == [routine, one, other]
    assert changed == [one]
    assert lines(one) == [
        "v1 = rand16", "v3.factor=r-1 = copy v1", "v4.factor=r-1 = const 11",
        "v5.product=r2 = call v3.factor=r-1, v4.factor=r-1 [&product]", "v2 = copy v5.product=r2", "store v2 [@a]",
        "ret",
    ]  # fmt: skip


def test_locals_that_nothing_reaches():
    function = read(text("v1 = rand16\nstore v1 [@c]\nret"))
    (own,) = function.frame
    assert frames.unused(function) == []
    frames.promote(function)
    assert frames.unused(function) == [own]

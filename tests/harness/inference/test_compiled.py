"""What a PE computes in program A: parts that are compiled for their sizes and follow the machine."""

from __future__ import annotations

import sys

import pytest

from harness.cli.main import main
from harness.inference.compiled import LINE, PARTS, line_parts, part_cycles
from wse_core.errors import UnsupportedError
from wse_core.params import machine

WSE2 = machine("wse2")
PRODUCTS = {
    "decode": {"query", "key", "value", "scores", "values", "output", "up", "gate", "down"},
    "prefill": {"square", "scores", "values", "wide", "narrow"},
}


@pytest.mark.parametrize("phase", PARTS)
def test_every_part_takes_time_and_grows_with_its_sizes(phase):
    small, large = part_cycles(WSE2, phase, 4, 4, 12), part_cycles(WSE2, phase, 16, 8, 24)
    assert tuple(small) == PARTS[phase]
    assert all(0 < small[name] <= large[name] for name in small)
    grown = {"norm", "rotation", "exp", "normalise", "silu"} | PRODUCTS[phase]
    assert all(large[name] > small[name] for name in grown)


def test_a_turn_of_a_product_is_a_multiply_add_and_a_cycle():
    """The code of a turn is one instruction: two steps of four elements and a cycle, beside what banks cost."""
    for rows in (40, 60, 80):
        begins = 80
        assert 3 * rows <= part_cycles(WSE2, "decode", 8, 8, rows)["down"] <= begins + 7 * rows


def test_the_way_of_a_sum_is_compiled_too():
    """Who is further down in the choices of the code executes more of them; a call costs what a call costs."""
    found = line_parts(WSE2)
    assert found.keys() == LINE.keys()
    assert 0 < found["opening"] < found["closing"] < found["meeting"] < found["meeting below"]
    assert 0 < found["passing"] < found["passing below"] < found["relaying"] < found["relaying below"]
    assert found["called"] - found["inlined"] >= WSE2["ce.call"] + WSE2["ce.ret"]
    slower = line_parts(WSE2.replace({"ce.branch_taken": WSE2["ce.branch_taken"] + 5}))
    assert slower["closing"] > found["closing"]


@pytest.mark.parametrize(("number", "parts"), [("ce.branch_taken", PRODUCTS["prefill"]), ("ce.divide", {"silu"})])
def test_parts_follow_the_numbers_of_the_machine(number, parts):
    slower = WSE2.replace({number: WSE2[number] + 5})
    before, after = part_cycles(WSE2, "prefill", 4, 4, 12), part_cycles(slower, "prefill", 4, 4, 12)
    assert all(after[name] >= before[name] for name in before)
    assert all(after[name] > before[name] for name in parts)


def test_tiles_that_do_not_fit_are_refused_with_their_sizes():
    with pytest.raises(UnsupportedError, match="decode with 100 features, 100 tokens and 400 features"):
        part_cycles(WSE2, "decode", 100, 100, 400)


def test_a_plan_without_the_compiler_says_what_program_a_lacks(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lark", None)
    part_cycles.cache_clear()
    main(["plan", "LLaMA3-8B", "--inference", "--mesh", "360x360"])
    shown = capsys.readouterr().out
    assert "impossible: program A, whose code is compiled from CSL, needs lark" in shown
    assert "program B, a correct model" in shown

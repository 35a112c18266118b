"""What a PE computes in program A: parts that are compiled for their sizes and follow the machine."""

from __future__ import annotations

import sys

import pytest

from fabric.price import timing
from harness.cli.main import main
from harness.inference.compiled import DECODE, LINE, PREFILL, decode_parts, line_parts, prefill_parts
from wse_core.errors import UnsupportedError
from wse_core.params import machine

WSE2 = machine("wse2")
PRODUCTS = {"query", "key", "value", "scores", "values", "output", "up", "gate", "down"}
GROWN = {"norm", "rotation", "exp", "normalise", "silu"} | PRODUCTS


def test_every_part_of_decode_takes_time_and_grows_with_its_sizes():
    small, large = decode_parts(WSE2, 4, 4, 12), decode_parts(WSE2, 16, 8, 24)
    assert tuple(small) == DECODE
    assert all(0 < small[name] <= large[name] for name in small)
    assert all(large[name] > small[name] for name in GROWN)


def test_every_part_of_prefill_takes_time_and_grows_with_its_sizes():
    """A first step has what is prepared; only products and turns have further ones."""
    small, large = prefill_parts(WSE2, 4, 4, 12), prefill_parts(WSE2, 16, 8, 24)
    assert tuple(small) == tuple(PREFILL)
    assert {name for name, part in small.items() if part.further} == PRODUCTS | {"turn"}
    assert all(part.first > part.further for part in small.values())
    assert all(small[name].first <= large[name].first for name in small)
    assert all(large[name].first > small[name].first for name in GROWN)
    assert all(large[name].further > small[name].further for name in PRODUCTS | {"turn"})


@pytest.mark.parametrize("rows", [4, 8, 9, 12])
@pytest.mark.parametrize("features", [8, 18])
def test_moves_take_turns_with_what_is_multiplied(features, rows):
    """A column more of the right tile takes its multiply-adds, and a cycle for each wavelet that goes or comes."""
    few, many = (prefill_parts(WSE2, features, rows, columns)["up"].further for columns in (32, 64))
    more = 32 * features
    multiplied, moved = more * (timing.steps(WSE2, "fmach", rows) + 1), 2 * (more // 2)
    assert multiplied + moved <= many - few <= 2 * multiplied


def test_a_turn_of_a_product_is_a_multiply_add_and_a_cycle():
    """The code of a turn is one instruction: two steps of four elements and a cycle, beside what banks cost."""
    for rows in (40, 60, 80):
        begins = 80
        assert 3 * rows <= decode_parts(WSE2, 8, 8, rows)["down"] <= begins + 7 * rows


def test_the_way_of_a_sum_is_compiled_too():
    """Who is further down in the choices of the code executes more of them; a call costs what a call costs."""
    found = line_parts(WSE2)
    assert found.keys() == LINE.keys()
    assert 0 < found["opening"] < found["closing"] < found["meeting"] < found["meeting below"]
    assert 0 < found["passing"] < found["passing below"] < found["relaying"] < found["relaying below"]
    assert found["called"] - found["inlined"] >= WSE2["ce.call"] + WSE2["ce.ret"]
    slower = line_parts(WSE2.replace({"ce.branch_taken": WSE2["ce.branch_taken"] + 5}))
    assert slower["closing"] > found["closing"]


@pytest.mark.parametrize(("number", "parts"), [("ce.branch_taken", PRODUCTS), ("ce.divide", {"silu"})])
def test_parts_follow_the_numbers_of_the_machine(number, parts):
    slower = WSE2.replace({number: WSE2[number] + 5})
    before, after = prefill_parts(WSE2, 4, 4, 12), prefill_parts(slower, 4, 4, 12)
    assert all(after[name].first >= before[name].first for name in before)
    assert all(after[name].first > before[name].first for name in parts)


def test_tiles_that_do_not_fit_are_refused_with_their_sizes():
    with pytest.raises(UnsupportedError, match="decode with 100 features, 100 tokens and 400 features"):
        decode_parts(WSE2, 100, 100, 400)


def test_a_plan_without_the_compiler_says_what_program_a_lacks(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lark", None)
    decode_parts.cache_clear()
    main(["plan", "LLaMA3-8B", "--inference", "--mesh", "360x360"])
    shown = capsys.readouterr().out
    assert "impossible: program A, whose code is compiled from CSL, needs lark" in shown
    assert "program B, a correct model" in shown

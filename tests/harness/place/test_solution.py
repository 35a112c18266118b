"""Placements in the contest's format: checked, scored by hand, and hostile ones refused with one line."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.place.kgraph import parse_problem
from harness.place.solution import check, parse_solution, scored, wire_length, written
from tests.harness.place.problems import convolutions, text
from wse_core.errors import ConfigError, LayoutError, UnsupportedError, WseError

TWO = convolutions([(4, 4, 2, 2, 1, 1), (4, 4, 2, 3, 3, 2)], [(0, 1)], width=20, height=12, wire=4)
SOLUTION = """k0 = conv( 4 4 2 2 1 1 1 1 2 1 2 2 )
k0 : place(0 0 R0)
k1 = conv( 4 4 2 3 3 3 2 2 1 2 1 3 )
k1 : place(6 1 R90)
"""


def test_score_by_hand():
    placed = parse_solution(SOLUTION, TWO)
    assert [item.size for item in placed] == [(6, 6), (4, 9)]
    score = scored(TWO, placed)
    assert score.slowest == max(2 * 4 * 1 * 1, Fraction(4 * 2 * 2 * 1 * 9, 4))
    assert score.wire == abs(Fraction(3) - 8) + abs(Fraction(3) - Fraction(11, 2))
    assert score.used == (36 + 36) / 240
    assert score.score == 36 + 4 * 7.5
    assert written(placed) == SOLUTION


def test_connections_of_input_and_output_have_no_length():
    problem = parse_problem(text())
    assert len(problem.wires) == 3
    lines = [
        "k1 = conv( 8 8 4 6 3 3 1 1 1 1 1 1 )",
        "k1 : place(0 0 R0)",
        "k2 = dblock( 8 8 8 1 1 1 1 1 1 1 1 )",
        "k2 : place(10 0 R0)",
        "k3 = cblock( 8 8 8 1 1 1 1 1 1 1 1 1 1 )",
        "k3 : place(30 20 R0)",
    ]
    placed = parse_solution("\n".join(lines), problem)
    centres = [(1.5, 1), (14.5, 1), (36, 21)]
    wanted = sum(abs(centres[a][k] - centres[b][k]) for a, b in problem.wires for k in (0, 1))
    assert wire_length(problem, placed) == wanted


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("place(6 1", "place(5 1", LayoutError, "overlaps k1 at (5, 1)"),
        ("place(6 1", "place(17 1", LayoutError, "beyond the wafer"),
        ("place(6 1", "place(6 4", LayoutError, "beyond the wafer"),
        ("1 1 2 1 2 2 )", "1 1 5 1 2 2 )", LayoutError, "h = 5 is not 1 to 4"),
        ("1 1 2 1 2 2 )", "1 1 0 1 2 2 )", LayoutError, "h = 0"),
        ("1 1 2 1 2 2 )", "1 1 2 1 2 )", ConfigError, "k0 has 3 execution arguments"),
        ("conv( 4 4 2 2", "conv( 4 4 2 3", ConfigError, "another kernel"),
        ("k0 = conv", "k0 = dblock", ConfigError, "another kernel"),
        ("k0 = conv", "k9 = conv", ConfigError, "no kernel k9"),
        ("k1 : place", "k0 : place", ConfigError, "k0 stands there twice"),
        ("k1 : place(6 1 R90)\n", "", ConfigError, "k1 has no place"),
        ("R90", "R180", ConfigError, "no orientation"),
        ("place(6 1", "place(6", ConfigError, "no line of a solution"),
        ("place(6 1", "place(-6 1", ConfigError, "no line of a solution"),
        ("place(6 1", f"place({'9' * 5000} 1", ConfigError, "5000 digits"),
        ("k0 = conv", "\x1b[2Jk0 = conv", ConfigError, "no line of a solution"),
    ],
)
def test_what_is_not_valid_is_refused_in_one_line(old, new, error, said):
    assert old in SOLUTION
    with pytest.raises(WseError) as caught:
        check(TWO, parse_solution(SOLUTION.replace(old, new, 1), TWO))
    assert isinstance(caught.value, error)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    check(TWO, parse_solution(SOLUTION, TWO))


def test_touching_is_not_overlapping_and_memory_has_a_limit():
    placed = parse_solution(SOLUTION, TWO)
    most = max(item.kernel.memory(item.given) for item in placed)
    tight = convolutions(
        [(4, 4, 2, 2, 1, 1), (4, 4, 2, 3, 3, 2)],
        [(0, 1)],
        width=20,
        height=12,
        memory=-(-most.numerator // most.denominator) - 1,
    )
    with pytest.raises(LayoutError, match="words of a PE"):
        check(tight, placed)


def test_a_score_with_adapters_is_not_known():
    problem = convolutions([(4, 4, 2, 2, 1, 1), (4, 4, 2, 3, 3, 2)], [(0, 1)], width=20, height=12, adapter=100)
    placed = parse_solution(SOLUTION, problem)
    assert scored(problem, placed).score is None
    with pytest.raises(UnsupportedError, match="adapters count 100"):
        scored(problem, placed, strict=True)

"""Plans, their sizes, and the search, against exhaustive search on small wafers and against bounds on large ones."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from fractions import Fraction
from random import Random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from harness.place.bands import Sizer
from harness.place.moves import random_move
from harness.place.search import Search, flow_order
from harness.place.shapes import NEVER
from harness.place.solution import check, parse_solution, written
from harness.place.solve import prepare, solve
from tests.examples import examples, few
from tests.harness.place import exhaustive
from tests.harness.place.problems import convolutions, network
from wse_core.errors import ConfigError, LayoutError, UnsupportedError

SMALL = [
    # (H, W, C, K, R, T) of each, wires, width, height
    ([(2, 2, 1, 2, 1, 1), (2, 1, 2, 2, 1, 1)], [(0, 1)], 9, 7),
    ([(2, 2, 2, 2, 1, 1), (1, 2, 2, 2, 3, 1), (2, 1, 1, 2, 1, 1)], [(0, 1), (1, 2)], 12, 8),
    ([(2, 2, 1, 1, 1, 1), (2, 2, 1, 1, 1, 1), (2, 1, 2, 1, 1, 1)], [(0, 1), (0, 2), (1, 2)], 8, 9),
    ([(2, 2, 1, 1, 3, 1), (3, 1, 1, 2, 1, 1), (2, 2, 2, 1, 3, 2), (1, 1, 2, 2, 1, 1)], [(0, 1), (1, 2), (2, 3)], 10, 8),
    ([(1, 1, 2, 3, 1, 1), (1, 1, 3, 2, 1, 1), (2, 2, 1, 1, 1, 1), (1, 2, 1, 2, 1, 1)], [(0, 3), (1, 2)], 7, 11),
]

SCORED = [
    SMALL[0],
    ([(1, 1, 1, 2, 1, 1), (1, 1, 2, 1, 1, 1), (1, 1, 1, 1, 1, 1)], [(0, 1), (1, 2)], 9, 4),
    ([(1, 1, 1, 1, 1, 1), (1, 1, 2, 1, 3, 1), (1, 1, 1, 2, 1, 1)], [(0, 1), (0, 2)], 7, 6),
]


def items(plan):
    """Return all items of a plan in order."""
    return sorted(item for column in plan for row in column for stack in row for item in stack)


def random_plan(count, random, steps=40):
    """Return a plan that random steps have made, and the ones on the way."""
    plan = ((tuple(((item,),) for item in range(count))),)
    for _ in range(steps):
        new = random_move(plan, count, [[(i + 1) % count] for i in range(count)], random)
        plan = plan if new is None else new
    return plan


@examples(60)
@given(st.integers(2, 12), st.integers(0, 10**9))
def test_a_step_keeps_every_item(count, seed):
    random = Random(seed)
    plan = random_plan(count, random)
    assert items(plan) == list(range(count))
    assert all(stack and row and column for column in plan for row in column for stack in row)


def test_steps_reach_every_plan_of_two():
    """Side by side in columns, side by side in a row, one above the other as rows and as a stack, in both orders."""
    random, seen, plan = Random(1), set(), ((((0,),), ((1,),)),)
    for _ in range(600):
        new = random_move(plan, 2, [[1], [0]], random)
        plan = plan if new is None else new
        seen.add(plan)
    one, two = ((0,),), ((1,),)
    wanted = {((one, two),), ((one,), (two,)), ((((0,), (1,)),),), ((((0, 1),),),)}
    wanted |= {((two, one),), ((two,), (one,)), ((((1,), (0,)),),), ((((1, 0),),),)}
    assert seen == wanted


@examples(60)
@given(st.integers(2, 9), st.sampled_from((0.0, 0.3, 1.0)), st.integers(0, 10**9))
def test_rooms_lie_apart_and_are_large_enough(count, stretch, seed):
    """Whatever the plan and the curves: rooms do not overlap, and each has a shape of its item."""
    random = Random(seed)
    width, height = random.randrange(20, 60), random.randrange(20, 60)
    kinds = [random.randrange(3) for _ in range(count)]
    curves = []
    for _ in range(3):
        area = random.randrange(4, 60)
        curve = -(-area // np.maximum(np.arange(width + 1), 1))
        curve[: random.randrange(1, 4)] = NEVER
        curves.append(np.where(curve > height, NEVER, curve))
    sizer = Sizer(curves, kinds, height)
    plan = random_plan(count, random)
    columns = sizer.plan(plan, stretch)
    if columns is None or sum(column.width for column in columns) > width:
        return
    rooms = sizer.rooms(plan, stretch)
    assert sorted(rooms) == list(range(count))
    for item, (x, y, w, h) in rooms.items():
        assert x >= 0
        assert x + w <= width
        assert y >= 0
        assert y + h <= height
        assert curves[kinds[item]][w] <= h
    for first, second in itertools.combinations(rooms.values(), 2):
        assert exhaustive.free(first, [second])
    left = 0
    for column in columns:  # centres that the search works with are those of the rooms, up to half a PE
        for item, x, y in zip(column.items, column.x, column.y, strict=True):
            room = rooms[int(item)]
            assert abs(left + x - room[0] - room[2] / 2) < 1
            assert abs(y - room[1] - room[3] / 2) < 1
        left += column.width


def test_flow_follows_a_branch():
    assert flow_order(6, [(0, 1), (1, 2), (0, 4), (4, 5), (2, 3), (5, 3)]) in ([0, 4, 5, 1, 2, 3], [0, 1, 2, 4, 5, 3])
    assert flow_order(3, [(0, 1), (1, 0)]) == [2, 0, 1]


@pytest.mark.parametrize("case", few(range(len(SMALL)), 3))
def test_slowest_equals_exhaustive_search(case):
    sizes, wires, width, height = SMALL[case]
    problem = convolutions(sizes, wires, width=width, height=height)
    outcome = solve(problem, "slowest", rounds=6, processes=1)
    check(problem, outcome.placed)
    assert outcome.score.slowest == exhaustive.slowest(problem)
    assert outcome.bound * Fraction(99, 100) <= outcome.score.slowest


@pytest.mark.parametrize(("case", "wire"), few([(0, 1), (1, 6), (2, 1), (0, 6), (1, 1), (2, 6)], 3))
def test_score_equals_exhaustive_search(case, wire):
    sizes, wires, width, height = SCORED[case]
    problem = convolutions(sizes, wires, width=width, height=height, wire=wire)
    outcome = solve(problem, "score", rounds=12, processes=1)
    assert outcome.score.score == float(exhaustive.score(problem))


@pytest.mark.parametrize("layers", few([9, 24], 1))
def test_slowest_is_near_the_bound_by_area(layers):
    outcome = solve(network(layers), "slowest", rounds=6, processes=1)
    assert 0.99 < outcome.score.slowest / outcome.bound < 1.1
    assert 0.85 < outcome.score.used <= 1


def test_wires_count_in_the_score():
    """With heavier wires the placement has shorter ones and a slower kernel."""
    light, heavy = (solve(network(9, wire=wire), rounds=5, processes=1).score for wire in (1, 10_000))
    assert heavy.wire < light.wire
    assert heavy.slowest > light.slowest


def test_a_seed_gives_the_same_placement_with_any_number_of_processes():
    problem = network(8)
    one = solve(problem, rounds=2, processes=1, seed=5)
    assert solve(problem, rounds=2, processes=1, seed=5).placed == one.placed
    two = solve(problem, rounds=2, processes=2, seed=5)
    assert solve(problem, rounds=2, processes=2, seed=5).placed == two.placed
    assert two.rounds == 4
    assert two.score.score <= one.score.score  # the first of two searches is the only one of one
    others = [solve(problem, rounds=2, processes=1, seed=seed).placed for seed in (6, 7)]
    assert {written(one.placed)} < {written(placed) for placed in (one.placed, *others)}
    assert parse_solution(written(two.placed), problem) == two.placed


def test_time_of_the_clock_ends_the_search():
    shares = []
    outcome = solve(network(8), seconds=0.3, processes=1, report=lambda share, rounds, best: shares.append(share))
    assert outcome.seconds >= 0.3
    assert not outcome.ended_by
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert shares[0] > 0


def test_interruption_keeps_the_best():
    problem = network(8)

    def report(share, rounds, best):
        if rounds == 2:
            raise KeyboardInterrupt

    outcome = solve(problem, rounds=1000, processes=1, report=report)
    assert outcome.ended_by == signal.SIGINT
    assert outcome.rounds == 2
    assert outcome.placed == solve(problem, rounds=2, processes=1).placed


def test_ctrl_c_ends_all_processes():
    problem, seen = network(8), []

    def report(share, rounds, best):
        seen.append(rounds)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    outcome = solve(problem, rounds=10**6, processes=2, report=report)
    assert outcome.ended_by == signal.SIGINT
    check(problem, outcome.placed)
    assert multiprocessing.active_children() == []


def test_what_cannot_be_placed_is_refused():
    with pytest.raises(UnsupportedError, match="adapters count 100 each"):
        prepare(network(4, adapter=100))
    assert solve(network(4, adapter=100), "slowest", rounds=1, processes=1).score.score is None
    with pytest.raises(LayoutError, match="k0: fits nowhere"):
        prepare(convolutions([(4, 4, 4, 4, 1, 1)], [], width=2, height=2))
    with pytest.raises(LayoutError, match="k0: fits nowhere"):
        prepare(convolutions([(4, 4, 4, 4, 1, 1)], [], width=30, height=30, memory=1))
    with pytest.raises(LayoutError, match=r"all kernels have 24 PEs, the wafer has 20"):
        prepare(convolutions([(1, 1, 1, 1, 1, 1)] * 4, [], width=5, height=4))
    # Four of 3 x 2 have 24 PEs of 25, but only interlocked, which no columns of rows are.
    with pytest.raises(LayoutError, match="no placement of 4 kernels on 5 x 5"):
        solve(convolutions([(1, 1, 1, 1, 1, 1)] * 4, [], width=5, height=5), "slowest", rounds=3, processes=1)
    with pytest.raises(ConfigError, match="one of score, slowest"):
        prepare(network(4), "fastest")


def test_rounds_find_more_than_the_plans_to_begin_with():
    problem = network(20)
    search = Search(prepare(problem, "slowest").task, 3)
    search.begin()
    first = search.settle(*search.pool[0][:2])
    for _ in range(6):
        search.round()
    assert search.best.limit < first.limit

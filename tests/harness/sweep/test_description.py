"""What a sweep file means, and what is wrong with one."""

from __future__ import annotations

import pytest

from harness.sweep import description
from wse_core.errors import ConfigError


def places(text):
    """Return the value of each axis for every point."""
    return [at for at, _ in description.parse(text).points]


def test_lists_and_ranges_are_combined_the_last_axis_fastest():
    found = places('kernel = "gemv"\n[params]\np = {from = 4, to = 16, times = 2}\nm = 32\nsums = ["f32", "same"]\n')
    assert found == [{"p": p, "sums": sums} for p in (4, 8, 16) for sums in ("f32", "same")]


def test_axes_go_side_by_side():
    text = 'kernel = "gemv"\nzip = [["m", "n"], ["p", "ramp.in"]]\n[params]\nm = [8, 16]\nn = [2, 4]\np = [1, 2]\n'
    found = places(text + "[machine]\nramp.in = [2, 3]\n")
    assert found == [
        {"m": m, "n": n, "p": p, "ramp.in": ramp} for m, n in ((8, 2), (16, 4)) for p, ramp in ((1, 2), (2, 3))
    ]
    flat = places('kernel = "gemv"\nzip = ["m", "n"]\n[params]\nm = [8, 16]\nn = [2, 4]\n')
    assert flat == [{"m": 8, "n": 2}, {"m": 16, "n": 4}]


def test_a_point_has_all_parameters_and_the_changed_numbers():
    sweep = description.parse('kernel = "vector"\n[params]\nn = [8, 9]\n[machine]\npreset = "wse3"\nramp.in = 3\n')
    (at, point), _ = sweep.points
    assert at == {"n": 8}
    assert (point.kind, point.name, point.preset, point.numbers) == ("kernel", "vector", "wse3", {"ramp.in": 3})
    assert point.values["n"] == 8
    assert {"op", "conflict", "seed", "verify"} <= set(point.values)


def test_kernels_and_presets_are_axes_too():
    found = places('kernel = ["gemm", "gemv"]\n[params]\np = [2, 4]\n[machine]\npreset = ["wse2", "wse3"]\n')
    assert len(found) == 8
    assert found[0] == {"kernel": "gemm", "p": 2, "preset": "wse2"}


def test_a_list_of_a_number_that_is_one_is_one_value():
    depths = [4] * 8
    alone = description.parse(f'kernel = "vector"\n[machine]\nqueue.in_depth = {depths}\n')
    assert alone.axes == ()
    both = description.parse(f'kernel = "vector"\n[machine]\nqueue.in_depth = [{depths}, {[8] * 8}]\n')
    assert [axis.values for axis in both.axes] == [((4,) * 8, (8,) * 8)]


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("{from = 1, to = 9, step = 4}", (1, 5, 9)),
        ("{from = 1, to = 8, step = 4}", (1, 5)),
        ("{from = 3, to = 50, times = 4}", (3, 12, 48)),
    ],
)
def test_ranges(table, values):
    assert [at["n"] for at in places(f'kernel = "vector"\n[params]\nn = {table}\n')] == list(values)


def test_a_range_of_decimals_has_the_numbers_that_are_written():
    found = places('plan = "gpt-3"\n[params]\ndays = {from = 0.1, to = 0.7, step = 0.1}\n')
    assert [at["days"] for at in found] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "exactly one is needed of kernel and plan"),
        ('kernel = "gemv"\nplan = "gpt-3"', "exactly one"),
        ('kernel = "gemw"', "kernel: unknown kernel 'gemw'.*did you mean gemv"),
        ("kernel = 3", "kernel: expected a text, found a whole number"),
        ('kernel = "vector"\n[params]\np = 3', r"params.p: kernel vector has no parameter 'p'"),
        ('kernel = "vector"\n[params]\nn = [1, "a"]', r"params.n\[1\]: expected a whole number, found a text"),
        ('kernel = "vector"\n[params]\nn = [0, 4]', r"params.n\[0\]: 0 is too small"),
        ('kernel = "vector"\n[params]\nn = []', "params.n: an empty list has no point"),
        ('kernel = "vector"\n[params]\nn = [4, 4]', r"params.n\[1\]: 4 is there twice"),
        ('kernel = "vector"\n[params]\nn = {from = 4}', "params.n: is no range"),
        ('kernel = "vector"\n[params]\nn = {from = 4, to = 8, step = 1, times = 2}', "params.n: is no range"),
        ('kernel = "vector"\n[params]\nn = {from = 8, to = 4, step = 1}', "params.n: leads nowhere"),
        ('kernel = "vector"\n[params]\nn = {from = 4, to = 8, times = 1}', "params.n: leads nowhere"),
        ('kernel = "vector"\n[params]\nn = {from = 4, to = true, step = 1}', "params.n.to: expected a number"),
        ('kernel = "vector"\n[params]\nn = {from = 1, to = 1e9, step = 1}', "params.n: has more than 100,000 values"),
        ('kernel = "vector"\n[machine]\nramp.inn = 3', "machine.ramp.inn: unknown number.*did you mean ramp.in"),
        ('kernel = "vector"\n[machine]\nramp.in = [2, -3]', r"machine.ramp.in\[1\]: -3 cycles is too small"),
        ('kernel = "vector"\n[machine]\npreset = "wse9"', "wse9"),
        ('kernel = "vector"\nzip = ["n", "op"]\n[params]\nn = [1, 2]', "zip: 'op' has no list of values"),
        ('kernel = "gemv"\nzip = ["m", "n"]\n[params]\nn = [1, 2]\nm = [1, 2, 3]', "zip: .*m has 3, n has 2"),
        ('kernel = "gemv"\nzip = ["n", "n"]\n[params]\nn = [1, 2]', "zip: 'n' is named twice"),
        ('kernel = "vector"\n[params]\nn = [1, 2]\n[figure]\nx = "m"', "figure.x: 'm' is no axis"),
        ('kernel = "vector"\n[figure]\nscale = "cubic"', "figure.scale"),
        ('kernel = "vector"\nkernels = 3', "kernels: unknown key"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        description.parse(text, "sizes.toml")
    assert "sizes.toml" in str(caught.value) or "wse9" in message


def test_too_many_points_are_refused_before_any_is_made():
    many = "{from = 1, to = 1000, step = 1}"
    with pytest.raises(ConfigError, match="1,000,000,000 points are more than 100,000"):
        description.parse(f'kernel = "gemm"\n[params]\nm = {many}\nk = {many}\nn = {many}\n')


def test_equal_points_are_known_again_and_others_are_not():
    one = description.parse('kernel = "vector"\n[params]\nn = [8, 9]\n').points
    other = description.parse('kernel = "vector"\n[params]\nop = "fmuls"\nn = [9, 10]\n[machine]\nramp.in = 2\n').points
    same = description.parse('kernel = "vector"\n[params]\nn = [9, 8]\n').points
    assert one[1][1].identity() == same[0][1].identity()
    assert len({point.identity() for _, point in (*one, *other)}) == 4

"""Benchmarks of the compiler of CSL, in seconds of CPU; what must hold on any host is asserted as a ratio or a count in
`tests/fabric/csl/test_many_programs.py` and `tests/fabric/csl/test_layouts.py`."""

from __future__ import annotations

import time

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.check import check_file
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from tests.fabric.csl.test_many_programs import FILES


def test_a_hundred_programs_of_one_file(benchmark, tmp_path):
    """The second hundred, which brings no new form, takes at most a quarter more than the first."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    seconds = []

    def compiled(count):
        start = time.process_time()
        made = compile_file(tmp_path / "top.csl", Options(params={"first": 0, "count": count}))
        write_bundle(bundle_of(made), tmp_path / "out")
        seconds.append(time.process_time() - start)
        return made

    assert len(compiled(100).programs) == 100
    assert len(benchmark.pedantic(compiled, (200,), rounds=1, iterations=1).programs) == 200
    benchmark.extra_info |= {"100 programs, s": seconds[0], "200 programs, s": seconds[1]}
    assert seconds[1] - seconds[0] < 1.25 * seconds[0]


def test_two_programs_on_a_whole_wafer(benchmark, tmp_path):
    """745,500 PEs; checked in less than 20 s."""
    (tmp_path / "pe.csl").write_text("param a: i16;\nvar x: [4]i16;\ncomptime { @comptime_assert(a < 2); _ = &x; }\n")
    (tmp_path / "top.csl").write_text(
        "layout { @set_rectangle(750, 994);\n"
        "  for (@range(i16, 750)) |x| { for (@range(i16, 994)) |y| {\n"
        '    @set_tile_code(x, y, "pe.csl", .{ .a = if (x == 0) 1 else 0 }); } } }\n'
    )
    start = time.process_time()
    made = benchmark.pedantic(check_file, (tmp_path / "top.csl",), rounds=1, iterations=1)
    seconds = time.process_time() - start
    assert (made.layout.grid.size, len(made.programs)) == (745_500, 2)
    benchmark.extra_info["s"] = seconds
    assert seconds < 20

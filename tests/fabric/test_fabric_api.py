"""Host access: copies, streams, tasks end to end, memory and backends; and the code of docs/kernels.md."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.host.engines import estimate_bytes, make_engine
from fabric.host.fabric import Fabric
from fabric.host.streams import payload
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.examples import examples
from tests.fabric import BACKENDS
from tests.fabric.one_program import arrays, body, single, spin
from wse_core.errors import ConfigError, LayoutError, MemoryLimitError, ProgramError, RouteError, WseError

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# --- copies -----------------------------------------------------------------------------------------------------------


def mixed(backend):
    """Two programs with the symbol ``v`` at different addresses, on a 4 x 3 rectangle with a hole."""
    a, b = Program("a"), Program("b")
    a.array("v", 3, "i16")
    b.array("pad", 5, "u16")
    b.array("v", 3, "i16")
    for p in (a, b):
        with p.task("main"):
            p.nop()
    layout = Layout(4, 3)
    layout.place(a, (0, 0, 4, 3, 2, 1))
    layout.place(b, (1, 0, 3, 2, 2, 1))
    return Fabric(layout, backend)


@given(st.data())
@examples(40)
def test_copies_over_rectangles_and_programs(backend, data):
    fabric = mixed(backend)
    x, y = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 1))
    w, h = data.draw(st.integers(1, 4 - x)), data.draw(st.integers(1, 2 - y))
    values = np.arange(w * h * 3, dtype=np.int16).reshape(h, w, 3) - 7
    image = np.zeros((2, 4, 3), np.int16)
    image[y : y + h, x : x + w] = values
    fabric.write("v", values if data.draw(st.booleans()) else values.ravel(), x, y, w, h)
    assert np.array_equal(fabric.read("v", 0, 0, 4, 2), image)
    fabric.write("v", [1, 2, 3], (x, y, w, h))
    image[y : y + h, x : x + w] = [1, 2, 3]
    fabric.write("v", -5, x, y)
    image[y, x] = -5
    assert np.array_equal(fabric.read("v", (0, 0, 4, 2)), image)


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda f: f.read("v"), r"PE \(1, 2\): no program runs here, so there is no symbol 'v'"),
        (lambda f: f.read("w", 0, 0), r"PE \(0, 0\): program 'a' has no symbol 'w'. Try: symbols: v"),
        (lambda f: f.read("v", 4, 0), r"rectangle \(4, 0, 1, 1\) is empty or reaches outside the 4 x 3 PEs"),
        (lambda f: f.read("v", 0, 0, 0, 1), "is empty or reaches outside"),
        (lambda f: f.read("v", (0, 0, 4, 1, 2, 1)), "host access takes rectangles without steps"),
        (lambda f: f.write("v", [1, 2], 0, 0), "write 'v': 2 values for 1 x 1 PEs with 3 elements each"),
        (lambda f: f.write("v", [1, 2, 70000], 0, 0), "write 'v': 70000 is outside -32768 .. 32767 of i16"),
        (lambda f: f.write("v", [1j, 2, 3], 0, 0), "complex128 is not a kind of number that i16 can hold"),
        (lambda f: f.launch("start"), r"in the rectangle \(0, 0, 4, 3\) has a task 'start'. Try: tasks: main"),
        (lambda f: f.launch("main", (1, 2)), "has a task 'main'"),
        (lambda f: f.launch("main", (0, 0), n=3), "has no symbol 'n'"),
        (lambda f: f.send(0, [1]), "input stream 0 does not exist; there are 0"),
        (lambda f: f.run(on_limit="stop"), "on_limit 'stop' is unknown"),
        (lambda f: f.run(-1), "max_cycles -1 is negative"),
    ],
)
def test_host_access_that_cannot_be(backend, do, message):
    with pytest.raises((LayoutError, ProgramError, ConfigError), match=message):
        do(mixed(backend))


@pytest.mark.parametrize(
    ("dtype", "half", "values", "numpy_type"),
    [
        ("f16", "f16", [1.5, -2.0, np.inf], np.float16),
        ("f32", "f16", [1.5, -2.0, 2.0**100], np.float32),
        ("i32", "f16", [-1, 2, 2**31 - 1], np.int32),
        ("u32", "f16", [1, 2, 2**32 - 1], np.uint32),
        ("u16", "f16", [1, 2, 65535], np.uint16),
        ("cb16", "cb16", [1.5, -2.0, 6.0], np.uint16),
    ],
)
def test_types_of_variables(backend, dtype, half, values, numpy_type):
    fabric = single(arrays(("v", 3, dtype)), backend, half)
    fabric.write("v", values)
    assert fabric.read("v").dtype == numpy_type
    assert fabric.read_float("v").ravel().tolist() == np.asarray(values, np.float64).tolist()
    bits = np.array([0x7C01, 0x0001, 0x8000], np.uint16) if dtype in ("f16", "cb16") else None
    if bits is not None:
        fabric.write("v", bits)  # bit patterns stay as they are, signalling NaN included
        assert np.array_equal(fabric.read("v").ravel().view(np.uint16), bits)


def test_symbols_of_different_types_do_not_mix(backend):
    layout = Layout(2, 1)
    for x, dtype in enumerate(("f32", "u16")):
        p = Program(dtype)
        arrays(("v", 2, dtype))(p)
        layout.place(p, x, 0)
    with pytest.raises(LayoutError, match="symbol 'v' has different types or lengths"):
        Fabric(layout, backend).read("v")


def test_parameters_are_written_before_the_run_and_at_launch(backend):
    p = Program("p")
    n = p.param("n", "u16", 1)
    out = p.scalar("out", "u16")
    with p.task("main"):
        p.ld16(p.r[2], n)
        p.st16(p.r[2], out)
    layout = Layout(3, 1)
    layout.place(p, 0, 0, 3, 1)
    layout.set_param("n", 5, (1, 0))
    fabric = Fabric(layout, backend)
    fabric.launch("main", (0, 0, 2, 1))
    fabric.run()
    assert fabric.read("out").ravel().tolist() == [1, 5, 0]
    fabric.launch("main", (1, 0, 2, 1), n=9)
    fabric.run()
    assert fabric.read("out").ravel().tolist() == [1, 9, 9]


# --- streams ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3), st.lists(st.integers(0, 2**32 - 1), max_size=20))
@examples(25)
def test_what_is_sent_through_a_row_is_received_in_order(backend, kind, values):
    layout = Layout(4, 1)
    layout.route(3, None, rx="W", tx="E")
    source, sink = layout.input_stream(0, 0, "W", 3), layout.output_stream(3, 0, "E", 3)
    fabric = Fabric(layout, backend)
    words = np.array(values, np.uint32)
    flags = (words & 1 == 1) & (words >> 22 & 3 == 0)  # control wavelets whose command is NOP
    sent = [words, words.view(np.int32), words.view(np.float32), [int(v) for v in values]][kind]
    fabric.send(source, sent, control=flags)
    fabric.send(0, np.array([1.5, 2.5, 3.5], np.float16))
    result = fabric.run()
    assert result.wavelet_hops == 4 * (len(values) + 2)
    got = fabric.receive(sink)
    assert got.payload[:-2].tolist() == values
    assert got.control.tolist() == [*flags, False, False]
    assert len(set(got.cycles.tolist())) == len(got)
    assert got.payload[-2:].tolist() == [0x41003E00, 0x4300]
    assert got.values("u32").tolist() == [*words[~flags].tolist(), *got.payload[-2:].tolist()]
    assert len(fabric.receive(0)) == 0


def test_values_of_wavelets(backend):
    assert payload(np.array([1, 2, 3], np.uint16), packed=False).tolist() == [1, 2, 3]
    assert payload([1.0], True).tolist() == [0x3F800000]
    with pytest.raises(LayoutError, match="does not fit 32 bits"):
        payload([1 << 32], True)
    with pytest.raises(LayoutError, match="is not a kind of number"):
        payload(["a"], True)
    layout = Layout(1, 1)
    layout.route(3, None, rx="W", tx="E")
    a, b = layout.input_stream(0, 0, "W", 3), layout.output_stream(0, 0, "E", 3)
    fabric = Fabric(layout, backend)
    fabric.send(a, np.array([1, 2, 3], np.float16))
    fabric.run()
    got = fabric.receive(b)
    assert got.values("f16").tolist() == [1, 2, 3, 0]
    assert got.values("f16", packed=False).tolist() == [1, 3]
    with pytest.raises(LayoutError, match="an input stream given where an output stream belongs"):
        fabric.receive(a)


# --- tasks, end to end ------------------------------------------------------------------------------------------------


def test_data_and_control_tasks(backend):
    p = Program("p")
    log, n = p.array("log", 8, "u16"), p.scalar("n", "u16")

    def note(value):
        at = p.reg16()
        p.ld16(at, n)
        p.st16(value, log, index=at)
        p.add16(at, at, 1)
        p.st16(at, n)

    with p.task("data", kind="data", color=5) as t:
        note(t.data)
        note(t.index)
    with p.task("ctl", kind="control", id=9) as t:
        note(t.data)
        p.activate("end")
    with p.task("end"):
        p.ldi(p.r[5], 77)
        note(p.r[5])
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(5, None, "N", "R")
    source = layout.input_stream(0, 0, "N", 5)
    fabric = Fabric(layout, backend)
    fabric.send(source, [1 | 2 << 16, 3 | 4 << 16])
    fabric.send(source, control.single(task=9, data=55), control=True)
    assert fabric.run().counters["tasks"] == 4
    assert fabric.read("log").ravel().tolist() == [1, 2, 3, 4, 55, 77, 0, 0]


def test_control_wavelets_on_a_color_without_a_data_task_need_it_unblocked(backend):
    for unblock in (False, True):
        p = Program("p")
        p.input_queue(1, 5)
        v = p.scalar("v", "u16")
        with p.task("ctl", kind="control", id=2) as t:
            p.st16(t.data, v)
        if unblock:
            p.unblocked(5)
        layout = Layout(1, 1)
        layout.place(p, 0, 0)
        layout.route(5, None, "N", "R")
        source = layout.input_stream(0, 0, "N", 5)
        fabric = Fabric(layout, backend)
        fabric.send(source, control.single(task=2, data=6), control=True)
        if unblock:
            fabric.run()
            assert fabric.read("v").item() == 6
        else:
            with pytest.raises(WseError, match="in input queue 1 that nothing takes"):
                fabric.run()


def test_a_fifo_between_two_microthreads(backend):
    p = Program("p")
    buffer = p.array("buffer", 6, "u32")
    fifo = p.fifo(buffer)
    into, out = p.input_queue(1, 2), p.output_queue(2, 3)
    with p.task("main"):
        p.mov32(fifo, p.fabin(into, 20), async_=True)
        p.mov32(p.fabout(out, 20), fifo, async_=True)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(2, None, "W", "R")
    layout.route(3, None, "R", "E")
    source, sink = layout.input_stream(0, 0, "W", 2), layout.output_stream(0, 0, "E", 3)
    fabric = Fabric(layout, backend)
    fabric.send(source, np.arange(20))
    fabric.launch("main")
    fabric.run()
    assert fabric.receive(sink).payload.tolist() == list(range(20))


@given(st.integers(1, 9), st.integers(0, 8), st.sampled_from([1, 2, 3, 5]), st.booleans())
@examples(30)
def test_descriptors_walk_as_numpy_does(backend, n, offset, stride, backwards):
    def write(p):
        a, b = p.array("a", 64, "f32"), p.array("b", 64, "f32")
        step = -stride if backwards else stride
        first = offset + (n - 1) * stride if backwards else offset
        with p.task("main"):
            p.fmovs(p.mem1d(b, n, step, first), p.mem1d(a, n, stride, offset))
            p.fmovs(b[60:64], p.mem4d(a, (2, 2), (10, 3)))
            total = p.mem1d(b, stride=0, offset=59)
            p.fadds(total, total, a[:n]) if n > 1 else None

    fabric = single(write, backend)
    a = np.arange(64, dtype=np.float32)
    b = np.full(64, 0.5, np.float32)
    fabric.write("a", a)
    fabric.write("b", b)
    fabric.run()
    index = offset + stride * np.arange(n)
    b[index[::-1] if backwards else index] = a[index]
    b[60:64] = [0, 3, 10, 13]
    if n > 1:
        b[59] += a[:n].sum()
    assert np.array_equal(fabric.read("b").ravel(), b)


# --- memory and backends ----------------------------------------------------------------------------------------------


def test_too_little_memory_is_said_before_anything_is_built(backend):
    p = Program("p")
    p.array("a", 20_000, "u16")
    spin(p)
    layout = Layout(40, 30)
    layout.place(p, 0, 0, 40, 30)
    with pytest.raises(MemoryLimitError, match=r"40 x 30 PEs with 0 colors and up to 20\d{3} words each .* GiB") as e:
        Fabric(layout, backend, memory_limit=1 << 20)
    assert e.value.needed_bytes > 40 * 30 * 40_000
    assert e.value.available_bytes == 1 << 20


def test_the_estimate_grows_with_what_is_used(backend):
    def spec(colors, words):
        layout = Layout(20, 20)
        p = Program("p")
        p.array("a", words, "u16")
        spin(p)
        layout.place(p, 0, 0, 20, 20)
        for color in range(colors):
            layout.route(color, None, "", "", teardown=True)
        return layout.build()

    assert estimate_bytes(spec(1, 100), backend) < estimate_bytes(spec(2, 100), backend)
    assert estimate_bytes(spec(1, 100), backend) < estimate_bytes(spec(1, 200), backend)


def test_counters_are_summed_once_per_run(backend, monkeypatch):
    """They are copies of a word per PE each, and before the first cycle all of them are zero."""
    fabric = single(body(lambda p: p.nop()), backend)
    asked = []
    monkeypatch.setattr(Fabric, "_sums", lambda self, kept=Fabric._sums: asked.append(self.cycle) or kept(self))
    first = fabric.run()
    assert len(asked) == 1
    assert first.counters["instructions"] > 0
    assert first.cpu_seconds >= 0
    fabric.launch("main")
    assert fabric.run().counters["instructions"] == first.counters["instructions"]
    assert len(asked) == 2


def test_an_engine_that_is_not_built(backend, monkeypatch):
    monkeypatch.setitem(sys.modules, "fabric.engine.engine", None)
    with pytest.raises(ConfigError, match="the compiled engine cannot be imported.*make build, or backend="):
        make_engine(Layout(1, 1).build(), "compiled")


def test_backends_have_names(backend):
    layout = Layout(1, 1)
    with pytest.raises(ConfigError, match=r"unknown backend 'fast'\. Try: compiled or reference"):
        Fabric(layout, "fast")
    with pytest.raises(ConfigError, match="unknown backend"):
        make_engine(layout.build(), "fast")
    assert "1 x 1" in repr(Fabric(layout.build(), backend))


# --- the page on kernels ----------------------------------------------------------------------------------------------


def test_docs(backend, root):
    text = (root / "docs" / "kernels.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code) > 8
    source = "\n".join(code).replace("Fabric(layout)", f"Fabric(layout, {backend!r})")
    source = source.replace('backend="compiled"', f"backend={backend!r}")
    exec(compile(source, "kernels.md", "exec"), {"__name__": "kernels"})
    forgotten = "\n".join(line for line in "\n".join(code[:2]).splitlines() if "what it receives" not in line)
    names = {}
    exec(forgotten.replace("        if x < pes - 1:\n", ""), names)
    with pytest.raises(RouteError) as info:
        names["chain_layout"](4, 8).build()
    assert str(info.value) in " ".join(text.split())


@pytest.mark.parametrize(
    ("shape", "taken"),
    [((2, 3, 4), True), ((2, 3, 2, 2), True), ((24,), True), ((4,), True), ((), True),
     ((3, 2, 4), False), ((6, 4), False), ((2, 12), False), ((4, 3, 2), False), ((4, 6), False), ((1, 24), False)],
)  # fmt: skip
def test_an_array_of_the_right_size_and_another_shape_is_refused(backend, shape, taken):
    program = Program("hold")
    program.array("a", 4, "f32")
    with program.task("main"):
        pass
    layout = Layout(3, 2)
    layout.place(program, 0, 0, 3, 2)
    fabric = Fabric(layout, backend)
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    if taken:
        fabric.write("a", values)
        wanted = values.reshape(2, 3, 4) if values.size == 24 else values
        assert np.array_equal(fabric.read("a"), np.broadcast_to(wanted, (2, 3, 4)))
    else:
        with pytest.raises(LayoutError, match=r"rows, columns, elements"):
            fabric.write("a", values)
    fabric.write("a", np.ones((2, 2), np.float32), 1, 1)  # the elements of one PE lie in the order of the array

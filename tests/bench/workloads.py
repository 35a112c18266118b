"""What the benchmarks run: small programs on rectangles of PEs, each with the results and cycles it must have.

A function here returns a `Workload`: a validated fabric, what to activate, how much work the run is, and what must be
true after it.  Workloads run straight on `fabric.engine.engine.Engine`, without the conveniences of
`fabric.host.fabric`.  Cycle counts follow from docs/machine.md and are asserted with the results, so that a faster
engine cannot be a wrong one.

================  ====================================================================================================
`broadcast`       the first PE of each row sends n words east; every other PE adds them up and passes them on
`chain_reduce`    each row adds n words per PE from east to west, one fused fabric-to-fabric add per PE
`exchange`        each PE sends n words to each neighbour and adds up what each neighbour sends: eight microthreads
`multicast`       each PE sends n words to all neighbours at once and adds two incoming streams per operation
`vector_tiles`    multiply-adds on tiles in SRAM, no traffic: the inner loop of a matrix product
`events`          two tasks that activate each other
`quiet`           one PE of many computes, nothing else happens
================  ====================================================================================================
"""

from __future__ import annotations

import numpy as np

from fabric.layout.layout import Layout
from fabric.layout.rectangles import runs
from fabric.program.program import Program
from tests.bench.workload import Workload, floats, large_machine, task_id, write

__all__ = ["broadcast", "chain_reduce", "events", "exchange", "multicast", "quiet", "vector_tiles"]

OPPOSITE = {"W": "E", "E": "W", "N": "S", "S": "N"}
STEP = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}


def broadcast(width, height, n, rows=None):
    """One sender per row; `rows` of the rows at work (default all), the others are idle copies of the same code."""
    rows = height if rows is None else rows
    m = large_machine(width, height)
    source = Program("source", m)
    one = source.array("one", 1, "f32", [1.5])
    source.output_queue(0, 0)
    with source.task("main"):
        source.fmovs(source.fabout(0, n), source.mem1d(one, stride=0))
    sink = Program("sink", m)
    total = sink.array("total", 1, "f32")
    sink.input_queue(0, 0)
    with sink.task("main"):
        t = sink.mem1d(total, n, stride=0)
        sink.fadds(t, t, sink.fabin(0, n))
    layout = Layout(width, height, m)
    layout.place(source, 0, 0, 1, height)
    layout.place(sink, 1, 0, width - 1, height)
    layout.route(0, (0, 0, 1, height), rx="R", tx="E")
    layout.route(0, (1, 0, width - 1, height), rx="W", tx="ER")
    layout.route(0, (width - 1, 0, 1, height), rx="W", tx="R")
    spec = layout.build()
    task = {p.name: task_id(p) for p in spec.programs}
    symbol = spec.programs[1].symbols["total"]

    def start(engine):
        engine.activate(task["source"], 0, 0, 1, rows)
        engine.activate(task["sink"], 1, 0, width - 1, rows)

    def check(engine):
        found = floats(engine, symbol, 1, 0, width - 1, height)[..., 0]
        assert (found[:rows] == 1.5 * n).all()
        assert (found[rows:] == 0).all()

    # start of the task, two descriptors, issue; n words; ramps and links to the last PE; the drain and the task's end
    cycles = (
        (m["task.start"] + 2 * m["ce.dsr_load"] + 1)
        + n
        + (m["ramp.execute"] + m["ramp.out"] + m["ramp.in"] + (width - 1) * m["router.hop"])
        + m["vec.drain"]
        + 1
    )
    work = {"hops": rows * width * n, "steps": rows * width * n}
    return Workload(
        f"broadcast {width}x{rows}",
        spec,
        start,
        check,
        work,
        cycles,
        active=rows * width,
        params={"width": width, "height": height, "rows": rows, "n": n},
    )


def chain_reduce(width, height, n):
    """Sum of n words per PE along each row, to the PE at x = 0; two colors alternate by parity of x."""
    m = large_machine(width, height)
    layout = Layout(width, height, m)
    programs = {}
    for parity in (0, 1):
        into, out = 1 - parity, parity  # PE x sends on color x % 2 and receives on the other one
        p = Program(f"inner{parity}", m)
        data = p.array("data", n, "f32")
        p.input_queue(0, into)
        p.output_queue(0, out)
        with p.task("main"):
            p.fadds(p.fabout(out, n), data, p.fabin(into, n))
        programs[parity] = p
    last = Program("last", m)
    data = last.array("data", n, "f32")
    last.output_queue(0, (width - 1) % 2)
    with last.task("main"):
        last.fmovs(last.fabout((width - 1) % 2, n), data)
    root = Program("root", m)
    data = root.array("data", n, "f32")
    root.input_queue(0, 1)
    with root.task("main"):
        root.fadds(data, data, root.fabin(1, n))
    layout.place(root, 0, 0, 1, height)
    layout.place(last, width - 1, 0, 1, height)
    if width > 2:
        layout.place(programs[1], (1, 0, width - 2, height, 2, 1))
    if width > 3:
        layout.place(programs[0], (2, 0, width - 3, height, 2, 1))
    for parity in (0, 1):
        senders = (2 - parity, 0, width - 2 + parity, height, 2, 1)
        receivers = (1 - parity, 0, width - 1 - (1 - parity), height, 2, 1)
        if senders[0] < width:
            layout.route(parity, senders, rx="R", tx="W")
            layout.route(parity, receivers, rx="E", tx="R")
    spec = layout.build()
    rng = np.random.default_rng(7)
    values = rng.integers(-50, 50, (height, width, n)).astype(np.float32)

    def start(engine):
        _start_with(engine, spec, "data", values)

    def check(engine):
        assert (floats(engine, spec.programs[0].symbols["data"], 0, 0, 1, height)[:, 0] == values.sum(1)).all()

    stage = m["ramp.execute"] + m["ramp.out"] + m["router.hop"] + m["ramp.in"]
    # the last PE starts as any other, with two descriptors to load; it sends from then on
    cycles = (m["task.start"] + 2 * m["ce.dsr_load"] + 1) + n + stage * (width - 1) + m["vec.drain"] + 1
    work = {"hops": 2 * n * (width - 1) * height, "steps": n * width * height}
    return Workload(
        f"chain_reduce {width}x{height}",
        spec,
        start,
        check,
        work,
        cycles,
        active=width * height,
        params={"width": width, "height": height, "n": n},
    )


def _places(spec, symbol):
    """Yield (a program, y, stop y, x, stop x): rectangles of PEs with the symbol at one address and the same task."""
    alike = {}
    for k, p in enumerate(spec.programs):
        alike.setdefault((p.symbols[symbol].address, task_id(p)), []).append(k)
    for numbers in alike.values():
        for (y, bottom), x, right in runs(np.isin(spec.program_index, numbers)):
            yield spec.programs[numbers[0]], y, bottom, x, right


def _start_with(engine, spec, symbol, values):
    """Give each PE its numbers of `values` (height, width, count) under `symbol` and activate its task."""
    for p, y, bottom, x, right in _places(spec, symbol):
        write(engine, p.symbols[symbol], values[y:bottom, x:right], x, y)
        engine.activate(task_id(p), x, y, right - x, bottom - y)


SIDES = {"E": 0, "W": 1, "S": 2, "N": 3}
"""Places of the directions in an exchange: of their colors, queues and sums."""


def exchange(width, height, n):
    """All links busy in both directions: color by direction and by parity of the sender's x or y."""
    m = large_machine(width, height)
    layout = Layout(width, height, m)

    def color(d, x, y):
        return 2 * SIDES[d] + ((x if d in "EW" else y) & 1)

    # PEs differ by the parities of their places and by the edges at which they lie; one of each kind says the rest
    kinds = 8 * _kinds(height)[:, None] + _kinds(width)
    _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
    programs = {}
    for at in first.tolist():
        y, x = divmod(at, width)
        key = tuple(
            (d, color(d, x, y), color(OPPOSITE[d], x + STEP[d][0], y + STEP[d][1]))
            for d in SIDES
            if 0 <= x + STEP[d][0] < width and 0 <= y + STEP[d][1] < height
        )
        p = Program(f"exchange{len(programs)}", m)
        mine = p.array("mine", 1, "f32")
        sums = p.array("sums", 4, "f32")
        for d, out, into in key:
            p.output_queue(SIDES[d], out)
            p.input_queue(4 + SIDES[d], into)
        with p.task("main"):
            for d, _, into in key:
                t = p.mem1d(sums, n, stride=0, offset=SIDES[d])
                p.fadds(t, t, p.fabin(into, n), async_=True)
            for _, out, _ in key:
                p.fmovs(p.fabout(out, n), p.mem1d(mine, stride=0), async_=True)
        programs[at] = p
    layout.place_each(list(programs.values()), which.reshape(height, width))
    _exchange_routes(layout, width, height)
    spec = layout.build()
    values = (1 + np.arange(width * height, dtype=np.float32) % 97).reshape(height, width)

    def start(engine):
        _start_with(engine, spec, "mine", values[..., None])

    def check(engine):
        padded = np.pad(values, 1) * n
        want = {"E": padded[1:-1, 2:], "W": padded[1:-1, :-2], "S": padded[2:, 1:-1], "N": padded[:-2, 1:-1]}
        for p, y, bottom, x, right in _places(spec, "sums"):
            found = floats(engine, p.symbols["sums"], x, y, right - x, bottom - y)
            for d, j in SIDES.items():
                assert (found[..., j] == want[d][y:bottom, x:right]).all(), d

    links = 2 * ((width - 1) * height + width * (height - 1))
    busiest = n * 2 * (min(width - 1, 2) + min(height - 1, 2))  # CE operations of a PE with the most neighbours
    work = {"hops": 2 * n * links, "steps": 2 * n * links}
    cycles = busiest, busiest + busiest // 4 + 200  # at full rate, and with waiting for neighbours
    return Workload(
        f"exchange {width}x{height}",
        spec,
        start,
        check,
        work,
        cycles,
        active=width * height,
        params={"width": width, "height": height, "n": n},
    )


def _kinds(size):
    """Return what kind of place each of a line is: its parity, and which ends it is."""
    place = np.arange(size)
    return (place & 1) + 2 * (place == 0) + 4 * (place == size - 1)


def _exchange_routes(layout, width, height):
    """Paint, per direction and parity, the routes from each PE to its neighbour."""
    for d, (dx, dy) in STEP.items():
        for parity in (0, 1):
            c = 2 * SIDES[d] + parity
            # senders: PEs of that parity with a neighbour in direction d; receivers: those neighbours
            if dx:
                first = parity + (2 if parity + dx < 0 else 0)
                span = (width if dx < 0 else width - 1) - first
                if span < 1:
                    continue
                layout.route(c, (first, 0, span, height, 2, 1), rx="R", tx=d)
                layout.route(c, (first + dx, 0, span, height, 2, 1), rx=OPPOSITE[d], tx="R")
            else:
                first = parity + (2 if parity + dy < 0 else 0)
                span = (height if dy < 0 else height - 1) - first
                if span < 1:
                    continue
                layout.route(c, (0, first, width, span, 1, 2), rx="R", tx=d)
                layout.route(c, (0, first + dy, width, span, 1, 2), rx=OPPOSITE[d], tx="R")


def multicast(width, height, n):
    """Each PE sends to its neighbours at once; color (x + 2 y) mod 5, so that all five of a cross differ."""
    m = large_machine(width, height)
    layout = Layout(width, height, m)
    index = {}
    for y in range(height):
        for x in range(width):
            around = {
                d: (x + dx + 2 * (y + dy)) % 5
                for d, (dx, dy) in STEP.items()
                if 0 <= x + dx < width and 0 <= y + dy < height
            }
            index.setdefault(((x + 2 * y) % 5, tuple(sorted(around.items()))), []).append((x, y))
    for (out, around), places in index.items():
        p = Program(f"multicast{out}{''.join(d for d, _ in around)}", m)
        mine = p.array("mine", 1, "f32")
        sums = p.array("sums", 2, "f32")
        p.output_queue(0, out)
        for k, (_, into) in enumerate(around):
            p.input_queue(1 + k, into)
        with p.task("main"):
            pairs = [around[k : k + 2] for k in range(0, len(around), 2)]
            for k, pair in enumerate(pairs):
                t = p.mem1d(sums, n, stride=0, offset=k)
                sources = [p.fabin(into, n) for _, into in pair]
                if len(sources) == 2:
                    p.fadds(t, *sources, async_=True)
                else:
                    p.fmovs(t, sources[0], async_=True)
            p.fmovs(p.fabout(out, n), p.mem1d(mine, stride=0), async_=True)
        for x, y in places:
            layout.place(p, x, y)
            layout.route(out, (x, y), rx="R", tx="".join(d for d, _ in around))
            for d, into in around:
                layout.route(into, (x, y), rx=d, tx="R")
    spec = layout.build()
    values = (1 + np.arange(width * height, dtype=np.float32) % 97).reshape(height, width)

    def start(engine):
        _start_with(engine, spec, "mine", values[..., None])

    def check(engine):
        padded = np.pad(values, 1)
        want = padded[1:-1, 2:] + padded[1:-1, :-2] + padded[2:, 1:-1] + padded[:-2, 1:-1]
        for p, y, bottom, x, right in _places(spec, "sums"):
            found = floats(engine, p.symbols["sums"], x, y, right - x, bottom - y)
            assert (found.sum(-1) == want[y:bottom, x:right]).all()

    links = 2 * ((width - 1) * height + width * (height - 1))
    steps = sum(n * (1 + (len(around) + 1) // 2) * len(places) for (_, around), places in index.items())
    busiest = 3 * n
    work = {"hops": n * (links + width * height), "steps": steps}
    cycles = busiest, 2 * busiest + 200
    return Workload(
        f"multicast {width}x{height}",
        spec,
        start,
        check,
        work,
        cycles,
        active=width * height,
        params={"width": width, "height": height, "n": n},
    )


def vector_tiles(width, height, n, k, op="fmach", repeat=1):
    """Rank-one updates c += a[:, j] * b[j] on tiles in SRAM: the inner loop of a matrix product, no traffic.

    `op` is fmach (f16, 4 lanes), fmachs (f16 times f16 into fp32, 2 lanes) or fmacs (fp32, 1 lane).  Per column the
    main thread loads b[j] and moves the DSR of a on (save_address), as compiled code does.  Operands are placed so that
    they never conflict.
    """
    m = large_machine(width, height)
    half = op != "fmacs"
    wide = op != "fmach"
    a_type, c_type = "f16" if half else "f32", "f32" if wide else "f16"
    p = Program(f"tiles_{op}", m)
    c = p.array("c", n, c_type, align=8)
    a = p.array("a", n * k, a_type, bank=1 if half else 2)
    b = p.array("b", k, a_type)
    with p.task("main"):
        dc = p.dsr("src0")
        da = p.dsr("src1")
        p.load(dc, p.mem1d(c))
        with p.loop(repeat):
            p.load(da, p.mem1d(a, n, save=True))
            with p.loop(k, index=True) as j:
                if half:
                    s = p.reg16("s")
                    p.ld16(s, b, index=j)
                else:
                    at, s = p.reg16("at"), p.reg32("s")
                    p.add16(at, j, j)
                    p.ld32(s, b, index=at)
                getattr(p, op)(dc, dc, da, s)
    layout = Layout(width, height, m)
    layout.place(p, 0, 0, width, height)
    spec = layout.build()
    image = spec.programs[0]
    rng = np.random.default_rng(11)
    a_values = rng.integers(-3, 4, (k, n)).astype(np.float32)
    b_values = (rng.integers(0, 2, k) * 2 - 1).astype(np.float32)
    assert 3 * k * repeat <= 2048, "sums must stay integers that f16 holds exactly"
    want = repeat * (a_values * b_values[:, None]).sum(0)
    task = task_id(image)

    def start(engine):
        for name, values, dtype in (("a", a_values, a_type), ("b", b_values, a_type)):
            words = values.reshape(-1).astype({"f16": "<f2", "f32": "<f4"}[dtype]).view("<u2")
            symbol = image.symbols[name]
            full = np.ascontiguousarray(np.broadcast_to(words, (height, width, symbol.words)))
            engine.write_rect(symbol.address, full, 0, 0)
        engine.activate(task, 0, 0, width, height)

    def check(engine):
        symbol = image.symbols["c"]
        words = engine.read_rect(symbol.address, symbol.words, 0, 0, width, height)
        found = np.ascontiguousarray(words).view({"f16": "<f2", "f32": "<f4"}[c_type])
        assert (found == want).all()
        assert int(engine.counters()["stall_conflict"].sum()) == 0

    lanes = {"fmach": 4, "fmachs": 2, "fmacs": 1}[op]
    steps = -(-n // lanes)
    load = {"fmach": 1 + m["ce.load_latency"], "fmachs": 1 + m["ce.load_latency"]}.get(op, 2 + m["ce.load_latency"])
    # one turn: load, its latency, issue, steps, drain, two adds of the loop, taken branch
    turn = (load - 1) + 1 + steps + m["vec.drain"] + 2 + m["ce.branch_taken"]
    macs = width * height * n * k * repeat
    work = {"macs": macs, "steps": width * height * steps * k * repeat}
    total = turn * k * repeat
    return Workload(
        f"{op} {width}x{height} n={n}",
        spec,
        start,
        check,
        work,
        (total, total + 40 + 20 * repeat),
        active=width * height,
        params={"width": width, "height": height, "n": n, "k": k, "op": op},
    )


def events(width, height, turns):
    """Two tasks activate each other for ever; every turn is a task start, an activation and the end of the task."""
    m = large_machine(width, height)
    p = Program("ping_pong", m)
    with p.task("ping"):
        p.activate("pong")
    with p.task("pong"):
        p.activate("ping")
    p.start("ping")
    layout = Layout(width, height, m)
    layout.place(p, 0, 0, width, height)
    spec = layout.build()
    turn = m["task.start"] + 2  # start, activate, done; the picker chooses again in the cycle after done
    limit = turn * turns

    def start(engine):
        pass  # the program starts by itself

    def check(engine):
        counters = engine.counters()
        assert (counters["tasks"] == turns).all()
        assert (counters["busy"] == 2 * turns).all()

    work = {"tasks": width * height * turns}
    return Workload(
        f"events {width}x{height}",
        spec,
        start,
        check,
        work,
        (limit - turn, limit),
        limit=limit,
        active=width * height,
        params={"width": width, "height": height, "turns": turns},
    )


def quiet(width, height, repeat, row=False):
    """One PE (or, with `row`, the first row) adds vectors in SRAM; all others hold the same code and do nothing."""
    m = large_machine(width, height)
    p = Program("quiet", m)
    n = 4096
    data = p.array("data", n, "f32")
    with p.task("main"):
        d = p.dsr("src0")
        p.load(d, p.mem1d(data))
        with p.loop(repeat):
            p.fadds(d, d, 1.0)
    layout = Layout(width, height, m)
    layout.place(p, 0, 0, width, height)
    spec = layout.build()
    symbol = spec.programs[0].symbols["data"]
    task = task_id(spec.programs[0])
    active = width if row else 1

    def start(engine):
        engine.activate(task, 0, 0, active, 1)

    def check(engine):
        assert (floats(engine, symbol, 0, 0, active, 1) == repeat).all()

    low = (n // 2) * repeat
    work = {"steps": active * low}
    return Workload(
        f"quiet {width}x{height}",
        spec,
        start,
        check,
        work,
        (low, low + 20 * repeat + 20),
        active=active,
        params={"width": width, "height": height, "repeat": repeat, "row": row},
    )

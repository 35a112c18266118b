"""Building blocks of the tests of the reference machine, and what every machine must do: runs, host access, accounting.

Programs are written word by word with `wse_core.isa.encode`, so that no assembler stands between the page
docs/machine.md and what is tested.  Code begins at word 0, data at word `DATA`.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from wse_core import image as im
from wse_core import isa
from wse_core.errors import SramFault
from wse_core.image import DIRS, NO_TASK, FabricSpec, ProgramImage
from wse_core.params import machine as make_machine
from wse_core.reference.machine import ReferenceMachine

DATA = 256  # first word of data; all codes here are shorter
FIRST = 3  # cycle of the first instruction of a task that is activated from the start: picked in 0, task.start = 3
KINDS = {name: number for number, name in enumerate(im.DSD_KINDS)}


def dest(number):
    """Operand field of a dest DSR."""
    return isa.FILE_DEST << 4 | number


def src0(number):
    """Operand field of a src0 DSR."""
    return isa.FILE_SRC0 << 4 | number


def src1(number):
    """Operand field of a src1 DSR."""
    return isa.FILE_SRC1 << 4 | number


def reg(number):
    """Operand field of a register."""
    return isa.FILE_REG << 4 | number


def desc(kind, extent=1, **fields):
    """Return a descriptor; `extent` and `stride` may be tuples."""
    row = np.zeros((), im.DESC_DTYPE)
    row["kind"] = KINDS[kind]
    for key in ("control_task", "push_task", "pop_task"):
        row[key] = NO_TASK
    extents = extent if isinstance(extent, tuple) else (extent,)
    row["ndim"] = len(extents)
    row["extent"][: len(extents)] = extents
    stride = fields.pop("stride", 1)
    strides = stride if isinstance(stride, tuple) else (stride,)
    row["stride"][: len(strides)] = strides
    for key, value in fields.items():
        row[key] = value
    return row


def mem(base, extent, stride=1, **fields):
    """Return a one-dimensional memory descriptor."""
    return desc("mem1d", extent, base=base, stride=stride, **fields)


class Code:
    """Code of a program: calling it appends an instruction and returns its code word index."""

    def __init__(self):
        self.words, self.descriptors = [], []

    def __call__(self, name, a=0, b=0, c=0, d=0, imm=None):
        at = len(self.words)
        self.words += isa.encode(isa.BY_NAME[name], a, b, c, d, imm)
        return at

    @property
    def here(self):
        """Code word index of the next instruction."""
        return len(self.words)

    def load(self, field, row):
        """Append the load of a descriptor into a DSR."""
        self.descriptors.append(row)
        return self("dsr_load", field, imm=len(self.descriptors) - 1)

    def image(
        self,
        tasks=None,
        controls=None,
        start=(0,),
        data=None,
        size=256,
        inq=None,
        outq=None,
        data_tasks=(),
        blocked=(),
        high=(),
        half="f16",
        main="medium_low",
    ):
        """Return the `ProgramImage`.

        Parameters
        ----------
        tasks, controls : dict[int, int]
            Code word index per task id and control task id; default task 0 at 0.
        start, blocked, high, data_tasks : iterable of int
            Task ids that begin activated (default 0), that begin blocked, of high priority, of data tasks.
        data : dict[int, array]
            Contents per word address; float32 and uint32 arrays take two words per element.
        inq, outq : dict[int, int]
            Color per queue.
        """
        entry, control_entry = np.full(32, -1, np.int32), np.full(64, -1, np.int32)
        for number, at in ({0: 0} if tasks is None else tasks).items():
            entry[number] = at
        for number, at in (controls or {}).items():
            control_entry[number] = at
        queues = [tuple((bound or {}).get(q, -1) for q in range(8)) for bound in (inq, outq)]
        contents = tuple((address, words16(values)) for address, values in (data or {}).items())
        assert 2 * len(self.words) <= DATA
        descriptors = np.zeros(len(self.descriptors), im.DESC_DTYPE)
        for k, row in enumerate(self.descriptors):
            descriptors[k] = row
        return ProgramImage(
            "test",
            np.array(self.words, np.uint32),
            DATA,
            DATA + size,
            descriptors,
            entry,
            control_entry,
            bits(data_tasks),
            bits(start),
            bits(blocked),
            bits(high),
            *queues,
            half=half,
            main_priority=im.MAIN_PRIORITY[main],
            data=contents,
        )


def bits(ids):
    """Return ids as a bit set."""
    return sum(1 << number for number in ids)


def words16(values):
    """Return an array as SRAM words."""
    return np.ascontiguousarray(values).view(np.uint16)


def f32(*values):
    """Return numbers as float32."""
    return np.array(values, np.float32)


def f32_bits(value):
    """Return the bits of a float32 as a whole number."""
    return int(np.float32(value).view(np.uint32))


def set_of(letters):
    """Return a set of directions."""
    return sum(1 << DIRS.index(letter) for letter in letters)


def route(rx, tx, *more, pos=0, ring=False, pop=0, teardown=False, filter=0, swap=0, inject=0):
    """Return a routing record; `more` are the (rx, tx) of further switch positions."""
    row = np.zeros((), im.ROUTE_DTYPE)
    for p, (inputs, outputs) in enumerate(((rx, tx), *more)):
        row["rx"][p], row["tx"][p] = set_of(inputs), set_of(outputs)
        row["valid"] |= 1 << p
    row["pos"], row["ring"], row["pop"], row["teardown"] = pos, ring, pop, teardown
    row["filter"], row["swap"], row["inject"] = filter, swap, inject
    return row


def fabric(programs, routes=None, size=(1, 1), inputs=(), outputs=(), filters=(), shuffle=None, **parameters):
    """Return a `ReferenceMachine`.

    Parameters
    ----------
    programs : dict[(x, y), ProgramImage] or ProgramImage
        A single image stands for PE (0, 0).
    routes : dict[int, dict[(x, y), record]]
    inputs, outputs : sequence of (x, y, letter, color)
    filters : sequence of dict
        Fields of the filters of PE (0, 0).
    **parameters
        Numbers of the machine, such as ``router_hop=2``.
    """
    width, height = size
    if isinstance(programs, ProgramImage):
        programs = {(0, 0): programs}
    images = list({id(image): image for image in programs.values()}.values())
    index = np.full((height, width), -1, np.int16)
    for (x, y), image in programs.items():
        index[y, x] = next(k for k, known in enumerate(images) if known is image)
    tables = {}
    for color, rows in (routes or {}).items():
        tables[color] = np.zeros((height, width), im.ROUTE_DTYPE)
        for (x, y), row in rows.items():
            tables[color][y, x] = row
    table = None
    if filters:
        table = np.zeros((height, width, len(filters)), im.FILTER_DTYPE)
        for k, fields in enumerate(filters):
            for key, value in fields.items():
                table[0, 0, k][key] = value
    links = [tuple((x, y, DIRS.index(letter), color) for x, y, letter, color in ends) for ends in (inputs, outputs)]
    spec = FabricSpec(
        make_machine(parameters.pop("preset", "wse2"), parameters),
        width,
        height,
        tuple(images),
        index,
        {color: im.RouteTable.of(rows) for color, rows in tables.items()},
        table,
        *links,
    )
    return ReferenceMachine(spec, shuffle)


def changes(machine, counter, place=(0, 0), limit=2000):
    """Run until nothing changes; return the cycles in which a counter of one PE went up, once per unit."""
    cycles, before = [], machine.ces[place].counters[counter]
    status = "limit"
    while status == "limit" and machine.cycle < limit:
        status = machine.run(machine.cycle + 1)
        now = machine.ces[place].counters[counter]
        cycles += [machine.cycle - 1] * (now - before)
        before = now
    return cycles


def register(machine, number, place=(0, 0)):
    """Return a register."""
    return machine.snapshot()["pe"][place]["regs"][number]


def pair(machine, number, place=(0, 0)):
    """Return a register pair as 32 bits."""
    return register(machine, number, place) | register(machine, number + 1, place) << 16


def floats(machine, address, count, place=(0, 0)):
    """Return float32 values in memory."""
    return machine.read_words(*place, address, 2 * count).view(np.float32)


def assert_accounts(machine):
    """Every cycle of every PE with a program is busy, stalled for one reason, or idle."""
    for ce in machine.ces.values():
        booked = sum(
            ce.counters[name]
            for name in (
                "busy",
                "idle",
                "stall_pipe",
                "stall_conflict",
                "stall_resource",
                "stall_input",
                "stall_output",
                "stall_fifo",
            )
        )
        assert booked == machine.cycle


# --- runs ----------------------------------------------------------------------------------------------------------


def three_instructions():
    code = Code()
    code("ldi", reg(2), imm=7)
    code("add16", reg(2), reg(2), reg(2))
    code("done")
    return code.image()


def test_run_stops_at_its_limit_and_goes_on():
    machine = fabric(three_instructions())
    assert machine.last_active == -1
    assert machine.run(0) == "limit"
    assert machine.cycle == 0
    assert machine.run(4) == "limit"
    assert (machine.cycle, machine.last_active, register(machine, 2)) == (4, 3, 7)
    assert machine.run(1000) == "complete"
    assert register(machine, 2) == 14
    assert machine.last_active == 5  # done
    assert machine.cycle == 7  # one cycle in which nothing happened
    assert_accounts(machine)


def test_nothing_to_do_is_complete():
    machine = fabric({})
    assert machine.run(100) == "complete"
    assert (machine.cycle, machine.last_active) == (1, -1)


def test_host_activates_and_runs_on():
    machine = fabric(three_instructions())
    machine.run(100)
    before = machine.cycle
    machine.activate(0, 0, 0, 1, 1)
    assert machine.run(before + 100) == "complete"
    assert machine.last_active == before + 5
    assert machine.counters()["tasks"][0, 0] == 2


def test_main_states():
    machine = fabric(three_instructions())
    seen = []
    for _ in range(7):
        machine.run(machine.cycle + 1)
        state = machine.snapshot()["pe"][0, 0]
        seen.append((state["main"], state["pc"]))
    assert seen == [("starting", 0)] * 3 + [("run", 2), ("run", 3), ("idle", -1), ("idle", -1)]


def test_words_of_the_host():
    machine = fabric(three_instructions())
    machine.write_words(0, 0, DATA + 3, [1, 2, 0xFFFF])
    assert machine.read_words(0, 0, DATA + 2, 5).tolist() == [0, 1, 2, 0xFFFF, 0]
    assert machine.read_words(0, 0, DATA, 1).dtype == np.uint16
    for address, count in ((DATA - 1, 1), (0, 2), (DATA + 255, 2), (-1, 1)):
        with pytest.raises(SramFault) as caught:
            machine.read_words(0, 0, address, count)
        assert caught.value.address == address
        with pytest.raises(SramFault):
            machine.write_words(0, 0, address, [0] * count)


def test_rectangles_of_the_host():
    image = three_instructions()
    machine = fabric({(x, y): image for x in range(3) for y in range(2)}, size=(3, 2))
    words = np.arange(2 * 2 * 4, dtype=np.uint16).reshape(2, 2, 4)
    machine.write_rect(DATA + 4, words, 1, 0)
    assert (machine.read_rect(DATA + 4, 4, 1, 0, 2, 2) == words).all()
    assert machine.read_words(2, 1, DATA + 4, 4).tolist() == [12, 13, 14, 15]
    assert not machine.read_rect(DATA, 8, 0, 0, 1, 2).any()
    with pytest.raises(SramFault):
        fabric({}).read_words(0, 0, DATA, 1)


def test_activation_from_the_host_reaches_the_rectangle_only():
    code = Code()
    code("done")
    image = code.image({4: 0}, start=())
    machine = fabric({(0, 0): image, (2, 0): image}, size=(3, 1))
    machine.activate(4, 1, 0, 2, 1)
    assert [machine.ces[x, 0].activated for x in (0, 2)] == [0, 16]
    assert machine.run(20) == "complete"
    assert machine.counters()["tasks"].tolist() == [[0, 0, 1]]


def test_streams_of_the_host():
    machine = fabric({}, {3: {(0, 0): route("W", "E")}}, inputs=[(0, 0, "W", 3)], outputs=[(0, 0, "E", 3)])
    machine.push_input(0, np.array([5, 0xFFFFFFFF], np.uint32))
    machine.push_input(0, [1, 2], [False, True])
    assert machine.run(100) == "complete"
    cycles, payloads, controls = machine.pop_output(0)
    # pushed in 0, ready in 1, moved in 1, ready behind the edge in 2; then one per cycle
    assert cycles.tolist() == [2, 3, 4, 5]
    assert payloads.tolist() == [5, 0xFFFFFFFF, 1, 2]
    assert controls.tolist() == [False, False, False, True]
    assert machine.last_active == 4
    assert [len(part) for part in machine.pop_output(0)] == [0, 0, 0]
    assert machine.link_counts()[3][0, 0].tolist() == [4, 0, 0, 0, 0]


def test_a_fault_ends_the_run_after_its_cycle():
    code = Code()
    code("trap", imm=77)
    trap = code.image()
    machine = fabric({(0, 0): three_instructions(), (1, 1): trap, (2, 0): trap}, size=(3, 2))
    assert machine.run(100) == "fault"
    fault = machine.fault
    assert (fault["kind"], fault["x"], fault["y"], fault["cycle"]) == ("program", 2, 0, FIRST)  # lowest y wins
    assert fault["detail"] == "trap 77"
    assert fault["value"] == 77
    assert machine.cycle == FIRST + 1
    assert register(machine, 2) == 7  # the others have run that cycle
    assert machine.snapshot()["pe"][2, 0]["main"] == "fault"
    assert machine.run(100) == "fault"
    assert machine.cycle == FIRST + 1
    assert_accounts(machine)


# --- order of evaluation ---------------------------------------------------------------------------------------------


def busy_fabric(shuffle):
    """A ring of four PEs that send around, add, and start tasks, with a host stream across."""
    routes = {color: {} for color in (0, 1, 2)}
    programs = {}
    ways = {(0, 0): ("E", "W"), (1, 0): ("S", "N"), (1, 1): ("W", "E"), (0, 1): ("N", "S")}
    for k, (place, (way, _)) in enumerate(ways.items()):
        back = list(ways.values())[k - 1][1]
        sends, takes = k % 2, 1 - k % 2
        code = Code()
        code.load(dest(0), desc("fabout", 20, queue=2))
        code.load(src0(0), mem(DATA, 20, 2))
        code("fadds", dest(0), src0(0), reg(4), imm=isa.async_word("low", activate=1))
        code.load(dest(1), mem(DATA + 80, 20))
        code.load(src1(1), desc("fabin", 20, queue=1))
        code("fmacs", dest(1), src1(1), reg(6), reg(8))
        code("done")
        second = code("ldi", reg(3), imm=9)
        code("done")
        data = code("add16", reg(5), reg(5), reg(0))
        code("done")
        programs[place] = code.image(
            {0: 0, 1: second, 2: data},
            data_tasks=(2,),
            outq={2: sends},
            inq={1: takes, 2: 2},
            data={DATA: np.arange(60, dtype=np.float32) + k},
        )
        routes[sends][place] = route("R", way)
        routes[takes][place] = route(back, "R")
    # A host stream goes around as a third color and is delivered everywhere.
    routes[2] = {(0, 0): route("W", "ER"), (1, 0): route("W", "SR"), (1, 1): route("N", "WR"), (0, 1): route("E", "R")}
    machine = fabric(programs, routes, (2, 2), inputs=[(0, 0, "W", 2)], shuffle=shuffle)
    machine.push_input(0, np.arange(12))
    return machine


def test_the_order_of_evaluation_cannot_be_seen():
    straight = busy_fabric(None)
    others = [busy_fabric(random.Random(seed)) for seed in (1, 2)]
    status = "limit"
    while status == "limit" and straight.cycle < 600:
        status = straight.run(straight.cycle + 1)
        for other in others:
            assert other.run(other.cycle + 1) == status
            assert other.snapshot() == straight.snapshot()
    assert status == "complete"
    assert_accounts(straight)
    assert straight.counters()["elements"].sum() == 4 * 40
    assert [register(straight, 5, place) for place in straight.ces] == [sum(range(12))] * 4

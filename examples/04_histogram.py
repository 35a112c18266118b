# %% [markdown]
# # A histogram by data tasks
#
# On this machine a word that arrives can start a task: that is dataflow. You learn data tasks, parameters that differ
# from PE to PE, and streams from the host.
#
# Each PE of a row counts the values that fall into its own bin. All of them see every value, by a multicast; the task
# `arrive` runs once for each.

# %%
import numpy as np

import wse

BINS, COLOR = 8, 4


def counter():
    """Return the program of a bin, and the variable in which it counts."""
    program = wse.Program("bin")
    low = program.param("low", "u16")  # the layout gives each PE its own
    high = program.param("high", "u16")
    count = program.scalar("count", "u16")
    with program.task("arrive", kind="data", color=COLOR) as task:
        limit = program.reg16("limit")
        program.ld16(limit, low)
        with program.if_("geu", task.data, limit):
            program.ld16(limit, high)
            with program.if_("ltu", task.data, limit):
                total = program.reg16("total")
                program.ld16(total, count)
                program.add16(total, total, 1)
                program.st16(total, count)
    return program, count


# %%
edges = np.linspace(0, 1000, BINS + 1).astype(int)


def row(program):
    """Return a fabric of a PE for each bin, and the stream by which values come."""
    layout = wse.Layout(BINS, 1)
    layout.place(program, 0, 0, BINS, 1)
    layout.route(COLOR, (0, 0, BINS - 1, 1), rx="W", tx="ER")
    layout.route(COLOR, (BINS - 1, 0), rx="W", tx="R")
    layout.set_param("low", [edges[:-1]])
    layout.set_param("high", [edges[1:]])
    stream = layout.input_stream(0, 0, "W", COLOR)
    return wse.Fabric(layout), stream


values = np.random.default_rng(3).integers(0, 1000, 500)
fabric, stream = row(counter()[0])
fabric.send(stream, values.tolist())
run = fabric.run()

counts = fabric.read("count").ravel()
assert np.array_equal(counts, np.histogram(values, edges)[0])
print(f"{len(values)} values, {run.cycles} cycles, {run.cycles / len(values):.1f} a value")
print("counts", counts.tolist())

# %% [markdown]
# A value costs what the longest way through the task costs, since the PE for which it is long holds all others up:
# the multicast goes on only when each of its branches has room.
#
# **Exercise.** Let a control wavelet at the end of the stream start a task that doubles the counts (`kind="control"`,
# `wse.control.single(task=ID)`).

# %% [markdown]
# # What happened in which cycle
#
# A run can be recorded event by event. You learn to record a program, to ask the file questions, and which command
# draws what.
#
# The program is a relay: a PE sends, three others pass the words on through their cores, adding to them.

# %%
import numpy as np

import wse

N, PES = 32, 4

layout = wse.Layout(PES, 1)
for k in range(PES):
    program = wse.Program(f"PE {k}")
    x = program.array("x", N, "f32", [float(k)] * N)
    if k:
        arriving = program.fabin(program.input_queue(0, k - 1), N)
    if k < PES - 1:
        leaving = program.fabout(program.output_queue(1, k), N)
        layout.route(k, (k, 0), rx="R", tx="E")
        layout.route(k, (k + 1, 0), rx="W", tx="R")
    with program.task("relay"):
        if k == 0:
            program.fmovs(leaving, x)
        elif k < PES - 1:
            program.fadds(leaving, x, arriving)
        else:
            program.fadds(x, x, arriving)
    layout.place(program, k, 0)

fabric = wse.Fabric(layout)
with wse.record("relay.h5", trace="full", fabric=fabric, job="relay"):
    fabric.launch("relay")
    run = fabric.run()
assert (fabric.read("x", PES - 1, 0) == 0 + 1 + 2 + 3).all()

# %% [markdown]
# Events are arrays: select by cycles, kinds, region, colors. When did each PE's operation begin and end? Kinds are
# those of `wse_core.events.KINDS`.

# %%
with wse.open("relay.h5") as trace:
    begins = trace.events(kinds=("op_start",))
    ends = trace.events(kinds=("op_end",))
    taken = trace.events(kinds=("take",), region=(1, 0, 1, 1))
for k in range(PES):
    first, last = (int(found["cycle"][found["x"] == k][0]) for found in (begins, ends))
    print(f"PE {k}: operation from cycle {first} to {last}")
print(f"PE 1 took {len(taken)} words, one each {np.diff(taken['cycle']).mean():.0f} cycle")

# %% [markdown]
# The same file in pictures and in other programs:
#
# ```
# wse view relay.h5 --figure timeline --out pictures
# wse view relay.h5 --page relay.html
# wse report relay.h5
# wse export relay.h5 --format perfetto --out relay.pftrace
# ```
#
# **Exercise.** Which cycle is the last in which a word crosses the link between PE 2 and PE 3? (`kinds=("land",)`)

# %% [markdown]
# # A race, found
#
# A microthread receives an array while the task goes on. Nothing orders the two until the operation has ended: who
# reads before that has what happens to be there. You learn to find such places, and to put them in order.

# %%
import numpy as np

import wse

N = 32


def receiver(waits):
    """Return a program that sums what comes: once all has come, or at once."""
    program = wse.Program("receiver")
    y, total = program.array("y", N, "f32"), program.array("total", 1, "f32")
    arriving = program.fabin(program.input_queue(2, 4), N)
    words, found = program.dsr("src1"), program.reg32("found")

    def add():
        program.mov32(found, 0)
        program.load(words, y)
        program.fadds(found, found, words)
        program.st32(found, total)

    with program.task("main"):
        program.fmovs(y, arriving, async_=True, priority="low", activate="done")
        if not waits:
            add()
    with program.task("done"):
        if waits:
            add()
    program.start("main")
    return program


def fabric(waits):
    """Return a fabric of a sender and a receiver."""
    sender = wse.Program("sender")
    x = sender.array("x", N, "f32", np.arange(N))
    with sender.task("main"):
        sender.fmovs(sender.fabout(sender.output_queue(2, 4), N), x)
    sender.start("main")
    layout = wse.Layout(2, 1)
    layout.place(sender, 0, 0)
    layout.place(receiver(waits), 1, 0)
    layout.route(4, (0, 0), rx="R", tx="E")
    layout.route(4, (1, 0), rx="W", tx="R")
    return wse.Fabric(layout)


# %% [markdown]
# `check` comes before the first run. It changes no cycle and no bit; it only looks at who uses which word of memory,
# and when.

# %%
f = fabric(waits=False)
checks = f.check()
f.run()
print(f"sum {f.read('total', 1, 0)[0, 0, 0]:g}")
print(checks.report())

# %% [markdown]
# The sum is that of an array that has not come yet. Each line names both places, and the cycles in which they met: the
# task read a word before the microthread wrote it, and one after. Other timing would give another sum.
#
# The cure is to go on in the task that the operation activates.

# %%
f = fabric(waits=True)
checks = f.check()
f.run()
print(f"sum {f.read('total', 1, 0)[0, 0, 0]:g}, {len(checks.found)} findings")

# %% [markdown]
# **Exercise.** Let the sender overwrite `x[N - 1]` right after an asynchronous send, and see who is named. Programs in
# CSL are checked by `cs_python --check=memory run.py`.

# %% [markdown]
# # A deadlock, explained
#
# Two PEs send each other a vector, and each sends before it receives. Short vectors fit into the queues on the way;
# long ones do not, and nobody can go on. You learn to read what the machine says of it, and the cure.

# %%
import numpy as np

import wse


def pair(n, asynchronous):
    """Return a fabric of two PEs that exchange vectors of n elements."""
    layout = wse.Layout(2, 1)
    for k, (out, into) in enumerate(((2, 3), (3, 2))):
        program = wse.Program(("left", "right")[k])
        mine, theirs = program.array("mine", n, "f32"), program.array("theirs", n, "f32")
        leaving = program.fabout(program.output_queue(0, out), n)
        arriving = program.fabin(program.input_queue(1, into), n)
        with program.task("main"):
            program.fmovs(leaving, mine, async_=asynchronous)
            program.fmovs(theirs, arriving)
        layout.place(program, k, 0)
        layout.route(out, (k, 0), rx="R", tx="EW"[k])
        layout.route(out, (1 - k, 0), rx="WE"[k], tx="R")
    fabric = wse.Fabric(layout)
    fabric.write("mine", np.arange(2 * n, dtype=np.float32).reshape(1, 2, n))
    fabric.launch("main")
    return fabric


# %%
print(f"4 elements: {pair(4, False).run().cycles} cycles")
try:
    pair(40, False).run()
except wse.errors.DeadlockError as error:
    print(error)

# %% [markdown]
# The message names each PE, the operation, how far it came, and the queue in which it waits for room. Read in a
# circle: each PE's send waits for room in the other's queue, which is full because the other one has not begun to
# receive.
#
# The cure is to send in a microthread: the task goes on and receives.

# %%
fabric = pair(40, True)
run = fabric.run()
assert np.array_equal(fabric.read("theirs", 0, 0).ravel(), np.arange(40, 80, dtype=np.float32))
print(f"40 elements, sent asynchronously: {run.cycles} cycles")

# %% [markdown]
# **Exercise.** How long may the vectors be before the first version stands still? Count the places of all queues on
# the way (`wse doctor --assumptions` lists `queue.out_depth`, `router.depth`, `queue.in_depth`, `ramp.in_buffer`) and
# try it.

# %% [markdown]
# # Everybody gets everything
#
# An all-gather on a row: PE k has a piece, and at the end every PE has all pieces. You learn asynchronous operations,
# and why the order of sends and receives matters.
#
# The row passes pieces along in both directions. A PE receives what comes from the west (k pieces), and what comes
# from the east; a piece that arrives is handed on by the router itself, so that a PE only sends its own.
#
# Two PEs must never send on one color at once, where their streams would meet. So each PE has a color of its own,
# which is a multicast to both sides: with four PEs, four colors.

# %%
import numpy as np

import wse

PES, N = 4, 24


def gather(k, n, asynchronous):
    """Return the program of PE k: it sends its piece, and takes the others in the order of their colors."""
    program = wse.Program(f"PE {k}")
    everything = program.array("everything", PES * n, "f32")
    piece = program.array("piece", n, "f32")
    out = program.output_queue(0, k)
    arrivals = [(other, program.input_queue(1 + i, other)) for i, other in enumerate(c for c in range(PES) if c != k)]
    with program.task("main"):
        # The send goes on by itself, in a microthread; a send that the task waited for would let the row stand still
        # as soon as pieces are longer than all queues on the way.
        program.fmovs(program.fabout(out, n), piece, async_=asynchronous)
        program.fmovs(program.mem1d(everything, n, offset=k * n), piece)
        for other, queue in arrivals:
            program.fmovs(program.mem1d(everything, n, offset=other * n), program.fabin(queue, n))
    return program


def row(n, asynchronous=True):
    """Return a fabric of PES PEs with pieces of n elements."""
    layout = wse.Layout(PES, 1)
    for k in range(PES):
        layout.place(gather(k, n, asynchronous), k, 0)
        layout.route(k, (k, 0), rx="R", tx="W" * (k > 0) + "E" * (k < PES - 1))
        for x in range(PES):
            if x < k:
                layout.route(k, (x, 0), rx="E", tx="R" + "W" * (x > 0))
            if x > k:
                layout.route(k, (x, 0), rx="W", tx="R" + "E" * (x < PES - 1))
    return wse.Fabric(layout)


# %%
fabric = row(N)
pieces = np.random.default_rng(0).standard_normal((1, PES, N)).astype(np.float32)
fabric.write("piece", pieces)
fabric.launch("main")
run = fabric.run()

for k in range(PES):
    assert np.array_equal(fabric.read("everything", k, 0).ravel(), pieces.ravel())
print(f"{run.cycles} cycles for {PES} pieces of {N}")

# %% [markdown]
# Nothing can be faster than the ramp of a PE, over which all pieces but its own must come: 72 words, one per cycle.
# The rest is start and latency, and the time in which a piece waits for the one before it.
#
# The library's own kernel for this uses few colors however many PEs there are:

# %%
library = wse.KERNELS["allgather"].run(wse.machine(), form="row", width=PES, height=1, n=N)
print(f"the kernel `allgather` takes {library['cycles']}, bit-exact: {library['bit_exact']}")

# %% [markdown]
# **Exercise.** Send without `async_`, and make pieces longer until the row stands still. What does the error say?

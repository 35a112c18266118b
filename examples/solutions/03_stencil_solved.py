# %% [markdown]
# No heat flows over an end if the cell beyond it is as warm as the last one. So the first and the last PE copy their
# own border where the others receive.

# %%
def closed(k):
    """Return the program of PE k of a rod that loses no heat."""
    program = wse.Program(f"cells of PE {k}")
    t = program.array("t", CELLS + 2, "f32", bank=0)
    change = program.array("change", CELLS, "f32", bank=2)
    with program.task("main"), program.loop(STEPS):
        first, last = program.mem1d(t, 1, offset=1), program.mem1d(t, 1, offset=CELLS)
        before, behind = program.mem1d(t, 1), program.mem1d(t, 1, offset=CELLS + 1)
        if k < PES - 1:
            program.fmovs(program.fabout(program.output_queue(0, EAST[k % 2]), 1), last, async_=True)
        if k > 0:
            program.fmovs(program.fabout(program.output_queue(1, WEST[k % 2]), 1), first, async_=True)
        if k > 0:
            program.fmovs(before, program.fabin(program.input_queue(2, EAST[(k - 1) % 2]), 1))
        else:
            program.fmovs(before, first)
        if k < PES - 1:
            program.fmovs(behind, program.fabin(program.input_queue(3, WEST[(k + 1) % 2]), 1))
        else:
            program.fmovs(behind, last)
        left, middle, right = (program.mem1d(t, CELLS, offset=o) for o in (0, 1, 2))
        program.fadds(change, left, right)
        program.fsubs(change, change, middle)
        program.fsubs(change, change, middle)
        program.fmacs(middle, middle, change, RATE)
    return program


warm_end = np.zeros(PES * CELLS, np.float32)
warm_end[0] = 64.0
for name, make in (("open", rod), ("closed", closed)):
    cells, _ = heated(make, warm_end)
    print(f"{name}: {cells.sum():.3f} of 64 are left")

# %% [markdown]
# As in numpy, whose `pad` repeats the border with `mode="edge"`:

# %%
expected = warm_end.copy()
for _ in range(STEPS):
    t = np.pad(expected, 1, mode="edge")
    change = ((t[:-2] + t[2:]) - t[1:-1]) - t[1:-1]
    expected = (expected.astype(np.float64) + change.astype(np.float64) * RATE).astype(np.float32)
assert np.array_equal(cells, expected)

# %% [markdown]
# Two half chains end at PE m. The words of both must come up its ramp, one in a cycle: 2 n cycles, and the first of
# them has come over the hops of the shorter side at least. So the bound is 2 n + min(m, PES - 1 - m): half the way, but
# twice the words.

# %%
def inward(pes, n):
    """Return the layout of two chains that end in the middle."""
    layout, middle = wse.Layout(pes, 1), pes // 2
    for k in range(pes):
        p = wse.Program(f"link {k}")
        x = p.array("x", n, "f32")
        side = 0 if k < middle else 2  # colors 0 and 1 go east, 2 and 3 west
        toward, back = ("E", "W") if k < middle else ("W", "E")
        with p.task("main"):
            if k == middle:
                for color in (0 + (middle - 1) % 2, 2 + (middle + 1) % 2):
                    p.fadds(x, x, p.fabin(p.input_queue(2 + color // 2, color), n))
            else:
                out = p.fabout(p.output_queue(2, side + k % 2), n)
                if k in (0, pes - 1):
                    p.fmovs(out, x)
                else:
                    p.fadds(out, x, p.fabin(p.input_queue(2, side + (k + 1) % 2), n))
        layout.place(p, k, 0)
        if k != middle:
            layout.route(side + k % 2, (k, 0), rx="R", tx=toward)
            layout.route(side + k % 2, (k + (1 if k < middle else -1), 0), rx=back, tx="R")
    return layout, middle


for n in (1, 16, 256):
    layout, middle = inward(PES, n)
    fabric = wse.Fabric(layout)
    x = np.random.default_rng(1).integers(-50, 50, (1, PES, n)).astype(np.float32)
    fabric.write("x", x)
    fabric.launch("main")
    cycles = fabric.run().cycles
    assert np.array_equal(fabric.read("x", middle, 0).ravel(), x.sum(axis=(0, 1)))
    bound = 2 * n + min(middle, PES - 1 - middle)
    one_way = measured(chain(PES, n), PES, n).cycles
    print(f"{n:4} elements: bound {bound}, {cycles} cycles; from one side {one_way}")

# %% [markdown]
# For short vectors the way is what counts, and half of it is saved; for long ones the ramp of the middle PE is, and
# the chain from one side is nearly twice as fast.

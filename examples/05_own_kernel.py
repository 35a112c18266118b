# %% [markdown]
# # An own kernel against its lower bound
#
# How good is a kernel? Compare it with what no program can beat. You learn to compute a lower bound, to measure, and
# to see where the cycles went.
#
# The task: the sum of a vector per PE, over a row. At least n words must go over the last link, and the first word
# from the far end needs one cycle per PE on its way.

# %%
import numpy as np

import wse


def star(pes, n):
    """Return the layout of a star: every PE sends to PE 0, one after the other, and PE 0 adds."""
    layout = wse.Layout(pes, 1)
    root = wse.Program("root")
    x = root.array("x", n, "f32")
    arriving = root.fabin(root.input_queue(2, 0), n)
    with root.task("main"), root.loop(pes - 1):
        root.fadds(x, x, arriving)
    layout.place(root, 0, 0)
    leaf = wse.Program("leaf")
    x = leaf.array("x", n, "f32")
    own = leaf.fabout(leaf.output_queue(2, 0), n, advance_switch=True)
    with leaf.task("main"):
        leaf.fmovs(own, x)
    layout.place(leaf, 1, 0, pes - 1, 1)
    # First position of the switch: one's own words; then those from the east.
    layout.route(0, (0, 0), rx="E", tx="R")
    for k in range(1, pes):
        layout.route(0, (k, 0), rx="R", tx="W", switches={"rx": "E"} if k < pes - 1 else {"rx": "R"})
    return layout


def chain(pes, n):
    """Return the layout of a chain: every PE adds its own vector to what comes from the east, and hands it on."""
    layout = wse.Layout(pes, 1)
    for k in range(pes):
        p = wse.Program(f"link {k}")
        x = p.array("x", n, "f32")
        with p.task("main"):
            if k == pes - 1:
                p.fmovs(p.fabout(p.output_queue(2, k % 2), n), x)
            elif k:
                p.fadds(p.fabout(p.output_queue(2, k % 2), n), x, p.fabin(p.input_queue(2, (k + 1) % 2), n))
            else:
                p.fadds(x, x, p.fabin(p.input_queue(2, 1), n))
        layout.place(p, k, 0)
        if k:
            layout.route(k % 2, (k, 0), rx="R", tx="W")
            layout.route(k % 2, (k - 1, 0), rx="E", tx="R")
    return layout


def measured(layout, pes, n):
    """Return the cycles of a layout, once its sum has been compared with numpy."""
    fabric = wse.Fabric(layout)
    x = np.random.default_rng(1).integers(-50, 50, (1, pes, n)).astype(np.float32)  # sums are exact in any order
    fabric.write("x", x)
    fabric.launch("main")
    run = fabric.run()
    assert np.array_equal(fabric.read("x", 0, 0).ravel(), x.sum(axis=(0, 1)))
    return run


# %%
PES = 16
print("   n  bound  chain        star")
for n in (1, 16, 256):
    bound = n + PES - 1
    found = [measured(make(PES, n), PES, n).cycles for make in (chain, star)]
    print(f"{n:4} {bound:6}" + "".join(f" {cycles:6} ({bound / cycles:4.0%})" for cycles in found))

# %% [markdown]
# The chain comes close to the bound for long vectors, where all PEs add at once; for short ones it pays six cycles at
# each PE. In the star PE 0 adds every word itself, and begins an operation anew for each vector. The library's kernel
# `reduce` has a better star, trees between the two, and takes the fastest for given sizes:

# %%
for n in (1, 16, 256):
    best = wse.KERNELS["reduce"].run(wse.machine(), form="row", width=PES, height=1, n=n)
    print(f"{n:4} {best['cycles']:6} {best['algorithms']}")

# %% [markdown]
#
# Where did the cycles go? Each PE says what it did or waited for:

# %%
run = measured(chain(PES, 256), PES, 256)
busiest = sorted(run.counters.items(), key=lambda item: -item[1])[:4]
print(", ".join(f"{name} {count}" for name, count in busiest))

# %% [markdown]
# **Exercise.** Let the chain send to a PE in the middle from both sides. What is the bound then?

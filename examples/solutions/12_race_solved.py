# %% [markdown]
# The send is of low priority, so that the task comes first and overwrites the element before it has left.

# %%
sender = wse.Program("sender")
x = sender.array("x", N, "f32", np.arange(N))
with sender.task("main"):
    sender.fmovs(sender.fabout(sender.output_queue(2, 4), N), x, async_=True, priority="low")
    sender.fmovs(sender.mem1d(x, 1, offset=N - 1), sender.mem1d(x, 1))
sender.start("main")

layout = wse.Layout(2, 1)
layout.place(sender, 0, 0)
layout.place(receiver(waits=True), 1, 0)
layout.route(4, (0, 0), rx="R", tx="E")
layout.route(4, (1, 0), rx="W", tx="R")
f = wse.Fabric(layout)
checks = f.check()
f.run()
print(f"sum {f.read('total', 1, 0)[0, 0, 0]:g}")
print(checks.report())
assert len(checks.found) == 1

# %% [markdown]
# The sum lacks 31, the last element: a zero was sent in its place. With the usual priority the send would have been
# through before the task came to it, and the sum right, by luck.

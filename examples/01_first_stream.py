# %% [markdown]
# # A first stream
#
# One PE sends numbers east, all PEs behind it take them as they pass. You learn what a program, a layout and a route
# are, how the host reads results, and how many cycles each step costs.
#
# A `Program` is what one PE runs. The sender has an array and sends it through an output queue that is bound to a
# color; the receivers take what comes on that color and double it.

# %%
import numpy as np

import wse

COLOR, N, RECEIVERS = 5, 100, 8

send = wse.Program("send")
x = send.array("x", N, "f32", range(N))
send.output_queue(0, COLOR)
with send.task("main"):
    send.fmovs(send.fabout(COLOR, N), x)

receive = wse.Program("receive")
y = receive.array("y", N, "f32")
receive.input_queue(0, COLOR)
with receive.task("main"):
    receive.fmuls(y, receive.fabin(COLOR, N), 2.0)

# %% [markdown]
# A `Layout` says which PE runs what, and which way a color takes through the routers: `rx` is where wavelets come
# from, `tx` where they go. `R` is the ramp between router and core; two directions in `tx` are a multicast.

# %%
layout = wse.Layout(1 + RECEIVERS, 1)
layout.place(send, 0, 0)
layout.place(receive, 1, 0, RECEIVERS, 1)
layout.route(COLOR, (0, 0), rx="R", tx="E")
layout.route(COLOR, (1, 0, RECEIVERS - 1, 1), rx="W", tx="ER")
layout.route(COLOR, (RECEIVERS, 0), rx="W", tx="R")

# %% [markdown]
# A `Fabric` runs it. Launching activates the task of that name on every PE that has one.

# %%
fabric = wse.Fabric(layout)
fabric.launch("main")
run = fabric.run()

values = fabric.read("y", 1, 0, RECEIVERS, 1)  # rows, columns, elements
assert np.array_equal(values, np.broadcast_to(2.0 * np.arange(N, dtype=np.float32), (1, RECEIVERS, N)))
print(f"{run.cycles} cycles, {run.wavelet_hops} hops")

# %% [markdown]
# Each router adds one cycle, so the eighth receiver ends seven cycles after the first. With half as many receivers
# the run is four cycles shorter, not half as long: the stream is a pipeline.
#
# **Exercise.** Send to the west as well, on a second color. How many cycles more does that cost, and how many does it
# save if both sends are asynchronous (`async_=True`, two output queues)?

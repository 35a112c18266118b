# %% [markdown]
# The sender stands in the middle now, with as many receivers on each side, so that both ways are equally long. Each
# side has its color, and the sender an output queue for each.

# %%
WEST = 6


def both_ways(asynchronous):
    """Return a fabric whose middle PE sends to both sides."""
    send = wse.Program("send both ways")
    x = send.array("x", N, "f32", range(N))
    send.output_queue(0, COLOR)
    send.output_queue(1, WEST)
    with send.task("main"):
        for color in (COLOR, WEST):
            send.fmovs(send.fabout(color, N), x, async_=asynchronous)
    layout = wse.Layout(2 * RECEIVERS + 1, 1)
    layout.place(send, RECEIVERS, 0)
    for color, first, toward, end in ((COLOR, RECEIVERS + 1, "E", 2 * RECEIVERS), (WEST, 0, "W", 0)):
        receive = wse.Program(f"receive what goes {toward}")
        y = receive.array("y", N, "f32")
        receive.input_queue(0, color)
        with receive.task("main"):
            receive.fmuls(y, receive.fabin(color, N), 2.0)
        layout.place(receive, first, 0, RECEIVERS, 1)
        back = "W" if toward == "E" else "E"
        layout.route(color, (RECEIVERS, 0), rx="R", tx=toward)
        for k in range(first, first + RECEIVERS):
            layout.route(color, (k, 0), rx=back, tx="R" if k == end else toward + "R")
    fabric = wse.Fabric(layout)
    fabric.launch("main")
    return fabric


for asynchronous in (True, False):
    both = both_ways(asynchronous)
    more = both.run().cycles - run.cycles
    assert (both.read("y", 0, 0) == values[0, 0]).all()
    assert (both.read("y", 2 * RECEIVERS, 0) == values[0, 0]).all()
    print(f"{'asynchronous' if asynchronous else 'one after the other'}: {more} cycles more")

# %% [markdown]
# Nothing: both leave over the same ramp, which takes one word in a cycle. A hundred words more are a hundred cycles
# more, and 13 for another operation. Asynchronous sends pay where the task has something else to do meanwhile, as on
# the next page.

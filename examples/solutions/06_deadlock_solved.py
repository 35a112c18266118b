# %% [markdown]
# The words that have left a PE but are not taken yet lie in its output queue, in both routers, in the buffer of the
# other PE's ramp, and in its input queue. The sum of these places is the longest vector that passes:

# %%
machine = wse.machine()
places = [
    machine["queue.out_depth"][0],
    2 * machine["router.depth"],
    machine["ramp.in_buffer"],
    machine["queue.in_depth"][1],
]
print(" + ".join(map(str, places)), "=", sum(places))

longest = 1
try:
    while True:
        pair(longest + 1, False).run()
        longest += 1
except wse.errors.DeadlockError:
    print(f"vectors of {longest} elements still pass")
assert longest == sum(places)

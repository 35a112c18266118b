# %% [markdown]
# The program gets a second task, which a control wavelet with its id starts. That goes the same way as the values,
# behind the last of them, so that every PE has counted all.

# %%
DOUBLE = 40

program, count = counter()
with program.task("double", kind="control", id=DOUBLE):
    total = program.reg16("total")
    program.ld16(total, count)
    program.add16(total, total, total)
    program.st16(total, count)

fabric, stream = row(program)
fabric.send(stream, values.tolist())
fabric.send(stream, [wse.control.single(task=DOUBLE)], control=True)
run = fabric.run()
assert np.array_equal(fabric.read("count").ravel(), 2 * counts)
print(f"{run.cycles} cycles, counts {fabric.read('count').ravel().tolist()}")

# %% [markdown]
# Pieces get longer, one element at a time, until nobody can go on:

# %%
n = 1
try:
    while True:
        stuck = row(n, asynchronous=False)
        stuck.launch("main")
        stuck.run()
        n += 1
except wse.errors.DeadlockError as error:
    print(f"pieces of {n} elements:")
    print(error)

# %% [markdown]
# Every PE still sends, and waits for room: its words fill the queues of the others, who do not take any before their
# own send is over.

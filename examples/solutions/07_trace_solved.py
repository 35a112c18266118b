# %% [markdown]
# A word lands where it enters a router. PE 3 gets its words from nowhere else than PE 2:

# %%
with wse.open("relay.h5") as trace:
    landed = trace.events(kinds=("land",), region=(3, 0, 1, 1))
print(f"{len(landed)} words, the last one in cycle {int(landed['cycle'].max())}")

# %% [markdown]
# Without attention nothing comes from one token to another: what is left sees one character and learns how often each
# one follows it. The best that can be done so is the entropy of the next character when one is known.

# %%
from itertools import pairwise

text = Path("rhyme.txt").read_text(encoding="utf-8")
letters = sorted(set(text))
nodes = [
    {"name": "embed", "op": "linear", "outputs": 24, "bias": False},
    {"name": "unit", "op": "rms"},
    {"name": "gate", "op": "linear", "outputs": 32, "bias": False},
    {"name": "bend", "op": "silu"},
    {"name": "up", "op": "linear", "outputs": 32, "bias": False, "inputs": ["unit"]},
    {"name": "gated", "op": "mul", "inputs": ["bend", "up"]},
    {"name": "down", "op": "linear", "outputs": 24, "bias": False},
    {"name": "sum", "op": "add", "inputs": ["embed", "down"]},
    {"name": "last", "op": "rms"},
    {"name": "head", "op": "linear", "outputs": len(letters), "bias": False},
]
alone = wse.Trainer(
    wse.TrainConfig.of(
        network={"inputs": len(letters), "nodes": nodes},
        data={"source": "rhyme.txt", "sequence": 16, "batch": 64},
        mesh={"width": 4, "height": 2},
        train={"iterations": 60, "optimizer": {"name": "adamw", "lr": 0.02}},
    )
)
losses = [alone.step().loss for _ in range(60)]

pairs = np.zeros((len(letters), len(letters)))
for one, following in pairwise(text):
    pairs[letters.index(one), letters.index(following)] += 1
odds = pairs / pairs.sum(axis=1, keepdims=True)
entropy = -(pairs * np.log(np.where(odds > 0, odds, 1))).sum() / pairs.sum()
print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}; with attention {steps[-1].loss:.2f}; entropy {entropy:.2f}")

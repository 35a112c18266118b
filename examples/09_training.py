# %% [markdown]
# # Training with one's own arrays
#
# A network is trained by weight streaming: weights come from a memory service, pass over the wafers, and gradients go
# back. You learn to train from arrays, to count cycles, and that one or two wafers give what numpy gives.

# %%
import numpy as np

import wse

rng = np.random.default_rng(0)


def batches():
    """Yield batches without end: points of the plane, and the spiral arm on which they lie."""
    while True:
        arm = rng.integers(0, 2, 32)
        radius = rng.random(32)
        angle = 3 * radius + np.pi * arm + 0.05 * rng.standard_normal(32)
        yield np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), arm


config = wse.TrainConfig.of(
    wafers=2,
    network={"inputs": 2, "layers": [{"outputs": 24, "activation": "relu"}, {"outputs": 2}]},
    data={"batch": 32},
    mesh={"width": 2, "height": 2},
    train={"iterations": 60, "optimizer": {"name": "adam", "lr": 0.02}},
)
trainer = wse.Trainer(config, data=batches())
steps = [trainer.step() for _ in range(60)]
print(f"loss {steps[0].loss:.2f}, then {steps[-1].loss:.2f}, in {trainer.cycles:,} cycles")
assert steps[-1].loss < 0.5 * steps[0].loss

# %% [markdown]
# Is it right? The same training with numpy in the place of the wafers, in their order of additions, must give the
# same weights, bit by bit.

# %%
rng = np.random.default_rng(0)
check = wse.Trainer(config, "numpy", data=batches())
for _ in range(60):
    check.step()
for name, value in trainer.tensors().items():
    assert np.array_equal(value, check.tensors()[name]), name
print("all weights equal those of numpy in every bit")

# %% [markdown]
# `wse train FILE.toml` does the same from a file, with logs, checkpoints and a report.
#
# **Exercise.** How many cycles does an iteration take on one wafer? On four?

# %% [markdown]
# # A transformer, trained and spoken
#
# Queries, keys and values are products like any other; attention itself has no weights, so the wafer does it alone. You
# learn to train a transformer on a text, to check it against numpy, and to let it answer on a wafer.

# %%
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import wse
from harness.cli.train_model import save_language_model

Path("rhyme.txt").write_text("one two buckle my shoe, three four knock at the door. " * 40, encoding="utf-8")
config = wse.TrainConfig.of(
    network={
        "preset": "llama",
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 32,
    },
    data={"source": "rhyme.txt", "sequence": 16, "batch": 64},
    mesh={"width": 4, "height": 2},
    train={"iterations": 60, "optimizer": {"name": "adamw", "lr": 0.02}},
)
trainer = wse.Trainer(config)
steps = [trainer.step() for _ in range(60)]
print(f"loss {steps[0].loss:.2f}, then {steps[-1].loss:.2f}, in {trainer.cycles:,} cycles")

# %% [markdown]
# Whole sequences lie in a PE and whole heads in a column, so attention moves nothing. All that it adds up it adds up in
# an order that numpy can follow: the weights are the same in every bit.

# %%
check = wse.Trainer(config, "numpy")
for _ in range(60):
    check.step()
for name, value in trainer.tensors().items():
    assert np.array_equal(value, check.tensors()[name]), name
print("all weights equal those of numpy in every bit")

# %% [markdown]
# Saved in the hub's layout it is a model like any other: it lies on PEs whole, a character goes in, the next comes out.

# %%
save_language_model("rhyme", config, trainer.tensors())
command = ["generate", "rhyme", "--prompt", "knock ", "--tokens", "8", "--mesh", "4x2", "--json"]
done = subprocess.run([sys.executable, "-m", "harness", *command], capture_output=True, text=True, check=True)
answer = json.loads(done.stdout)
print("knock", answer["text"])
assert answer["bit_exact"]

# %% [markdown]
# `wse train FILE.toml --save-model DIR` and `wse generate DIR --prompt ...` do the same from files; `wse train chars`
# is a larger one on the help topics of Python.
#
# **Exercise.** Write the same network with `nodes` instead of a preset, and leave the attention out. What does it
# learn?

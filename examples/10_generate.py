# %% [markdown]
# # A language model of one's own
#
# A decoder with random weights, written as a directory of the hub, answers on 4 x 3 PEs. You learn the layout of a
# model's files, how long a token takes, and what is compared.

# %%
import json
import subprocess
import sys

import numpy as np

from fabric.networks.inference.decoder import Decoder
from harness.models.configuration import Configuration
from harness.models.hub import save_model, tensor_shapes

decoder = Decoder(hidden=24, layers=2, heads=4, kv_heads=2, head_size=8, ffn=20, vocabulary=17, context=32)
rng = np.random.default_rng(0)
tensors = {
    name: (np.ones(shape) if "norm" in name else rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)
    for name, shape in tensor_shapes(decoder).items()
}
save_model("tiny", Configuration(decoder), tensors)

# %% [markdown]
# The command line answers; `--json` is for scripts. With a tokenizer beside the weights, `--prompt` takes text.

# %%
command = ["generate", "tiny", "--prompt-ids", "3,1,4", "--tokens", "6", "--mesh", "4x3", "--json"]
done = subprocess.run([sys.executable, "-m", "harness", *command], capture_output=True, text=True, check=True)
answer = json.loads(done.stdout)
print("tokens", answer["tokens"])
print("bit-exact", answer["bit_exact"])
assert answer["bit_exact"]

# %% [markdown]
# **Exercise.** Which mesh is the fastest for this model? `wse generate tiny ... --estimate` says it without a run.

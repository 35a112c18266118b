# %% [markdown]
# # A sweep with a figure
#
# How does a kernel scale? A sweep runs it over lists and ranges of parameters, and of the machine's own numbers. You
# learn to describe one, to run it, and to make a figure of it.

# %%
from pathlib import Path

from harness.sweep.description import load
from harness.sweep.run import run

Path("links.toml").write_text(
    """
kernel = "reduce"

[params]
form = "row"
width = {from = 4, to = 32, times = 2}
height = 1
n = 64

[machine]
"router.hop" = [1, 2]

[figure]
x = "width"
y = "cycles"
scale = "log-x"
"""
)

if __name__ == "__main__":  # processes that start import this file again
    found = run(load("links.toml"), "links", processes=1)
    for row in found.rows:
        print(f"{row['width']:3} PEs, {row['router.hop']} cycles per hop: {row['cycles']} cycles")

# %% [markdown]
# The directory has the table as CSV, the figure, and a line for each point that is done, from which a sweep that was
# ended goes on. From the command line: `wse sweep links.toml --out links`.
#
# **Exercise.** Does a slower hop change which algorithm is the fastest? Add `algorithm` as an axis.

# %% [markdown]
# # A program in CSL with its host script
#
# The vendor's language runs as it is. You learn which files a program has, how it is compiled and started, and how to
# see what each source line became.
#
# The directory `csl_scale` beside this file has three files: `layout.csl` places the program on a row of PEs,
# `pe.csl` is the program of one, `run.py` the host script. They are compiled and started as on the system:
#
# ```
# cslc --arch=wse2 layout.csl --fabric-dims=11,3 --fabric-offsets=4,1 --params=width:4,n:8 -o out --memcpy --channels=1
# cs_python run.py --name out
# ```

# %%
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent if "__file__" in globals() else Path("examples")
for name in ("layout.csl", "pe.csl", "run.py"):
    shutil.copy(HERE / "csl_scale" / name, name)


def command(module, *words):
    """Run a command and return what it prints."""
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=True)
    return done.stdout


options = "--arch=wse2 --fabric-dims=11,3 --fabric-offsets=4,1 --params=width:4,n:8 -o out --memcpy --channels=1"
command("harness.sdk.compiler", "layout.csl", *options.split())
print(command("harness.sdk.python", "run.py", "--name", "out").strip())

# %% [markdown]
# What the compiler made of each line, with registers and cycles:

# %%
listing = command("harness", "csl", "listing", "layout.csl", "--params", "width:4,n:8")
print("\n".join(line for line in listing.splitlines() if "fmuls" in line))

# %% [markdown]
# **Exercise.** Add a function that returns the sum of a PE's part, and copy the sums to the host.

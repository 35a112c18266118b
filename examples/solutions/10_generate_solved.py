# %% [markdown]
# An estimate takes a second or two, so many meshes can be tried. What cannot be laid out is refused with status 2.

# %%
takes = {}
for mesh in ("1x1", "2x2", "4x3", "4x4", "8x6"):
    words = f"generate tiny --prompt-ids 3,1,4 --tokens 6 --mesh {mesh} --estimate --json"
    done = subprocess.run([sys.executable, "-m", "harness", *words.split()], capture_output=True, text=True)
    if done.returncode == 0:
        cycles = json.loads(done.stdout)["estimated_cycles"]
        takes[mesh] = cycles["tokens"][-1]
        print(f"{mesh:>5}: prompt {cycles['prefill']:6}, then {takes[mesh]:6} cycles a token")
    else:
        print(f"{mesh:>5}: {done.stderr.strip().removeprefix('wse: error: ')[:100]}")
print("fastest for tokens:", min(takes, key=takes.get))

# %% [markdown]
# More PEs make a token faster, by less and less, but not the prompt, which is read fastest on 4x3. For short answers
# that is a good mesh.

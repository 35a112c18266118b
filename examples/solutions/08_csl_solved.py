# %% [markdown]
# The program gets a function and a place for its result, the layout their names, and the host script a launch and a
# copy. A sum over a vector is an addition whose destination and first source stay where they are: a descriptor with a
# stride of 0.

# %%
pe = Path("pe.csl").read_text()
pe = pe.replace(
    "comptime {",
    """var total = @zeros([1]f32);
var total_ptr: [*]f32 = &total;
const total_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> total[0] });

fn sum() void {
  total[0] = 0.0;
  @fadds(total_dsd, total_dsd, y_dsd);
  sys_mod.unblock_cmd_stream();
}

comptime {
  @export_symbol(total_ptr, "total");
  @export_symbol(sum);""",
)
Path("pe.csl").write_text(pe)

layout = Path("layout.csl").read_text()
named = '  @export_name("total", [*]f32, true);\n  @export_name("sum", fn()void);\n'
Path("layout.csl").write_text(layout.replace('  @export_name("scale"', named + '  @export_name("scale"'))

script = Path("run.py").read_text()
script = script.replace("runner.load()", 'total = runner.get_id("total")\nrunner.load()')
script = script.replace(
    "runner.stop()",
    """runner.launch("sum", nonblock=False)
sums = np.zeros(WIDTH, np.float32)
runner.memcpy_d2h(sums, total, 0, 0, WIDTH, 1, 1, nonblock=False, **options)
print("sums", sums.tolist())
runner.stop()""",
)
Path("run.py").write_text(script)

command("harness.sdk.compiler", "layout.csl", *options.split())
print(command("harness.sdk.python", "run.py", "--name", "out").strip())

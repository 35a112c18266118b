"""The host's side as PEs see it: when launches and words come, at which rate, who waits for whom; by time stamps."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.rules import COMPILED
from harness.cli.main import main
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime, running_on
from wse_core.errors import DeadlockError
from wse_core.params import machine

LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{
  .width = 1, .height = 1, .MEMCPYH2D_1 = @get_color(8), .MEMCPYD2H_1 = @get_color(9) });
layout {
  @set_rectangle(1, 1);
  @set_color_config(0, 0, @get_color(3), .{ .routes = .{ .rx = .{RAMP}, .tx = .{RAMP} } });
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0) });
  for (.{ "now", "busy", "take", "give", "relay" }) |name| {
    @export_name(name, fn() void);
  }
  @export_name("n", [*]u16, true);
  @export_name("when", [*]u16, true);
}
"""
PE = """
param memcpy_params: comptime_struct;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const time = @import_module("<time>");
const size: u16 = 400;
var words = @zeros([size]u32);
var when = @zeros([3]u16);
var n = [1]u16{ 1 };
var n_ptr: [*]u16 = &n;
var when_ptr: [*]u16 = &when;
const in_queue = @get_input_queue(2);
const out_queue = @get_output_queue(3);
const all = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{size} -> words[i] });
const in_all = @get_dsd(fabin_dsd, .{ .extent = size, .fabric_color = sys_mod.MEMCPYH2D_1, .input_queue = in_queue });
const out_all = @get_dsd(fabout_dsd, .{ .extent = size, .fabric_color = sys_mod.MEMCPYD2H_1,
                                        .output_queue = out_queue });
const loop_in = @get_dsd(fabin_dsd, .{ .extent = size, .fabric_color = @get_color(3),
                                       .input_queue = @get_input_queue(4) });
const loop_out = @get_dsd(fabout_dsd, .{ .extent = size, .fabric_color = @get_color(3),
                                         .output_queue = @get_output_queue(5) });

fn stamp() void {
  time.get_timestamp(&when);
}
fn now() void {
  stamp();
  sys_mod.unblock_cmd_stream();
}
// Something moves for 400 cycles and more.
fn busy() void {
  @mov32(loop_out, all, .{ .async = true });
  @mov32(all, loop_in, .{ .async = true });
  sys_mod.unblock_cmd_stream();
}
fn take() void {
  sys_mod.unblock_cmd_stream();
  @mov32(@set_dsd_length(all, n[0]), @set_dsd_length(in_all, n[0]));
  stamp();
}
fn give() void {
  @mov32(@set_dsd_length(out_all, n[0]), @set_dsd_length(all, n[0]), .{ .async = true, .activate = given });
  sys_mod.unblock_cmd_stream();
}
task given() void { stamp(); }
// What comes goes on to the host.
fn relay() void {
  @mov32(@set_dsd_length(out_all, n[0]), @set_dsd_length(in_all, n[0]), .{ .async = true });
  sys_mod.unblock_cmd_stream();
}
comptime {
  @bind_local_task(given, @get_local_task_id(9));
  @export_symbol(n_ptr, "n");
  @export_symbol(when_ptr, "when");
  @export_symbol(now); @export_symbol(busy); @export_symbol(take); @export_symbol(give); @export_symbol(relay);
}
"""
COPY = {"streaming": False, "data_type": MemcpyDataType.MEMCPY_16BIT, "order": MemcpyOrder.ROW_MAJOR}
STREAM = {"streaming": True, "data_type": MemcpyDataType.MEMCPY_32BIT, "order": MemcpyOrder.ROW_MAJOR}


class Runner:
    """A runtime of one PE and its shortcuts."""

    def __init__(self, **numbers):
        changed = {name.replace("_", ".", 1): value for name, value in numbers.items()}
        with running_on(machine("wse2", {**COMPILED["wse2"], **changed})):
            self.runtime = SdkRuntime("out")
        self.runtime.load()
        self.runtime.run()

    @property
    def cycle(self):
        """Cycles run so far."""
        return self.runtime.fabric.cycle

    def launch(self, name, n=1):
        """Set `n`, launch a function; return the cycle of the command."""
        self.runtime.memcpy_h2d(self.runtime.get_id("n"), np.array([n], np.uint32), 0, 0, 1, 1, 1, **COPY)
        before = self.cycle
        self.runtime.launch(name)
        return before

    def send(self, n, nonblock=False):
        """Stream words 1 .. n to the PE; return the cycle of the command."""
        before = self.cycle
        values = np.arange(1, n + 1, dtype=np.uint32)
        self.runtime.memcpy_h2d(8, values, 0, 0, 1, 1, n, nonblock=nonblock, **STREAM)
        return before

    def take(self, n):
        """Return `n` words from the PE."""
        found = np.zeros(n, np.uint32)
        self.runtime.memcpy_d2h(found, 9, 0, 0, 1, 1, n, **STREAM)
        return found.tolist()

    def stamp(self):
        """Return the low word of the time stamp."""
        found = np.zeros(3, np.uint32)
        self.runtime.memcpy_d2h(found, self.runtime.get_id("when"), 0, 0, 1, 1, 3, **COPY)
        return found.tolist()[0]


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    """Compile the program into the directory `out`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layout.csl").write_text(LAYOUT)
    (tmp_path / "pe.csl").write_text(PE)
    write_bundle(bundle_of(compile_file("layout.csl", Options())), "out")


LAUNCH = 3 + 8
"""Cycles from a launch to the first statement of `now`: the hidden task starts, and finds out which function."""
ENTERS = 1 + 2
"""Cycles from the entry of a word at the edge to the step that takes it: a hop, and the ramp."""
STARTS = 1 + 3
"""Cycles from the step that ends an operation to the first instruction of the task that it activates."""
HELD = 16
"""Words between the edge and a host that takes nothing: 2 at the edge, 6 in the input queue, 8 on the way out."""


def test_a_launch_begins_at_once_or_after_its_latency():
    runner = Runner()
    assert runner.launch("now") + LAUNCH == runner.stamp()
    for latency in (0, 150):
        runner = Runner(memcpy_command=latency, memcpy_poll=1)
        runner.launch("busy")
        before = runner.cycle
        runner.runtime.launch("now")
        # At once it follows the task before, whose last cycles hide as much of its start as lies behind the command.
        hidden = 0 if latency else COMPILED["wse2"]["task.overlap"]
        assert runner.stamp() in range(before + latency + LAUNCH - hidden, before + latency + LAUNCH + 1 - bool(hidden))


@pytest.mark.parametrize("n", [1, 100])
@pytest.mark.parametrize("word", [1, 3])
def test_words_come_at_their_rate(word, n):
    runner = Runner(memcpy_word=word)
    runner.launch("take", n)
    began = runner.send(n)
    assert runner.stamp() == began + ENTERS + word * (n - 1) + 1  # behind the step that takes the last word


@pytest.mark.parametrize("word", [1, 3])
def test_words_leave_at_their_rate_and_only_when_they_are_asked_for(word):
    runner = Runner(memcpy_word=word, memcpy_poll=1)
    n = 100
    runner.launch("give", n)
    assert runner.stamp() == 0  # the queues are full, the PE waits for the host
    began = runner.cycle
    assert runner.take(n) == [0] * n
    # The last word is pushed a cycle after the one 8 words before has left the queue; then a task starts.
    assert runner.stamp() == began + word * (n - 1 - 8) + 1 + STARTS


def test_a_host_that_sends_more_than_queues_hold_before_it_takes_stands_still():
    runner = Runner()
    runner.launch("relay", HELD)
    runner.send(HELD, nonblock=True)
    assert runner.take(HELD) == list(range(1, HELD + 1))
    runner = Runner()
    runner.launch("relay", HELD + 1)
    runner.send(HELD + 1, nonblock=True)
    with pytest.raises(DeadlockError, match="the host takes no more wavelets"):
        runner.take(HELD + 1)


def test_the_host_takes_no_word_more_than_it_asked_for():
    runner = Runner()
    runner.launch("relay", 10)
    runner.send(10)
    assert [runner.take(3), runner.take(7)] == [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10]]


@pytest.mark.parametrize(("words", "said"), [((), "1"), (("--set", "machine.memcpy.word=3"), "3")])
def test_a_script_runs_on_the_numbers_that_are_set(words, said, tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(
        "from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime\n"
        "with SdkRuntime('out') as runner:\n"
        "    print(runner.fabric.machine['memcpy.word'], runner.fabric.machine['task.priority_rule'])\n"
    )
    assert main(["csl", "run", *words, str(script)]) == 0
    assert capsys.readouterr().out.split() == [said, "round_robin"]

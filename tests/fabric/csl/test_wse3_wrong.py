"""Wrong programs for WSE-3: one message each, at its place.

`programs/wrong_wse3.txt` has blocks of three lines: a name; declarations with ¶ in front of the fault, JOB for what
starts the task `job`, INIT for what gives the queues their colors; the message.
"""

from __future__ import annotations

import pytest

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from tests.fabric.csl.test_programs import PROGRAMS

HEAD = """const c = @get_color(1);
const d = @get_color(2);
const qi = @get_input_queue(2);
const qo = @get_output_queue(2);
var x: [8]f32;
var n: u16;
const mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> x[i] });
const into = @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = qi });
const out = @get_dsd(fabout_dsd, .{ .extent = 8, .output_queue = qo });
"""
WORDS = {
    "INIT": "comptime { @initialize_queue(qi, .{ .color = c }); @initialize_queue(qo, .{ .color = d }); }",
    "JOB": "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }",
}
BLOCKS = (PROGRAMS / "wrong_wse3.txt").read_text(encoding="utf-8").strip().split("\n\n")
CASES = {name: (text, message) for name, text, message in (block.split("\n") for block in BLOCKS)}


def compiled(directory, text):
    """Compile declarations behind the head."""
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    (directory / "a.csl").write_text(HEAD + text)
    return bundle_of(compile_file(directory / "a.csl", Options(arch="wse3")))


def test_there_are_enough_of_them():
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_one_message_at_its_place(tmp_path, name):
    text, message = CASES[name]
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    with pytest.raises(CslError) as caught:
        compiled(tmp_path, text.replace("¶", ""))
    (found,) = (entry for entry in caught.value.diagnostics if entry.severity == "error")
    assert found.message == message
    assert found.span.start == len(HEAD) + text.index("¶")


@pytest.mark.parametrize(
    "body",
    ["@fmovs(mem, into);", "@fmovs(out, mem);", "@fmovs(mem, into, .{ .async = true, .ut_id = @get_ut_id(3) });"],
)
def test_the_head_itself_is_right(tmp_path, body):
    compiled(tmp_path, f"INIT task job() void {{ {body} }} JOB")

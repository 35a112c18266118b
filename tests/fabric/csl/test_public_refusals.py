"""What public programs need and this project does not have: each is refused by its name, as docs/csl.md says."""

from __future__ import annotations

import pytest

from harness.cli.main import main
from tests.conftest import ROOT

TOP = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }\n'
TASK = "comptime { @bind_local_task(job, @get_local_task_id(8)); }\n"

REFUSED = {
    # program: the file at fault, line and column, message
    "topic-16": (
        TOP,
        'const tile_config = @import_module("<tile_config>");\n'
        "task job() void { tile_config.input_queue_config.encode_input_queue(2, 12, true); }\n" + TASK,
        "pe.csl:2:19: error: the module <tile_config> has no 'input_queue_config'",
    )
}


@pytest.mark.parametrize("program", REFUSED)
def test_the_check_names_what_is_missing(tmp_path, monkeypatch, capsys, program):
    top, pe, message = REFUSED[program]
    (tmp_path / "top.csl").write_text(top)
    (tmp_path / "pe.csl").write_text(pe)
    monkeypatch.chdir(tmp_path)
    assert main(["csl", "check", "top.csl"]) == 1
    out = capsys.readouterr()
    assert message in (out.out + out.err).splitlines()
    row = next(line for line in page() if line.startswith(f"| {program}"))
    assert message.partition("error: ")[2] in row.replace("`", "")


UNUSED = {
    # what no public program needs, and nobody has described well enough
    "<malloc>": (
        'const m = @import_module("<malloc>");\ntask job() void { m.free(); }\n',
        "pe.csl:1:26: error: there is no module <malloc>",
    ),
    "priorities that change while a program runs": (
        'const t = @import_module("<tile_config>");\n'
        "task job() void { t.task_priority.set_task_priority(@get_local_task_id(8)); }\n",
        "pe.csl:2:19: error: the back end has no set_task_priority of <tile_config/task_priority>",
    ),
}


@pytest.mark.parametrize("what", UNUSED)
def test_what_nobody_needs_is_refused_by_its_name(tmp_path, monkeypatch, capsys, what):
    pe, message = UNUSED[what]
    (tmp_path / "top.csl").write_text(TOP)
    (tmp_path / "pe.csl").write_text(pe + TASK)
    monkeypatch.chdir(tmp_path)
    assert main(["csl", "listing", "top.csl"]) == 1
    out = capsys.readouterr()
    assert message in (out.out + out.err).splitlines()
    assert what in " ".join(page())


def page():
    """Return the lines of the page on CSL."""
    return (ROOT / "docs" / "csl.md").read_text(encoding="utf-8").splitlines()

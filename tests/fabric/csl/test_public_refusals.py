"""What no public program needs and this project does not have is refused by its name, as docs/csl.md says."""

from __future__ import annotations

import pytest

from harness.cli.main import main
from tests.conftest import ROOT

TOP = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }\n'
TASK = "comptime { @bind_local_task(job, @get_local_task_id(8)); }\n"

UNUSED = {
    # what no public program needs, and nobody has described well enough
    "<malloc>": (
        'const m = @import_module("<malloc>");\ntask job() void { m.free(); }\n',
        "pe.csl:1:26: error: the module <malloc> is not modelled: no public program uses it",
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

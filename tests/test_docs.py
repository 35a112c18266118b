"""The documentation against the source: examples run, tables are in step, files, links and commands exist.

In a page of `EXECUTED` the blocks marked ``python`` run in order in one name space, and a ``text`` block right after
one must be what it printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from harness.cli import main as cli
from tests.bench import instructions, table
from tests.conftest import ROOT
from tools.docs import support
from wse_core import isa
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS

DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
OWN = [
    ROOT / name
    for name in (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/README.md",
        "docs/timing.md",
        "docs/accuracy.md",
        "docs/performance.md",
        "docs/releasing.md",
    )
]
EXECUTED = ("README.md", "docs/timing.md", "docs/accuracy.md", "docs/pipelined.md", "docs/training.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = ("build/", ".venv", "runs")  # what building and running leave behind, and docs may mention


def text_of(path):
    """Return a file's text."""
    return Path(path).read_text(encoding="utf-8")


def prose(path):
    """Return a page without its fenced blocks."""
    return BLOCK.sub("", text_of(path))


def examples(text):
    """Return [(code, printed or None)] of a page."""
    found = []
    for match in BLOCK.finditer(text):
        kind, body = match[1], match[2]
        if kind == "python":
            found.append([body, None, match.end()])
        elif kind == "text" and found and found[-1][1] is None and not text[found[-1][2] : match.start()].strip():
            found[-1][1] = body
    return [(code, printed) for code, printed, _ in found]


def run_page(text):
    """Run the examples of a page; return [(wanted, printed)] of those whose output is given."""
    space, pairs = {"__name__": "page"}, []
    for code, wanted in examples(text):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, "page", "exec"), space)
        if wanted is not None:
            pairs.append((wanted, output.getvalue()))
    return pairs


@pytest.mark.parametrize("name", EXECUTED)
def test_examples_print_what_the_page_says(name):
    """The page shows what its code prints."""
    pairs = run_page(text_of(ROOT / name))
    assert pairs, f"{name} has no example with its output"
    for wanted, printed in pairs:
        assert printed == wanted


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_exist(path):
    """Every relative link and every path in code font leads to a file."""
    text = prose(path)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name}: link to {target}"
    for word in re.findall(r"`([\w.*-]+(?:/[\w.*-]+)+)`", text):
        if word.startswith(MADE) or "*" in word:
            continue
        if "." in word.rsplit("/", 1)[1]:
            assert (ROOT / word).exists() or (path.parent / word).exists(), f"{path.name}: file {word}"


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_commands_exist(path):
    """Commands that a page names are there: subcommands of wse, targets of make, modules of python -m."""
    text = text_of(path)
    quoted = re.findall(r"`[^`\n]+`", prose(path)) + [body for _, body in BLOCK.findall(text)]
    for name in re.findall(r"(?<!from )\bwse ([a-z]+)\b", "\n".join(quoted)):
        assert name in cli.COMMANDS, f"{path.name}: wse {name}"
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    for name in re.findall(r"`make ([a-z]+)", text) + re.findall(r"^make ([a-z]+)", text, re.MULTILINE):
        assert name in targets, f"{path.name}: make {name}"
    for name in re.findall(r"python -m ((?:harness|tests)[\w.]*|tools(?:\.\w+)+)", text):
        file = ROOT.joinpath(*name.split("."))
        assert file.with_suffix(".py").exists() or (file / "__main__.py").exists(), f"{path.name}: python -m {name}"


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_parameters_exist(path):
    """A dotted name in code font that looks like a modelled number is one, and `name` = value states its value."""
    groups = {name.split(".")[0] for name in PARAMETERS} - {"fabric"}
    for name in re.findall(r"`([a-z]+\.[a-z_0-9]+)`", prose(path)):
        if name.split(".")[0] in groups and not name.endswith((".md", ".py")):
            assert name in PARAMETERS, f"{path.name}: {name}"
    for name, value in re.findall(r"`([a-z]+\.[a-z_0-9]+)`\s+=\s+([0-9.]+\d|\d)", prose(path)):
        if name in PARAMETERS:
            assert float(value) == PARAMETERS[name].value, f"{path.name}: {name} = {value}"


def test_timing_table_follows_from_the_parameters():
    """The answers in the last table of docs/timing.md are made of the parameters beside them."""
    v = {name: p.value for name, p in PARAMETERS.items()}
    stage = v["ramp.execute"] + v["ramp.out"] + v["router.hop"] + v["ramp.in"]
    want = {
        "delay of one more hop": f"{v['router.hop']}",
        "step of a CE to the step of its neighbour that takes the word": f"{stage}",
        "chain of P PEs, B words each, first step to last": f"B + {stage} (P - 1)",
        "vector operation issue to issue, fp32 with one lane": f"n + {1 + v['vec.start'] + v['vec.drain']}",
        "loading a descriptor": f"{v['ce.dsr_load']}",
        "each dimension of it beyond the first": f"{v['ce.dsr_dimension']}",
        "changing one field of a DSR": f"{v['ce.dsr_edit']}",
        "start of a task": f"{v['task.start']}",
        "taken / untaken branch": f"{v['ce.branch_taken']} / {v['ce.branch_not_taken']}",
        "call and return": f"{v['ce.call']} + {v['ce.ret']}",
    }
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| `", text_of(ROOT / "docs" / "timing.md"), re.MULTILINE))
    for question, answer in want.items():
        assert rows[question] == answer


def kernel_cycles(words, capsys):
    """Return the cycles of a kernel run from the command line."""
    assert cli.main([*words, "--json", "--no-progress"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verified"]
    return result["cycles"]


def test_accuracy_of_kernels(capsys):
    """The commands of the comparison in docs/accuracy.md, and those of the README, give the cycles stated there."""
    rows = re.findall(r"\| `wse (kernel [^`]+)` \| (\d+) \| (\d+) \|", text_of(ROOT / "docs" / "accuracy.md"))
    assert len(rows) == 5
    found = re.findall(r"^\| ([^|]+?) \| `wse (kernel [^`]+)` \|$", text_of(ROOT / "README.md"), re.MULTILINE)
    readme = {command: text for text, command in found}
    assert set(readme) <= {command for command, _, _ in rows}
    for command, published, here in rows:
        cycles = kernel_cycles(command.split(), capsys)
        assert cycles == int(here), command
        assert abs(cycles / int(published) - 1) < 0.01, command
        assert f"{cycles} cycles" in readme.get(command, f"{cycles} cycles"), command


def test_accuracy_tables_are_generated():
    """Pages hold what tools.docs.support writes; the command says so too."""
    found = []
    for path in support.PAGES:
        text = text_of(path)
        assert support.fill(text) == text, f"python -m tools.docs.support rewrites {path.name}"
        found += re.findall(r"<!-- begin (\w+) -->", text)
    assert sorted(found) == sorted([*support.TABLES, support.MEASURED])
    assert support.main(["--check"]) == 0
    text = text_of(support.PAGES[0])
    for op in isa.OPS:
        assert f"| `{op.name}` |" in text
    for name in [*isa.UNSUPPORTED, *(name for name in PARAMETERS if not name.startswith("lanes."))]:
        assert f"| `{name}` |" in text


def test_support_rewrites_and_refuses(tmp_path, capsys):
    """A block that is behind is found, rewritten, and then in step; an unknown block is refused."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin unsupported -->\nold\n<!-- end unsupported -->\nb\n", encoding="utf-8")
    assert support.main(["--check", str(page)]) == 1
    assert "behind" in capsys.readouterr().err
    assert support.main([str(page)]) == 0
    assert support.main(["--check", str(page)]) == 0
    written = text_of(page)
    assert written.startswith("a\n<!--")
    assert written.endswith("-->\nb\n")
    assert support.unsupported() in written
    with pytest.raises(ConfigError, match="unknown"):
        support.fill("<!-- begin nonsense -->\n<!-- end nonsense -->")


def test_performance_table_has_every_goal():
    """docs/performance.md lists each metric of tests.bench.table with its target, marked if it falls short."""
    text = text_of(ROOT / "docs" / "performance.md")
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    }
    for goal in table.GOALS.values():
        _, unit, must, value, remark = rows[goal.metric]
        assert unit == goal.unit
        if value == "-":  # takes minutes of a quiet host, and says so
            assert goal.part != "small"
            assert remark == "not measured in this run"
            continue
        number = float(value.split()[0].replace(",", ""))
        if goal.must is not None:
            bound = float(must.split()[1].replace(",", ""))
            if goal.scaled:  # by the yardstick that the remark tells, with three digits
                scale = float(remark.split("yardstick ")[1].split()[0]) / table.YARDSTICK
                assert bound == pytest.approx(goal.must * scale, rel=0.02)
                scaled = scale * table.YARDSTICK
            else:
                assert bound == goal.must
                scaled = None
            assert ("falls short" in value) == (not goal.met(number, scaled)), goal.metric
    for name in instructions.CASES:
        assert f"| {name} |" in text


def functions_of(path):
    """Return the names of the test functions of a file."""
    return set(re.findall(r"^def (test_\w+)", text_of(path), re.MULTILINE))


REQUIRED = {
    "weight-streaming.md": [("WS", range(1, 55)), ("LP", range(7, 13)), ("FMT", (4, *range(6, 11)))],
    "pipelined.md": [("LP", (*range(1, 7), *range(13, 19)))],
    "inference.md": [("WL", (*range(4, 17), *range(30, 36)))],
}
"""Requirements that a page has a row for."""


@pytest.mark.parametrize("page", REQUIRED)
def test_requirements_name_tests_that_exist(page):
    """A row per requirement, each with tests that are there, or marked as open."""
    rows = {}
    for line in text_of(ROOT / "docs" / page).splitlines():
        match = re.match(r"\| ((?:WS|LP|FMT|WL)-\d\d) \|", line)
        if match:
            assert match[1] not in rows, f"{match[1]} stands there twice"
            rows[match[1]] = [cell.strip() for cell in line.split("|")[2:-1]]
    assert list(rows) == [f"{kind}-{number:02}" for kind, numbers in REQUIRED[page] for number in numbers]
    for number, (_, modules, tests) in rows.items():
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
        assert named or tests.startswith(("open", "not modelled")), f"{number}: neither a test nor marked as open"
        assert bool(modules) == bool(named), f"{number}: module and test belong together"
        for path, name in named:
            assert name in functions_of(ROOT / path), f"{number}: {path}::{name}"


def test_docs_index_is_complete():
    """docs/README.md names every page."""
    index = text_of(ROOT / "docs" / "README.md")
    for path in ROOT.glob("docs/*.md"):
        if path.name != "README.md":
            assert f"({path.name})" in index, path.name


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_lines_are_short(path):
    """At most 120 columns, except in tables and links."""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        assert len(line) <= 120 or line.startswith("|") or "://" in line, f"{path.name}:{number}"


def test_version_is_in_the_changelog():
    """The newest released entry of the change log is this version, which is also what CITATION.cff names."""
    import wse_core

    first = re.search(r"^## (?!Unreleased)(\S+)", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)[1]
    assert first == wse_core.__version__
    assert f"\nversion: {first}\n" in text_of(ROOT / "CITATION.cff")


def test_a_released_version_is_said_in_a_page():
    """The newest section of the change log is ordered by effects and can be read in one go."""
    text = text_of(ROOT / "CHANGELOG.md")
    section = re.search(r"^## \d.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[0]
    assert section.count("\n") <= 120
    assert re.findall(r"^### (.*)$", section, re.MULTILINE) == [
        "What one can do now",
        "What changed for users",
        "What was wrong",
    ]

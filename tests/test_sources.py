"""Every source that the code names has a key on docs/sources.md, so that a stranger can look it up."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from fabric.kernels import registry
from harness.kit.modules import OWN_PACKAGES
from tests.conftest import ROOT
from wse_core import isa
from wse_core.params import PARAMETERS

PACKAGES = (*OWN_PACKAGES, "tools", "tests")
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".h", ".toml")
SECTION = re.compile(r"§(\d+(?:\.\d+)*)")
REQUIREMENT = re.compile(r"\b(WS|WL|LP|LGA|FMT)-(\d\d)\b(?:((?:, \d\d\b)+)| to \1-(\d\d)\b)?")
TAG = re.compile(
    r"\b(?:arXiv:? ?\d{4}\.\d{5}|HPDC ?'?(?:20)?\d\d|OSDI (?:20)?\d\d|SC2\d|HC ?\d\d|SPMM|PLMR|WaferLLM"
    r"|[a-z-]+-models\.md|[\w-]+-experiments|\w+_dataflow|Sp[Mm]M_\w+|(?:white paper|patent)\b)"
)
OWN = re.compile(
    r"docs/[\w-]+\.md|wse_core|op table|derived here|harness\.|this model|configuration registers|the same:|is ours"
)
"""What a statement about sources may name instead of a document: a place in this repository, or our own choice."""


def page():
    """Return docs/sources.md."""
    return (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")


def keys():
    """Return the keys of documents in lower case, arXiv numbers included."""
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    found = {key.lower() for row in rows for key in re.findall(r"`([^`]+)`", row.split("|")[1])}
    return found | {number.lower() for row in rows for number in re.findall(r"arXiv \d{4}\.\d{5}", row)}


def sections():
    """Return the sections of "arch" that the page describes."""
    return set(re.findall(r"^\| §(\d+(?:\.\d+)*) \|", page(), re.MULTILINE))


def requirements():
    """Return the requirement ids that the page states."""
    return re.findall(r"^\| ((?:WS|WL|LP|LGA|FMT)-\d\d) \|", page(), re.MULTILINE)


def code():
    """Yield (path, text) of every source file; this one apart."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            generated = path.name.startswith("traced_") or "build" in path.relative_to(ROOT).parts
            if path.suffix in SUFFIXES and path != Path(__file__) and not generated:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def required(text):
    """Return the requirement ids of a text; ``WS-38 to WS-40`` are three, and so are ``FMT-06, 08, 09``."""
    found = set()
    for kind, first, more, last in REQUIREMENT.findall(text):
        numbers = [first, *re.findall(r"\d\d", more), *(f"{k:02}" for k in range(int(first), int(last or first) + 1))]
        found |= {f"{kind}-{number}" for number in numbers}
    return found


def known(text):
    """Whether a statement about sources names a key of the page, a section, a requirement or a place of ours."""
    text = " ".join(text.split())
    return any(key in text.lower() for key in keys()) or any(
        pattern.search(text) for pattern in (SECTION, REQUIREMENT, OWN)
    )


def statements(path, text):
    """Yield what stands after ``Source`` or ``Sources`` in a module's head."""
    if "Source" not in text:
        return
    if path.suffix == ".py":
        head = ast.get_docstring(ast.parse(text)) or ""
    else:
        head = text[: text.find('"""', text.find('"""') + 3)] if '"""' in text else text[:4000]
    for match in re.finditer(r"(?<![\w`])Sources?(?::| {2,})\s*(.*?)(?=\n\s*\n|\Z)", head, re.DOTALL):
        yield match[1]


def test_every_section_of_arch_is_described():
    wanted = {(number, str(path)) for path, text in code() for number in SECTION.findall(text)}
    assert len(wanted) > 40
    assert {number for number, _ in wanted} - sections() == set()


def test_every_requirement_is_stated():
    stated = requirements()
    assert len(stated) == len(set(stated))
    wanted = set().union(*(required(text) for _, text in code()))
    for name in ("weight-streaming.md", "pipelined.md"):
        wanted |= required((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(wanted) > 60
    assert wanted - set(stated) == set()


def test_every_tag_has_a_key():
    found = {" ".join(tag.split()) for _, text in code() for tag in TAG.findall(text)}
    assert {"HPDC24", "SPMM", "white paper", "MIMD_dataflow", "arXiv 2404.15888"} <= found
    missing = {tag for tag in found if not any(key in tag.lower() or tag.lower() in key for key in keys())}
    assert missing == set()


def test_every_statement_names_something_that_can_be_looked_up():
    found = [(str(path), said) for path, text in code() for said in statements(path, text)]
    assert len(found) > 40
    assert [pair for pair in found if not known(pair[1])] == []


def test_every_source_in_a_table_names_something_that_can_be_looked_up():
    found = [(name, p.source) for name, p in PARAMETERS.items() if p.confidence != "assumed"]
    found += [(op.name, op.source) for op in isa.OPS]
    found += [(name, kernel.source) for name, kernel in registry.KERNELS.items()]
    points = json.loads((ROOT / "harness" / "validation" / "calibration.json").read_text(encoding="utf-8"))
    found += [(point["id"], point["source"]) for point in points]
    assert len(found) > 300
    assert [pair for pair in found if not known(pair[1])] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("requirements WS-38 to WS-40", {"WS-38", "WS-39", "WS-40"}),
        ("(requirements FMT-06, 08, 09)", {"FMT-06", "FMT-08", "FMT-09"}),
        ("COO-05, AVX-512, WS-2", set()),
    ],
)
def test_lists_and_ranges_of_requirements(text, ids):
    assert required(text) == ids


def test_an_unknown_source_is_seen():
    assert not known("Somebody et al., 2031: a number")
    assert known("Luczynski et al., HPDC 2024")
    assert known("arch §8.4")

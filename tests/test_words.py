"""Docstrings can be understood alone, and a class name means one thing (`tests/words.py` has the rule)."""

from __future__ import annotations

import ast
import functools

import pytest

from harness.kit.modules import OWN_PACKAGES
from tests.conftest import ROOT
from tests.words import docstrings, faults, first_sentence, python_files, word_set

ROOMS = (*OWN_PACKAGES, "tools")

STAGES = word_set(
    """
    ArrayType Assign Binary Block Break Call Continue Deref EnumType FnType If PointerType Return StructType
    Switch Unary While
    """
)
"""Names that a stage of the CSL compiler has too: a class of its syntax, tree or types is called as what it stands for.
"""
TWICE = {"Task": "of a program; the vendor's runtime has the other name"}
"""Names of classes that mean two things yet, and which; one that has become unique leaves the list."""


@functools.cache
def trees():
    """Return {path from the root: tree} of the sources."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in python_files(ROOT, ROOMS)
    }


def wrong(name, tree):
    """Return what is wrong with the docstrings of a file, as lines."""
    return [
        f"{name}: {owner or 'head'}: {fault}: {first_sentence(text)}"
        for kind, owner, text in docstrings(tree)
        for fault in faults(kind, text)
    ]


def test_first_sentences_stand_alone():
    found = [line for name, tree in trees().items() for line in wrong(name, tree)]
    assert found == [], "\n".join(found)


def class_names(found):
    """Return {name of a class: files that define one}."""
    places = {}
    for name, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)
    return places


def test_a_class_name_means_one_thing():
    twice = {name: places for name, places in class_names(trees()).items() if len(places) > 1}
    unknown = {name: places for name, places in twice.items() if name not in STAGES and name not in TWICE}
    assert unknown == {}, "call one of them what it is"
    assert set(TWICE) <= set(twice)
    compiler = [name for name in STAGES if not any(place.startswith("fabric/csl/") for place in twice.get(name, ()))]
    assert compiler == []


def test_a_second_class_of_a_name_is_seen():
    found = {"a.py": ast.parse("class A: ..."), "b.py": ast.parse("class B:\n    class A: ...")}
    assert class_names(found) == {"A": ["a.py", "b.py"], "B": ["b.py"]}


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("property", "Entries.", "fewer than 4 words"),
        ("property", "Elements stored in all.", "has no verb"),
        ("class", "What is run.", "fewer than 4 words"),
        ("class", "What a run of a kernel gave.", "has no verb"),
        ("value", "Steps that a loop takes at most.", "has no verb"),
        ("module", "From the form that is typed to instructions.", "has no verb"),
        ("value", "of all maps together there are so many.", "begins with a small letter"),
        ("function", "The list of kernels of the package.", "has no verb"),
        ("module", "Prices and places of programs.\n\nThey are here.", "has no verb"),
    ],
)
def test_a_riddle_is_seen(kind, text, fault):
    assert fault in faults(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("property", "The pattern has so many entries."),
        ("function", "Return the entries of a pattern."),
        ("function", "Whether a pattern has entries."),
        ("class", "A `Layout` places programs on PEs."),
        ("property", "Whether it is of a layout."),
        ("property", "What a run leaves is a directory."),
        ("value", "A loop that turns is unrolled up to so many steps."),
        ("module", "dist-GEMM-T does C = A B^T.  More follows."),
        ("value", "`x` 0 .. 15 is a register."),
    ],
)
def test_a_sentence_is_accepted(kind, text):
    assert faults(kind, text) == []


def test_docstrings_of_every_kind_are_found():
    source = '"""H."""\nX = 1\n"""V."""\nclass A:\n    """C."""\n    y: int = 2\n    """W."""\n'
    source += '    @cached_property\n    def p(self):\n        """P."""\n    def f(self):\n        """F."""\n'
    assert list(docstrings(ast.parse(source))) == [
        ("module", "", "H."),
        ("value", "X", "V."),
        ("class", "A", "C."),
        ("value", "A.y", "W."),
        ("property", "A.p", "P."),
        ("function", "A.f", "F."),
    ]

"""Planted faults can be planted: what they change stands once in the source, and what comes of it is a program."""

from __future__ import annotations

import ast

import pytest

from tests.conftest import ROOT
from tests.faults import rooms

ROOMS = rooms()
FAULTS = [pytest.param(fault, id=f"{room.name}-{k}") for room in ROOMS for k, fault in enumerate(room.faults)]


def test_every_room_has_faults_and_tests():
    assert len(FAULTS) >= 60
    assert all(len(room.faults) >= 5 for room in ROOMS)
    assert all((ROOT / path).exists() for room in ROOMS for path in room.tests)
    names = [fault.what for room in ROOMS for fault in room.faults]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_can_be_planted(fault):
    """Its text stands once, and the file with the fault is another program."""
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(fault.planted(text))) != ast.dump(ast.parse(text))

"""The table of twenty networks in the docs: what it allows, and that it is what the command gives."""

from __future__ import annotations

import re

from harness.figures.layer_model import SEEN, drawn, layer_model
from tests.conftest import ROOT
from wse_core.params import machine

MEAN, MOST = 0.07, 0.12
"""Errors that the model may have at most, in the mean and anywhere."""


def rows_of_the_page():
    """Return the rows of the table in the docs, cell by cell."""
    text = (ROOT / "docs" / "weight-streaming.md").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if re.match(r"\| (seen|unseen) \| \d", line))
    return [re.split(r"\s*\|\s*", line)[1:-1] for line in lines]


def test_the_table_of_the_page_holds_what_is_allowed():
    """Twenty networks; mean and worst error of each half, as the page prints cycles and model."""
    rows = rows_of_the_page()
    assert len(rows) == 20
    for kind in ("seen", "unseen"):
        errors = [float(row[7].replace(",", "")) / float(row[6].replace(",", "")) - 1 for row in rows if row[0] == kind]
        assert len(errors) == 10
        assert sum(map(abs, errors)) / 10 <= MEAN
        assert max(map(abs, errors)) <= MOST


def test_the_table_of_the_page_is_what_the_command_gives():
    """Small networks again at both levels; the others are simulated by the command only, their names are compared."""
    page = {tuple(row[:6]): row[6:8] for row in rows_of_the_page()}
    cases = [("seen", case) for case in SEEN] + [("unseen", case) for case in drawn()]
    for kind, case in cases:
        name = kind, case.name, f"{case.density:g}", f"{case.width} x {case.height}", f"{case.tokens}"
        assert (*name, f"{case.systems}") in page
    small = [case for case in SEEN if case.features in ((64, 32, 10), (64, 64, 10))]
    few = [case for case in drawn() if case.width * case.height <= 18 and case.systems < 4][:1]
    for row in layer_model(machine(), 24, None, small, few).rows:
        at = (row["set"], row["network"], f"{row['density']:g}", row["mesh"])
        cycles, model = page[(*at, str(row["tokens"]), str(row["systems"]))]
        assert (row["cycles"], row["model"]) == (int(cycles.replace(",", "")), int(model.replace(",", "")))

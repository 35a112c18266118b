"""A page in a browser: what keys, clicks, search and addresses do."""

from __future__ import annotations

import json

import pytest

from harness.cli import main as cli
from tests.traces.browser import BROWSER, Browser
from tests.traces.page_data import hostile
from tests.traces.samples import chain
from traces.page.write import write_page
from traces.state import RegionStates
from traces.trace import Trace


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    """The run file of a chain of four PEs."""
    path = tmp_path_factory.mktemp("page") / "chain.h5"
    chain(path, pes=4, n=12)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser, for all tests of this file."""
    if BROWSER is None:
        pytest.skip("no browser of the Chromium family is on this machine")
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(run_file, tmp_path_factory):
    """The address of the page of a chain."""
    path = tmp_path_factory.mktemp("pages") / "chain.html"
    with Trace.open(run_file) as trace:
        write_page(path, trace)
    return path.as_uri()


PE_2 = """(() => {
  const box = document.getElementById("fabric").getBoundingClientRect();
  return [box.x + 0.6 * box.width, box.y + box.height / 2];
})()"""
"""A place in the third of four PEs."""
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Reader:
    """Somebody who looks at the page in a browser and presses keys and buttons."""

    def __init__(self, browser):
        self.browser = browser

    def press(self, key, shift=False):
        """Press a key and return the cycle that is shown then."""
        self.browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=8 * shift)
        self.browser.ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        return self.cycle()

    def cycle(self):
        """Return the cycle that the box says, once everything is drawn."""
        return int(self.browser.run(f"{SETTLED}.then(() => document.getElementById('cycle').value)"))

    def click(self, place):
        """Click at the place [x, y] that a script gives."""
        x, y = self.browser.run(place)
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.cycle()

    def text(self, selector):
        """Return the text of the first node of a selector."""
        return self.browser.run(f"document.querySelector({json.dumps(selector)})?.textContent")

    def find(self, words):
        """Search for words."""
        self.browser.run(
            f"document.getElementById('words').value = {json.dumps(words)}; "
            "document.getElementById('search').requestSubmit()"
        )
        self.cycle()


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1200, True)])
def test_a_reader_plays_and_looks(browser, page, run_file, width, dark):
    with Trace.open(run_file) as trace:
        last = trace.clock - 1
        tasks = len(trace.events(kinds=("task_start",)))
    browser.open(page, width, 800, dark)
    reader = Reader(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 25, 27)" if dark else "rgb(255, 255, 255)"
    )
    keys = [("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowLeft", 0), ("End", last), ("ArrowRight", last), ("Home", 0)]
    assert [reader.press(key) for key, _ in keys] == [cycle for _, cycle in keys]
    assert reader.press("ArrowRight", shift=True) == 10
    reader.press(" ")
    while reader.cycle() < 13:
        pass
    paused = reader.press(" ")
    assert reader.text("#play") == "\N{BLACK RIGHT-POINTING TRIANGLE}"
    assert reader.cycle() == paused
    reader.click(PE_2)
    assert reader.text("#panel h2") == f"PE (2, 0) in cycle {paused}"
    assert reader.text("#panel tr") == "taskmain"
    assert "task main activated" in reader.text("#panel")
    reader.press("Escape")
    assert reader.text("#panel h2") is None
    reader.find("main")
    assert (
        reader.text("#panel h3") == f"\N{LEFT DOUBLE QUOTATION MARK}main\N{RIGHT DOUBLE QUOTATION MARK}: {tasks} found"
    )
    browser.run("document.querySelectorAll('#panel tr.go')[3].click()")
    assert reader.cycle() == 0
    assert reader.text("#panel h2") == "PE (3, 0) in cycle 0"
    assert browser.errors == []


def cells(picture, count):
    """Return the color of each of `count` PEs that lie side by side, from a place where nothing else is drawn."""
    seen = (picture != picture[0, 0]).any(axis=2)
    (top, *_), (left, *_, right) = seen.any(axis=1).nonzero()[0], seen.any(axis=0).nonzero()[0]
    scale = (right + 1 - left) / (count - 1 + 0.62)  # a cell takes 62 % of its place
    return [tuple(int(v) for v in picture[top + 3, int(left + 3 + x * scale)]) for x in range(count)]


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_shows_the_states_of_pes(browser, page, run_file, dark):
    """Two PEs have one color where they are in one state, in any cycles, and only there."""
    colors = {}
    with Trace.open(run_file) as trace:
        states = RegionStates(trace, (0, 0, 4, 1))
        for cycle in range(1, trace.clock, 8):
            browser.open(f"{page}#cycle={cycle}", 1200, 800, dark)
            Reader(browser).cycle()
            picture = browser.picture("#fabric")
            for (x, _), state in states.at(cycle).items():
                colors.setdefault((state.wait, state.task), set()).add(cells(picture, 4)[x])
    assert {wait for wait, _ in colors} >= {None, "input"}
    assert len(colors) >= 3
    assert all(len(found) == 1 for found in colors.values()), colors
    assert len({min(found) for found in colors.values()}) == len(colors), colors
    browser.open(f"{page}#cycle={cycle}", 1200, 800, dark)
    Reader(browser).cycle()
    assert (browser.picture("#fabric") == picture).all()
    browser.open(f"{page}#cycle={cycle}", 1200, 800, not dark)
    Reader(browser).cycle()
    assert (browser.picture("#fabric") != picture).any()


def test_an_address_says_what_is_shown(browser, page):
    browser.open(f"{page}#cycle=30&pe=1,0&without=0")
    reader = Reader(browser)
    ticks = "[...document.querySelectorAll('#legend input')].map(tick => tick.checked)"
    assert reader.cycle() == 30
    assert reader.text("#panel h2") == "PE (1, 0) in cycle 30"
    assert browser.run(ticks) == [False, True]
    browser.run("document.querySelector('#legend input').click()")
    reader.press("ArrowRight")
    said = "new Promise(done => setTimeout(() => done(location.hash), 600))"
    assert browser.run(said) == "#cycle=31&pe=1,0"
    browser.run("location.hash = '#cycle=12&without=1'")
    assert browser.run(said) == "#cycle=12&without=1"
    assert (reader.cycle(), reader.text("#panel h2"), browser.run(ticks)) == (12, None, [True, False])
    reader.find("color 0")
    browser.run("document.querySelector('#panel tr.go').click()")
    heads = browser.run("[...document.querySelectorAll('#panel h3')].map(head => head.textContent)")
    assert "the way of one wavelet, 4 events" in heads
    assert browser.errors == []


def test_hostile_names_are_shown_as_they_are(browser, tmp_path):
    bad = hostile(tmp_path / "run.h5").replace("\x07", "\\x07")
    with Trace.open(tmp_path / "run.h5") as trace:
        write_page(tmp_path / "a.html", trace)
    browser.open((tmp_path / "a.html").as_uri() + "#cycle=2&pe=0,0")
    reader = Reader(browser)
    assert reader.text("h1") == bad
    assert reader.text("#panel tr") == f"task{bad}"
    assert browser.errors == []


def test_windows_of_counters_are_played(browser, tmp_path):
    words = ["kernel", "gemm", "algorithm=meshgemm", "p=3", "m=9", "k=9", "n=9", "--trace-window", "50"]
    assert cli.main([*words, "--out", str(tmp_path / "run.h5")]) == 0
    with Trace.open(tmp_path / "run.h5") as trace:
        write_page(tmp_path / "a.html", trace)
        busy = trace.files[0].counter("busy").values
    browser.open((tmp_path / "a.html").as_uri() + "#cycle=10&pe=1,2")
    reader = Reader(browser)
    assert reader.press("ArrowRight") == 60
    assert "windows of 50 cycles" in reader.text("#about")
    cells = browser.run("[...document.querySelectorAll('#panel tr')[0].cells].map(cell => cell.textContent)")
    assert cells == ["issuing or calculating", str(busy[1, 2, 1]), f"{2 * busy[1, 2, 1]} %", str(busy[:, 2, 1].sum())]
    assert browser.errors == []

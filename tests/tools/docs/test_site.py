"""The site is built without a warning, says what the pages say, and loads nothing from other hosts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.docs import site, tutorial

TAGS = ("li", "ul", "ol", "tr", "h2", "h3", "img", "code", "details")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site, built once."""
    for module in ("material", "mkdocs", "markdown_it"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'wse-sim[site]' rich, or make site")
    out = tmp_path_factory.mktemp("site") / "site"
    site.build(out)
    return out


def page_of(path):
    """Return the name of the file that a page of the repository becomes."""
    return Path(path).with_suffix(".html").as_posix().replace("README", "index")


def article(built, path):
    """Return the text of a page between head and foot."""
    text = (built / page_of(path)).read_text(encoding="utf-8")
    return text[text.index("<article") : text.index("</article>")]


def test_nothing_comes_from_another_host(built):
    assert site.foreign(built) == {}
    pages = [path.read_text(encoding="utf-8") for path in built.rglob("*.html")]
    assert len(pages) > 40
    # The theme's script would fetch a library for diagrams and mathematics; no page has either.
    assert not any(re.search(r'class="[^"]*\b(mermaid|arithmatex)\b', text) for text in pages)
    assert not any("fonts.googleapis" in text or "fonts.gstatic" in text for text in pages)


@pytest.mark.parametrize("path", [path for path in site.sources() if path.as_posix() != site.API], ids=str)
def test_a_page_has_the_parts_that_its_text_has(built, path):
    """Another reader of Markdown sees as many lists, rows, headings and pictures in the text."""
    from markdown_it import MarkdownIt

    plain = MarkdownIt("commonmark", {"html": True}).enable("table").render(site.sources()[path])
    found = article(built, path)
    for tag in TAGS:
        assert len(re.findall(rf"<{tag}\b", found)) == len(re.findall(rf"<{tag}\b", plain)), tag


def test_the_tutorial_comes_first_and_every_page_is_reached(built):
    tabs = site.navigation()
    assert [next(iter(tab)) for tab in tabs] == ["Start", "Tutorial", "Use", "Trust", "Change"]
    lessons = [next(iter(lesson.values())) for lesson in tabs[1]["Tutorial"][1:]]
    assert lessons == [f"docs/tutorial/{path.stem}.md" for path in tutorial.examples()]
    named = set(re.findall(r"[\w./-]+\.md", json.dumps(tabs)))
    assert {path.as_posix() for path in site.sources()} <= named


def test_the_search_knows_commands_and_classes(built):
    found = json.loads((built / "search" / "search_index.json").read_text(encoding="utf-8"))
    where = {word: {doc["location"] for doc in found["docs"] if word in doc["title"] + doc["text"]} for word in (
        "Program.fifo", "wse sweep", "deadlock",
    )}  # fmt: skip
    assert any(place.startswith("docs/api/programs-and-layouts.html") for place in where["Program.fifo"])
    assert any(place.startswith("docs/sweeps.html") for place in where["wse sweep"])
    assert any(place.startswith("docs/tutorial/06_deadlock.html") for place in where["deadlock"])


def test_a_link_that_leads_nowhere_ends_the_build(built, tmp_path):
    root = tmp_path / "tree"
    for name in (*site.PAGES, "mkdocs.yml"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / "docs", root / "docs")
    page = root / "docs" / "timing.md"
    page.write_text(page.read_text(encoding="utf-8") + "\nSee [there](glossary.md#no-such-word).\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no-such-word"):
        site.build(tmp_path / "out" / "site", root)


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("It has\n- one\n- two\n  lines\n  - inner\n\nEnd", "It has\n\n- one\n- two\n    lines\n    - inner\n\nEnd"),
        ("1. one\n   more\n2. two", "1. one\n      more\n2. two"),
        ("a\n  b", "a\n  b"),
    ],
)
def test_lists(text, rewritten):
    assert site.spaced(text) == rewritten


def test_bars_of_tables():
    assert site.barred("| `a\\|b` | c\\|d |\n`e\\|f`") == "| `a|b` | c\\|d |\n`e\\|f`"


def test_links_to_what_is_no_page_are_text():
    pages = {Path("README.md"): "", Path("docs/api.md"): "", Path("docs/a.md"): ""}
    text = "[up](../README.md) [code](../fabric/a.py) [far](https://a.b) [here](#x) [one](api.md#program) [all](api.md)"
    assert site.linked(text, Path("docs/a.md"), pages, {"program": "docs/api/p.md"}) == (
        "[up](../README.md) code [far](https://a.b) [here](#x) [one](../docs/api/p.md#program) [all](api.md)"
    )


@pytest.mark.parametrize(
    ("html", "loads"),
    [
        ('<script src="https://a.b/c.js">', ["https://a.b/c.js"]),
        ("<link rel=stylesheet href=//a.b/c.css>", ["//a.b/c.css"]),
        ('<img alt="x" src="http://a.b/c.png">', ["http://a.b/c.png"]),
        ("<style>@import 'https://a.b/c.css'; p { background: url(https://a.b/d.png) }</style>", ["https://a.b/c.css", "https://a.b/d.png"]),
        ('<a href="https://a.b">a</a> <img src="../a.png"> <link href="site.css">', []),
    ],
)  # fmt: skip
def test_what_comes_from_elsewhere_is_seen(tmp_path, html, loads):
    (tmp_path / "a.html").write_text(html, encoding="utf-8")
    assert site.foreign(tmp_path) == ({"a.html": loads} if loads else {})

"""The site shows pages of the repository as a web site with search, which loads nothing from other hosts.

    python -m tools.docs.site [--out DIR]

README, CHANGELOG, CONTRIBUTING and everything below ``docs`` are laid out as in the repository, so that links hold, and
built by mkdocs with the theme Material (extra ``site``).  What differs between the Markdown of the repository and that
of mkdocs is rewritten on the way: lists and indents, bars inside of tables, links to what is no page.  The reference of
the API is one page in the repository and one for each of its parts here.  Navigation is the order of the tutorial and
of ``docs/README.md``.  Every warning is an error: a link or an anchor that leads nowhere ends the build.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.docs import tutorial

__all__ = ["API", "build", "foreign", "lay_out", "main", "navigation"]

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
API = "docs/api.md"
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
ITEM = re.compile(r"^( *)([-*]|\d+\.) ")
STYLE = """\
/* Tables hold commands, which are long; pictures lie on white, as they are drawn, but those that know dark pages. */
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: 0.66rem; }
.md-typeset img:not([src$=".svg"]) { background: white; }
"""
ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="2" fill="#37474f"/>\
<path d="M2 5h12M2 8h12M2 11h12M5 2v12M8 2v12M11 2v12" stroke="#80cbc4" stroke-width="1"/></svg>
"""


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return a page with what stands between its fenced blocks changed."""
    parts, last = [], 0
    for block in FENCE.finditer(text):
        parts += [change(text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, change(text[last:])])


def spaced(text: str) -> str:
    """Return text in which lists begin behind an empty line and inner ones are indented by four spaces."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        item = ITEM.match(line)
        if item and not inside and lines and lines[-1].strip():
            lines.append("")
        inside = bool(item) or (inside and (line.startswith("  ") or not line.strip()))
        indent = len(line) - len(line.lstrip(" "))
        lines.append(" " * (2 * indent) + line.lstrip(" ") if inside and indent and line.strip() else line)
    return "\n".join(lines)


def barred(text: str) -> str:
    """Return text whose tables have plain bars inside of code, as mkdocs wants them."""
    rows = (
        re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in text.split("\n")
    )
    return "\n".join(rows)


def linked(text: str, place: Path, pages: dict[Path, str], anchors: dict[str, str]) -> str:
    """Return text without links to what is no page, and with those into the API at the page of their part."""

    def change(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if "://" in target or not target:
            return match[0]
        path = Path(*_normal(place.parent / target))
        if path not in pages:
            return match[1]
        if path.as_posix() == API and anchor:
            up = "../" * (len(place.parts) - 1)
            return f"[{match[1]}]({up}{anchors[anchor]}#{anchor})"
        return match[0]

    return LINK.sub(change, text)


def _normal(path: Path) -> Iterator[str]:
    kept: list[str] = []
    for part in path.parts:
        if part == "..":
            kept.pop()
        else:
            kept.append(part)
    yield from kept


def slug(title: str) -> str:
    """Return the anchor of a heading, as mkdocs and the hosts of repositories make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def parts_of(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Split the reference at its second headings: {path: text}, and {anchor of a heading: path}."""
    head, *rest = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    pages: dict[str, str] = {}
    anchors: dict[str, str] = {}
    rows = []
    for part in rest:
        title = part.partition("\n")[0].removeprefix("## ")
        path = f"docs/api/{slug(title)}.md"
        pages[path] = re.sub(r"^(#+)# ", r"\1 ", part, flags=re.MULTILINE)
        anchors |= {slug(name): path for name in re.findall(r"^#+ (.*)$", part, re.MULTILINE)}
        names = re.findall(r"^### (.*)$", part, re.MULTILINE)
        rows.append(f"- [{title}](api/{slug(title)}.md): {', '.join(f'`{name}`' for name in names)}")
    pages[API] = head + "\n".join(rows) + "\n"
    return pages, anchors


def sources(root: Path = ROOT) -> dict[Path, str]:
    """Return every page of the repository by its path."""
    found = [root / name for name in PAGES] + sorted((root / "docs").rglob("*.md"))
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in found}


def lay_out(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write all pages, pictures and styles below a directory; return the paths of the pages in it."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = sources(root)
    split, anchors = parts_of(pages[Path(API)])
    texts = pages | {Path(name): text for name, text in split.items()}
    for path, text in texts.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)

        def change(part: str, path: Path = path) -> str:
            text = barred(spaced(linked(part, path, texts, anchors)))
            return text.replace("<details>", '<details markdown="1">')

        place.write_text(outside_code(text, change), encoding="utf-8")
    shutil.copytree(root / "docs/figures", folder / "docs/figures")
    Path(folder, "site.css").write_text(STYLE, encoding="utf-8")
    Path(folder, "favicon.svg").write_text(ICON, encoding="utf-8")
    return sorted(texts)


def navigation(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return the navigation: the first page, the tutorial, then the tables of docs/README.md with their headings."""
    lessons: list[Any] = ["docs/tutorial/README.md"]
    lessons += [
        {f"{k}. {tutorial.title(path)}": f"docs/tutorial/{path.stem}.md"}
        for k, path in enumerate(tutorial.examples(), 1)
    ]
    found: list[dict[str, Any]] = [{"Start": "README.md"}, {"Tutorial": lessons}]
    index = Path(root, "docs/README.md").read_text(encoding="utf-8")
    split, _ = parts_of(Path(root, API).read_text(encoding="utf-8"))
    for title, table in re.findall(r"^To (\w+) it:\n\n((?:\|.*\n)+)", index, re.MULTILINE):
        group: list[Any] = ["docs/README.md"] if title == "use" else []
        for name in re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", table, re.MULTILINE):
            path = Path(*_normal(Path("docs", name))).as_posix()
            if path == API:
                group.append({"API": [API, *(part for part in split if part != API)]})
            elif not path.startswith(f"{tutorial.FOLDER}/"):
                group.append(path)
        found.append({title.capitalize(): group})
    found[-1][next(iter(found[-1]))].append("CHANGELOG.md")
    return found


def foreign(folder: Path) -> dict[str, list[str]]:
    """Return {page: what it loads from elsewhere}: scripts, styles, pictures and fonts that name another host.

    Links that a reader may follow are not among them.
    """
    loads = re.compile(
        r"""<(?:script|img|iframe|source|video|object|embed)\b[^>]*?\b(?:src|data)=["']?((?:https?:)?//[^"'\s>]+)"""
        r"""|<link\b[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)|url\(["']?((?:https?:)?//[^"')]+)|@import\s+["']([^"']+)""",
        re.IGNORECASE,
    )
    found = {}
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")]):
        named = ["".join(match) for match in loads.findall(path.read_text(encoding="utf-8"))]
        if named:
            found[path.relative_to(folder).as_posix()] = named
    return found


def build(out: Path, root: Path = ROOT) -> None:
    """Build the site into a directory.

    Raises
    ------
    SystemExit
        mkdocs or its theme is not installed, or it warned.
    """
    if importlib.util.find_spec("material") is None:
        sys.exit("the site needs mkdocs-material: pip install 'wse-sim[site]', or make site")
    pages = out.parent / f"{out.name}-pages"
    lay_out(pages, root)
    more = {"docs_dir": str(pages), "site_dir": str(out), "nav": navigation(root)}
    file = out.parent / f"{out.name}.yml"
    # What is JSON is YAML as well.
    file.write_text(json.dumps({"INHERIT": str(Path(root, "mkdocs.yml").resolve()), **more}), encoding="utf-8")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", str(file)]
    # Not --quiet, which keeps warnings from being counted.  The theme tells of its successor on every build.
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}the site was not built; what mkdocs says stands above")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site; return 1 if a page loads something from elsewhere."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/site"), metavar="DIR", help="default %(default)s")
    out = parser.parse_args(arguments).out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    build(out)
    elsewhere = foreign(out)
    for page, named in elsewhere.items():
        print(f"{page} loads {', '.join(named)}")
    return int(bool(elsewhere))


if __name__ == "__main__":
    sys.exit(main())

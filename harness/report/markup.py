"""The HTML of reports is one document with its style, tables and pictures inside.

The page loads nothing and fits every width: tables scroll in their own box, which the keyboard reaches, and long lines
wrap.  Every part has a name and a link at the top.  The page follows the reader's choice of a light or a dark screen,
and so do its pictures, which are drawn in it; only those with very much in them are PNG, on white paper.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from harness.kit.console import printable
from traces.picture import picture_bytes

__all__ = ["details", "document", "image", "number", "percent", "share", "table", "text"]

MOST_DRAWN = 250_000
"""A picture of at most so many characters is drawn in the page."""
DISPENSABLE = (r"^.*?(?=<svg )", "<!--.*?-->", "<metadata>.*?</metadata>", r' id="[a-z]+_[0-9]+"')
"""What a drawing in a page has no use for: head, comments, who made it, names that several would have."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2528; --paper: #ffffff; --soft: #5b6b72; --line: #ccd3d6; --box: #f1f4f5;
--good: #2e6b46; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4eaec; --paper: #14191b; --soft: #9db0b8; --line: #3a464b;
--box: #20282b; --good: #7fcf9f; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: var(--ink);
background: var(--paper); overflow-wrap: anywhere; }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6em 0; overflow-wrap: normal; }
td, th { padding: .15em .8em .15em 0; text-align: left; vertical-align: top; } th { color: var(--soft);
font-weight: 600; } td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.t { text-align: right; overflow-wrap: anywhere; min-width: 6em; } td:first-child { min-width: min(10em, 30vw); }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
.wide > svg { max-width: 100%; height: auto; } iframe { width: 100%; height: 46em; border: 1px solid var(--line); }
nav ul { display: flex; flex-wrap: wrap; gap: .2em 1.2em; padding: 0; list-style: none; } a { color: inherit; }
summary { cursor: pointer; } details { margin: .6em 0; }
:focus-visible { outline: 2px solid var(--good); outline-offset: 2px; }
code, pre { background: var(--box); padding: .1em .3em; border-radius: 3px; } pre { white-space: pre-wrap; }
.head { display: flex; flex-wrap: wrap; gap: .8em; margin: 1em 0; } .head div { flex: 1 1 9em; background: var(--box);
border-radius: 6px; padding: .6em .8em; } .head b { display: block; font-size: 1.5em; line-height: 1.3; }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); font-weight: 600; }
.small { color: var(--soft); }
"""


def document(title: str, body: Iterable[str]) -> str:
    """Return a whole page as text."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n{_with_links(chr(10).join(body))}\n"
        "</body></html>\n"
    )


def text(value: Any) -> str:
    """Return a value as it may stand in HTML."""
    return html.escape(printable(str(value)))


def number(value: float | None) -> str:
    """Return a number for people."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def share(value: float | None) -> str:
    """Return a part of a whole for people."""
    return "" if value is None else f"{100 * value:.2f} %"


def percent(change: float | None) -> str:
    """Return a change for people: two digits behind the point, fewer if it is large, one that counts if it is small."""
    if not change:
        return "" if change is None else "="
    text = f"{100 * change:+,.0f}" if abs(change) >= 10 else f"{100 * change:+.2f}"
    return f"{text} %" if float(text.replace(",", "")) else f"{100 * change:+.1g} %"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """Return a table; columns `right` hold numbers.  A cell may be (text, class), ``t`` a long text there."""
    lines = [
        "<div class='wide' tabindex='0'><table>",
        "<tr>" + "".join(f"<th>{text(cell)}</th>" for cell in head) + "</tr>",
    ]
    for row in rows:
        cells = []
        for k, cell in enumerate(row):
            shown, look = cell if isinstance(cell, tuple) else (cell, "")
            classes = " ".join(word for word in ("n" if k in right and look != "t" else "", look) if word)
            cells.append(f"<td class='{classes}'>{text(shown)}</td>" if classes else f"<td>{text(shown)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table></div>"])


def details(summary: str, inner: str) -> str:
    """Return a part of the page that is folded away until somebody opens it."""
    return f"<details><summary>{text(summary)}</summary>\n{inner}\n</details>"


def image(figure: Any, says: str) -> str:
    """Return a figure with the words for those who do not see it: drawn in the page, or as PNG if that is smaller."""
    drawn = picture_bytes(figure, "svg").decode("utf-8")
    if len(drawn) <= MOST_DRAWN:
        for part in DISPENSABLE:
            drawn = re.sub(part, "", drawn, flags=re.DOTALL)
        head = f"<svg role='img' aria-label='{text(says)}' "
        return f"<div class='wide'>{drawn.replace('<svg ', head, 1).strip()}</div>"
    data = base64.b64encode(picture_bytes(figure, "png")).decode("ascii")
    return f"<p><img alt='{text(says)}' src='data:image/png;base64,{data}'></p>"


def _with_links(page: str) -> str:
    """Return a page with a name at every heading and, before the first one, a list of links to them."""
    headings = re.findall("<h2>(.*?)</h2>", page)
    names = {heading: "-".join(re.findall("[a-z0-9]+", html.unescape(heading).lower())) for heading in headings}
    links = "".join(f"<li><a href='#{names[heading]}'>{heading}</a></li>" for heading in names)
    for heading, name in names.items():
        page = page.replace(f"<h2>{heading}</h2>", f"<h2 id='{name}'>{heading}</h2>", 1)
    head, sign, rest = page.partition("<h2 ")
    return f"{head}<nav aria-label='parts of this page'><ul>{links}</ul></nav>\n{sign}{rest}" if sign else page

"""The HTML of reports is one document with its style, tables and pictures inside.

The page loads nothing and fits every width: tables scroll in their own box, long lines wrap.  It follows the reader's
choice of a light or a dark screen; pictures keep their white paper.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.kit.console import printable

__all__ = ["document", "image", "number", "percent", "share", "table", "text"]

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
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
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
    lines = ["<div class='wide'><table>", "<tr>" + "".join(f"<th>{text(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        cells = []
        for k, cell in enumerate(row):
            shown, look = cell if isinstance(cell, tuple) else (cell, "")
            classes = " ".join(word for word in ("n" if k in right and look != "t" else "", look) if word)
            cells.append(f"<td class='{classes}'>{text(shown)}</td>" if classes else f"<td>{text(shown)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table></div>"])


def image(path: str | Path, says: str) -> str:
    """Return a picture with the words for those who do not see it."""
    data = base64.b64encode(Path(path).read_bytes()).decode("ascii")
    return f"<p><img alt='{text(says)}' src='data:image/png;base64,{data}'></p>"

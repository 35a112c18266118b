"""The page that plays a run back stands inside of its report: opened there, it begins; until then it costs nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.report.markup import details, text
from traces.page.columns import columns
from traces.page.counted import counted
from traces.page.write import UNSAFE, page_text
from wse_core.errors import TraceError

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["player"]

MOST_EVENTS = 2_000_000
MOST_BYTES = 900_000
"""A report with a page inside stays one that can be sent."""
SCRIPT = """
document.currentScript.parentElement.addEventListener("toggle", (event) => {
  const frame = event.target.querySelector("iframe");
  if (event.target.open && !frame.src) {
    const page = JSON.parse(event.target.querySelector("script[type]").textContent);
    frame.src = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  }
});
"""


def player(trace: Trace) -> list[str]:
    """Return the part of a report that plays its run back; nothing if the run has no events and no windows."""
    heading = "<h2>Play it back</h2>"
    separate = f"wse view {trace.files[0].path.name} --page FILE.html"
    try:
        if trace.committed > MOST_EVENTS:
            return [heading, f"<p>{text(f'{trace.committed:,} events: a page of their own, by {separate}')}</p>"]
        page = page_text((columns if trace.has_events else counted)(trace))
    except TraceError:  # it says why to those who ask for this page alone
        return []
    if len(page) > MOST_BYTES:
        return [heading, f"<p>{text(f'{len(page) / 1e6:,.1f} MB more: a page of its own, by {separate}')}</p>"]
    data = json.dumps(page, ensure_ascii=True).translate(UNSAFE)
    says = "cycle by cycle: what each PE does, operations with their source lines, wavelets on their way"
    inner = (
        "<iframe title='the run, cycle by cycle' loading='lazy'></iframe>"
        f"<script type='application/json'>{data}</script><script>{SCRIPT}</script>"
        "<noscript>This part needs scripts; all of them are in this file.</noscript>"
    )
    return [heading, details(says, inner)]

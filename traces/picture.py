"""A picture is a figure with the numbers that it shows: shown in a notebook, written as PNG, SVG or PDF with a CSV.

An SVG follows the reader's choice of a light or a dark screen: its paper and its ink have other colours there, what
means something keeps its own.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from traces.atomic import atomic_file
from traces.style import DPI, INK, PAPER, fitted, styled
from wse_core.errors import TraceError
from wse_core.errors.values import CONTROLS
from wse_core.schema import suggestion

__all__ = ["FORMATS", "Picture", "format_of", "picture_bytes"]

FORMATS = ("png", "svg", "pdf")
NAMELESS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
"""What the library would write into a file beside the picture: the same numbers give the same bytes without it."""


def format_of(path: str | Path) -> str:
    """Return the format of a picture by the suffix of its file.

    Raises
    ------
    TraceError
        The suffix is none of `FORMATS`.
    """
    suffix = Path(path).suffix
    form = suffix.removeprefix(".").lower()
    if form not in FORMATS:
        hint = suggestion(form, FORMATS)
        raise TraceError(
            f"no picture is written as {suffix or 'a file without suffix'}", path=path, hint=hint, exit_code=2
        )
    return form


@styled
def picture_bytes(figure: Any, form: str) -> bytes:
    """Return a `matplotlib.figure.Figure` as a file of a format, with titles cut to its width."""
    from matplotlib import rc_context

    data = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "wse", "svg.fonttype": "path", "pdf.fonttype": 42}):
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a name may have letters of any language
        fitted(figure)
        figure.savefig(data, format=form, dpi=DPI, metadata=NAMELESS[form])
    return _both_schemes(data.getvalue()) if form == "svg" else data.getvalue()


def _both_schemes(svg: bytes) -> bytes:
    """Return an SVG with a style by which paper and ink change places on a dark screen."""
    pairs = [PAPER, *INK]
    rules = [
        f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}'
        for light, dark in pairs
        for what in ("fill", "stroke")
    ]
    style = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    head, sign, rest = svg.partition(b"<metadata>")
    return head + style.encode("ascii") + sign + rest


@dataclass(frozen=True, repr=False)
class Picture:
    """A `Picture` is a figure with its table.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
    head : tuple of str
        Names of the columns.
    rows : list of tuple
        The numbers that are shown.
    about : str
        A line before the table, if there is anything to say of it.
    """

    figure: Any
    head: tuple[str, ...]
    rows: list[tuple[object, ...]]
    about: str = ""

    @classmethod
    def of(cls, figure: Any, head: str, rows: Iterable[Sequence[object]], about: str = "") -> Picture:
        """Return a picture whose columns are called by a text with commas."""
        return cls(figure, tuple(head.split(",")), [tuple(row) for row in rows], about)

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"Picture({width:g} x {height:g} inches, {len(self.rows)} rows of {', '.join(self.head)})"

    def _repr_svg_(self) -> str:
        return picture_bytes(self.figure, "svg").decode("utf-8")

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write the picture, in the format of the path's suffix, and its numbers as CSV beside it.

        Parameters
        ----------
        path : path-like
            PNG, SVG or PDF.

        Returns
        -------
        tuple of pathlib.Path
            The picture and the CSV.

        Raises
        ------
        TraceError
            The suffix is none of these, or a file cannot be written.
        """
        path = Path(path)
        data = picture_bytes(self.figure, format_of(path))
        with atomic_file(path) as stream:
            stream.write(data)
        table = path.with_suffix(".csv")
        with atomic_file(table) as stream:
            self.write_table(stream)
        return path, table

    def write_table(self, stream: BinaryIO) -> None:
        """Write the numbers as CSV; names from run files have no control characters there."""
        text = io.StringIO(newline="")
        if self.about:
            text.write(f"# {self.about.translate(CONTROLS)}\n")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        for row in self.rows:
            writer.writerow([cell.translate(CONTROLS) if isinstance(cell, str) else cell for cell in row])
        stream.write(text.getvalue().encode("utf-8"))

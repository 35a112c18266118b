"""Cells of published tables, exactly as printed, each with its place; nothing here enters a computation.

Two papers: ``ws``, the white paper on weight streaming (Cerebras), and ``lga``, "Layered gradient accumulation and
modular pipeline parallelism" (arXiv 2106.02679).  A cell whose print does not follow from its own paper carries a note
and counts as a misprint; one read off a plot carries the deviation that it may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CELLS", "CONFIGS", "SMALL_CLUSTERS", "PrintedCell"]

SCALE = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "P": 1e15}


@dataclass(frozen=True)
class PrintedCell:
    """A `PrintedCell` is one printed value.

    Attributes
    ----------
    paper, table, row, column : str
        Where it stands.
    text : str
        As printed, with a letter for thousands, millions and so on.
    digits : int
        Significant digits of the print, where zeros at the end make it unclear; 0: as many as there are.
    kind : str
        ``derived``, ``misprint`` or ``plot``.
    note : str
        Why it is a misprint, or what the value rests on.
    within : float
        Relative deviation allowed to a value read off a plot.
    """

    paper: str
    table: str
    row: str
    column: str
    text: str
    digits: int = 0
    kind: str = "derived"
    note: str = ""
    within: float = 0.0

    @property
    def value(self) -> float:
        """The printed text is this number."""
        number, _, letter = self.text.partition(" ")
        return float(number) * SCALE.get(letter, 1.0)

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit is this much."""
        number, _, letter = self.text.partition(" ")
        mantissa, _, exponent = number.lower().partition("e")
        if self.digits:
            magnitude = int(f"{float(mantissa):e}".partition("e")[2])
            unit = 10.0 ** (magnitude - self.digits + 1)
        else:
            unit = 10.0 ** -len(mantissa.partition(".")[2])
        return 0.5 * unit * 10.0 ** int(exponent or 0) * SCALE.get(letter, 1.0)


CELLS: list[PrintedCell] = []


def _table(
    paper: str,
    table: str,
    columns: Sequence[str],
    rows: Iterable[tuple[Any, ...]],
    digits: Mapping[str, int] | Iterable[tuple[str, int]] = (),
    notes: Mapping[tuple[str, str], tuple[Any, ...]] | None = None,
) -> None:
    """Add a table; a cell printed as None is left out, `notes` maps (row, column) to (kind, note[, within])."""
    digits = dict(digits)
    for name, *texts in rows:
        for column, text in zip(columns, texts, strict=True):
            if text is not None:
                kind, note, within = (*(notes or {}).get((name, column), ("derived", "")), 0.0)[:3]
                CELLS.append(PrintedCell(paper, table, name, column, text, digits.get(column, 0), kind, note, within))


# Printed tables: a row stays a row.
# fmt: off
_table("ws", "3", ("operations", "petaflops"), [
    ("gpt2-xl", "2.7e21", "5"), ("megatron-8.3b", "7.82e21", "13"), ("turing-nlg", "1.62e22", "28"),
    ("gpt-3", "3.15e23", "520"), ("megatron-turing", "8.59e23", "1420"),
], {"petaflops": 2}, {
    ("gpt2-xl", "petaflops"): ("misprint", "the operations of the same row give 4.46"),
    ("turing-nlg", "petaflops"): ("misprint", "the operations of the same row give 26.8"),
})
_table("ws", "4", ("bytes",), [
    ("gpt2-xl", "30 B"), ("megatron-8.3b", "166 B"), ("turing-nlg", "344 B"), ("gpt-3", "3.5 T"),
    ("megatron-turing", "10.6 T"),
])
_table("ws", "5", ("iterations", "bits/s"), [
    ("gpt2-xl", "1e5", "8 B"), ("megatron-8.3b", "1.43e5", "63 B"), ("turing-nlg", "3.00e5", "273 B"),
    ("gpt-3", "9.37e4", "868 B"), ("megatron-turing", "6.92e4", "1.94 T"),
], (), {
    ("gpt2-xl", "iterations"): ("misprint", "tokens over batch give 5.73e5; 8 Gb/s holds only with the printed 1e5"),
})
_table("ws", "text", ("value",), [("gpt-3 weights (3.3)", "700 B"), ("ratio to Frontier (5.1)", "3")], (), {
    ("ratio to Frontier (5.1)", "value"): ("misprint", "1,420 over 1,100 petaflops is 1.29"),
})

_table("lga", "A.1", ("flop/B",), [
    ("memory", "143"), ("node", "484"), ("pcie", "4.61 K"), ("network", "5.81 K"), ("cpu", "9.22 K"),
    ("ethernet", "46.5 K"), ("nvme", "90.8 K"), ("disk", "2.91 M"),
])
_table("lga", "B.1", ("p", "b", "d_s", "d_a", "d_h", "d_m", "d_l"), [
    ("X2", "488", "130", "32", "1", "4", "4", "2"),
    ("bert", "301 M", "751", None, None, "64", None, None),
    ("X32", "403 M", "826", "512", "16", "64", "1024", "32"),
    ("megatron-lm", "8.15 B", "1130", None, None, "96", None, None),
    ("X64", "12.9 B", "1310", "1024", "32", "128", "4096", "64"),
    ("t-nlg", "17.0 B", "1440", None, None, "152", None, None),
    ("gpt-3", "174 B", "1560", None, None, "128", None, None),
    ("X108", "176 B", "1860", "1728", "54", "216", "11664", "108"),
    ("X160", "1.26 T", "2420", "2560", "80", "320", "25600", "160"),
], {"b": 3}, {("bert", "p"): ("misprint", "weights alone are 301.99 M; rows other than X_[x] leave out the small "
                                          "parameters")})

CONFIGS = {  # rows of Tables 6.1 and 6.2: method and kinds of parallelism
    "none, baseline": ("baseline", ()), "data, baseline": ("baseline", ("data",)),
    "data, partitioned": ("partitioned", ("data",)), "data + pipe, baseline": ("baseline", ("data", "pipe")),
    "data + pipe, improved": ("improved", ("data", "pipe")),
    "data + tensor, baseline": ("baseline", ("data", "tensor")),
    "data + tensor, partitioned": ("partitioned", ("data", "tensor")),
    "3d, baseline": ("baseline", ("data", "pipe", "tensor")), "3d, improved": ("improved", ("data", "pipe", "tensor")),
}
_NAMES = tuple(CONFIGS)
_table("lga", "6.1", ("offload", "batch", "micro", "count", "devices", "data", "pipeline", "tensor", "efficiency",
                      "days"), [
    (_NAMES[0], "1", "2416", "4", "604", "1", "1", "1", "1", "1.00", None),
    (_NAMES[1], "1", "2415", "5", "1", "483", "483", "1", "1", "1.00", None),
    (_NAMES[2], "1", "2415", "5", "1", "483", "483", "1", "1", "1.00", None),
    (_NAMES[3], "1", "2412", "4", "201", "480", "3", "160", "1", "0.56", None),
    (_NAMES[4], "0", "2415", "1", "5", "2415", "483", "5", "1", "0.94", "100"),
    (_NAMES[5], "1", "2415", "5", "1", "7728", "483", "1", "16", "0.93", "32"),
    (_NAMES[6], "0", "2415", "5", "1", "7728", "483", "1", "16", "0.93", "32"),
    (_NAMES[7], "0", "2408", "1", "172", "35840", "14", "160", "16", "0.48", "13"),
    (_NAMES[8], "0", "2415", "1", "5", "38640", "483", "5", "16", "0.88", "6.8"),
], {"days": 2})
_table("lga", "6.1", ("years",), [(_NAMES[0], "630"), (_NAMES[1], "1.3"), (_NAMES[2], "1.3"), (_NAMES[3], "2.4")],
       {"years": 2})
_table("lga", "6.2", ("state", "checkpoint", "buffers", "activations", "offloadable", "resident"), [
    (_NAMES[0], "14.1 K", "47.2 K", "43.9", "24.9", "61.2 K", "68.8"),
    (_NAMES[1], "14.1 K", "97.7", "43.9", "31.1", "14.2 K", "75.1"),
    (_NAMES[2], "29.1", "97.7", "43.9", "31.1", "127", "75.1"),
    (_NAMES[3], "87.9", "98.1", "43.9", "24.9", "186", "68.8"),
    (_NAMES[4], "5.82", "19.5", "43.9", "6.23", "25.4", "50.2"),
    (_NAMES[5], "879", "6.10", "2.75", "1.95", "885", "4.69"),
    (_NAMES[6], "1.82", "6.10", "2.75", "1.95", "7.92", "4.69"),
    (_NAMES[7], "5.49", "1.31", "2.75", "0.389", "6.81", "3.14"),
    (_NAMES[8], "0.364", "1.22", "2.75", "0.389", "1.58", "3.14"),
])

SMALL_CLUSTERS = {  # rows of Table 6.3: method, parallelism, and the printed b, n_gpu, n_a
    "1 month, data + tensor, partitioned": ("partitioned", ("data", "tensor"), 2415, 7728, 16),
    "1 month, 3d, baseline": ("baseline", ("data", "pipe", "tensor"), 2416, 10240, 16),
    "1 month, 3d, improved": ("improved", ("data", "pipe", "tensor"), 2220, 7400, 4),
    "6 months, data + tensor, partitioned": ("partitioned", ("data", "tensor"), 1660, 1328, 8),
    "6 months, pipe + tensor, baseline": ("baseline", ("data", "pipe", "tensor"), 2416, 1280, 8),
    "6 months, 3d, improved": ("improved", ("data", "pipe", "tensor"), 792, 1320, 2),
    "6 months, data + pipe, improved": ("improved", ("data", "pipe"), 1572, 1310, 1),
    "6 months, 3d, improved, small batch": ("improved", ("data", "pipe", "tensor"), 102, 1360, 16),
}
_table("lga", "6.3", ("offloadable", "resident", "efficiency", "days"), [
    (name, *texts) for name, texts in zip(SMALL_CLUSTERS, [
        ("7.92", "4.69", "0.93", "32"), ("10.1", "3.14", "0.73", "31"), ("7.76", "12.5", "0.97", "32"),
        ("35.0", "9.38", "0.97", "180"), ("47.9", "6.27", "0.91", "199"), ("22.4", "25.1", "0.97", "180"),
        ("34.2", "50.2", "0.98", "180"), ("11.8", "3.14", "0.91", "186")], strict=True)
], (), {("1 month, 3d, baseline", "efficiency"): ("misprint", "equations 5 to 12 give 0.737")})

_BUFFERS = ("parameter buffers", "gradient buffers", "computation", "network", "intensity")
_table("lga", "C.1", _BUFFERS, [
    ("forward", "2", "0", "1", "1", "1"), ("backward, gradients and restore", "2", "1", "2", "1", "2"),
    ("backward, activations and reduce", "1", "1", "1", "1", "1"),
])
_table("lga", "text", ("value",), [
    ("addition (2.3)", "0.1667"), ("1024 x 1024 product (2.3)", "341"),
    ("X160 operations (6)", "6.24e24"), ("X160 exaflop/s days (6)", "72"), ("X160 device days (6)", "231 K"),
    ("smallest memory, GiB (6)", "4.72"), ("80 GiB over smallest memory (6)", "17"),
    ("tensor 16 in a node, parameters (5)", "50 B"), ("tensor 16 over the network, parameters (5)", "25 T"),
    ("fine-tuning, 1000 steps, device days (9.1)", "2 K"),
    ("one month, parameters (7)", "4.5 T"), ("one month, GiB (7)", "13"), ("one year, parameters (7)", "50 T"),
    ("one year, GiB (7)", "62"), ("80 GiB with offload (7)", "280 T"), ("80 GiB without offload (7)", "90 T"),
    ("any node, 80 GiB (7)", "100 P"), ("any node, one month (7)", "40 T"), ("any node, one year (7)", "900 T"),
    ("Ethernet, X160, slower by (8.3)", "0.04"),
    ("bubble, standard 16 layers 4 x 4 (4)", "0.75"), ("bubble, modular 16 layers 4 x 4 (4)", "0.1875"),
    ("bubble, standard 160 layers 5 x 5 (4)", "0.8"), ("bubble, modular 160 layers 5 x 5 (4)", "0.025"),
    ("restores, standard 4 x 4 (Fig. 2)", "28"), ("reductions, standard 4 x 4 (Fig. 2)", "16"),
    ("restores, layered 4 x 4 (Fig. 2)", "7"), ("reductions, layered 4 x 4 (Fig. 2)", "4"),
], (), {(name, "value"): entry for name, entry in {
    "X160 operations (6)": ("derived", "from the printed batch of 2420"),
    "tensor 16 in a node, parameters (5)": ("plot", "printed as about", 0.1),
    "tensor 16 over the network, parameters (5)": ("plot", "printed as about", 0.1),
    "fine-tuning, 1000 steps, device days (9.1)": ("plot", "printed as over 2000", 0.2),
    "one month, parameters (7)": ("plot", "read off Figure 4", 0.10),
    "one year, parameters (7)": ("plot", "read off Figure 4; degrees as real numbers", 0.35),
    "one year, GiB (7)": ("plot", "read off Figure 4; follows the limit", 0.35),
    "80 GiB with offload (7)": ("plot", "read off Figure 4; degrees as real numbers", 0.35),
    "80 GiB without offload (7)": ("plot", "read off Figure 4; degrees as real numbers", 0.35),
    "any node, 80 GiB (7)": ("plot", "read off Figure 5", 0.15),
    "any node, one month (7)": ("plot", "read off Figure 5; degrees as real numbers", 0.35),
    "any node, one year (7)": ("plot", "read off Figure 5; degrees as real numbers", 0.35),
    "Ethernet, X160, slower by (8.3)": ("misprint", "the paper's own equations give 40 %"),
}.items()})

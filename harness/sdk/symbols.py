"""``cs_readelf`` and ``wse csl symbols`` show where variables of compiled programs lie, and how full memory is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fabric.csl.artefact import Bundle, read_bundle
from wse_core.errors import WseError
from wse_core.params import machine

__all__ = ["main", "symbols_of", "table"]


def symbols_of(bundle: Bundle) -> list[dict[str, Any]]:
    """Return per program its PEs, its memory and its symbols.

    Returns
    -------
    list of dict
        ``name``, ``pes`` (how many), ``first`` (a PE on the fabric), ``code``, ``data``, ``free`` [bytes], and
        ``symbols``: each a dict of ``name``, ``address``, ``bytes``, ``type``, ``bank`` (of its first word) and
        ``exported`` (the layout's name for it, or ""), by address.
    """
    numbers = machine(bundle.arch)
    x, y = bundle.settings["offsets"]
    found = []
    for number, image in enumerate(bundle.programs):
        places = (bundle.index == number).nonzero()
        exports = {symbol: name for name, symbol in bundle.host[number].exports.items() if symbol}
        hidden = set(bundle.host[number].hidden.values())
        rows = [
            {
                "name": symbol.name,
                "address": 2 * symbol.address,
                "bytes": 2 * symbol.words,
                "type": f"[{symbol.count}]{symbol.dtype}" if symbol.count != 1 else symbol.dtype,
                "bank": symbol.address % numbers["mem.banks"],
                "exported": exports.get(symbol.name, ""),
            }
            for symbol in sorted(image.symbols.values(), key=lambda symbol: symbol.address)
            if symbol.name not in hidden
        ]
        found.append(
            {
                "name": image.name,
                "pes": len(places[0]),
                "first": [int(places[1][0]) + x, int(places[0][0]) + y] if len(places[0]) else None,
                "code": 2 * image.code_words,
                "data": 2 * (image.footprint - image.code_words),
                "free": 2 * (numbers["mem.words"] - image.footprint),
                "symbols": rows,
            }
        )
    return found


def table(bundle: Bundle) -> str:
    """Return what `symbols_of` says as text."""
    lines: list[str] = []
    for program in symbols_of(bundle):
        at = f", the first is ({program['first'][0]}, {program['first'][1]})" if program["first"] else ""
        lines.append(
            f"program '{program['name']}' of {program['pes']} PE{'s' * (program['pes'] != 1)}{at}: "
            f"{program['code']:,} bytes of code, {program['data']:,} of data, {program['free']:,} free"
        )
        rows = [
            (f"0x{row['address']:04x}", str(row["bytes"]), str(row["bank"]), row["type"], row["name"], row["exported"])
            for row in program["symbols"]
        ]
        rows.insert(0, ("address", "bytes", "bank", "type", "name", "exported as"))
        wide = [max(len(row[k]) for row in rows) for k in range(5)]
        lines += ["  " + "  ".join(f"{row[k]:<{wide[k]}}" for k in range(5)) + f"  {row[5]}".rstrip() for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the symbols of a compiled layout."""
    parser = argparse.ArgumentParser("cs_readelf", description="List the symbols of what cslc wrote.")
    parser.add_argument("directory", help="what cslc -o wrote")
    args = parser.parse_args(arguments)
    try:
        print(table(read_bundle(Path(args.directory))))
    except WseError as error:
        print(f"cs_readelf: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The buffers of <debug> and <simprint> have records of PE programs, which are made readable here."""

from __future__ import annotations

from typing import Any

import numpy as np

from wse_core.errors import ConfigError

__all__ = ["Records"]

NUMPY = {
    "f32": np.float32, "f16": np.float16, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "u8": np.uint16, "i8": np.int16, "bool": np.uint16,
}  # fmt: skip


class Records:
    """A `Records` knows the records of a device and makes them readable."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def _parts(self, x: int, y: int, number: int, symbol: str) -> list[list[tuple[str, str | None, Any]]]:
        """Return the records of a buffer: per record its parts with type, form and value."""
        words = self.device.symbol(x, y, symbol)
        shapes = self.device.bundle.host[number].shapes
        at, end = 1, int(words[0])
        found = []
        while at < end:
            record: list[tuple[str, str | None, Any]] = []
            shape = shapes[int(words[at])]
            at += 1
            for kind, text in shape:
                if kind == "string":
                    record.append((kind, text, text))
                elif kind == "time":
                    low, middle, high = (int(word) for word in words[at : at + 3])
                    record.append((kind, text, low | middle << 16 | high << 32))
                    at += 3
                else:
                    dtype = np.dtype(NUMPY.get(kind, np.uint16))
                    size = dtype.itemsize // 2
                    value = np.ascontiguousarray(words[at : at + size], "<u2").view(dtype)[0].item()
                    record.append((kind, text, bool(value) if kind == "bool" else value))
                    at += size
            found.append(record)
        return found

    def trace(self, x: int, y: int, key: str) -> list[Any]:
        """Return the values that a program traced under a key, in order."""
        number = int(self.device.bundle.index[y, x])
        found: list[Any] = []
        known = False
        for symbol, source, name in self.device.bundle.host[number].records:
            if source == "<debug>" and name == key:
                known = True
                found += [value for record in self._parts(x, y, number, symbol) for _, _, value in record]
        if not known:
            keys = [name for _, source, name in self.device.bundle.host[number].records if source == "<debug>"]
            hint = f"keys: {', '.join(keys) or 'none'}"
            raise ConfigError(f"PE ({x}, {y}) traces nothing as '{key}'", hint=hint)
        return found

    def lines(self) -> list[str]:
        """Return the lines that all PEs printed, in the order of their cycles."""
        found: list[tuple[int, int, int, str]] = []
        for number, _, mask in self.device.programs():
            for symbol, source, _ in self.device.bundle.host[number].records:
                if source != "<simprint>":
                    continue
                for y, x in np.argwhere(mask):
                    found += self._lines(int(x), int(y), number, symbol)
        return [f"@{cycle} {text}" for cycle, _, _, text in sorted(found, key=lambda line: line[:3])]

    def _lines(self, x: int, y: int, number: int, symbol: str) -> list[tuple[int, int, int, str]]:
        found = []
        text, cycle = "", 0
        for record in self._parts(x, y, number, symbol):
            for kind, form, value in record:
                if kind == "time":
                    cycle = value
                elif kind == "string":
                    text += f"PE({x},{y}): " if value == "\x00" else value
                else:
                    text += _shown(value, form)
            while "\n" in text:
                line, _, text = text.partition("\n")
                found.append((cycle, y, x, line))
        return found


def _shown(value: Any, form: str | None) -> str:
    if form in ("x", "X"):
        return f"{int(value):{form}}"
    if form == "b":
        return f"{int(value):b}"
    if form == "f":
        return f"{float(value):f}"
    return str(value)

"""The host's float mode, changed on purpose: what a library does that was built with -ffast-math, or a call of it."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Iterator

import pytest

__all__ = ["MODES", "current", "float_mode"]

# Offset and bits of the control word in C's fenv_t, and the rounding mode "upward".
PLACES = {
    "x86_64": {"at": 28, "flush to zero": 1 << 15, "denormals are zero": 1 << 6, "upward": 2 << 13},
    "aarch64": {"at": 0, "flush to zero": 1 << 24, "denormals are zero": 1 << 24, "upward": 1 << 22},
}
MODES = ("flush to zero", "denormals are zero", "upward", "all three")
KEPT = {"x86_64": 0xFFC0, "aarch64": 0xFFFFFFFF}
"""Bits of the control word that are settings, not flags raised on the way."""


class _Environment(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint8 * 64),)


def _libm() -> ctypes.CDLL:
    if platform.machine() not in PLACES or platform.system() != "Linux":
        pytest.skip(f"the float mode of {platform.system()} on {platform.machine()} is not known here")
    return ctypes.CDLL("libm.so.6")


def _word(environment: _Environment) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_buffer(environment, PLACES[platform.machine()]["at"])


def current() -> int:
    """Return the settings of this thread's float mode."""
    environment = _Environment()
    _libm().fegetenv(ctypes.byref(environment))
    return _word(environment).value & KEPT[platform.machine()]


@contextlib.contextmanager
def float_mode(name: str) -> Iterator[int]:
    """Have this thread compute in one of `MODES`; yields what `current` then gives."""
    libm, before, changed = _libm(), _Environment(), _Environment()
    bits = PLACES[platform.machine()]
    libm.fegetenv(ctypes.byref(before))
    libm.fegetenv(ctypes.byref(changed))
    for mode in MODES[:3]:
        if name in (mode, "all three"):
            _word(changed).value |= bits[mode]
    libm.fesetenv(ctypes.byref(changed))
    try:
        yield current()
    finally:
        libm.fesetenv(ctypes.byref(before))

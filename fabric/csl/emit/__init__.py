"""Instructions are made from the intermediate form, in a `fabric.asm.unit.Unit`, which assembles them."""

from __future__ import annotations

from fabric.csl.emit.program import Emitted, emit

__all__ = ["Emitted", "emit"]

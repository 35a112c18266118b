"""From the intermediate form to instructions: onto `fabric.asm.unit.Unit`, which assembles."""

from __future__ import annotations

from fabric.csl.emit.program import Emitted, emit

__all__ = ["Emitted", "emit"]

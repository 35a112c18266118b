"""Debugging from Python under its short name: stop where something happens, look, change, go back.

`fabric.host.debug` has it, with the words.
"""

from fabric.host.debug import Debugger, replay

__all__ = ["Debugger", "replay"]

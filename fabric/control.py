"""Payloads of control wavelets under their short name; `fabric.asm.control` has them, with the words."""

from fabric.asm.control import ADVANCE, COMMANDS, N_COMMANDS, Control, decode, encode, pop, single

__all__ = ["ADVANCE", "COMMANDS", "N_COMMANDS", "Control", "decode", "encode", "pop", "single"]

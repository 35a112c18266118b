"""What to try when a unit refuses something, in the words of the assembler; a front end passes its own words."""

from __future__ import annotations

__all__ = ["HINTS"]

HINTS = {
    "assembled": "write everything before assemble() or Var.address",
    "body": "begin_task or begin_function begins one",
    "dsr id": "a {file} DSR of id {id}, or leave the choice to the assembler",
    "dsrs": "reserve fewer DSRs, or load all descriptors explicitly",
    "half": "half={dtype!r} of the unit; a PE has one 16-bit float format at a time",
    "load": "a dsr_load before it",
    "register": "one register holds 16 bits, a pair that begins with an even one 32",
    "stride": "a descriptor of several dimensions takes strides of 16 bits",
}
"""Key: hint; names in braces are filled in where it is given."""

"""Some builtins are known only in order to be refused: WSE-2 or this compiler does not have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.csl.comptime.builtins.table import TABLE, BuiltinSpec, Operand
from fabric.csl.comptime.values import Scope
from fabric.csl.diagnostics import Fault
from fabric.csl.syntax import nodes as n

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

WSE3 = "exists on WSE-3 only, and is not modelled; guard it with @is_arch"
RAW = "reads or writes raw configuration words, which this model does not have; use <tile_config>"
HOST = "belongs to the vendor's own host library"
MACHINE = "is not modelled"

REFUSED = {
    "@get_sr": WSE3,
    "@load_to_dsr_xdsr_sr": WSE3,
    "@get_config": RAW,
    "@set_config": RAW,
    "@get_config_unchecked": RAW,
    "@set_config_unchecked": RAW,
    "@get_symbol_id": HOST,
    "@get_symbol_value": HOST,
    "@get_tensor_ptr": HOST,
    "@has_exported_tensors": HOST,
    "@addc16": MACHINE,
    "@fnormh": MACHINE,
    "@fnorms": MACHINE,
}
"""Names, and why; the sentence begins with the name."""


def _refuse(name: str, why: str) -> None:
    def handler(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        raise Fault(f"{name} {why}", node.span)

    TABLE[name] = BuiltinSpec(name, 0, None, ("any",), handler, "refused", why, refused=True)


for _name, _why in REFUSED.items():
    _refuse(_name, _why)

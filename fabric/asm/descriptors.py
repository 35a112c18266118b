"""Descriptors of walks over variables and of wavelets, with the checks that need no instruction around them.

The parameters are explained where the sugar hands these on: `fabric.program.memory.ProgramMemory` and
`fabric.program.ports.Ports`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fabric.asm.operands import Address, Dsd, Queue, Var, check_stride, extent_of
from fabric.asm.values import WORDS
from wse_core import image as im
from wse_core.image import ENDLESS

if TYPE_CHECKING:
    from fabric.asm.unit import Unit

__all__ = ["circular", "fabin", "fabout", "fifo", "mem1d", "mem4d"]


# --- memory -----------------------------------------------------------------------------------------------------------


def mem1d(
    unit: Unit,
    var: Var,
    extent: int | None = None,
    stride: int = 1,
    offset: int = 0,
    save: bool = False,
    index: bool = False,
    dtype: str | None = None,
    check: bool = True,
) -> Dsd:
    """Describe a one-dimensional walk over a variable."""
    dtype = _view(unit, var, dtype, smaller=True)
    per = WORDS[dtype]
    check_stride(var, stride)
    if extent is None and stride:
        room = var.words // per - offset if stride > 0 else offset + 1
        extent = max(0, -(-room // abs(stride)))
    if extent is not None:
        extent = extent_of(extent, f"extent of {var.name!r}")
        if check and not index and extent not in (0, ENDLESS):
            _inside(unit, var, offset, offset + (extent - 1) * stride, count=var.words // per)
    flags = im.F_SAVE * bool(save) | im.F_INDEX * bool(index)
    return Dsd(
        "mem1d", dtype, None if extent is None else (extent,), (stride,), Address(var, offset * per), flags=flags
    )


def mem4d(
    unit: Unit,
    var: Var,
    extents: Sequence[int],
    strides: Sequence[int] | None = None,
    offset: int = 0,
    dtype: str | None = None,
    check: bool = True,
) -> Dsd:
    """Describe a walk in up to four dimensions, outermost first."""
    dtype = _view(unit, var, dtype)
    extents = tuple(extent_of(n, f"extent of {var.name!r}") for n in extents)
    if not 1 <= len(extents) <= 4:
        raise unit.error(f"{len(extents)} dimensions; a descriptor has one to four", symbol=var.name)
    if strides is None:
        strides = [math.prod(extents[k + 1 :]) for k in range(len(extents))]
    strides = tuple(int(s) for s in strides)
    if len(strides) != len(extents):
        raise unit.error(f"{len(extents)} extents but {len(strides)} strides", symbol=var.name)
    if sum(s != 1 for s in strides) > 3:
        raise unit.error(
            f"strides {strides}: at most three may differ from 1",
            symbol=var.name,
            hint="the machine has three stride registers",
        )
    if any(not -32768 <= s <= 32767 for s in strides):
        raise unit.error(f"strides {strides} do not fit 16 bits", symbol=var.name)
    if check and 0 not in extents:
        ends = [(n - 1) * s for n, s in zip(extents, strides, strict=True)]
        _inside(unit, var, offset + sum(min(e, 0) for e in ends), offset + sum(max(e, 0) for e in ends))
    return Dsd("mem4d", dtype, extents, strides, Address(var, offset * var.words_per_element))


def circular(
    unit: Unit,
    var: Var,
    extent: int | None = None,
    start: int = 0,
    save: bool = False,
    dtype: str | None = None,
    length: int | None = None,
) -> Dsd:
    """Describe a circular buffer over the first `length` elements of a variable."""
    dtype = _view(unit, var, dtype)
    length = var.count if length is None else extent_of(length, f"length of {var.name!r}")
    if not 0 < length <= var.count:
        raise unit.error(f"length {length} is outside 1 .. {var.count}", symbol=var.name)
    if not 0 <= start < length:
        raise unit.error(f"start {start} is outside 0 .. {length - 1}", symbol=var.name)
    extent = length if extent is None else extent_of(extent, f"extent of {var.name!r}")
    return Dsd(
        "circular", dtype, (extent,), (1,), Address(var), index=start, length=length, flags=im.F_SAVE * bool(save)
    )


def fifo(
    unit: Unit,
    var: Var,
    extent: int | None = None,
    activate_push: object = None,
    activate_pop: object = None,
    terminate: bool = False,
) -> Dsd:
    """Allocate a FIFO with a variable as its storage."""
    number = unit.fifo(symbol=var.name if isinstance(var, Var) else None)
    return Dsd(
        "fifo",
        _view(unit, var, None),
        None if extent is None else (extent_of(extent, f"extent of {var.name!r}"),),
        (1,),
        Address(var),
        length=var.count,
        fifo=number,
        flags=im.F_TERMINATE * bool(terminate),
        push_task=activate_push,
        pop_task=activate_pop,
    )


def _inside(unit: Unit, var: Var, *elements: int, count: int | None = None) -> None:
    count = var.count if count is None else count
    for element in elements:
        if not 0 <= element < count:
            raise unit.error(
                f"the descriptor reaches element {element}, outside 0 .. {count - 1}",
                symbol=var.name,
                hint="check=False if the DSR will be moved before it is used",
            )


def _view(unit: Unit, var: Var, dtype: str | None, smaller: bool = False) -> str:
    if not isinstance(var, Var):
        raise unit.error(f"{var!r} is not a variable of this program")
    if var.unit is not unit:
        raise unit.error(f"the variable belongs to program {var.unit.name!r}", symbol=var.name)
    dtype = unit.half if dtype == "half" else dtype or var.dtype
    if dtype not in WORDS or not (
        WORDS[dtype] == var.words_per_element or (smaller and WORDS[dtype] < var.words_per_element)
    ):
        raise unit.error(f"{dtype!r} is not a type of the size of {var.dtype}", symbol=var.name)
    if dtype in ("f16", "cb16") and dtype != unit.half:
        raise unit.error(f"{dtype} in a program whose 16-bit float is {unit.half}", symbol=var.name)
    return dtype


# --- fabric -----------------------------------------------------------------------------------------------------------


def fabin(
    unit: Unit,
    queue: Queue,
    extent: int,
    packed: bool | None = None,
    on_control: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    simd: str | None = None,
) -> Dsd:
    """Describe wavelets arriving from the fabric."""
    packed = _simd(unit, simd, packed)
    on_control = dict(on_control or {})
    actions, bits = set(), 0
    if on_control.pop("terminate", False):
        bits |= im.ON_TERMINATE
    for key, bit in (("activate", im.ON_ACTIVATE), ("unblock", im.ON_UNBLOCK)):
        if (task := on_control.pop(key, None)) is not None:
            bits |= bit
            actions.add(task)
    if on_control:
        raise unit.error(f"on_control: unknown key {next(iter(on_control))!r}", hint="terminate, activate, unblock")
    if len(actions) > 1:
        raise unit.error(
            "on_control: activate and unblock name different tasks", hint="a descriptor has room for one task"
        )
    return Dsd(
        "fabin",
        _fabric_type(unit, dtype),
        (extent_of(extent, "extent of fabin"),),
        queue=queue,
        packed=packed,
        on_control=(bits,),
        control_task=next(iter(actions), None),
    )


def fabout(
    unit: Unit,
    queue: Queue,
    extent: int,
    packed: bool | None = None,
    control: bool = False,
    advance_switch: bool = False,
    zero: bool = False,
    index: int | None = None,
    dtype: str | None = None,
    simd: str | None = None,
    control_transform: bool = False,
) -> Dsd:
    """Describe wavelets leaving for the fabric."""
    if control_transform:
        raise unit.unsupported("control_transform")
    packed = _simd(unit, simd, packed)
    if index is not None:
        if packed:
            raise unit.error("index has no place in packed wavelets", hint="packed=False")
        if not 0 <= index <= 0xFFFF:
            raise unit.error(f"index {index} of fabout does not fit 16 bits")
        packed = False
    if control and packed is None:
        packed = False
    flags = (
        im.F_CONTROL * bool(control)
        | im.F_ADVANCE * bool(advance_switch)
        | im.F_ZERO * bool(zero)
        | im.F_INDEX * (index is not None)
    )
    return Dsd(
        "fabout",
        _fabric_type(unit, dtype),
        (extent_of(extent, "extent of fabout"),),
        queue=queue,
        packed=packed,
        flags=flags,
        index=index,
    )


def _fabric_type(unit: Unit, dtype: str | None) -> str | None:
    dtype = unit.half if dtype == "half" else dtype
    if dtype is not None and (dtype not in WORDS or (dtype in ("f16", "cb16") and dtype != unit.half)):
        raise unit.error(f"unknown element type {dtype!r} in a program whose 16-bit float is {unit.half}")
    return dtype


def _simd(unit: Unit, simd: str | None, packed: bool | None) -> bool | None:
    if simd is None:
        return packed
    if simd in ("simd_64", "simd_32_or_64"):
        raise unit.unsupported("simd_64", simd)
    if simd != "simd_32":
        raise unit.error(f"unknown packing {simd!r}", hint="simd_32, or packed=False")
    return True

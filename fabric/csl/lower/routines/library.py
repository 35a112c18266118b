"""The table `ROUTINES` says who writes a call of a library; those of <memcpy/memcpy>, <layout>, <time>, <math>,
<random> are here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fabric.csl import tree
from fabric.csl.ir import Operand, Sym, Vreg
from fabric.csl.lower.rebinding import named

if TYPE_CHECKING:
    from fabric.csl.lower.function import FunctionLowering

__all__ = ["ROUTINES", "routine"]

Routine = Callable[[Any, tree.Call], Operand | None]
ROUTINES: dict[tuple[str, str], Routine] = {}
"""A call of a library's function, by module and name, is written by its entry here."""


def routine(source: str, name: str) -> Callable[[Routine], Routine]:
    """Enter a routine into the table."""

    def enter(function: Routine) -> Routine:
        ROUTINES[source, name] = function
        return function

    return enter


@routine("<memcpy/memcpy>", "unblock_cmd_stream")
def _unblock(code: FunctionLowering, expr: tree.Call) -> None:
    """Count up a hidden word: the host watches it."""
    where = Sym(code.program.hidden("unblocked"))
    value = code.load_at(None, where, 1)
    code.store_at(None, where, code.alu("add16", value, 1), 1)


def _coordinate(name: str) -> None:
    @routine("<layout>", f"get_{name}_coord")
    def coordinate(code: FunctionLowering, expr: tree.Call) -> Operand:
        return code.load_at(None, Sym(code.program.hidden(name)), 1)


_coordinate("x")
_coordinate("y")


def _nothing(code: FunctionLowering, expr: tree.Call) -> None:
    """Write nothing: the model's cycle counter always runs."""


for _name in ("enable_tsc", "disable_tsc", "reset_tsc_counter"):
    ROUTINES["<time>", _name] = _nothing


@routine("<time>", "get_timestamp")
def _timestamp(code: FunctionLowering, expr: tree.Call) -> None:
    base, offset = code._split(code.value(expr.arguments[0]))
    code.timestamp(base, offset)


@routine("<random>", "set_global_prng_seed")
def _seed(code: FunctionLowering, expr: tree.Call) -> None:
    """Say that the generators of the model begin as the hardware's do, and have no seed to be set."""
    what = "the seed has no effect: the model's generator begins with the same state in every run"
    code.program.session.report.warn(what, expr.span)
    code.value(expr.arguments[0])


def _scalar(name: str, op: str) -> None:
    @routine("<math>", name)
    def scalar(code: FunctionLowering, expr: tree.Call) -> Vreg:
        return code.alu(op, *(code.value(entry) for entry in expr.arguments))


for _suffix, _letter in (("f32", "s"), ("f16", "h")):
    _scalar(f"sqrt_{_suffix}", f"fsqrt{_letter}")
    _scalar(f"fscale_{_suffix}", f"fscale{_letter}")


def _of_the_library(name: str) -> None:
    """A function of the run-time library in f32; f16 goes through it."""

    @routine("<math>", f"{name}_f32")
    def wide(code: FunctionLowering, expr: tree.Call) -> Operand | None:
        return code.routine(f"{name}_f32", tuple(code.value(entry) for entry in expr.arguments))

    @routine("<math>", f"{name}_f16")
    def half(code: FunctionLowering, expr: tree.Call) -> Operand | None:
        arguments = tuple(code.alu("fh2s", code.value(entry)) for entry in expr.arguments)
        found = code.routine(f"{name}_f32", arguments)
        assert found is not None  # a function of numbers gives one
        return code.alu("fs2h", found)


for _name in ("ceil", "floor", "sig", "tanh", "cos", "sin", "exp", "log", "pow"):
    _of_the_library(_name)


def _config(source: str, name: str, *fixed: Any) -> None:
    @routine(source, name)
    def config(code: FunctionLowering, expr: tree.Call) -> None:
        code.configure(name, expr, *fixed)


for _name in (
    "set_pop_mode", "set_ring_mode", "clear_ring_mode", "clear_current_position", "set_current_switch_position",
    "set_invalid_for_all_switch_positions",
    *(f"set_{side}_switch_pos{k}" for side in ("rx", "tx", "rxtx") for k in (1, 2, 3)),
):  # fmt: skip
    _config("<tile_config/switch_config>", _name)
for _name in ("reset_routes", "set_io_direction", "clear_io_direction", "toggle_io_direction"):
    _config("<tile_config/color_config>", _name)
_config("<tile_config/teardown>", "exit")


@routine("<tile_config/queue_flush>", "exit")
def _flush_ends(code: FunctionLowering, expr: tree.Call) -> None:
    """Note that a queue is not flushed any more."""
    code.store_at(None, code.program.flush_word(_queue(code, expr)), 0, 1)


@routine("<tile_config/queue_flush>", "is_flushed")
def _is_flushed(code: FunctionLowering, expr: tree.Call) -> Operand:
    return code.load_at(None, code.program.flush_word(_queue(code, expr)), 1)


def _queue(code: FunctionLowering, expr: tree.Call) -> int:
    (queue,) = named(expr, "q")
    return code.program.rebinding.number(queue, expr.span)


def _rebound(source: str, name: str, port: str, *more: str) -> None:
    @routine(source, name)
    def rebound(code: FunctionLowering, expr: tree.Call) -> None:
        queue, color, *enable = named(expr, "number", "c", *more)
        key = port, code.program.rebinding.number(queue, expr.span)
        if enable:
            code.program.check_filter(color, enable[0], expr.span)
        code.store_at(None, code.program.color_word(key), code.value(color), 1)


_rebound("<tile_config/input_queue_config>", "encode_input_queue", "input_queue", "filter_enable")
_rebound("<tile_config/output_queue_config>", "encode_output_queue", "output_queue")


@routine("<tile_config/teardown>", "get_pending")
def _pending(code: FunctionLowering, expr: tree.Call) -> Vreg:
    return code.pending()


for _name in ("set_counter", "set_max_counter", "set_active_limit"):
    _config("<tile_config/filters>", _name)


def _print(source: str, name: str) -> None:
    @routine(source, name)
    def printing(code: FunctionLowering, expr: tree.Call) -> None:
        code.record(source, name, expr)


for _name in ("u8", "i8", "u16", "i16", "u32", "i32", "f16", "f32", "bool", "string", "timestamp"):
    _print("<debug>", f"trace_{_name}")
_print("<debug>", "trace")
for _name in (
    "print_string", "fmt", "fmt_no_nl", "fmt_with_coords", "print_f16", "print_f32",
    *(f"print_u{bits}_{form}" for bits in (16, 32) for form in ("decimal", "hex", "binary")),
):  # fmt: skip
    _print("<simprint>", _name)

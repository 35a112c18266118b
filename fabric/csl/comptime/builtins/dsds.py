"""These builtins make, change and load DSDs, name DSRs, and allocate FIFOs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabric.csl import tree
from fabric.csl.comptime.builtins.ids import COLOR, INPUT, OUTPUT, activated, by_queue, gates, only_by_queue
from fabric.csl.comptime.builtins.modules import global_of
from fabric.csl.comptime.builtins.table import Operand, builtin
from fabric.csl.comptime.colors import routable
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.values import NOTHING, DsdValue, Scope, Struct, TensorAccess, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import (
    BOOL,
    COMPTIME_INT,
    I16,
    U16,
    VOID,
    ArrayType,
    DsdType,
    DsrType,
    IntType,
    PointerType,
    Type,
    is_byte,
    leads_to_bytes,
)
from fabric.csl.types.rules import is_integer

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

GROUP = "DSDs, DSRs, FIFOs"
I8 = IntType(8, True)
FIFO = DsdType("fifo_dsd")

SHARED = {"simd_mode": "struct", "control_transform": "refused", "priority": "priority"}
FIELDS: dict[str, dict[str, Any]] = {
    "mem1d_dsd": {
        "tensor_access": "access", "base_address": "pointer", "extent": U16, "stride": I8, "offset": I16,
        "wavelet_index_offset": BOOL,
    },
    "mem4d_dsd": {
        "tensor_access": "access", "base_address": "pointer", "extent": "tuple", "stride": "tuple", "offset": I16,
    },
    "fabin_dsd": {"extent": U16, "fabric_color": COLOR, "input_queue": INPUT, **SHARED},
    "fabout_dsd": {
        "extent": U16, "fabric_color": COLOR, "output_queue": OUTPUT, "control": BOOL, "wavelet_index_offset": BOOL,
        "advance_switch": BOOL, "zero": "struct", **SHARED,
    },
    "circbuf_dsd": {"base_address": "pointer", "extent": U16, "wraparound": U16},
}  # fmt: skip
"""Each kind of DSD has these fields in `@get_dsd`, with what they hold."""

PORTS = {"fabin_dsd": "input_queue", "fabout_dsd": "output_queue"}
NEEDED = {"fabin_dsd": ("extent",), "fabout_dsd": ("extent",)}
LOAD_OPTIONS = ("async", "activate", "unblock", "on_control", "save_address", "single_step", "priority", "ut_id")
MODES = ("simd_32", "simd_64", "simd_32_or_64", "none")
MODES_BY_QUEUE = ("simd_off", "simd_max")
"""SDK 2.x has these further modes for WSE-3."""


def pointer(ev: Interpreter, node: n.SyntaxNode, scope: Scope) -> Operand:
    """Return a base address: a pointer, or the address of the array that is named."""
    value = ev.expr(node, scope)
    if leads_to_bytes(value.type):
        raise _bytes(node.span)
    if isinstance(value.type, ArrayType):
        return ev.address(node, scope, node.span)
    if not isinstance(value.type, PointerType):
        raise Fault(f"a base address is a pointer or an array, not {value.type}", node.span)
    return value if isinstance(value, tree.Expr) else uniform(value, ev.level)


def _bytes(at: Span) -> Fault:
    return Fault("a DSD walks over words, not over bytes", at, "@ptrcast to [*]u16, or an array of u16")


@builtin("@get_dsd", 2, 2, "any", GROUP, "a descriptor of memory or fabric")
def _get_dsd(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, DsdType) or kind.name not in FIELDS:
        raise Fault(f"{kind} is no kind of DSD", node.arguments[0].span, ", ".join(FIELDS))
    literal = node.arguments[1]
    nodes = dict(literal.fields) if isinstance(literal, n.StructLiteral) else {}
    if nodes:
        given: dict[str, Any] = {}
        for name, entry in nodes.items():
            if name == "base_address":
                given[name] = pointer(ev, entry, scope)
            else:
                given[name] = ev.expr(entry, scope)
    else:
        whole = ev.known(literal, scope, "the fields of a DSD")
        if not isinstance(whole.data, (Struct, TensorAccess)):
            raise Fault(f"the fields of a DSD are a struct, not {whole.type}", literal.span)
        given = {"tensor_access": whole} if isinstance(whole.data, TensorAccess) else dict(whole.data.fields)
    fields = {}
    for name, value in given.items():
        fields[name] = _checked(ev, kind, name, value, nodes.get(name, literal))
    _complete(kind, fields, literal)
    port = PORTS.get(kind.name)
    if by_queue(ev) and port is not None and port not in fields:
        raise Fault(f"on WSE-3 a {kind} names its queue", literal.span, f".{port} = ...")
    if any(isinstance(value, tree.Expr) for value in fields.values()):
        return ev.run_builtin(node, (), kind, fields)
    return Value(kind, DsdValue(kind.name, fields, node.span))


def _checked(ev: Interpreter, kind: DsdType, name: str, value: Any, at: n.SyntaxNode) -> Operand:
    """Return the value of a field in the type that it must have."""
    rule = FIELDS[kind.name].get(name)
    if name in ("base_address", "priority"):
        what = "the base_address of a DSD" if name == "base_address" else "the field priority of a fabric DSD"
        ev.session.dialect.use(what, at.span)
    if rule is None:
        raise Fault(f"a {kind} has no field '{name}'", at.span, f"it has {', '.join(FIELDS[kind.name])}")
    if rule == "refused" or (rule == "priority" and not by_queue(ev)):
        raise Fault(f"'{name}' is not supported", at.span)
    if isinstance(rule, Type):
        value = uniform(value, ev.level)
        if rule in (INPUT, OUTPUT) and value.__class__ is Value and is_integer(value.type):
            ev.session.dialect.use("the number of a queue for the queue", at.span)
            return Value(rule, value.data)
        if rule == BOOL and value.__class__ is Value and value.type == COMPTIME_INT and value.data in (0, 1):
            ev.session.dialect.use("a number for a flag", at.span)
            return Value(BOOL, value.data == 1)
        made = ev.convert(value, rule, at.span, f"the field '{name}'")
        if rule == COLOR and made.__class__ is Value:
            routable(made.data, at.span)
        return made
    value = uniform(value, ev.level)
    if rule == "access" and not isinstance(getattr(value, "data", None), TensorAccess):
        if not (isinstance(getattr(value, "data", None), Struct) and "base_address" in value.data.fields):
            raise Fault("tensor_access must be an access expression", at.span, "|i|{N} -> a[i]")
    elif (rule == "access" and is_byte(getattr(value.data, "element", VOID))) or (
        rule == "pointer" and leads_to_bytes(value.type)
    ):
        raise _bytes(at.span)
    elif rule == "pointer" and not isinstance(value.type, (PointerType, ArrayType)):
        raise Fault(f"base_address must be a pointer, not {value.type}", at.span)
    elif rule in ("struct", "tuple") and not isinstance(getattr(value, "data", None), Struct):
        raise Fault(f"'{name}' must be a {rule}, not {value.type}", at.span)
    elif rule == "tuple":
        _check_numbers(name, value.data, at)
    elif rule == "priority":
        if not isinstance(getattr(value, "data", None), Struct):
            raise Fault(f"'{name}' must be a struct, not {value.type}", at.span)
        check_parts(ev, value.data.fields, name, at.span)
    elif name == "simd_mode":
        there = (*MODES, *MODES_BY_QUEUE) if by_queue(ev) else MODES
        for mode in value.data.fields:
            if mode not in there:
                where = " on WSE-2" if mode in MODES_BY_QUEUE else ""
                raise Fault(f"there is no simd mode '{mode}'{where}", at.span, f"one of {', '.join(there)}")
            ev.session.dialect.use(f"the simd mode {mode}", at.span)
    return value


def _check_numbers(name: str, numbers: Struct, at: n.SyntaxNode) -> None:
    """Refuse extents or strides of a DSD of several dimensions that are not one to four known integers."""
    if not numbers.is_tuple or not 1 <= len(numbers.fields) <= 4:
        raise Fault(f"'{name}' must be a tuple of one to four integers", at.span, f".{name} = .{{ 2, 4 }}")
    for entry in numbers.fields.values():
        if not is_integer(entry.type):
            raise Fault(f"the numbers in '{name}' must be integers, not {entry.type}", at.span)
        if not isinstance(entry, Value):
            hint = "the extent of a mem1d_dsd may be known at run time only"
            raise Fault(f"the numbers in '{name}' of a mem4d_dsd must be known at compile time", at.span, hint)
        if name == "extent" and not 0 <= entry.data <= U16.high:
            raise Fault(f"an extent of {entry.data}: it can be 0 to {U16.high:,}", at.span)


def _complete(kind: DsdType, fields: dict[str, Any], at: n.SyntaxNode) -> None:
    """Refuse a DSD with missing fields, or fields that exclude each other."""
    if kind.name in ("mem1d_dsd", "mem4d_dsd"):
        if "tensor_access" in fields:
            other = next((name for name in ("base_address", "extent", "stride", "offset") if name in fields), None)
            if other:
                raise Fault(f"tensor_access and {other} exclude each other", at.span)
            access = fields["tensor_access"].data
            rank = len(access.extents) if isinstance(access, TensorAccess) else 1
            if kind.name == "mem1d_dsd" and rank != 1:
                raise Fault(f"a mem1d_dsd has one dimension, not {rank}", at.span, "use a mem4d_dsd")
            if rank > 4:
                raise Fault(f"a mem4d_dsd has up to four dimensions, not {rank}", at.span)
        elif "base_address" not in fields:
            raise Fault(f"a {kind} needs tensor_access, or base_address and extent", at.span)
        elif "extent" not in fields:
            raise Fault(f"a {kind} needs an extent", at.span)
        elif kind.name == "mem4d_dsd" and "stride" in fields:
            sizes = [len(fields[name].data.fields) for name in ("extent", "stride")]
            if sizes[0] != sizes[1]:
                raise Fault(f"a mem4d_dsd with {sizes[0]} extents needs as many strides, not {sizes[1]}", at.span)
    for name in NEEDED.get(kind.name, ()):
        if name not in fields:
            raise Fault(f"a {kind} needs the field '{name}'", at.span)
    if kind.name == "fabin_dsd" and not {"fabric_color", "input_queue"} & fields.keys():
        raise Fault("a fabin_dsd needs a fabric_color or an input_queue", at.span)
    if kind.name == "fabout_dsd" and not {"fabric_color", "output_queue"} & fields.keys():
        raise Fault("a fabout_dsd needs a fabric_color, or on WSE-3 an output_queue", at.span)


def _edit(name: str, meaning: str, kinds: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
    @builtin(name, 1 + len(arguments), 1 + len(arguments), "any", GROUP, meaning)
    def edit(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        dsd = ev.expr(node.arguments[0], scope)
        if not isinstance(dsd.type, DsdType) or dsd.type.name not in kinds:
            raise Fault(f"{name} takes a {' or '.join(kinds)}, not {dsd.type}", node.arguments[0].span)
        given = []
        for rule, entry in zip(arguments, node.arguments[1:], strict=True):
            if rule == "pointer":
                given.append(pointer(ev, entry, scope))
            elif rule == "type":
                step = ev.type(entry, scope)
                if is_byte(step):
                    raise _bytes(entry.span)
                given.append(Value(step, None))
            else:
                given.append(ev.convert(uniform(ev.expr(entry, scope), ev.level), rule, entry.span, "the argument"))
        if isinstance(dsd, tree.Expr) and ev.place != "run":
            dsd = ev.settle(dsd, node.arguments[0].span, "the DSD")
        if isinstance(dsd, tree.Expr) or any(isinstance(entry, tree.Expr) for entry in given):
            return ev.run_builtin(node, (dsd, *given), dsd.type)
        old: DsdValue = dsd.data
        return Value(dsd.type, DsdValue(old.kind, old.fields, node.span, (*old.edits, (name, tuple(given)))))


MEMORY = ("mem1d_dsd", "mem4d_dsd")
_edit("@set_dsd_base_addr", "a DSD with another base", (*MEMORY, "circbuf_dsd"), ("pointer",))
_edit("@set_dsd_length", "a DSD with another length", ("mem1d_dsd", "fabin_dsd", "fabout_dsd", "circbuf_dsd"), (U16,))
_edit("@set_dsd_stride", "a DSD with another stride", ("mem1d_dsd",), (I8,))
_edit("@increment_dsd_offset", "a DSD that begins later", (*MEMORY, "circbuf_dsd"), (I16, "type"))


@builtin("@get_dsr", 2, 2, "any", GROUP, "a numbered DSR")
def _get_dsr(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, DsrType):
        raise Fault(f"{kind} is no kind of DSR", node.arguments[0].span, "dsr_dest, dsr_src0 or dsr_src1")
    number = ev.number(node.arguments[1], scope, "the number of a DSR")
    most = {"dsr_dest": 15, "dsr_src0": 15, "dsr_src1": 23}.get(kind.name, 7)
    if not 0 <= number <= most:
        raise Fault(f"there is no {kind} {number}; there are 0 to {most}", node.arguments[1].span)
    return Value(kind, number)


@builtin("@get_xdsr", 1, 1, "any", GROUP, "a numbered extended DSR")
def _get_xdsr(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    number = ev.number(node.arguments[0], scope, "the number of an XDSR")
    if not 0 <= number <= 7:
        raise Fault(f"there is no XDSR {number}; there are 0 to 7", node.arguments[0].span)
    return Value(DsrType("xdsr"), number)


def _load(name: str, dsrs: int, meaning: str) -> None:
    @builtin(name, dsrs + 1, dsrs + 2, "setup run", GROUP, meaning)
    def load(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        registers = []
        for entry in node.arguments[:dsrs]:
            value = ev.scalar(entry, scope, "the DSR")
            if not isinstance(value.type, DsrType):
                raise Fault(f"{name} loads a DSR, not {value.type}", entry.span)
            registers.append(value)
        dsd = ev.expr(node.arguments[dsrs], scope)
        if not isinstance(dsd.type, DsdType):
            raise Fault(f"{name} loads a DSD, not {dsd.type}", node.arguments[dsrs].span)
        chosen: dict[str, Any] = {}
        if len(node.arguments) > dsrs + 1:
            chosen = options(ev, node.arguments[dsrs + 1], scope, LOAD_OPTIONS, name)
        if ev.place == "run":
            return ev.run_builtin(node, (*registers, dsd), VOID, chosen)
        if isinstance(dsd, tree.Expr):
            dsd = ev.settle(dsd, node.arguments[dsrs].span, "the DSD")
        ev.unit.loads.append((registers[0], dsd, chosen, node.span))
        return NOTHING


_load("@load_to_dsr", 1, "a DSR gets a DSD")
_load("@load_to_dsr_xdsr", 2, "a DSR and an extended DSR get a DSD")


@builtin("@set_dsr_base_addr", 2, 2, "run", GROUP, "a DSR with another base")
def _set_dsr_base(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    register = ev.scalar(node.arguments[0], scope, "the DSR")
    if not isinstance(register.type, DsrType):
        raise Fault(f"@set_dsr_base_addr takes a DSR, not {register.type}", node.arguments[0].span)
    return ev.run_builtin(node, (register, pointer(ev, node.arguments[1], scope)), VOID)


@builtin("@allocate_fifo", 1, 2, "any", GROUP, "a FIFO in an array")
def _allocate_fifo(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    entry = global_of(ev, node.arguments[0], scope)
    if entry is None:
        raise Fault("@allocate_fifo takes a global array", node.arguments[0].span)
    variable = ev.variable_of(entry, node.arguments[0].span)
    kind = variable.type
    if not isinstance(kind, ArrayType) or kind.element.words not in (1, 2) or is_byte(kind.element) or variable.const:
        raise Fault("a FIFO needs a var array of 16-bit or 32-bit elements", node.arguments[0].span)
    chosen: dict[str, Any] = {}
    if len(node.arguments) > 1:
        known = ("activate_push", "activate_pop", "empty_action", "full_action")
        chosen = options(ev, node.arguments[1], scope, known, "@allocate_fifo")
    made = DsdValue("fifo_dsd", {"buffer": variable, **chosen}, node.span)
    return Value(FIFO, made)


def _fifo_length(name: str) -> None:
    @builtin(name, 2, 2, "run", GROUP, "how many elements the next operation takes")
    def length(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        fifo = ev.scalar(node.arguments[0], scope, "the FIFO")
        if fifo.type != FIFO:
            raise Fault(f"{name} takes a FIFO, not {fifo.type}", node.arguments[0].span)
        count = ev.convert(ev.expr(node.arguments[1], scope), U16, node.arguments[1].span, "the length")
        return ev.run_builtin(node, (fifo, count), VOID)


_fifo_length("@set_fifo_read_length")
_fifo_length("@set_fifo_write_length")

ACTIONS = ("test_or_suspend", "terminate", "suspend", "fault")
PARTS = {
    "priority": ("high", "medium", "low"), "on_control": ("terminate", "activate", "unblock"),
    "empty_action": ACTIONS, "full_action": ACTIONS,
}  # fmt: skip
"""These fields of the options are structs."""


def _named_ids(ev: Interpreter, option: str) -> tuple[str, ...]:
    """Return the kinds of ids that an option takes."""
    return tuple(map(str, gates(ev) if option == "unblock" else activated(ev)))


def check_parts(ev: Interpreter, fields: dict[str, Any], option: str, at: Span) -> None:
    """Refuse fields that an option does not have, or whose values it cannot use."""
    for name, entry in fields.items():
        if name not in PARTS[option]:
            raise Fault(f"the option '{option}' has no field '{name}'", at, f"it has {', '.join(PARTS[option])}")
        is_task = entry.__class__ is Value and str(entry.type).startswith("task(")
        if name in ("activate", "unblock"):
            if not is_task and str(entry.type) not in _named_ids(ev, name):
                raise Fault(f"the field '{name}' of '{option}' takes the id of a task, not {entry.type}", at)
        else:
            ev.convert(entry, BOOL, at, f"the field '{name}' of '{option}'")
    several = sum(bool(getattr(entry, "data", True)) for entry in fields.values()) > 1
    if option == "priority" and several:
        raise Fault("an operation has one priority", at)
    if option in ("empty_action", "full_action"):
        if several:
            raise Fault(f"a FIFO has one '{option}'", at)
        for name, entry in fields.items():
            if name in ACTIONS[2:] and entry.data and not by_queue(ev):
                raise Fault(f"the action '{name}' of a FIFO exists on WSE-3 only", at, ", ".join(ACTIONS[:2]))
            if name == "fault" and entry.data:
                raise Fault("the action 'fault' of a FIFO is not modelled", at, ", ".join(ACTIONS[:3]))


def options(ev: Interpreter, node: n.SyntaxNode, scope: Scope, known: tuple[str, ...], name: str) -> dict[str, Any]:
    """Return the options that a struct gives to an operation, checked by name and type."""
    value = ev.expr(node, scope)
    if (
        value.__class__ is not Value
        or not isinstance(value.data, Struct)
        or (value.data.is_tuple and value.data.fields)
    ):
        raise Fault(f"the options of {name} are a struct, not {value.type}", node.span, ".{ .async = true }")
    places = dict(node.fields) if isinstance(node, n.StructLiteral) else {}
    found = {}
    for option, entry in value.data.fields.items():
        at = places[option].span if option in places else node.span
        if option not in known:
            raise Fault(f"{name} has no option '{option}'", at, f"it has {', '.join(known)}")
        entry = uniform(entry, ev.level)
        if option in ("async", "save_address", "single_step"):
            entry = ev.convert(entry, BOOL, at, f"the option '{option}'")
        elif option in ("activate", "unblock", "activate_push", "activate_pop"):
            is_task = entry.__class__ is Value and str(entry.type).startswith("task(")
            allowed = _named_ids(ev, option)
            if not is_task and str(entry.type) not in allowed:
                raise Fault(f"the option '{option}' takes a {' or '.join(allowed)}, not {entry.type}", at)
        elif option == "index":
            entry = ev.convert(entry, U16, at, "the option 'index'")
        elif option == "ut_id":
            only_by_queue(ev, "the option 'ut_id'", at)
            if str(entry.type) != "ut_id":
                raise Fault(f"the option 'ut_id' takes a microthread, not {entry.type}", at, "@get_ut_id(n)")
            if not isinstance(entry, Value):
                raise Fault("the microthread of 'ut_id' is not known when the program is compiled", at)
        elif option == "priority" and by_queue(ev):
            raise Fault("on WSE-3 the priority is a field of the fabric DSD", at, ".priority = ... in @get_dsd")
        elif not isinstance(getattr(entry, "data", None), Struct):
            raise Fault(f"the option '{option}' is a struct, not {entry.type}", at)
        else:
            check_parts(ev, entry.data.fields, option, at)
        found[option] = entry
    if "activate" in found and "unblock" in found:
        raise Fault(f"{name} takes 'activate' or 'unblock', not both", node.span)
    return found

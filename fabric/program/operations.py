"""One method per row of the op table: scalar if all operands are registers and numbers, else a vector operation."""

from __future__ import annotations

from fabric.asm.operands import Async, Dsd, Dsr, Reg, Var
from fabric.program.emission import LETTER_NAME
from fabric.program.vector import COMMUTE, Vector
from wse_core import isa
from wse_core.params import PARAMETERS

__all__ = ["Operations"]


class Operations(Vector):
    """Part of `fabric.program.program.Program`: the operations of the op table."""

    def async_(self, priority="medium", ut=None, activate=None, unblock=None):
        """Return attributes for the ``async_`` argument of an operation.

        Parameters
        ----------
        priority : {"low", "medium", "high"}
            Issue level of the microthread.
        ut : int, optional
            Microthread; default: the number of the output queue of a fabout destination, else of the input queue of
            the first fabin source.  WSE-2 knows no other for operations on the fabric.
        activate, unblock : task, optional
            Task (name, `Task`, or id; for `unblock` also a color) to activate or unblock on completion.
        """
        if priority not in isa.PRIORITIES:
            raise self._error(f"priority {priority!r} is unknown", hint=", ".join(isa.PRIORITIES))
        if ut is not None and not 0 <= ut < self.machine["ut.count"]:
            raise self._error(f"microthread {ut} does not exist", hint=f"0 .. {self.machine['ut.count'] - 1}")
        return Async(priority, ut, activate, unblock)

    def _operation(self, op, args, async_, attributes):
        """Emit an ``alu`` op: scalar if all operands are registers and numbers, else a vector operation."""
        letters = [letter for letter in op.types if letter != "-"]
        if len(args) != len(letters):
            raise self._error(f"{op.name} takes {len(letters)} operands, not {len(args)}")
        if attributes:
            if async_ is None or async_ is False:
                raise self._error(
                    f"{op.name}: {', '.join(attributes)} given to a synchronous operation", hint="async_=True"
                )
            if isinstance(async_, Async):
                raise self._error(f"{op.name}: attributes both in async_ and beside it")
        if async_ is True:
            async_ = self.async_(**attributes)
        elif async_ is False:
            async_ = None
        args = [self._as_dsd(arg) if isinstance(arg, (Var, Dsd)) else arg for arg in args]
        if any(isinstance(arg, (Dsd, Dsr)) for arg in args):
            self._vector(op, args, letters, async_)
        elif async_ is not None:
            raise self._error(f"{op.name}: a scalar instruction cannot be asynchronous")
        else:
            self._scalar(op, args, letters)

    def _scalar(self, op, args, letters):
        dst, *sources = args
        a = self._reg_field(dst, letters[0], f"{op.name} destination")
        if len(sources) > 1 and not isinstance(sources[0], Reg) and isinstance(sources[1], Reg) and op.name in COMMUTE:
            sources[:2] = sources[1], sources[0]
        if len(sources) == 1 and not isinstance(sources[0], Reg) and op.name in ("mov16", "mov32", "fmovh", "fmovs"):
            imm = self._imm(sources[0], self._moved(op, sources[0], letters[1]), f"{op.name} source")
            self._emit("ldi" if letters[0] in "hi" else "ldi32", a=a, imm=imm)
            return
        fields, imm, held = [], None, []
        for k, (source, letter) in enumerate(zip(sources, letters[1:], strict=True)):
            if isinstance(source, Reg):
                fields.append(self._reg_field(source, letter, f"{op.name} source {k + 1}"))
            elif k == 1:
                imm = self._imm(source, letter, f"{op.name} source 2")
                fields.append(isa.FILE_REG << 4)  # any register: the extension word takes its place
            else:
                fields.append(self._held(source, letter, op, held))
        self._emit(op.name, a, *fields, imm=imm)
        self._release(held)


def _lanes_text(op):
    number = PARAMETERS.get(f"lanes.{op.name}")
    if number is None:
        return "scalar only"
    return f"{' / '.join(map(str, number.values.values()))} elements per cycle ({' / '.join(number.values)})"


def _operation_method(op):
    names = ["dst", "a", "b", "scalar"][: sum(letter != "-" for letter in op.types)]
    kinds = ", ".join(f"{n}: {LETTER_NAME[t]}" for n, t in zip(names, op.types.replace("-", ""), strict=True))

    def method(self, *args, async_=None, **attributes):
        self._operation(op, args, async_, attributes)

    method.__name__ = method.__qualname__ = op.name
    method.__doc__ = (
        f"{op.name}({', '.join(names)}): {op.doc}\n\n        In the table's words a is the destination, b, c and d are "
        f"the sources in order.\n        {kinds}.\n        Vector form: {_lanes_text(op)}. Cost class {op.cost}. "
        f"Source: {op.source}.\n        Keywords: async_=True or Program.async_(...), or its attributes beside "
        "async_=True.\n        "
    )
    return method


def _refusal(feature):
    def method(self, *args, **kwargs):
        raise self._unsupported(feature)

    method.__name__ = method.__qualname__ = feature
    method.__doc__ = f"Not modelled: {isa.UNSUPPORTED[feature]}."
    return method


for _op in isa.OPS:
    if _op.form == "alu":
        setattr(Operations, _op.name, _operation_method(_op))
for _feature in ("addc16", "fnormh", "fnorms", "map"):
    setattr(Operations, _feature, _refusal(_feature))

"""What a task may leave behind if nobody knows which way it goes: every instruction that can be reached has its effect.

Timing: none.
"""

from __future__ import annotations

from fabric.price.code import Code, fetches
from fabric.price.content import Content, joined
from fabric.price.state import State, is_register
from wse_core import isa
from wse_core.image import DSD_FIFO

__all__ = ["left_behind", "reached"]


def reached(code: Code, entry: int) -> list[int]:
    """Return the code words that a task which begins at `entry` may come to, in their order."""
    found, todo = set(), [entry]
    while todo:
        at = todo.pop()
        ins = code.get(at)
        if ins is None or at in found:
            continue
        found.add(at)
        if ins.op.form == "br" or ins.op.name in ("jmp", "call"):
            todo.append(int(ins.imm or 0))
        if ins.op.name not in ("jmp", "done", "ret", "trap"):
            todo.append(at + ins.size)
    return sorted(found)


def left_behind(code: Code, entry: int, state: State) -> State:
    """Return what is known behind a task that began in a state and of which any instruction may have been executed."""
    after = state.copy()
    places = reached(code, entry)
    for at in places:
        ins = code[at]
        if ins.op.name == "dsr_load":
            content, before = code.contents[int(ins.imm or 0)], after.held.get(ins.a, ...)
            if is_register(ins.b):
                content = content.moved()
            if before is ...:
                after.held[ins.a] = content
            else:
                after.held[ins.a] = None if before is None else joined(before, content)
        elif ins.op.form == "dsr":
            after.held[ins.a] = _edited(ins.op.name, after.held.get(ins.a))
    for at in places:
        ins = code[at]
        if ins.vector:
            for f in ins.dsrs:
                one = after.held.get(f)
                if one is not None:
                    after.held[f] = one.moved() if f == ins.d and fetches(ins.op, f) else one.behind(None, 1)
                    if one.kind == DSD_FIFO:
                        after.fifos.unknown.add(one.shape.fifo)
        counter = isa.again_register(ins.imm) if ins.vector else None
        if counter is not None:
            after.write(isa.FILE_REG << 4 | counter, 1, None)
        if ins.vector or ins.op.form == "st":
            after.store(None, 1, None)
        if is_register(ins.a) and ins.op.form not in ("st", "br"):
            words = 3 if ins.op.form == "tsc" else isa.WORDS[ins.op.types[0]]
            after.write(ins.a, words, None)
    return after


def _edited(name: str, content: Content | None) -> Content | None:
    """Return what a DSR holds of which a field may have been changed."""
    if content is None:
        return None
    if name in ("dsr_base", "dsr_off"):
        return content.moved()
    if name == "dsr_len":
        return content.changed(extent=(None, *content.shape.extent[1:]))
    return content.changed(stride=(None, *content.shape.stride[1:]))

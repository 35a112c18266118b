"""Interference says which virtual registers are alive together, and which machine registers each cannot have."""

from __future__ import annotations

from fabric.csl.ir import IrFunction, Vreg
from fabric.csl.ir.liveness import live_out

__all__ = ["Graph"]


class Graph:
    """A `Graph` tells which virtual registers of one function cannot share a machine register.

    Attributes
    ----------
    edges : dict
        Per register those that it cannot share a machine register with.
    banned : dict
        Per register the machine registers that it cannot have.
    moves : dict
        Per register those that it is copied from or to.
    halves : dict
        Per register the pairs that it is half of, or for a pair its halves, each with which half: 0 the low one.
    cost : dict
        Per register what it would cost to keep it in memory.
    """

    def __init__(self, function: IrFunction, reserved: frozenset[int] = frozenset()) -> None:
        self.reserved = reserved
        self.edges: dict[Vreg, set[Vreg]] = {}
        self.banned: dict[Vreg, set[int]] = {}
        self.moves: dict[Vreg, list[Vreg]] = {}
        self.halves: dict[Vreg, list[tuple[Vreg, int]]] = {}
        self.cost: dict[Vreg, float] = {}
        out = live_out(function)
        for block in function.blocks:
            weight = 10.0 ** min(block.depth, 4)
            live = set(out[block])
            for instr in reversed(block.code):
                defs, uses = instr.defs(), instr.uses()
                for reg in (*defs, *uses):
                    self._node(reg)
                    self.cost[reg] += weight
                after = live - set(defs)
                if instr.op == "call":
                    for reg in after:
                        self._node(reg)
                        self.banned[reg] |= instr.data.clobbers
                source = instr.args[0] if instr.op == "copy" else None
                for reg in defs:
                    for other in after:
                        if other is not source:
                            self._edge(reg, other)
                    for other in defs:
                        self._edge(reg, other)
                if isinstance(source, Vreg) and instr.dst is not None:
                    self.moves[source].append(instr.dst)
                    self.moves[instr.dst].append(source)
                if instr.op in ("low", "high") and isinstance(instr.args[0], Vreg) and instr.dst is not None:
                    which = int(instr.op == "high")
                    self.halves.setdefault(instr.dst, []).append((instr.args[0], which))
                    self.halves.setdefault(instr.args[0], []).append((instr.dst, which))
                live = after | set(uses)
                if instr.op in ("call", "tail", "ret"):
                    for a in uses:
                        for b in uses:
                            self._edge(a, b)

    def _node(self, reg: Vreg) -> None:
        if reg not in self.edges:
            self.edges[reg], self.banned[reg], self.moves[reg], self.cost[reg] = set(), set(self.reserved), [], 0.0

    def _edge(self, a: Vreg, b: Vreg) -> None:
        if a is b:
            return
        self._node(a)
        self._node(b)
        if a.fixed is not None:
            self.banned[b] |= set(range(a.fixed, a.fixed + a.size))
        if b.fixed is not None:
            self.banned[a] |= set(range(b.fixed, b.fixed + b.size))
        if a.fixed is None and b.fixed is None:
            self.edges[a].add(b)
            self.edges[b].add(a)

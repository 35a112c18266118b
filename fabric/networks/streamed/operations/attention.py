"""Attention key after key: whole heads in a column and sequences in a PE move nothing, else blocks and rows of numbers.

A command says which head of the column and which sequence of the PE; the PE does it by itself, key after key: scores
are sums of a query row times one number of a key, as products are sums of rows times weights.  Query heads that share a
head of keys and values lie in the same column and are done one after the other by one command.

A sequence that lies on several rows of PEs has a block of tokens in each.  All of them get the same command, and each
does block after block of what the others hand on (`fabric.networks.streamed.operations.blocks`): keys for the scores,
values for the results, on the way back keys and values once more for the gradients of the own queries, and then queries
with their gradients, logs and dots for those of the own keys.  A causal PE has no use for keys behind its queries, nor
for queries before its keys.  What is done to a block is what is done to a whole sequence.

A head that lies on several columns has a part of its features in each: products are joined where the key's owner is,
and what it makes of them goes to the others (`fabric.networks.streamed.operations.head_columns`).

Memory
    Scores of the tokens of a PE with those of their sequence in f32, shares and their gradients in 16 bits: 8 bytes
    times the square of the sequence where it lies whole.  Where query heads share a head, or a sequence lies on several
    rows, gradients are f32 sums until the last of them is added, 8 bytes per feature and token, and 12 on several rows;
    they take the place of the scores, which nobody has on the way back, so that only heads of many features need more
    memory.  Blocks of the others take 4 bytes per feature and token, and 8 per token.  Columns of a head have scores
    and shares of their own keys only, and shares of a block.

Order of additions (bit exact)
    Scores: from 0 over the features.  Largest score and sum: over the keys.  Results and gradients: from 0 over keys or
    queries; gradients of a shared head over its query heads, of each over the queries; each rounded once.  On how many
    rows a sequence lies does not change a bit; over columns of a head sums go as `head_columns` says.

Cycles
    Of a sequence of S tokens and a head of e features: four products forward and back of S e (S / 2 + 7) each, one
    more for the gradients of keys and values, and 2 S exponentials of rows.  All that is per query head; where
    heads share one, that one takes 2 e (S + 11) more to round its sums and 2 e S to begin them.  On R rows a product
    takes R blocks of T e (T / 2 + 7), T = S / R; the scores of the other blocks are made twice on the way back, those
    of the own too if tokens see those behind them.

    A window hides what is outside of it by one or two vectors of constants more per key; keys that no token of a PE
    sees take as long as others.

Source: `fabric.networks.graph.attention`; weight streaming white paper, section 4.2 (what has no weights is done on the
wafer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.networks.graph.attention import biases_of, group_of, scale_of, slopes_of, window_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep, Node
from fabric.networks.streamed.operations.biases import BiasTasks
from fabric.networks.streamed.operations.blocks import Travelling, blocks_of, rows_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.head_columns import HeadColumnTasks, keys_of
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.slopes import SlopeTasks
from wse_core.errors import UnsupportedError

__all__ = ["ATTENTION", "head_of", "scores_of", "shares_of", "the_form"]

COMMANDS = {
    "operand": "data = number of the next array that attention works on",
    "attend": "attention, data = head and sequence: from queries, keys, values to results and logs of sums",
    "attend_back": "the same back: from gradients of results to those of queries, keys and values",
    "attended": "the list of operands is empty again",
}
FORWARD = ("queries", "keys", "values", "results", "logs")
BACK = (*FORWARD, "d results", "d queries", "d keys", "d values")
"""The operands of the way back have these names, in this order."""
SHARED = ("keys", "values", "d keys", "d values")
"""Several query heads may share a head of these."""


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write attention of all heads and sequences."""
    rows = [f"{w.plan.array(tensor)}.rows" for tensor in (*step.reads, *step.writes)]
    if step.parameter is not None:
        w.biases(step, "score_bias")
    _attend(w, step, "attend", [*rows, w.plan.kept(step, "l")])


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of queries, keys and values."""
    given = [*step.node.inputs, step.node.name]
    rows = [f"{w.plan.activation(name)}.rows" for name in given]
    deltas = [w.plan.array(tensor) for tensor in (*step.reads, *step.writes)]
    if step.parameter is not None:
        w.tell("score_sums")
        w.biases(step, "score_bias")
    _attend(w, step, "attend_back", [*rows, w.plan.kept(step, "l"), *deltas])
    if step.parameter is not None:
        w.biases(step, "score_sum")


def _attend(w: StepWriter, step: NetworkStep, name: str, arrays: list[str]) -> None:
    for array in arrays:
        w.tell(operand=array)
    w.heads(step, name)
    w.tell("attended")


class AttentionTasks:
    """An `AttentionTasks` has the tasks of attention, and what they hold between commands."""

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        node = the_form(code.network)
        self.scaling, self.group = scale_of(node, head_of(code.network, node)), group_of(node)
        self.size = head_of(code.network, node) if code.part is None else code.part.features
        self.causal, self.window, self.tokens = bool(node.size("causal")), window_of(node), code.tokens
        self.rows = rows_of(node.size("sequence"), self.tokens)
        self.length = s = node.size("sequence") // self.rows
        self.operands, self.at = p.array("operands", len(BACK), "u16"), p.array("places", len(BACK), "u16")
        self.named = p.scalar("operands named", "u16", 0)
        if self.group > 1:
            self.left = p.scalar("heads left", "u16")
        columns = code.network.head_columns
        self.work = p.array("scores", scores_of(node, self.tokens, columns, self.size), "f32", bank=0)
        # And behind them their gradients.  They live in a command, turned copies in a phase of gradients: one place.
        shares = shares_of(node, self.tokens, columns)
        self.shares = code.held.get("by_token") or p.array("shares", shares, "half", bank=1)
        self.share, self.dot = (
            p.array("share of a query", s, "f32", bank=4),
            p.array("dot of a query", s, "f32", bank=4),
        )
        self.sums = p.dsr("src0")
        # These are set by commands before they are used again: attention borrows them.
        self.row, self.numbers = code.reads["label"], code.reads["wide"]
        self.halves, self.wide = code.writes["row"], code.writes["wide"]
        self.columns = None
        if code.part is not None:
            self.columns = HeadColumnTasks(code, code.part, s, (self.halves, self.row))
        self.dot_now = self.dot
        if self.rows > 1:
            self.blocks = blocks_of(code, self.rows)
            self.dot_now = p.array("dot of a query of the block", s, "f32", bank=4)
            self.travelling = self.parts()
        self.moving: SlopeTasks | BiasTasks | None = None
        if slopes_of(node) is not None:
            self.moving = SlopeTasks(code, node, s, self.rows, self.row)
        elif biases_of(node) is not None:
            self.moving = BiasTasks(code, node, s, self.row, self.sums)

    def tasks(self) -> None:
        """Write the tasks of both ways and of the list of operands."""
        code, p = self.code, self.code.p
        if isinstance(self.moving, BiasTasks):
            self.moving.tasks()
        with code.command("operand") as t:
            place, number = code.place(t.data), p.reg16("number")
            p.ld16(number, self.named)
            p.st16(place, self.operands, index=number)
            p.add16(number, number, 1)
            p.st16(number, self.named)
        with code.command("attended"):
            none = p.reg16("none")
            p.ldi(none, 0)
            p.st16(none, self.named)
        with code.command("attend") as t, self.borrowed(t.data, FORWARD), self.each_head(FORWARD):
            self.scores()
            self.softmax()
            self.mix()
        with code.command("attend_back") as t, self.borrowed(t.data, BACK):
            if self.kept("d keys"):
                p.mov32(self.sums_of("d keys", 2), 0)
            with self.each_head(BACK):
                self.dots()
                if self.kept("d queries"):
                    p.mov32(self.sums_of("d queries", 1), 0)
                with self.each_block("keys", "values"):
                    self.gradients_of_scores(self.dot, True)
                    self.gradients()
                if self.rows > 1:
                    self.rounded("d queries")
                    with self.each_block("queries", "logs", "d results", "dot"):
                        self.gradients_of_scores(self.dot_now, False)
                        self.gradients_of_keys()
            if self.kept("d keys"):
                self.rounded("d keys", "d values")

    def parts(self) -> dict[str, Travelling]:
        """Declare where blocks of other rows are taken to; return what travels, by the names of operands."""
        p, words = self.code.p, self.size * self.tokens
        taken = [p.array(f"block of {side}", words, "half", bank=1) for side in ("keys or queries", "the others")]
        logs = p.array("logs of a block", self.tokens, "f32")
        own = {
            name: p.scalar(f"place of own {name}", "u16") for name in ("keys", "values", "queries", "logs", "d results")
        }
        found = {
            name: Travelling(words, False, taken[side], own[name], (self.at, BACK.index(name)))
            for name, side in (("keys", 0), ("values", 1), ("queries", 0), ("d results", 1))
        }
        found["logs"] = Travelling(self.tokens, True, logs, own["logs"], (self.at, BACK.index("logs")))
        return found | {"dot": Travelling(self.tokens, True, self.dot_now, self.dot)}

    @contextmanager
    def each_block(self, *names: str) -> Iterator[None]:
        """Repeat what is inside for each block of some operands that the PE has a use for: once if there is but one.

        Keys and what belongs to them go to those behind, queries and what belongs to them to those before.  Causal
        PEs have worked on their own queries when they had their own keys.
        """
        if self.rows == 1:
            yield
            return
        with_keys = names[0] in SHARED
        ways = "SN" if not self.causal else "S" if with_keys else "N"
        with self.blocks.each([self.travelling[name] for name in names], ways, with_keys or not self.causal):
            self.loads()
            yield

    def kept(self, name: str) -> bool:
        """Return whether gradients, or results, are f32 sums until the last of their parts has been added."""
        return self.rows > 1 or (self.group > 1 and name in SHARED)

    @contextmanager
    def borrowed(self, data: Reg, names: tuple[str, ...]) -> Iterator[None]:
        """Begin a task with the places of its operands for a head and sequence; give the pointers back at its end."""
        p, s = self.code.p, self.length
        head, behind, place = p.reg16("head"), p.reg16("words"), p.reg16("place")
        p.sar16(head, data, 8)
        p.and16(behind, data, 0xFF)
        p.mul16(behind, behind, s)
        for k, name in enumerate(names):
            p.ld16(place, self.operands, offset=k)
            p.add16(place, place, behind)
            if name == "logs":  # f32, a row per head
                p.add16(place, place, behind)
            step = p.reg16("step")
            p.mul16(step, head, self.words(name) * (1 if name in SHARED else self.group))
            p.add16(place, place, step)
            p.free(step)
            p.st16(place, self.at, offset=k)
        if self.moving is not None:
            self.moving.begin(head)
        p.free(head, behind, place)
        yield
        self.code.prepare()

    def words(self, name: str) -> int:
        """Return the words of a head of an operand."""
        return (2 if name == "logs" else self.size) * self.tokens

    @contextmanager
    def each_head(self, names: tuple[str, ...]) -> Iterator[None]:
        """Repeat what is inside for each query head that shares the head of keys and values."""
        p = self.code.p
        if self.group == 1:
            self.loads()
            yield
            return
        left = p.reg16("heads left")  # in memory meanwhile: exponentials need every register
        p.ldi(left, self.group)
        p.st16(left, self.left)
        p.free(left)
        begin = p.label()
        self.loads()
        yield
        left, place = p.reg16("heads left"), p.reg16("place")
        for k, name in enumerate(names):
            if name not in SHARED:
                p.ld16(place, self.at, offset=k)
                p.add16(place, place, self.words(name))
                p.st16(place, self.at, offset=k)
        if self.moving is not None:
            self.moving.next()
        p.ld16(left, self.left)
        p.sub16(left, left, 1)
        p.st16(left, self.left)
        p.branch("ne", left, 0, begin, "16")
        p.free(left, place)

    def loads(self) -> None:
        """Emit the loads of the pointers."""
        p, s = self.code.p, self.length
        p.load(self.row, p.mem1d(self.code.held["a0"], s))
        p.load(self.numbers, p.mem1d(self.work, s))
        p.load(self.halves, p.mem1d(self.shares, s))
        p.load(self.wide, p.mem1d(self.work, s))
        p.load(self.sums, p.mem1d(self.work, s))

    def place(self, name: str, what: str = "") -> Reg:
        """Emit the load of an operand's place; return the register with it."""
        found = self.code.p.reg16(what or name)
        self.code.p.ld16(found, self.at, offset=BACK.index(name))
        return found

    def vector(self, var: Any) -> Any:
        """Return the first numbers of a row of tokens, as many as a sequence has in the PE."""
        return self.code.p.mem1d(var, self.length)

    def products(self, rows: str, numbers: str, left: Reg) -> None:
        """Emit sums = sum over the features of a row times a number of a token, `left` tokens from the end."""
        p = self.code.p
        p.mov32(self.sums, 0)
        at, factor = self.place(rows, "at"), p.reg16("factor")
        p.dsr_base(self.row, at)
        p.ld16(at, self.at, offset=BACK.index(numbers))
        p.add16(at, at, self.length)
        p.sub16(at, at, left)
        with p.loop(self.size):
            p.ld16(factor, at)
            p.add16(at, at, self.tokens)
            p.fmachs(self.sums, self.sums, self.row, factor)
            p.dsr_off(self.row, self.tokens)
        p.free(at, factor)

    @contextmanager
    def before(self, left: Reg) -> Iterator[Reg]:
        """Emit how many tokens come before the one that is `left` from the end; a register has the number inside.

        Those of another block all come behind: 0.
        """
        p = self.code.p
        count = p.reg16("tokens before")
        p.ldi(count, self.length)
        p.sub16(count, count, left)
        if self.rows > 1:
            own = p.reg16("block is the own one")
            p.ld16(own, self.blocks.is_own)
            p.mul16(count, count, own)
            p.free(own)
        yield count
        p.free(count)

    def windowed(self, rows: Dsr, place: tuple[Reg, int], left: Reg, own: bool, fill: Callable[[], None]) -> None:
        """Emit constants in a row of a key where queries are a window or more away from it.

        Parameters
        ----------
        rows : Dsr
            Writes them.
        place : (Reg, int)
            Where the row begins, and words of each number.
        left : Reg
            Of the keys of the block, with this one.
        own : bool
            Queries are the own ones, and keys those of the block; else the other way round.
        fill : callable
            Emits the constants.
        """
        p, s = self.code.p, self.length
        for behind in [True] * bool(self.window) + [False] * bool(self.window and not self.causal):
            end, at = p.reg16("tokens to the end of the window"), p.reg16("place in the row")
            p.ldi(end, s + (self.window if behind else 1 - self.window))
            p.sub16(end, end, left)
            if self.rows > 1:
                other, here = (self.blocks.block, self.blocks.here) if own else (self.blocks.here, self.blocks.block)
                for block, move in ((other, p.add16), (here, p.sub16)):
                    p.ld16(at, block)
                    p.mul16(at, at, s)
                    move(end, end, at)
            for cond, limit in (("ge", 0), ("le", s)):
                inside = p.new_label()
                p.br16(cond, end, limit, inside)
                p.ldi(end, limit)
                p.place(inside)
            if behind:  # those that come behind the window of the key
                p.mul16(at, end, place[1])
                p.add16(at, at, place[0])
                p.dsr_base(rows, at)
                p.ldi(at, s)
                p.sub16(end, at, end)
            else:
                p.dsr_base(rows, place[0])
            p.dsr_len(rows, end)
            p.free(end, at)
            fill()

    def scale(self, dest: Any, source: Any) -> None:
        """Emit a product with the scale of the scores."""
        self.code.p.fmuls(dest, source, self.scaling)

    def scores(self) -> None:
        """Emit the scores of all keys, a row of queries each, and the largest of each query."""
        p, peak = self.code.p, self.vector(self.code.peak)
        p.mov32(peak, LOWEST)
        row = p.reg16("row of scores")
        p.ldi(row, self.work)
        with self.each_block("keys"), self.each_of_block() as left:
            if self.columns is None:
                p.dsr_base(self.sums, row)
                p.dsr_base(self.numbers, row)
                self.products("queries", "keys", left)
                self.score(row, left, self.numbers)
            else:
                self.sum_over_columns("queries", "keys", left, self.code.one)
                with self.columns.mine():
                    p.dsr_base(self.sums, row)
                    p.dsr_base(self.numbers, row)
                    self.score(row, left, self.vector(self.code.one))
        p.free(row)
        if self.columns is not None:
            self.columns.everywhere(self.code.peak, p.fmaxs)

    def score(self, row: Reg, left: Reg, given: Any) -> None:
        """Emit a row of scores of sums of products, the largest of each query with it, and the way to the next row."""
        p, peak = self.code.p, self.vector(self.code.peak)
        self.scale(self.sums, given)
        if self.moving is not None:
            self.moving.move(self.sums, left, True)
        if self.causal:
            p.dsr_base(self.wide, row)
            with self.before(left) as count:
                p.dsr_len(self.wide, count)
            p.mov32(self.wide, LOWEST)
        self.windowed(self.wide, (row, 2), left, True, lambda: p.mov32(self.wide, LOWEST))
        p.fmaxs(peak, peak, self.numbers)
        p.add16(row, row, 2 * self.length)

    @contextmanager
    def each_of_block(self) -> Iterator[Reg]:
        """Repeat what is inside for each key of a block; a register has how many are left."""
        if self.columns is not None:
            self.columns.start()
        with self.code.p.loop(self.length) as left:
            yield left
            if self.columns is not None:
                self.columns.next()

    def sum_over_columns(self, rows: str, numbers: str, left: Reg, into: Var) -> None:
        """Emit products of a key in all columns of the head: whole at the key's owner, in a row of f32 numbers."""
        assert self.columns is not None
        self.code.p.load(self.sums, self.vector(into))
        self.products(rows, numbers, left)
        self.columns.sum(into)

    @contextmanager
    def each_key(self) -> Iterator[None]:
        """Repeat what is inside for each key that has scores here."""
        p = self.code.p
        if self.rows == 1 and self.columns is None:
            with p.loop(self.length):
                yield
            return
        if self.rows > 1:
            keys = self.blocks.seen("S" if self.causal else "SN")
        else:
            keys = p.reg16("blocks")
            p.ldi(keys, 1)
        if self.columns is None:
            p.mul16(keys, keys, self.length)
        else:
            own = p.reg16("own keys")
            p.ld16(own, self.columns.keys)
            p.mul16(keys, keys, own)
            p.free(own)
        with p.loop(keys, counter=keys):
            yield
        p.free(keys)

    def softmax(self) -> None:
        """Emit shares = exp(scores - peak) in 16 bits, share = 1 / their sum, and the logs of the sums."""
        code, p = self.code, self.code.p
        one, two, peak = (self.vector(var) for var in (code.one, code.two, code.peak))
        p.mov32(two, 0)
        row, share = p.reg16("row of scores"), p.reg16("row of shares")
        p.ldi(row, self.work)
        self.own_shares(share)
        with self.each_key():
            p.dsr_base(self.sums, row)
            p.fsubs(self.sums, self.sums, peak)
            with code.functions.first(self.length):
                code.functions.exp(code.one, row)
            p.fadds(two, two, one)
            p.dsr_base(self.halves, share)
            p.fs2h(self.halves, one)
            p.add16(row, row, 2 * self.length)
            p.add16(share, share, self.length)
        p.free(row, share)
        if self.columns is not None:
            self.columns.everywhere(code.two, p.fadds)
        with code.functions.first(self.length):
            code.functions.reciprocal(self.share, code.two)
            code.functions.log(code.one, code.two)
        p.fadds(one, one, peak)
        logs = self.place("logs")
        p.load(self.wide, p.mem1d(self.work, self.length))
        p.dsr_base(self.wide, logs)
        p.mov32(self.wide, one)
        p.free(logs)

    def mix(self) -> None:
        """Emit the results: values times shares over the keys, times one over the sum."""
        p = self.code.p
        if self.rows == 1:
            if self.columns is not None:
                first = p.reg16("own shares")
                self.own_shares(first)
                self.columns.spread(self.shares, 0, first)
                p.free(first)
            self.summed(("results", "values"), self.vector(self.shares), self.length, self.share)
            return
        p.mov32(self.sums_of("results", 1), 0)
        with self.each_block("values"):
            first = self.shares_of_block()
            at = first if self.columns is None else None
            if self.columns is not None:
                self.columns.spread(self.shares, 0, first)
            self.summed(("results", "values"), self.vector(self.shares), self.length, at=at)
            p.free(first)
        self.rounded("results", factor=self.share)

    def own_shares(self, place: Reg) -> None:
        """Emit the address of the first row of shares that is made here: behind those of a block if heads share."""
        p = self.code.p
        p.ldi(place, self.shares)
        if self.columns is not None:
            behind = p.reg16("shares of a block")
            p.ldi(behind, self.length**2)
            p.add16(place, place, behind)
            p.free(behind)

    def shares_of_block(self) -> Reg:
        """Emit the address of those rows of the present block; return the register with it."""
        p = self.code.p
        block, first = p.reg16("block"), p.reg16("shares of the block")
        p.ld16(block, self.blocks.block)
        p.mul16(block, block, self.length if self.columns is not None else self.length**2)
        if self.columns is not None:
            own = p.reg16("own keys")
            p.ld16(own, self.columns.keys)
            p.mul16(block, block, own)
            p.free(own)
        self.own_shares(first)
        p.add16(first, first, block)
        p.free(block)
        return first

    # --- back ---------------------------------------------------------------------------------------------------------

    def dots(self) -> None:
        """Emit dot = gradients of the results times the results, over the features."""
        code, p = self.code, self.code.p
        one, two = self.vector(code.one), self.vector(code.two)
        p.mov32(self.dot, 0)
        result, delta = self.place("results"), self.place("d results")
        with p.loop(self.size):
            p.dsr_base(self.row, delta)
            p.fh2s(one, self.row)
            p.dsr_base(self.row, result)
            p.fh2s(two, self.row)
            p.fmuls(one, one, two)
            p.fadds(self.dot, self.dot, one)
            p.add16(result, result, self.tokens)
            p.add16(delta, delta, self.tokens)
        p.free(result, delta)
        if self.columns is not None:
            self.columns.everywhere(self.dot, p.fadds)

    def gradients_of_scores(self, dot: Var, own: bool) -> None:
        """Emit shares and their gradients in 16 bits, key after key, of the own queries or of those of a block."""
        code, p, s = self.code, self.code.p, self.length
        one = self.vector(code.one)
        logs, row = self.place("logs"), p.reg16("row of shares")
        p.dsr_base(self.numbers, logs)
        p.free(logs)
        p.ldi(row, self.shares)
        p.load(self.sums, one)
        with self.each_of_block() as left:
            if self.columns is None:
                self.products("queries", "keys", left)
                self.share_of_key(row, left, own)
                self.products("d results", "values", left)
                p.fsubs(one, one, dot)
                self.slope_of_key(row, left, own)
                p.sub16(row, row, s * s - s)
            else:
                self.sum_over_columns("queries", "keys", left, code.one)
                self.sum_over_columns("d results", "values", left, code.peak)
                with self.columns.mine():
                    self.share_of_key(row, left, own)
                    p.fsubs(one, self.vector(code.peak), dot)
                    self.slope_of_key(row, left, own)
                    p.sub16(row, row, s * s)
                p.add16(row, row, s)
        p.free(row)
        if self.columns is not None:
            for behind in (0, s * s):
                self.columns.spread(self.shares, behind)

    def share_of_key(self, row: Reg, left: Reg, own: bool) -> None:
        """Emit the shares of a key of its products, in f32 too."""
        code, p = self.code, self.code.p
        one, two = self.vector(code.one), self.vector(code.two)
        self.scale(one, one)
        if self.moving is not None:
            self.moving.move(one, left, own)
        p.fsubs(one, one, self.numbers)
        with code.functions.first(self.length):
            code.functions.exp(code.one, code.one)
        p.mov32(two, one)
        self.stored(row, two, left, own)

    def slope_of_key(self, row: Reg, left: Reg, own: bool) -> None:
        """Emit the gradients of the shares of a key; `row` is left at them."""
        p, one = self.code.p, self.vector(self.code.one)
        p.fmuls(one, self.vector(self.code.two), one)
        if isinstance(self.moving, BiasTasks):
            self.moving.add_up(one, left)
        self.scale(one, one)
        p.add16(row, row, self.length**2)
        self.stored(row, one, left, own)

    def stored(self, row: Reg, numbers: Any, left: Reg, own: bool) -> None:
        """Emit a row in 16 bits; what a query does not see is zero."""
        p = self.code.p
        p.dsr_base(self.halves, row)
        p.dsr_len(self.halves, self.length)
        p.fs2h(self.halves, numbers)
        if own and self.causal:
            with self.before(left) as count:
                p.dsr_len(self.halves, count)
            p.fmovh(self.halves, 0.0)
        self.windowed(self.halves, (row, 1), left, own, lambda: p.fmovh(self.halves, 0.0))

    def gradients(self) -> None:
        """Emit the gradients of queries: rows of slopes times keys; and, of the own block, those of its keys."""
        p, s = self.code.p, self.length
        p.dsr_len(self.halves, s)
        self.summed(("d queries", "keys"), p.mem1d(self.shares, s, offset=s * s), s)
        if self.rows == 1:
            self.gradients_of_keys()
        elif self.causal:
            end, own = p.new_label(), p.reg16("block is the own one")
            p.ld16(own, self.blocks.is_own)
            p.br16("eq", own, 0, end)
            p.free(own)
            self.gradients_of_keys()
            p.place(end)

    def gradients_of_keys(self) -> None:
        """Emit the gradients of keys and values: columns of slopes times queries, of shares times deltas."""
        p, s = self.code.p, self.length
        self.summed(("d keys", "queries"), p.mem1d(self.shares, s, stride=s, offset=s * s), 1)
        self.summed(("d values", "d results"), p.mem1d(self.shares, s, stride=s), 1)

    def summed(
        self, names: tuple[str, str], first: Any, behind: int, factor: Var | None = None, at: Reg | None = None
    ) -> None:
        """Emit, per feature, sums over tokens of a vector, each `behind` the one before, times a number.

        What is not kept in f32 is multiplied by a factor, if there is one.  A register may have the place of the first
        vector.
        """
        p, s = self.code.p, self.length
        one, kept = self.vector(self.code.one), self.kept(names[0])
        into, numbers, at_number, number = (
            self.place(names[0], "into"),
            self.place(names[1], "numbers"),
            p.reg16(),
            p.reg16(),
        )
        p.load(self.sums, self.sums_of(names[0]) if kept else one)
        with p.loop(self.size):
            if not kept:
                p.mov32(self.sums, 0)
            p.load(self.row, first)
            if at is not None:
                p.dsr_base(self.row, at)
            p.mov16(at_number, numbers)
            with p.loop(s):
                p.ld16(number, at_number)
                p.add16(at_number, at_number, 1)
                p.fmachs(self.sums, self.sums, self.row, number)
                p.dsr_off(self.row, behind)
            if kept:
                p.dsr_off(self.sums, 2 * s)
            else:
                if factor is not None:
                    p.fmuls(one, one, self.vector(factor))
                p.dsr_base(self.halves, into)
                p.fs2h(self.halves, one)
                p.add16(into, into, self.tokens)
            p.add16(numbers, numbers, self.tokens)
        p.free(into, numbers, at_number, number)

    def sums_of(self, name: str, arrays: int = 0) -> Dsd:
        """Return the first row of the sums of an operand of a head, or all of so many operands."""
        behind = {"d values": 1, "d queries": 2}.get(name, 0) * self.size * self.length
        return self.code.p.mem1d(self.work, arrays * self.size * self.length or self.length, offset=behind)

    def rounded(self, *names: str, factor: Var | None = None) -> None:
        """Emit the sums of operands, times a factor if there is one, each rounded once."""
        p, one = self.code.p, self.vector(self.code.one)
        for name in names:
            into = self.place(name, "into")
            p.load(self.numbers, self.sums_of(name))
            with p.loop(self.size):
                p.dsr_base(self.halves, into)
                if factor is None:
                    p.fs2h(self.halves, self.numbers)
                else:
                    p.fmuls(one, self.numbers, self.vector(factor))
                    p.fs2h(self.halves, one)
                p.dsr_off(self.numbers, 2 * self.length)
                p.add16(into, into, self.tokens)
            p.free(into)


def scores_of(node: Node, tokens: int, columns: int, features: int) -> int:
    """Return how many f32 numbers attention works with: scores of the own keys, or sums of gradients.

    Parameters
    ----------
    node : Node
    tokens : int
        Of a PE.
    columns, features : int
        Of a head, and how many of its features one of them has.
    """
    rows = rows_of(node.size("sequence"), tokens)
    length = node.size("sequence") // rows
    kept = 3 if rows > 1 else 2 * (group_of(node) > 1)
    return max(length * rows * keys_of(0, columns, length), kept * features * length)


def shares_of(node: Node, tokens: int, columns: int) -> int:
    """Return how many shares, or shares of a block and their gradients, attention keeps.

    Parameters
    ----------
    node : Node
    tokens : int
        Of a PE.
    columns : int
        Of a head: if there are several, each has shares of its own keys, and those of all keys of a block.
    """
    rows = rows_of(node.size("sequence"), tokens)
    length = node.size("sequence") // rows
    own = rows * keys_of(0, columns, length) * length + length**2 * (columns > 1)
    return max(2 * length**2, own)


LOWEST = 0xFF800000
"""These are the bits of minus infinity in f32."""


def head_of(network: Network, node: Node) -> int:
    """Return the features of a head of a node."""
    return network.tensors[node.name].rows // node.size("heads")


def the_form(network: Network, op: str = "attention") -> Node:
    """Return a node for which the code of all of its operation in a network is written.

    Nodes may differ in the number of heads.

    Raises
    ------
    UnsupportedError
        They differ in something else: a program has one form.
    """
    found = [node for node in network.nodes if node.op == op]

    def form(node: Node) -> object:
        sizes = {name: size for name, size in dict(node.sizes).items() if name not in ("heads", "kv_heads")}
        return head_of(network, node), group_of(node), sizes

    for node in found:
        if form(node) != form(found[0]):
            what = f"{node.name} has other heads, sequences, scales, slopes or masks than {found[0].name}"
            raise UnsupportedError(what, feature=op, where="graph")
    return found[0]


ATTENTION = Lowering(
    COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "attend"), "back": ("backward, {place}", "attend back")},
    tasks_of=AttentionTasks,
)
"""Attention has this form in weight streaming."""

"""An iteration has words: weights and commands of a schedule in the one order that wafers follow.

What leaves
    One stream per column of PEs, step by step: products (rows in order, each followed by partial-sum commands and by
    what is done to the landed row), the loss, then back, the products of transposed matrices and the places at which
    gradients of weights are asked for.  The order is the same for every wafer, so one copy serves all of them.

Order
    All columns' streams are cuts of one order of sending, `fabric.networks.streamed.script.Script.sequence`: row after
    row of a matrix, and every sending of a PE before its taking.  A buffer of any size can hold a window of it without
    a deadlock.

What comes back
    f32 numbers per column in the order of asking; `Script.places` says which parameter's entry each one is.  All wafers
    give the same entries in the same order, `Script.back`, so a tree can add them as they pass.

The words are laid out once per sparsity pattern; an iteration fills in values.

Source: weight streaming white paper, sections 4.3 (order of an iteration), 7.3 (commands), 7.4 (one value array).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.kernels.streamed.gradient import SKIP, TURNED, row_commands
from fabric.kernels.streamed.placement import cut, interleave, sum_tasks
from fabric.networks.graph.attention import biases_of
from fabric.networks.graph.batch_norm import NUMBERS
from fabric.networks.graph.dropout import KEYS, drops_of
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed import commands
from fabric.networks.streamed.filters import asked_filters_of, filters_of, windows_asked
from fabric.networks.streamed.operations.kept import GATHER, INTO
from fabric.networks.streamed.operations.lowering import PASSING, Stage, StepWriter
from fabric.networks.streamed.operations.table import STREAMED, after
from fabric.networks.streamed.parameters import StreamedParameter, StreamedPattern
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.script import Script
from fabric.networks.streamed.words import pairs, steps
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["script_of"]

AGAIN = ", again"
"""The titles of what is computed again on the way back have this behind them."""


def script_of(
    resident: Resident, kind: str, parameters: Sequence[StreamedParameter], said: Sequence[int] = ()
) -> Script:
    """Return the `Script` of an iteration or of a test.

    Parameters
    ----------
    resident : Resident
    kind : {"train", "test"}
    parameters : sequence of StreamedParameter
        In the order of `Network.parameters`.
    said : sequence of int, optional
        How many rows go out of each table that is looked up, which its parameters have.

    Raises
    ------
    ConfigError
        A matrix with gaps, for wafers whose programs take pairs of weights only.
    """
    writer = _Words(resident, parameters, said)
    writer.trains = kind == "train"
    title = ""
    for step in schedule(resident.inner, kind, STREAMED):
        lowering = STREAMED[step.op]
        words = {"place": step.node.place, "number": step.node.number}
        found = lowering.phases.get(step.direction, (title, ""))[0].format(**words)
        if step.again and not found.endswith(AGAIN):
            found += AGAIN
        if found != title:
            asked = writer.numbers[step.parameter.name] if step.direction == "ask" and step.parameter else None
            writer.script.phase(found, asked)
            title = found
        writer.begin(step)
        lowering.write[step.direction](writer, step)
    return writer.script.close()


class _Words(StepWriter):
    """This writer makes words of steps."""

    def __init__(self, resident: Resident, parameters: Sequence[StreamedParameter], said: Sequence[int]) -> None:
        self.resident, self.plan, self.ids = resident, resident.plan, resident.ids
        self.half = resident.half
        tensors = resident.inner.parameters
        self.numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
        self.parameters = dict(zip(self.numbers, parameters, strict=True))
        for tensor in tensors if resident.form == "pairs" else ():
            given = self.parameters[tensor.name]
            if given.pattern.density < 1:
                raise ConfigError(
                    f"{given.name} has gaps, and the wafers take pairs of weights without steps",
                    where="network",
                    hint='form = "both"',
                )
        for node in self.plan.network.nodes if self.plan.network.keep_output else ():
            kept = self.plan.network.parameter(node) if self.plan.network.keeps(node) else None
            if kept is None:
                continue
            given = self.parameters[kept.name]
            if given.pattern.density < 1:
                raise UnsupportedError(
                    f"{given.name} has gaps, and only weights without are kept on the wafers",
                    feature="kept weights",
                    where="memx.keep_output",
                    hint="false, or a dense last product",
                )
        self.loss = len(parameters)  # the number of what carries the loss scale, and brings losses back
        tables = resident.inner.over_batches
        self.tables = {tensor.name: number for number, tensor in enumerate(tables)}
        channels = [tensor.columns for tensor in tables]
        self.sums = resident.width + 2 * np.cumsum([0, *channels])  # places of sums, behind those of the losses
        sizes = [*(p.pattern.count for p in parameters), 1, *(2 * len(NUMBERS) * count for count in channels)]
        self.keys = len(sizes)  # the number of what carries what dropout goes by
        keys, self.said = KEYS * len(drops_of(self.plan.network.nodes)), list(said)
        self.numbers_said = sum(sizes) + keys  # the first of the values that are numbers of rows
        drawn = keys + (sum(said) + 1 if said else 0)
        self.script = Script(resident.width, sizes, [p.gradient_pattern.count for p in parameters], drawn)

    # --- commands -----------------------------------------------------------------------------------------------------

    def word(self, name: str, data: ArrayLike | None = None) -> np.ndarray:
        """Return the payload of a command; without data of its own they are what tells it apart."""
        return commands.word(self.ids[name], commands.data_of(self.ids, name) if data is None else data)

    def tell(self, *names: str, columns: Iterable[int] | None = None, **data: str | int) -> None:
        numbers = {name: self.resident.arrays[of] if isinstance(of, str) else of for name, of in data.items()}
        payload = [*map(self.word, names), *(self.word(name, number) for name, number in numbers.items())]
        for column in range(self.script.columns) if columns is None else columns:
            self.script.words(column, np.array(payload, np.uint32), np.ones(len(payload), bool))
        self.script.turn()

    def each(self, tensor: NetworkTensor, *names: str, unit: int = 1) -> None:
        block = np.array([self.word(name) for name in names], np.uint32)
        for column, count in enumerate(self.plan.layout(tensor).counts):
            payload = np.tile(block, count // unit)
            self.script.words(column, payload, np.ones(len(payload), bool))
        self.script.turn()

    def numbered(self, tensor: NetworkTensor, name: str, together: int = 1) -> None:
        layout = self.plan.layout(tensor)
        for column in range(self.script.columns):
            payload = self.word(name, layout.column(column) // together)
            self.script.words(column, payload, np.ones(len(payload), bool))
        self.script.turn()

    def drawn(self, place: int) -> None:
        payload, all_of_them = np.repeat(self.word("drop_key", 0)[None], KEYS), np.arange(KEYS)
        for column in range(self.script.columns):
            entries = KEYS * place + all_of_them
            self.script.words(column, payload, np.ones(KEYS, bool), all_of_them, self.keys, entries)
        self.script.turn()

    def owned(self, tensor: NetworkTensor, name: str) -> None:
        for column, count in enumerate(self.plan.layout(tensor).counts):
            self.script.words(column, self.word(name, [count]), np.ones(1, bool))
        self.script.turn()

    def heads(self, step: NetworkStep, name: str, sequences: bool = True) -> None:
        whole = self.resident.tokens // step.node.size("sequence")
        each = np.arange(max(1, whole) if sequences else 1)  # of one on several rows each row does its block
        y = self.resident.inner.tensors[step.node.name]
        unit = OPERATIONS[step.op].units(step.node, y.rows)[1]
        for column, count in enumerate(self.plan.layout(y).counts):
            heads = count // unit
            if self.resident.inner.head_columns > 1:
                heads = y.unit // unit if count else 0  # a part of each head of a unit
            data = (np.arange(heads)[:, None] << 8 | each).ravel()
            self.script.words(column, self.word(name, data), np.ones(len(data), bool))
        self.script.turn()

    def biases(self, step: NetworkStep, name: str) -> None:
        found, parameter = biases_of(step.node), step.parameter
        assert found is not None
        assert parameter is not None
        y = self.resident.inner.tensors[step.node.name]
        size, layout, number = y.rows // step.node.size("heads"), self.plan.layout(y), self.numbers[parameter.name]
        for column in range(self.script.columns):
            heads = layout.column(column)[::size] // size
            words = np.full((len(heads), 1 + found.numbers), self.word(name), np.uint32)
            words[:, 0] = self.word("score_head", np.arange(len(heads)))
            entries = (heads[:, None] * found.numbers + np.arange(found.numbers)).ravel()
            slots = np.arange(words.size).reshape(words.shape)[:, 1:].ravel()
            asks = name == "score_sum"
            self.script.words(
                column,
                words.ravel(),
                np.ones(words.size, bool),
                slots[: 0 if asks else None],
                number,
                entries[: 0 if asks else None],
                entries if asks else None,
            )
        self.script.turn()

    def join(self, name: str) -> None:
        last = self.resident.width - 1
        for column in range(last + 1) if last else ():
            through = PASSING[name] if column else "begin"
            self.tell(name if column == last else through, columns=[column])
        for column in range(last - 1, -1, -1):
            self.tell("take", columns=[column])

    def scale(self) -> None:
        none, one = np.zeros(1, np.int64), np.ones(1, bool)
        for column in range(self.script.columns):
            self.script.words(column, self.word("scale")[None], one, none, self.loss, none)
        self.script.turn()

    def answer(self) -> None:
        for column in range(self.script.columns):
            places = np.array([column])
            self.script.words(column, self.word("loss")[None], np.ones(1, bool), parameter=self.loss, places=places)
        self.script.turn()

    def factors(
        self, step: NetworkStep, names: Sequence[str], shift: bool = False, gradient: int | None = None
    ) -> None:
        layout, parameter = self.plan.layout(step.reads[0]), step.parameter
        assert parameter is not None
        block = [self.word("gamma"), *(self.word(name) for name in names)]
        for column, count in enumerate(layout.counts):
            mine = layout.column(column)
            at = np.arange(count) * len(block)
            slots, entries = (at, mine)
            if shift:
                slots, entries = np.concatenate([at, at + len(names)]), np.concatenate([mine, layout.features + mine])
            self.script.words(
                column,
                np.tile(np.array(block, np.uint32), count),
                np.ones(count * len(block), bool),
                slots,
                self.numbers[parameter.name],
                entries,
                None if gradient is None else layout.features * gradient + mine,
            )
        self.script.turn()

    def channels(
        self, step: NetworkStep, words: Sequence[Stage], answers: Sequence[int] = (), made: bool = False
    ) -> None:
        layout, parameter = self.plan.layout(step.writes[0]), step.parameter
        assert parameter is not None
        groups = dict(step.node.sizes).get("groups", parameter.columns)
        pixels, of_group = layout.features // parameter.columns, parameter.columns // groups
        number, first = self.numbers[parameter.name], 0
        if made:
            table = self.tables[parameter.name]
            number, first = self.loss + 1 + table, int(self.sums[table])
        for column in range(self.script.columns):
            payload: list[int] = []
            carried: list[tuple[int, int]] = []
            places: list[int] = []
            mine = layout.column(column)[::pixels] // pixels
            for group in mine.reshape(-1, of_group).tolist():
                for stage in words:
                    if isinstance(stage, str):
                        payload.append(int(self.word(stage)))
                        continue
                    for channel in group:
                        for name, row in stage:
                            if row is not None:
                                carried.append((len(payload), row * parameter.columns + channel))
                            payload.append(int(self.word(name)))
                        places += [first + row * parameter.columns + channel for row in answers]
            slots, entries = np.array(carried, np.int64).reshape(-1, 2).T
            self.script.words(
                column,
                np.array(payload, np.uint32),
                np.ones(len(payload), bool),
                slots,
                number,
                entries,
                np.array(places, np.int64) if answers else None,
            )
        self.script.turn()

    def round_trip(self, step: NetworkStep) -> None:
        assert step.parameter is not None
        name, channels = step.parameter.name, step.parameter.columns
        table = self.tables[name]
        first = int(self.script.offsets[-1]) + int(self.sums[table])
        if step.direction == "back":
            first = int(self.script.offsets[self.numbers[name]])
        self.script.wait(table, step.direction, first + np.arange(2 * channels))

    # --- matrices -----------------------------------------------------------------------------------------------------

    def in_pairs(self, step: NetworkStep) -> bool:
        return self.resident.form != "steps" and self._parameter(step).pattern.density == 1

    def _parameter(self, step: NetworkStep) -> StreamedParameter:
        assert step.parameter is not None
        return self.parameters[step.parameter.name]

    def _located(
        self, step: NetworkStep, pattern: StreamedPattern, x: NetworkTensor
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the column of each entry's input and its row there: row 0 is the row of ones, the input of a bias.

        A bias lies with the output feature.
        """
        below, above = self.plan.layout(x), self.plan.layouts[self.plan.level(step.node.name)]
        bias = pattern.indices == x.rows
        feature = np.where(bias, 0, pattern.indices)
        column = np.where(bias, above.owners(pattern.rows), below.owners(feature))
        return column, np.where(bias, 0, 1 + below.local(feature))

    def gather(self, step: NetworkStep) -> None:
        layout = self.plan.layout(step.reads[0])
        sender, n_rows = layout.owners(np.arange(layout.features)), layout.features
        for column in range(self.script.columns):
            payload = np.full(2 * n_rows, self.word("kept", GATHER))
            payload[::2] = row_commands(sender, column)
            self.script.words(column, payload, np.ones(2 * n_rows, bool), rows=np.arange(2 * n_rows))
        self.script.turn(2 * n_rows)
        self.tell(kept=INTO + self.resident.arrays[self.plan.array(step.writes[0])])

    def product(self, step: NetworkStep) -> None:
        if step.direction == "back" and self.keeps(step):
            self.each(step.writes[0], *after(step))
            return
        parameter, layout = self._parameter(step), self.plan.layout(step.writes[0])
        landing = layout.owners(np.arange(layout.features))
        if step.direction == "forward":
            pattern, entries = parameter.pattern, np.arange(parameter.pattern.count)
            owner, local = self._located(step, pattern, step.reads[0])
            self._rows(step, pattern.rows, entries, owner, local, landing, bool(step.node.size("bias")))
            return
        pattern, entries = parameter.transposed
        kept, given = pattern.rows < layout.features, self.plan.layout(step.reads[0])  # nothing goes through a bias
        features = pattern.indices[kept]
        owner, local = given.owners(features), given.local(features)
        self._rows(step, pattern.rows[kept], entries[kept], owner, local, landing)

    def _rows(
        self,
        step: NetworkStep,
        rows: np.ndarray,
        entries: np.ndarray,
        owner: np.ndarray,
        local: np.ndarray,
        landing: np.ndarray,
        constant: bool = False,
        biases: np.ndarray | None = None,
    ) -> None:
        """Append a product: entries row by row, partial-sum commands, and commands for the column where a row lands.

        `constant` says that the constant input is among the features: its weights are where rows land.  `biases` are
        for filters: which entries are commands of their own.
        """
        columns, number = self.resident.width, self._number(step)
        in_pairs = biases is None and self.in_pairs(step)
        names = after(step)
        alone = {name: self.word(name) for name in ("bias", "last")} if in_pairs else {}
        if self.resident.form == "both" and not self.keeps(step):  # only pairs are kept
            self.tell("pairs" if in_pairs else "steps")
        for column, (order, between) in enumerate(cut(rows, owner, local, columns)):
            tasks, lands = sum_tasks(landing, column, columns), landing == column
            mine = rows[order], order
            sent = pairs(*mine, lands & constant, alone) if in_pairs else steps(*mine, between)
            if biases is not None:
                alone_too = biases[order]
                sent.payload[alone_too], sent.is_control[alone_too] = self.word("plane_bias"), True
            blocks = 1 + len(names) * lands
            words, told = interleave(sent.rows, blocks)
            block = np.zeros(int(blocks.sum()), np.uint32)
            first = np.cumsum(blocks) - blocks
            block[first] = self.word("begin") | tasks.astype(np.uint32) << 16  # ids 0, 1, 2
            for k, name in enumerate(names, 1):
                block[first[lands] + k] = self.word(name)
            payload, is_control = np.zeros(len(words) + len(told), np.uint32), np.zeros(len(words) + len(told), bool)
            payload[words], is_control[words] = sent.payload, sent.is_control
            payload[told], is_control[told] = block, True
            turns = np.empty(len(payload), np.int64)  # weights of a row, then its commands, from the one that begins on
            round_ring = 1 + (column - landing - 1) % columns
            turns[words] = sent.rows * (columns + 1)
            turns[told] = np.repeat(np.arange(len(blocks)) * (columns + 1) + round_ring, blocks)
            (low, lower), (high, upper) = sent.low, sent.high
            self.script.words(
                column,
                payload,
                is_control,
                words[low],
                number,
                entries[lower],
                rows=turns,
                upper=words[high],
                uppers=entries[upper],
            )
        self.script.turn(len(landing) * (columns + 1))

    def filters(self, step: NetworkStep) -> None:
        found, landing = filters_of(self.plan, step, self._parameter(step).pattern)
        self._rows(step, found.rows, found.entries, found.owner, found.local, landing, biases=found.bias)

    def ask_filters(self, step: NetworkStep) -> None:
        pattern = self._parameter(step).gradient_pattern
        asked, sender = asked_filters_of(self.plan, step, pattern)
        whole = pattern.density == 1 and step.parameter is not None and step.parameter.name in self.resident.turned
        n_rows = len(sender)
        for column, (order, between) in enumerate(cut(asked.rows, asked.owner, asked.local, self.script.columns)):
            heads = row_commands(sender, column)
            mine = asked.of(order)
            begins, data = windows_asked(self.plan, step, mine) if whole else (np.arange(len(order)), between)
            words, at = interleave(mine.rows[begins], np.ones(n_rows, np.int64), before=True)
            payload = np.zeros(len(words) + n_rows, np.uint32)
            places = self.word("ask_windows" if whole else "ask", data)
            payload[words] = np.where(mine.bias[begins], self.word("ask_plane"), places)
            payload[at] = heads
            turns = np.empty(len(payload), np.int64)  # commands that move a row, then what is asked
            turns[at], turns[words] = 2 * np.arange(n_rows), 2 * mine.rows[begins] + 1
            asks = np.repeat(words, np.diff(begins, append=len(order)))
            self.script.words(
                column,
                payload,
                np.ones(len(payload), bool),
                parameter=self._number(step),
                places=mine.entries,
                rows=turns,
                asked=turns[asks],
                asks=asks,
            )
        self.script.turn(2 * n_rows)

    def look_up(self, step: NetworkStep, table: int) -> None:
        layout, said = self.plan.layout(step.writes[0]), self._said(step, table)
        columns, first = self._parameter(step).pattern.shape[1], self.script.first(self._number(step))
        for column in np.flatnonzero(layout.counts).tolist():
            mine = layout.column(column)
            payload = np.full((len(said), 1 + len(mine)), self.word("look"))
            payload[:, 0] = self.word("word", 0)
            entries = np.empty(payload.shape, np.int64)
            entries[:, 0], entries[:, 1:] = self.numbers_said + said, first + np.add.outer(said, mine * columns)
            turns = np.repeat(np.arange(len(said)), payload.shape[1])
            whole = payload.ravel(), np.ones(payload.size, bool)
            self.script.words(column, *whole, np.arange(payload.size), 0, entries.ravel(), rows=turns)
        self.script.turn(len(said))

    def _said(self, step: NetworkStep, table: int) -> NDArray[np.int64]:
        """Return the places of a table's rows that go out among those of all tables; the bias's is behind them."""
        first = sum(self.said[:table])
        return np.arange(first, first + (self.said[table] if table < len(self.said) else 1))

    def copy_gradients(self, step: NetworkStep) -> None:
        if self._turned(step):
            counts = self.plan.layout(step.reads[1]).counts
            for column in np.flatnonzero(counts).tolist():
                self.script.words(column, self.word("turn", counts[column])[None], np.ones(1, bool))
            self.script.turn()

    def ask_looked_up(self, step: NetworkStep, table: int) -> None:
        layout, said = self.plan.layout(step.reads[1]), self._said(step, table)
        columns, number = self._parameter(step).pattern.shape[1], self._number(step)
        for column in np.flatnonzero(layout.counts).tolist():
            count = layout.counts[column]
            data = count | TURNED * self._turned(step)
            payload = np.tile([self.word("word", 0), self.word("ask_word", data)], len(said))
            turns, asks = np.repeat(np.arange(len(said)), 2), np.repeat(np.arange(1, len(payload), 2), count)
            entries = self.numbers_said + said - self.script.first(number)
            carried = np.arange(0, len(payload), 2), number, entries
            places = np.add.outer(said, layout.column(column) * columns).ravel()
            told = column, payload, np.ones(len(payload), bool), *carried
            self.script.words(*told, places=places, rows=turns, asked=turns[asks], asks=asks)
        self.script.turn(len(said))

    def _turned(self, step: NetworkStep) -> bool:
        return step.parameter is not None and step.parameter.name in self.resident.turned

    def _number(self, step: NetworkStep) -> int:
        assert step.parameter is not None
        return self.numbers[step.parameter.name]

    def ask(self, step: NetworkStep) -> None:
        x, delta = step.reads
        pattern, n_rows = self._parameter(step).gradient_pattern, delta.rows
        owner, local = self._located(step, pattern, x)
        sender = self.plan.layout(delta).owners(np.arange(n_rows))
        whole = self.resident.form != "steps" and pattern.density == 1  # one command asks for a row
        turned = whole and self._turned(step)
        constant = bool(step.node.size("bias"))
        if turned:
            self._turn(x, constant)
        for column, (order, between) in enumerate(cut(pattern.rows, owner, local, self.script.columns)):
            heads = row_commands(sender, column)
            if whole:
                first, own = np.flatnonzero(np.diff(pattern.rows[order], prepend=-1)), pattern.rows[order]
                counts = np.diff(first, append=len(order)) + TURNED * turned
                skipped = (local[order][first] > 0) & (constant or not turned)  # a copy begins where it is asked for
                heads[own[first]] |= (counts + SKIP * skipped).astype(np.uint32)
                payload, turns, asks = heads, 2 * np.arange(n_rows), own
            else:
                words, at = interleave(pattern.rows[order], np.ones(n_rows, np.int64), before=True)
                payload = np.zeros(len(words) + n_rows, np.uint32)
                payload[words], payload[at] = self.word("ask", between), heads
                turns = np.empty(len(payload), np.int64)  # commands that move a row, then what is asked
                turns[at], turns[words] = 2 * np.arange(n_rows), 2 * pattern.rows[order] + 1
                asks = words
            self.script.words(
                column,
                payload,
                np.ones(len(payload), bool),
                parameter=self._number(step),
                places=order,
                rows=turns,
                asked=turns[asks],
                asks=asks,
            )
        self.script.turn(2 * n_rows)

    def _turn(self, x: NetworkTensor, constant: bool) -> None:
        """Tell every column to copy its features token by token, behind the constant input if there is one."""
        for column, count in enumerate(self.plan.layout(x).counts):
            data = count + 1 if constant else count | SKIP
            self.script.words(column, self.word("turn", data)[None], np.ones(1, bool))
        self.script.turn()

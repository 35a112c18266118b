"""The coordinator of the memory service: weights and commands of an iteration in the one order that wafers follow.

What leaves
    One stream per column of PEs: forward products layer by layer (rows in order, each followed by partial-sum commands
    and by what is done to the landed row), the loss, then per layer, last to first, the activation gradient (the
    transposed matrix; not for layer 1) and the weight gradients that the gradient pattern asks for.  The order is the
    same for every wafer, so one copy serves all of them.

Order
    All columns' streams are cuts of one order of sending, `memx.script.Script.sequence`: row after row of a matrix, and
    every sending of a PE before its taking.  A buffer of any size can hold a window of it without a deadlock.

What comes back
    f32 numbers per column in the order of asking; `memx.script.Script.places` says which parameter's entry each one is.
    All wafers give the same entries in the same order, `Script.back`, so a tree can add them as they pass.

The words of a script are laid out once per sparsity pattern; an iteration fills in values.

Source: weight streaming white paper, sections 4.3 (order of an iteration), 7.3 (commands), 7.4 (one value array).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabric.kernels.streamed.gradient import SKIP, row_commands
from fabric.kernels.streamed.placement import cut, interleave, sum_tasks
from fabric.networks.streamed import commands
from fabric.networks.streamed.oracle import Weights
from fabric.networks.streamed.resident import Resident
from memx.parameter import Parameter
from memx.script import Script
from memx.words import pairs, steps
from wse_core.errors import ConfigError

__all__ = ["Coordinator"]


class Coordinator:
    """Makes the scripts of a network.

    Parameters
    ----------
    resident : Resident
        The network on its wafers.
    matrices : list of Parameter
        Weights of each layer; a bias is the last column.
    norms : dict[int, Parameter]
        Factors (row 0) and shifts (row 1) of the normalised layers, by number of the layer from 0.

    Attributes
    ----------
    parameters : list of Parameter
        All of them; their numbers in scripts.
    """

    def __init__(self, resident: Resident, matrices: Sequence[Parameter], norms: dict[int, Parameter]) -> None:
        self.resident, self.matrices, self.norms = resident, list(matrices), dict(norms)
        self.parameters = [*self.matrices, *(self.norms[k] for k in sorted(self.norms))]
        self._number = {id(parameter): k for k, parameter in enumerate(self.parameters)}
        self._made: dict[str, Any] = {}

    def script(self, kind: str) -> Script:
        """Return the `Script` of an iteration: ``train``, or ``test`` (forward, then how many samples are right).

        Raises
        ------
        ConfigError
            A matrix with gaps, for wafers whose programs take pairs of weights only.
        """
        patterns = [(id(p.pattern), id(p.gradient_pattern)) for p in self.parameters]
        if kind not in self._made or self._made[kind][0] != patterns:
            kept = [(p.pattern, p.gradient_pattern) for p in self.parameters]  # so that their ids stay theirs
            self._made[kind] = patterns, self._write(kind), kept
        return self._made[kind][1]

    def streams(self, kind: str, loss_scale: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return [(payload, is control)] per column for the present values.

        Parameters
        ----------
        kind : {"train", "test"}
        loss_scale : float
            A power of two.
        """
        scale = np.array([loss_scale], np.float32).view(np.uint32) >> np.uint32(16)
        values = np.concatenate([*(p.values for p in self.parameters), scale.astype(np.uint16)]).astype(np.uint32)
        return self.script(kind).fill(values)

    # --- arrays -------------------------------------------------------------------------------------------------------

    def weights(self) -> list[Weights]:
        """Return the present weights layer by layer, as `fabric.networks.streamed.oracle.Oracle` takes them."""
        found = []
        for k, parameter in enumerate(self.matrices):
            active, asked, norm = parameter.pattern, parameter.gradient_pattern, self.norms.get(k)
            found.append(
                Weights(
                    parameter.values,
                    active.rows,
                    active.indices,
                    asked.rows,
                    asked.indices,
                    None if norm is None else norm.values,
                )
            )
        return found

    def gradients(self, layers: list[tuple[np.ndarray, np.ndarray | None]]) -> np.ndarray:
        """Return gradients that are given layer by layer as one vector, in the order of `parameters`."""
        return np.concatenate([*(own for own, _ in layers), *(norm for _, norm in layers if norm is not None)])

    def in_pairs(self, number: int) -> bool:
        """Return whether the weights of a matrix go out without steps."""
        return self.resident.form != "steps" and self.matrices[number].pattern.density == 1

    # --- scripts ------------------------------------------------------------------------------------------------------

    def _write(self, kind: str) -> Script:
        for parameter in self.matrices if self.resident.form == "pairs" else ():
            if parameter.pattern.density < 1:
                raise ConfigError(
                    f"{parameter.name} has gaps, and the wafers take pairs of weights without steps",
                    where="network",
                    hint='form = "both"',
                )
        script = Script(
            self.resident.width,
            [*(p.pattern.count for p in self.parameters), 1],
            [p.gradient_pattern.count for p in self.parameters],
        )
        for level in range(1, len(self.matrices) + 1):
            script.phase(f"forward, layer {level}")
            self._forward(script, level)
        if kind == "test":
            script.phase("right ones")
            self._right(script)
        else:
            script.phase("loss")
            self._loss(script)
            for level in range(len(self.matrices), 0, -1):
                if self.resident.network.layers[level - 1].norm:
                    script.phase(f"backward, normalisation {level}")
                    self._norm_backward(script, level)
                if level > 1:
                    script.phase(f"backward, layer {level}")
                    self._backward(script, level)
                script.phase(f"gradients, layer {level}", level - 1)
                self._ask(script, level)
        return script.close()

    def _array(self, name: str) -> int:
        return self.resident.arrays[name]

    def _owned(self, level: int) -> np.ndarray:
        """Return how many features of a level each column owns."""
        return np.diff(self.resident.places[level].feature_starts)

    def _product(
        self,
        script: Script,
        number: int,
        rows: np.ndarray,
        entries: np.ndarray,
        owner: np.ndarray,
        local: np.ndarray,
        landing: np.ndarray,
        after: Sequence[str],
        constant: bool = False,
    ) -> None:
        """Append a product: entries row by row, partial-sum commands, and commands for the column where a row lands.

        `constant` says that the constant input is among the features: its weights are where rows land.
        """
        columns, in_pairs = self.resident.width, self.in_pairs(number)
        if self.resident.form == "both":
            script.tell("pairs" if in_pairs else "steps")
        for column, (order, between) in enumerate(cut(rows, owner, local, columns)):
            tasks, lands = sum_tasks(landing, column, columns), landing == column
            sent = pairs(rows[order], order, lands & constant) if in_pairs else steps(rows[order], order, between)
            blocks = 1 + len(after) * lands
            words, told = interleave(sent.rows, blocks)
            block = np.zeros(int(blocks.sum()), np.uint32)
            first = np.cumsum(blocks) - blocks
            block[first] = commands.word("begin") | tasks.astype(np.uint32) << 16  # ids 0, 1, 2
            for k, name in enumerate(after, 1):
                block[first[lands] + k] = commands.word(name)
            payload, is_control = np.zeros(len(words) + len(told), np.uint32), np.zeros(len(words) + len(told), bool)
            payload[words], is_control[words] = sent.payload, sent.is_control
            payload[told], is_control[told] = block, True
            turns = np.empty(len(payload), np.int64)  # weights of a row, then its commands, from the one that begins on
            round_ring = 1 + (column - landing - 1) % columns
            turns[words] = sent.rows * (columns + 1)
            turns[told] = np.repeat(np.arange(len(blocks)) * (columns + 1) + round_ring, blocks)
            (low, lower), (high, upper) = sent.low, sent.high
            script.words(
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
        script.turn(len(landing) * (columns + 1))

    def _forward(self, script: Script, level: int) -> None:
        layer, parameter = self.resident.network.layers[level - 1], self.matrices[level - 1]
        pattern = parameter.pattern
        rows, source = self._array(f"a{level}.rows"), f"a{level - 1}" + ".rows" * self.in_pairs(level - 1)
        script.tell(source=self._array(source), result=rows, row=rows)
        active = layer.activation != "none"
        if active:
            script.tell(aux=self._array(f"s{level}"))
        after = (layer.activation,) if active and not layer.norm else ()
        self._product(
            script,
            level - 1,
            pattern.rows,
            np.arange(pattern.count),
            *self.resident.located(pattern.rows, pattern.indices, level),
            self.resident.places[level].owners(np.arange(layer.outputs)),
            after,
            layer.bias,
        )
        if layer.norm:
            self._norm_forward(script, level)
            if active:
                script.tell(row=rows, aux=self._array(f"s{level}"))
                self._each(script, level, layer.activation)

    def _each(self, script: Script, level: int, *names: str) -> None:
        """Append commands once per row that a column owns."""
        for column, count in enumerate(self._owned(level)):
            payload = np.tile(np.array([commands.word(name) for name in names], np.uint32), count)
            script.words(column, payload, np.ones(len(payload), bool))
        script.turn()

    def _join(self, script: Script, name: str) -> None:
        """Append an all-reduce of the sums over the columns: once along the ring to the last, once round to all."""
        last = self.resident.width - 1
        for column in range(last + 1) if last else ():
            if column:
                script.tell(name, columns=[column])
            script.tell("onward", columns=[column])
        for column in range(last):
            script.tell("take", columns=[column])
            if column < last - 1:
                script.tell("onward", columns=[column])

    def _peak(self, script: Script, **pointers: int) -> None:
        """Append the largest logit of each sample, then pointers to the logits and to what goes with them."""
        rows = self._array(f"a{len(self.matrices)}.rows")
        script.tell("floor", row=rows)
        self._each(script, len(self.matrices), "max_row")
        self._join(script, "join_max")
        script.tell("peak", columns=None, row=rows, label=self._array("labels"), **pointers)

    def _right(self, script: Script) -> None:
        """Append what counts the samples whose label has the largest logit."""
        self._peak(script)
        self._each(script, len(self.matrices), "right_row")
        self._answer(script)

    def _answer(self, script: Script) -> None:
        """Append what sends a number per column."""
        for column in range(script.columns):
            script.words(
                column,
                commands.word("loss")[None],
                np.ones(1, bool),
                parameter=len(self.parameters),
                places=np.array([column]),
            )
        script.turn()

    def _loss(self, script: Script) -> None:
        level, number = len(self.matrices), len(self.parameters)
        self._peak(script, wide=self._array("expo"))
        self._each(script, level, "exp_row")
        self._join(script, "join_add")
        script.tell("share")
        script.tell("log", columns=[0])
        for column in range(script.columns):
            script.words(
                column,
                commands.word("scale")[None],
                np.ones(1, bool),
                np.zeros(1, np.int64),
                number,
                np.zeros(1, np.int64),
            )
        script.turn()
        script.tell(
            label=self._array("labels"), wide=self._array("expo"), delta=self._array(self.resident.delta(level))
        )
        self._each(script, level, "delta_row")
        self._answer(script)

    def _backward(self, script: Script, level: int) -> None:
        """Append the gradient of a layer's inputs: the transposed matrix, without biases."""
        layer, parameter = self.resident.network.layers[level - 1], self.matrices[level - 1]
        below, above = self.resident.places[level - 1], self.resident.places[level]
        pattern, entries = parameter.transposed
        kept = pattern.rows < layer.inputs
        owner = above.owners(pattern.indices[kept])
        target = self._array(self.resident.delta(level - 1))
        script.tell(source=self._array(self.resident.delta(level)), result=target)
        active = self.resident.network.layers[level - 2].activation != "none"
        if active:
            script.tell(delta=target, aux=self._array(f"s{level - 1}"))
        self._product(
            script,
            level - 1,
            pattern.rows[kept],
            entries[kept],
            owner,
            pattern.indices[kept] - above.feature_starts[owner],
            below.owners(np.arange(layer.inputs)),
            ("slope",) if active else (),
        )

    def _ask(self, script: Script, level: int) -> None:
        """Append the places at which a layer's gradients are asked for."""
        parameter, above = self.matrices[level - 1], self.resident.places[level]
        pattern, n_rows = parameter.gradient_pattern, self.matrices[level - 1].pattern.shape[0]
        script.tell(source=self._array(f"a{level - 1}"), mine=self._array(self.resident.delta(level)))
        owner, local = self.resident.located(pattern.rows, pattern.indices, level)
        sender = above.owners(np.arange(n_rows))
        whole = self.resident.form != "steps" and pattern.density == 1  # one command asks for a row
        for column, (order, between) in enumerate(cut(pattern.rows, owner, local, script.columns)):
            heads = row_commands(sender, column)
            if whole:
                first, own = np.flatnonzero(np.diff(pattern.rows[order], prepend=-1)), pattern.rows[order]
                counts = np.diff(first, append=len(order))
                heads[own[first]] |= (counts + SKIP * (local[order][first] > 0)).astype(np.uint32)
                payload, turns, asks = heads, 2 * np.arange(n_rows), own
            else:
                words, at = interleave(pattern.rows[order], np.ones(n_rows, np.int64), before=True)
                payload = np.zeros(len(words) + n_rows, np.uint32)
                payload[words], payload[at] = commands.word("ask", between), heads
                turns = np.empty(len(payload), np.int64)  # commands that move a row, then what is asked
                turns[at], turns[words] = 2 * np.arange(n_rows), 2 * pattern.rows[order] + 1
                asks = words
            control = np.ones(len(payload), bool)
            script.words(
                column, payload, control, parameter=level - 1, places=order, rows=turns, asked=turns[asks], asks=asks
            )
        script.turn(2 * n_rows)

    # --- normalisation ------------------------------------------------------------------------------------------------

    def _mean(self, script: Script, level: int) -> None:
        """Append the constant 1 / features."""
        bits = int(np.array([1 / self.resident.places[level].features], np.float32).view(np.uint32)[0])
        script.tell(k_low=bits & 0xFFFF, k_high=bits >> 16)

    def _factors(
        self, script: Script, level: int, names: Sequence[str], shift: bool = False, places: Sequence[str] = ()
    ) -> None:
        """Append, per row, the factor of the feature, then the named commands; the last carries the shift if asked.

        `places` are the commands that send a gradient: ``grad_gamma`` and ``grad_beta``.
        """
        number = self._number[id(self.norms[level - 1])]
        features, starts = self.resident.places[level].features, self.resident.places[level].feature_starts
        block = [commands.word("gamma"), *(commands.word(name) for name in names)]
        for column, count in enumerate(self._owned(level)):
            mine = starts[column] + np.arange(count)
            at = np.arange(count) * len(block)
            slots, entries = (at, mine)
            if shift:
                slots, entries = np.concatenate([at, at + len(block) - 1]), np.concatenate([mine, features + mine])
            sent = [features * (name == "grad_beta") + mine for name in names if name in places]
            script.words(
                column,
                np.tile(np.array(block, np.uint32), count),
                np.ones(count * len(block), bool),
                slots,
                number,
                entries,
                np.stack(sent, 1).reshape(-1) if sent else None,
            )
        script.turn()

    def _norm_forward(self, script: Script, level: int) -> None:
        rows = self._array(f"a{level}.rows")
        self._mean(script, level)
        script.tell(row=rows)
        self._each(script, level, "sum_row")
        self._join(script, "join_add")
        script.tell("mean", row=rows)
        self._each(script, level, "var_row")
        self._join(script, "join_add")
        script.tell(wide=self._array(f"v{level}"))
        script.tell("deviation", row=rows, aux=self._array(f"n{level}"))
        self._each(script, level, "norm_row")
        script.tell(row=rows, aux=self._array(f"n{level}"))
        self._factors(script, level, ("affine",), shift=True)

    def _norm_backward(self, script: Script, level: int) -> None:
        delta, rows = self._array(self.resident.delta(level)), self._array(f"n{level}")
        self._mean(script, level)
        script.tell(delta=delta, wide=self._array(f"v{level}"))
        script.tell("recall")
        self._factors(script, level, ("grad_beta",), places=("grad_beta",))
        script.tell(delta=delta, aux=rows)
        self._factors(script, level, ("grad_gamma",), places=("grad_gamma",))
        script.tell(delta=delta)
        self._factors(script, level, ("back_sum",))
        self._join(script, "join_add")
        script.tell("mean", delta=delta, aux=rows)
        self._factors(script, level, ("back_dot",))
        self._join(script, "join_add")
        script.tell("dot", delta=delta, aux=rows)
        self._factors(script, level, ("back_row",))

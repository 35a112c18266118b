"""Graphs of sequences: what exporters make of attention, turned places and look-ups is read back.

A file arranges, cuts and joins tensors before it multiplies them: heads are split off and transposed, keys repeated,
halves of pairs swapped.  None of that is an operation here.  So each tensor of the file is followed as what it *shows*:
for each of its numbers the place in a tensor of ours, of a few samples, and a factor; what arranges is done to places.
Where numbers meet, places tell what is meant: which heads of which tokens, all tokens in which order.

===========================================================  ========================================================
in the file                                                  here
===========================================================  ========================================================
a parameter looked up by token and by place, and their sum   one product: a token is a one among zeros, its place too
a product of two tensors, scaled, masked, Softmax, a product  `attention`, if all heads are the same but for their place
keys and values that are repeated, head by head              its `kv_heads`
a sum of pairs times cosines and sines                       `rotary`
a tensor of which parts are taken                            a product of each part
functions of numbers, of any steps                           the activation that gives the same at 400 points
x / sqrt(mean x x + epsilon) times a parameter               `rms`
the mean, or sum, of all tokens of a sequence                `tokenmean`
===========================================================  ========================================================

Sources: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23; `fabric.networks.graph`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from fabric.networks.graph.tensors import INPUT
from harness.train.onnx_attention import NEAR
from harness.train.onnx_chosen import ChosenReader
from harness.train.onnx_functions import BINARY, GRID, STEPS, UNARY, Call, after, call_of, composed, powers_of, told
from harness.train.onnx_reader import SAMPLES, FileTensor, OnnxNetwork
from harness.train.onnx_shown import (
    ARRANGE,
    KEEP,
    PLACE,
    ChosenTokens,
    Counts,
    Looked,
    PointwiseFunction,
    Root,
    Scores,
    Shown,
    Summed,
)
from harness.train.onnx_told import ByToken
from wse_core.errors import UnsupportedError

__all__ = ["FeatureReader", "TokenReader", "has_features", "has_sequences"]

FUNCTIONS = ("Clip", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", *(op for op in UNARY if op != "Neg"))
"""These functions of a number are followed."""
COMPARE = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or")
"""What tells which tokens are hidden from others is made of these."""
CHANNELS = ("BatchNormalization", "InstanceNormalization", "GroupNormalization")
"""The second axis of what these take has channels."""


def has_sequences(graph: Any) -> bool:
    """Return whether the samples of a graph are sequences: numbers of tokens, or tokens of features."""
    known = {item.name for item in graph.initializer}
    given = [item.type.tensor_type for item in graph.input if item.name not in known]
    if not given:
        return False
    axes, whole = len(given[0].shape.dim), given[0].elem_type in (6, 7)  # int32, int64
    return axes == 3 or (axes == 2 and whole)


def has_features(graph: Any) -> bool:
    """Return whether the samples of a graph are rows of features."""
    known = {item.name for item in graph.initializer}
    given = [item.type.tensor_type for item in graph.input if item.name not in known]
    return len(given) == 1 and len(given[0].shape.dim) == 2 and given[0].elem_type == 1  # float32


class TokenReader(ChosenReader):
    """A `TokenReader` reads a graph of sequences: attention, turned places, look-ups.

    Parameters
    ----------
    path : Path
        For messages.
    model : onnx.ModelProto
    """

    def _network(self, image: tuple[int, ...]) -> OnnxNetwork:
        places = tuple(number for table in self.tables for number in table)
        return OnnxNetwork(
            self.inputs,
            [],
            self.tensors,
            self.origins,
            tuple(self.warnings),
            self.nodes,
            (),
            self.sequence,
            places,
            tuple(self.fixed_places),
            self.token_scale,
            tuple(self.place_scales) if any(scale != 1 for scale in self.place_scales) else (),
            self.patches,
            self.alone,
            self.masked if self.takes_mask else (),
            tuple(map(int, np.flatnonzero(self.hidden))) if self.hidden is not None else (),
            tied=self.tied,
            ending=self._uncounted(False),
            absent=self._uncounted(True),
        )

    def _uncounted(self, absent: bool) -> tuple[int, ...]:
        """Return tokens that are not counted: those that must not be there, or those that stand behind all others.

        Nothing depends on these if every attention hides them, or sees nothing behind a token.
        """
        tokens = sorted(self.uncounted)
        hides = [causal or (gone is not None and bool(gone[tokens].all())) for causal, gone in self.views]
        taken = not all(hides) or self.alone == "last" or any(one["op"] == "tokenmean" for one in self.nodes)
        return tuple(tokens) if taken == absent else ()

    def _node(self, node: Any) -> None:
        try:
            self._read(node)
        except (IndexError, KeyError, ValueError) as error:  # of arrays whose shapes no operation here has
            self._refuse(node, f"cannot be followed: {' '.join(str(error).split())[:100]}")

    def _release(self, node: Any) -> None:
        super()._release(node)
        for name in node.input:
            if self.left[name] < 1:  # a tensor of a large model shows a great deal
                self.shown.pop(name, None)

    def _read(self, node: Any) -> None:
        """Read a node that depends on the samples."""
        self._folded(node)
        op, names = node.op_type, [name for name in node.input if name in self.shown]
        if node.input and node.input[0] in self.lists:
            self._taken(node)
            return
        if not names:
            if any(name in self.values for name in node.input):
                self.values[node.output[0]] = FileTensor("", ())  # of what was refused
            else:
                super()._node(node)
            return
        if self._tells(node, names) or self._counted(node, names):
            return
        special: dict[str, Callable[[Any, list[str]], bool]] = {
            **dict.fromkeys(ARRANGE, self._move),
            "Gather": self._gather,
            "GatherND": self._move,
            **dict.fromkeys(KEEP, self._keep),
            **dict.fromkeys(FUNCTIONS, self._function),
            "Concat": self._join,
            "Split": self._cut,
            "SplitToSequence": self._cut,
            "Neg": self._scaled,
            "Add": self._combine,
            "Sub": self._combine,
            "Mul": self._combine,
            "Div": self._combine,
            **dict.fromkeys(("Pow", *COMPARE), self._combine),
            "MatMul": self._product,
            "Einsum": self._einsum,
            "Attention": self._whole_attention,
            "Softmax": self._softmax_of,
            "Where": self._between,
            "IsNaN": self._is_none,
            "ReduceMean": self._over_tokens,
            "ReduceSum": self._over_tokens,
            "GlobalAveragePool": self._over_tokens,
            "AveragePool": self._pooled_tokens,
            "RMSNormalization": self._rms,
            "SimplifiedLayerNormalization": self._rms,
            "LayerNormalization": self._norm_of_heads,
        }
        if op in special and special[op](node, names):
            return
        self._by_rows(node, names)

    def _by_rows(self, node: Any, names: list[str]) -> None:
        """Read what is done to the features of each token, whatever order tokens stand in."""
        if node.op_type not in self._readers():
            self._refuse(node, "is not trained here")
            return
        if node.op_type in CHANNELS and len(self.shown[names[0]].shape) != 2:
            self._refuse(node, "tokens stand where it has its channels: rows of features are normalised here")
            return
        order = None
        for name in names:
            found = self._all_features(name, node)
            if found is None:
                return
            whole, rows = found
            if order is not None and not np.array_equal(order, rows):
                self._refuse(node, "takes tokens in two orders")
                return
            order = rows
            self.values[name] = FileTensor(whole, self.shapes[whole])
        super()._node(node)
        made = self.values.get(node.output[0])
        if order is not None and made is not None and made.node:
            self._show_rows(node.output[0], made.node, order)

    def _ends(self) -> None:
        """Take parts for wholes, and see which tokens have a result."""
        output = self.graph.output[0].name
        if self.refused:
            return
        result = SimpleNamespace(name=output, op_type="the result", output=[output])
        found = self._all_features(output, result) if output in self.shown else None
        self._parted()
        if self.refused:
            return
        if found is None or found[0] != (self.nodes[-1]["name"] if self.nodes else ""):
            self.refused.append(f"{output}: is not what the last node gives")
            return
        rows, every = found[1].ravel(), np.arange(self.samples * self.sequence)
        ends = {"first": every[:: self.sequence], "last": every[self.sequence - 1 :: self.sequence]}
        alone = [name for name, tokens in ends.items() if np.array_equal(rows, tokens)]
        self.alone = alone[0] if alone and self.sequence > 1 else ""
        if not self.alone and not np.array_equal(rows, every):
            what = "results of all tokens, or of the first or last of a sequence, are trained here"
            self.refused.append(f"{output}: {what}")

    def _finish(self, name: str, found: Any, node: Any) -> None:
        """Append the product of a look-up, or the activation of a function."""
        if isinstance(found, Looked):
            self._embed(name, found, node)
        elif isinstance(found, ChosenTokens | Summed):
            self._chosen_rows(name, found, node)
        elif isinstance(found, Root):
            self._unit_rows(name, found, node)
        else:
            self._activate(name, found, node)

    def _is_tied(self, name: str) -> bool:
        """Return whether the table of tokens is the matrix of a product too, whole and turned."""
        holds = {ours: origins for ours, origins in self.origins.items() if any(one.name == name for one in origins)}
        found = [ours for ours, origins in holds.items() if len(origins) == 1 and origins[0].columns is None]
        tables = [origins[0] for ours, origins in holds.items() if ours not in found]
        if len(found) != 1 or len(tables) != 1 or tables[0].name != name or tables[0].columns is None:
            return False
        last, begin = self.origins[found[0]][0], tables[0].columns[0]
        if self.tied:  # by another table
            return False
        whole = last.rows is None and last.transposed != tables[0].transposed and begin == 0
        self.tied = found[0].removesuffix(".weight") if whole and self.used[name] == 2 else ""
        return bool(self.tied)

    def _over_features(self, node: Any) -> bool:
        return self._of(node, "axis", -1) in (-1, len(self.shown[node.input[0]].shape) - 1)

    # --- look-ups -----------------------------------------------------------------------------------------------------

    def _gather(self, node: Any, names: list[str]) -> bool:
        """Look rows of a table up, or take numbers of a tensor."""
        return self._look_up(node) if node.input[0] not in self.shown else self._move(node, names)

    def _look_up(self, node: Any) -> bool:
        """Begin a product that looks the rows of a table up."""
        table, ids = node.input[0], self.shown.get(node.input[1])
        if table not in self.origin or self.known[table].ndim != 2 or self._of(node, "axis", 0) != 0:
            self._refuse(node, f"looks up in {table}, which is no table of parameters")
        elif isinstance(ids, ByToken):
            rows = self._counted_rows(node, ids)
            if rows is not None and rows.min() >= 0 and rows.max() < len(self.known[table]):
                self._show(node.output[0], Looked(((table, rows),), ids.tokens, self.known[table].shape[1]))
            else:
                self._refuse(node, "looks up what is no number of a token, nor its place")
        elif not isinstance(ids, Shown) or ids.node != INPUT or not self.numbers or not self._each_once(ids):
            self._refuse(node, "looks up what is no number of a token")
        else:
            self.vocabulary = self.vocabulary or len(self.known[table])
            self._show(node.output[0], Looked(((table, None),), ids.places[0], self.known[table].shape[1]))
        return True

    def _each_once(self, found: Shown) -> bool:
        """Return whether numbers of all tokens are shown, each once, in any order."""
        own = np.all(found.factors == 1)
        return bool(own and np.array_equal(np.sort(found.places.ravel()), np.arange(self.samples * self.sequence)))

    def _table_of(self, name: str, features: int, tokens: np.ndarray) -> tuple[str, np.ndarray] | None:
        """Return a table of parameters and its row for each place, if a constant is that, of such tokens."""
        if name in self.rows:
            rows = self.rows[name]
            table, places = rows.node, rows.places[0]
        elif self.known[name].ndim > 1 and (name in self.origin or self.known[name].shape[-2] == self.sequence):
            table, places = name, np.arange(self.known[name].size).reshape(self.known[name].shape)
        else:
            return None
        if self.known[table].ndim < 2 or places.shape[-1] != features or self.known[table].shape[-1] != features:
            return None
        which = places[..., 0] // features
        if not np.array_equal(places, which[..., None] * features + np.arange(features)):
            return None
        try:
            found = np.broadcast_to(which, tokens.shape)
        except ValueError:
            return None
        which = np.empty((self.samples, self.sequence), int)
        which.ravel()[tokens.ravel()] = found.ravel()
        return (table, which[0]) if np.all(which == which[0]) else None

    def _embed(self, name: str, found: Looked, node: Any) -> None:
        """Append the product of a look-up."""
        by_number = [table for table, rows in found.tables if rows is None]
        if len(by_number) != 1:
            self._refuse(node, f"looks tokens up in {len(by_number)} tables")
            return
        if any(one["inputs"] == [INPUT] for one in self.nodes):
            self._refuse(node, "looks tokens up a second time")
            return
        tables = [*((table, None) for table in by_number), *((t, rows) for t, rows in found.tables if rows is not None)]
        self.token_scale = float(f"{found.factor:.7g}")
        self.vocabulary = len(self.known[by_number[0]])
        self.inputs = 0
        self.shapes[INPUT] = ()
        origin = self.origin[by_number[0]]
        wanted = origin.name.removesuffix(".weight") if origin.name.endswith(".weight") else ""
        made = super()._add_node(
            node,
            "linear",
            FileTensor(INPUT, ()),
            shape=(found.features,),
            name=wanted,
            outputs=found.features,
            bias=False,
        )
        self.tensors[f"{made}.weight"], self.origins[f"{made}.weight"] = np.zeros((found.features, 0), np.float32), ()
        for table, rows in tables:
            self._append_table(made, table, rows)
        self.shapes[INPUT] = (self.inputs,)
        self._show_rows(name, made, found.tokens)

    def _append_table(self, made: str, table: str, rows: np.ndarray | None) -> None:
        """Let the product of the samples take more features: a one among zeros for each row of a table."""
        origin, values = self.origin.get(table), np.asarray(self.known[table], np.float32)
        values = values.reshape(-1, values.shape[-1])
        before = self.tensors[f"{made}.weight"]
        self.tensors[f"{made}.weight"] = np.concatenate([before, values.T], axis=1)
        if origin is not None and origin.name not in self.fixed:
            own = origin._replace(
                transposed=not origin.transposed, columns=(before.shape[1], before.shape[1] + len(values))
            )
            self.origins[f"{made}.weight"] = (*self.origins[f"{made}.weight"], own)
            self.used[origin.name] += 1
        elif rows is not None:
            self.fixed_places.append(len(self.tables))
        else:
            self.refused.append(f"{table}: a table of tokens that is not trained")
        self.inputs += len(values)
        if rows is not None:
            step = int(rows[1] - rows[0]) if len(rows) > 1 else 0
            if not np.array_equal(rows, rows[0] + step * np.arange(len(rows))):
                self.refused.append(f"{table}: places are looked up in an order that has no step")
            self.tables.append((len(values), int(rows[0]), step))
            self.place_scales.append(float(f"{self.table_factors.get(table, 1.0):.7g}"))

    def _placed(self, node: Any, x: str, table: str, rows: np.ndarray) -> bool:
        """Add a table of places to what a product makes of the samples."""
        found = self._all_features(x, node)
        if found is None:
            return True
        if not np.array_equal(found[1].ravel(), np.arange(self.samples * self.sequence)):
            self._refuse(node, "places are added to tokens that stand in another order")
            return True
        one = next((one for one in self.nodes if one["name"] == found[0]), {})
        first = one.get("op") == "linear" and one["inputs"] == [INPUT]
        if not first or self.takes[x] > 1 or sum(INPUT in other["inputs"] for other in self.nodes) > 1:
            self._refuse(node, "places are added to what the first product gives, and there alone")
            return True
        name = found[0]
        if len(self.origins[f"{name}.weight"]) == 1 and self.origins[f"{name}.weight"][0].columns is None:
            (origin,) = self.origins[f"{name}.weight"]
            self.origins[f"{name}.weight"] = (origin._replace(columns=(0, self.inputs)),)
        self._append_table(name, table, rows)
        self.shapes[INPUT] = (self.inputs,)
        self._show(node.output[0], self.shown[x])
        return True

    # --- functions ----------------------------------------------------------------------------------------------------

    def _as_function(self, name: str) -> PointwiseFunction | None:
        """Return a tensor as a function of what is shown, if it is one."""
        found = self.shown.get(name)
        if isinstance(found, PointwiseFunction):
            return found
        if isinstance(found, Shown) and len(found.places) == 1 and np.ndim(found.factors) == 0:
            factor = float(found.factors)
            return PointwiseFunction(found._replace(factors=1.0), lambda x: factor * x)
        return None

    def _function(self, node: Any, names: list[str]) -> bool:
        found, call = self.shown[node.input[0]], call_of(node, self.known, self._of)
        if call is None:
            self._refuse(node, "has limits that no file says")
            return True
        if isinstance(found, Root):
            self._show(node.output[0], found._replace(call=after(call, found.call)))
            return True
        own = self._as_function(node.input[0])
        if own is None and isinstance(found, Looked):
            own = self._as_function(node.input[0]) if self._plain(node.input[0], node) else None
        if own is None:
            self._refuse(node, "is a function of what cannot be followed")
            return True
        self._go_on(node, own.of, after(call, own.call))
        return True

    def _between(self, node: Any, names: list[str]) -> bool:
        """Choose between functions of the same numbers, or constants, by another one; else as masks do."""
        found = [self._as_function(name) for name in node.input]
        numbers = [self.known.get(name, np.zeros(2)) for name in node.input]
        bases = [one.of for one in found if one is not None]
        plain = all(one is not None or array.size == 1 for one, array in zip(found, numbers, strict=True))
        alike = all(one.node == bases[0].node and np.array_equal(one.places, bases[0].places) for one in bases)
        if not bases or found[0] is None or not plain or not alike:
            return self._where(node, names)
        parts = [array.reshape(()) if one is None else one.call for one, array in zip(found, numbers, strict=True)]
        self._go_on(node, bases[0], lambda x: np.where(*(part(x) if callable(part) else part for part in parts)))
        return True

    def _go_on(self, node: Any, of: Shown, call: Call) -> None:
        """Show a function that a node makes of others."""
        given = {name: self.shown[name] for name in node.input if isinstance(self.shown.get(name), PointwiseFunction)}
        self._show(node.output[0], PointwiseFunction(of, call, (node, given) if given else None))

    def _in_steps(self, name: str, node: Any, given: dict[str, Any]) -> None:
        """Append what a node does to functions, these by themselves before."""
        self.shown |= given
        if all(self._plain(one, node) is not None for one in given):
            self._read(node)
            made = node.output[0]
            if made in self.shown and (plain := self._plain(made, node)) is not None:
                self._show(name, plain)

    def _activate(self, name: str, found: PointwiseFunction, node: Any) -> None:
        """Append the activation that a function is; a plain multiple stays what it shows."""
        row, factor = told(found.call)
        if factor is not None:
            self._show(name, found.of._replace(factors=factor * found.of.factors))
            return
        steps = row is None and found.last is not None and found.last[0].op_type in STEPS
        if steps and found.last and composed(found.call) is None and powers_of(found.call) is None:
            self._in_steps(name, *found.last)
            return
        node = next((one for one in self.graph.node if name in one.output), node)  # that is what is named
        self.shown[f"{name}#"] = found.of
        whole = self._all_features(f"{name}#", node)
        if whole is not None and row is None:
            x = FileTensor(whole[0], self.shapes[whole[0]])
            made = self._of_parts(node, x, found.call, self._free(name)).node
            if made:
                self._show_rows(name, made, whole[1])
        elif whole is not None and row is not None:
            made = self._add_node(node, row.name, FileTensor(whole[0], self.shapes[whole[0]]), name=self._free(name))
            self._show_rows(name, made, whole[1])

    def _free(self, name: str) -> str:
        return re.sub(r"[^\w.]+", "_", name).strip("_.")

    def _scaled(self, node: Any, names: list[str]) -> bool:
        """Turn the signs of what is shown (``Neg``)."""
        found = self.shown[node.input[0]]
        if isinstance(found, Shown):
            self._show(node.output[0], found._replace(factors=-1.0 * found.factors))
            return True
        own = self._as_function(node.input[0])
        if own is None:
            self._refuse(node, "turns signs of what cannot be followed")
            return True
        self._go_on(node, own.of, after(np.negative, own.call))
        return True

    def _combine(self, node: Any, names: list[str]) -> bool:
        """Add or multiply: functions of the same, a constant, terms of pairs that are turned; else rows."""
        op, call = node.op_type, BINARY[node.op_type]
        if len(names) == 2 or (len(names) == 1 and node.input[0] == node.input[1]):
            return self._combine_two(node, op, call)
        place = 0 if node.input[0] in self.shown else 1
        name, other = node.input[place], node.input[1 - place]
        found, constant = self.shown[name], self.known.get(other)
        if constant is None:
            return False
        if isinstance(found, Scores):
            self._on_scores(node, found, constant, other)
            return True
        if isinstance(found, Root):
            self._on_root(node, found, constant, other, place)
            return True
        trained = other in self.origin or other in self.rows
        if constant.size == 1 and op == "Mul" and other in self.origin:
            return False
        if constant.size == 1 and found.shape[-1:] == (1,) and op == "Add" and other in self.origin:
            return False  # the bias of a single feature
        if constant.size == 1 and (trained or other in self.derived):
            self._refuse(node, "takes a number that is a parameter, or made of them")
            return True
        if op == "Add" and isinstance(found, Looked | Shown) and (trained or other not in self.derived):
            every = np.arange(self.samples * self.sequence).reshape(self.samples, -1)
            table = self._table_of(other, found.shape[-1], found.tokens if isinstance(found, Looked) else every)
            if table is not None and isinstance(found, Looked):
                if other in self.row_factors:
                    self.table_factors[table[0]] = self.row_factors[other]
                self._show(node.output[0], found._replace(tables=(*found.tables, table)))
                return True
            if table is not None and len(table[1]) > 1 and other not in self.row_factors:
                return self._placed(node, name, *table)
        if trained and (op == "Add" or constant.size == constant.shape[-1]):
            if constant.ndim > 1 and constant.size == constant.shape[-1]:
                self.known[other] = constant.reshape(-1)
            return False
        if constant.size == 1:
            scale = float(constant.reshape(()))
            times = op == "Mul" or (op == "Div" and place == 0)
            if times and isinstance(found, Looked) and [rows for _, rows in found.tables] == [None]:
                self._show(node.output[0], found._replace(factor=float(call(found.factor, scale))))
                return True
            if isinstance(found, Looked):
                found = self._plain(name, node)
            if isinstance(found, Shown) and (op == "Mul" or (op == "Div" and place == 0)):
                self._show(node.output[0], found._replace(factors=call(found.factors, scale)))
                return True
            own = self._as_function(name)
            if own is not None:
                inner = own.call
                new = (lambda x: call(inner(x), scale)) if place == 0 else (lambda x: call(scale, inner(x)))
                self._go_on(node, own.of, new)
                return True
        if (trained or other in self.derived) and np.all(constant == constant.flat[0]):
            self._refuse(node, "takes numbers that are parameters, or made of them")
            return True
        if isinstance(found, Shown) and op == "Mul" and constant.ndim <= len(found.shape):
            factors = np.broadcast_to(found.factors, found.places.shape) * constant
            self._show(node.output[0], found._replace(factors=factors))
            return True
        self._refuse(node, "takes numbers of the file that are not trained")
        return True

    def _combine_two(self, node: Any, op: str, call: Callable[..., np.ndarray]) -> bool:
        """Follow an operation on two tensors that both depend on samples."""
        one, other = (self.shown[name] for name in node.input)
        for scores, function in ((one, other), (other, one)):
            if isinstance(scores, Scores) and isinstance(function, ByToken) and op == "Add":
                self._hide_by_numbers(node, scores, function)
                return True
        for by, of in ((0, 1), (1, 0)):
            by_token = self.shown[node.input[by]]
            if op == "Mul" and isinstance(by_token, ByToken) and self._told(node.input[of]) is None:
                self._choose(node, node.input[of], by_token)
                return True
        if op == "Div" and isinstance(one, Summed) and isinstance(other, Counts):
            self._divided(node, one, other)
            return True
        alike = isinstance(one, Looked) and isinstance(other, Looked) and np.array_equal(one.tokens, other.tokens)
        if alike and op == "Add":
            self._show(node.output[0], one._replace(tables=one.tables + other.tables, factor=one.factor * other.factor))
            return True
        for name in node.input:
            if isinstance(self.shown[name], Looked | ChosenTokens | Summed) and self._plain(name, node) is None:
                return True
        one, other = (self.shown[name] for name in node.input)
        root, rest = (one, other) if isinstance(one, Root) else (other, one)
        if isinstance(root, Root) and isinstance(rest, Shown):
            inverse = after(np.reciprocal, root.call) if op == "Div" and rest is one else root.call
            same = rest.node == root.of.node and np.array_equal(rest.places, root.of.places)
            if same and not root.whole and (op == "Mul" or (op == "Div" and rest is one)):
                self._show(node.output[0], Root(root.of, inverse, True))
            else:
                self._refuse(node, "of a mean of squares is no normalisation")
            return True
        a, b = self._as_function(node.input[0]), self._as_function(node.input[1])
        same = a is not None and b is not None and a.of.node == b.of.node and np.array_equal(a.of.places, b.of.places)
        plain = isinstance(one, Shown) and isinstance(other, Shown)
        if a is not None and b is not None and same and not (plain and op in ("Add", "Sub")):
            first, second = a.call, b.call
            self._go_on(node, a.of, lambda x: call(first(x), second(x)))
            return True
        pairs = plain and op in ("Add", "Sub") and one.node == other.node and one.shape == other.shape
        if pairs and (isinstance(one.factors, np.ndarray) or isinstance(other.factors, np.ndarray)):
            both = [np.broadcast_to(part.factors, part.places.shape) for part in (one, other)]
            both[1] = -both[1] if op == "Sub" else both[1]
            places = np.concatenate([one.places, other.places])
            self._show(node.output[0], Shown(one.node, places, np.concatenate(both)))
            return True
        return False

    # --- means over tokens --------------------------------------------------------------------------------------------

    def _over_tokens(self, node: Any, names: list[str]) -> bool:
        """Take the mean over the tokens of a sequence, or begin a normalisation by the mean of squares."""
        found = self.shown[node.input[0]]
        axes = self._axes_of(node, len(found.shape))
        along = [axis for axis in axes if found.shape[axis] > 1] or axes[:1]
        if isinstance(found, ByToken) and self._count(node, found, axes):
            return True
        if isinstance(found, ChosenTokens) and node.op_type == "ReduceSum" and self._along_tokens(found.of, along):
            self._sum(node, found, along[0], axes)
            return True
        if node.op_type == "ReduceMean" and axes == [len(found.shape) - 1] and not self._along_tokens(found, along):
            return self._root(node, names)
        plain = self._plain(node.input[0], node)
        if plain is None:
            return True
        if not self._along_tokens(plain, along):
            self._refuse(node, "only means over all tokens of a sequence are taken here, and over features in norms")
            return True
        self._averaged(node, plain, along[0], axes)
        return True

    def _pooled_tokens(self, node: Any, names: list[str]) -> bool:
        """Take the mean over the tokens of a sequence, if they are all of a window; return whether that is so."""
        sides, found = list(self._of(node, "kernel_shape", [])), self.shown[node.input[0]]
        axes = [len(found.shape) - len(sides) + k for k, side in enumerate(sides) if side > 1]
        whole = len(axes) == 1 and found.shape[axes[0]] == max(sides) and not any(self._of(node, "pads", [0]))
        plain = self._plain(node.input[0], node) if whole else None
        if plain is not None and self._along_tokens(plain, axes):
            self._averaged(node, plain, axes[0], axes)
            return True
        return False

    def _axes_of(self, node: Any, count: int) -> list[int]:
        """Return the axes over which a node takes a mean or a sum."""
        if node.op_type == "GlobalAveragePool":
            return list(range(2, count))
        axes = self._of(node, "axes", None)
        if axes is None and len(node.input) > 1 and node.input[1]:
            axes = self.known.get(node.input[1], np.array([])).ravel().tolist()
        return sorted(int(axis) % count for axis in axes or []) or list(range(count))

    def _along_tokens(self, found: Any, axes: list[int]) -> bool:
        """Return whether an axis has all tokens of a sequence, each once, at one feature."""
        if not isinstance(found, Shown):
            base = getattr(found, "of", None)
            return isinstance(base, Shown) and self._along_tokens(base, axes)
        if len(found.places) > 1 or not self.shapes.get(found.node):
            return False
        if len(axes) != 1 or found.shape[axes[0]] != self.sequence or np.ndim(found.factors):
            return False
        count = self.shapes[found.node][0]
        moved = np.moveaxis(found.places[0], axes[0], -1)
        tokens = np.sort(moved // count, axis=-1)
        begin = tokens[..., :1]
        whole = np.array_equal(tokens, begin + np.arange(self.sequence)) and np.all(begin % self.sequence == 0)
        return bool(whole and np.all(moved % count == moved[..., :1] % count))

    def _averaged(self, node: Any, found: Shown, axis: int, axes: Sequence[int]) -> None:
        """Append a mean over the tokens of a sequence, an axis; what is shown is that of its first token."""
        count = self.shapes[found.node][0]
        name = next(
            (one["name"] for one in self.nodes if one["op"] == "tokenmean" and one["inputs"] == [found.node]), ""
        )
        name = name or self._add_node(node, "tokenmean", FileTensor(found.node, (count,)), name=f"{found.node}.mean")
        own = np.take(found.places[0], [0], axis)
        places = own // count // self.sequence * (self.sequence * count) + own % count
        if "AveragePool" not in node.op_type and not self._of(node, "keepdims", 1):
            places = places.squeeze(tuple(axes))
        factor = self.sequence if node.op_type == "ReduceSum" else 1
        self._show(node.output[0], Shown(name, places[None], found.factors * factor))

    # --- normalisation without a mean ---------------------------------------------------------------------------------

    def _root(self, node: Any, names: list[str]) -> bool:
        """Begin a normalisation by the mean of squares."""
        axes = self._of(node, "axes", None)
        if axes is None and len(node.input) > 1:
            axes = self.known.get(node.input[1], np.array([])).tolist()
        own = self._as_function(node.input[0])
        squares = own is not None and np.allclose(own.call(GRID), GRID * GRID)
        last = own is not None and [axis % len(own.shape) for axis in axes or []] == [len(own.shape) - 1]
        if own is None or not squares or not last or not self._of(node, "keepdims", 1):
            self._refuse(node, "only the mean of squares of all features is taken here")
            return True
        self._show(node.output[0], Root(own.of, lambda x: x))
        return True

    def _on_root(self, node: Any, found: Root, constant: np.ndarray, other: str, place: int) -> None:
        """Go on with a normalisation: epsilon, a power, one over it, and the factors at the end."""
        call, inner = BINARY[node.op_type], found.call
        if constant.size == 1 and not found.whole and other not in self.origin and other not in self.derived:
            number = float(constant.reshape(()))
            new = (lambda x: call(inner(x), number)) if place == 0 else (lambda x: call(number, inner(x)))
            self._show(node.output[0], found._replace(call=new))
        elif found.whole and node.op_type == "Mul" and other in self.origin:
            self._normed(node, found, 1 - place)
        else:
            self._refuse(node, "of a mean of squares is no normalisation")

    def _unit_rows(self, name: str, found: Root, node: Any) -> None:
        """Append a normalisation without a mean, whose factors are ones that stay."""
        node = next((one for one in self.graph.node if name in one.output), node)
        self.shown[f"{name}#"] = found.of
        whole = self._all_features(f"{name}#", node) if self._is_unit(node, found) else None
        if whole is not None:
            count = self.shapes[whole[0]][0]
            made = self._add_node(node, "rms", FileTensor(whole[0], (count,)), name=self._free(name))
            self.nodes[-1]["fixed"] = True
            self.tensors[f"{made}.norm.weight"], self.origins[f"{made}.norm.weight"] = np.ones(count, np.float32), ()
            self._show_rows(name, made, whole[1])

    def _normed(self, node: Any, found: Root, place: int) -> None:
        """Append a normalisation without a mean, whose factors are an input of a node."""
        if self._is_unit(node, found):
            self.shown[f"{node.output[0]}#"] = found.of
            self._rms_of(node, f"{node.output[0]}#", place)

    def _is_unit(self, node: Any, found: Root) -> bool:
        """Note epsilon, and return whether a function of a mean of squares is one over its root."""
        squares = np.array([0.0, 0.25, 1.0, 9.0])
        with np.errstate(all="ignore"):
            given = found.call(squares)
        self._epsilon(node, float(given[0]) ** -2)
        if not np.allclose(given[1:], 1 / np.sqrt(squares[1:] + float(given[0]) ** -2), rtol=NEAR):
            self._refuse(node, "of a mean of squares is no normalisation")
            return False
        return True

    def _norm_of_heads(self, node: Any, names: list[str]) -> bool:
        """Append a normalisation of each head by itself; return whether a tensor shows heads, and not tokens."""
        found = self.shown[node.input[0]]
        last = self._of(node, "axis", -1) in (-1, len(found.shape) - 1)
        if len({name in self.origin for name in node.input[1:3]}) > 1 or len(node.input) < 3 or not last:
            return False
        self._epsilon(node, self._of(node, "epsilon", 1e-5))
        return self._of_heads(node, found, 1, "groupnorm")

    def _of_heads(self, node: Any, found: Any, place: int, op: str = "headrms") -> bool:
        """Append a normalisation of each head by itself, if a tensor shows heads; return whether it does."""
        if not isinstance(found, Shown) or len(found.shape) < 2 or not self.shapes.get(found.node):
            return False
        count, size = self.shapes[found.node][0], found.shape[-1]
        tokens, features = found.places[0][..., 0] // count, found.places[0][..., 0] % count
        firsts = np.unique(features)
        whole = self.known.get(node.input[place], np.zeros(())).shape[-1:] == (size,) and size < count
        whole &= len(found.places) == 1 and np.ndim(found.factors) == 0 and len(firsts) * size <= count
        whole &= np.array_equal(found.places[0], (tokens * count + features)[..., None] + np.arange(size))
        if not whole or tokens.size != self.samples * self.sequence * len(firsts):
            return False
        part = self._part(found.node, (firsts[:, None] + np.arange(size)).ravel(), "", node)
        part = self._times(node, part, float(found.factors)) if part and found.factors != 1 else part
        width, heads = len(firsts) * size, len(firsts)
        if part:
            named = self._named(node, place).removesuffix(".norm")
            name = self._add_node(node, op, FileTensor(part, (width,)), name=named, groups=heads)
            self.nodes[-1] |= {"shared": size} if heads > 1 else {}
            for more, what in enumerate(("weight", "bias") if op == "groupnorm" else ("weight",)):
                self._factors(node, place + more, f"{name}.norm.{what}", width)
            places = tokens * width + np.searchsorted(firsts, features) * size
            self._show(node.output[0], Shown(name, (places[..., None] + np.arange(size))[None].astype(PLACE)))
        return True

    def _rms_of(self, node: Any, of: str, place: int) -> None:
        if self._of_heads(node, self.shown[of], place):
            return
        whole = self._all_features(of, node)
        if whole is None:
            return
        count = self.shapes[whole[0]][0]
        if self.known.get(node.input[place], np.zeros(())).shape[-1:] != (count,):
            self._refuse(node, f"factors of a normalisation are one for each of {count} features here")
            return
        named = self._named(node, place).removesuffix(".norm")
        name = self._add_node(node, "rms", FileTensor(whole[0], (count,)), name=named)
        self._factors(node, place, f"{name}.norm.weight", count)
        self._show_rows(node.output[0], name, whole[1])

    def _factors(self, node: Any, place: int, key: str, count: int) -> None:
        """Keep the factors of a normalisation without a mean, repeated; constants of a file stay what they are."""
        values = self.known.get(node.input[place])
        if values is None or node.input[place] in self.origin:
            self._vector(node, place, key, count, "a weight", repeated=True)
            return
        self.nodes[-1]["fixed"] = True
        self.tensors[key], self.origins[key] = np.resize(np.asarray(values, np.float32), count), ()

    def _rms(self, node: Any, names: list[str]) -> bool:
        found = self.shown[node.input[0]]
        if self._of(node, "axis", -1) not in (-1, len(found.shape) - 1):
            self._refuse(node, "only the features of a token are normalised here")
            return True
        self._epsilon(node, self._of(node, "epsilon", 1e-5))
        self._rms_of(node, node.input[0], 1)
        return True


class FeatureReader(TokenReader):
    """Reads a graph of rows of features: each sample is a sequence of one token."""

    def _by_rows(self, node: Any, names: list[str]) -> None:
        if node.op_type in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize"):
            self._refuse(node, "takes features as an image that are taken as features too, or in another order")
        else:
            super()._by_rows(node, names)

    def _begin(self, given: Any) -> tuple[int, ...]:
        """Take the input of the graph."""
        sizes = [item.dim_value for item in given.type.tensor_type.shape.dim]
        if sizes[1] < 1:
            what = f"{given.name}: so many features as are given"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint="a fixed number of them")
        self.samples, self.sequence, self.inputs = sizes[0] if sizes[0] > 0 else SAMPLES, 1, sizes[1]
        self.shapes[INPUT] = (self.inputs,)
        places = np.arange(self.samples * self.inputs, dtype=PLACE).reshape(1, self.samples, self.inputs)
        self._show(given.name, Shown(INPUT, places))
        return ()

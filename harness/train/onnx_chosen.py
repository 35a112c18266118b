"""Sums and means over some tokens of a sequence: those that a mask lets through.

Tokens times numbers that their own numbers tell become a product, of weights that are not trained, and `mul`.  A sum of
tokens that are kept or not, divided by how many are kept, is their mean: attention of a constant query to keys that are
hidden or not, whose shares are all alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.networks.graph.tensors import INPUT
from harness.train.onnx_attention import NEAR, AttentionReader
from harness.train.onnx_functions import BINARY, after, call_of
from harness.train.onnx_reader import FileTensor
from harness.train.onnx_shown import ARRANGE, KEEP, ChosenTokens, Counts, Shown, Summed
from harness.train.onnx_told import ByToken

__all__ = ["ChosenReader"]

HEADS = 8
"""Where no attention says how many heads there are, features are divided into so many, or fewer."""


class ChosenReader(AttentionReader):
    """A `ChosenReader` reads sums over the tokens that a mask lets through.

    Parameters
    ----------
    path : Path
        For messages.
    model : onnx.ModelProto
    """

    def _choose(self, node: Any, name: str, told: ByToken) -> None:
        """Multiply tokens with what the numbers of each tell."""
        found = self._plain(name, node)
        if found is None:
            return
        count = self.shapes[found.node][0] if self.shapes.get(found.node) else 0
        try:
            spread = told.spread(found.shape)
        except ValueError:
            spread = told
        whole = count and len(found.places) == 1 and np.ndim(found.factors) == 0 and self.vocabulary
        if not whole or spread.shape != found.shape or not np.array_equal(found.places[0] // count, spread.tokens):
            self._refuse(node, "multiplies tokens with what others tell, or with more than a number for each")
            return
        weights = self._by_number(spread)
        if weights is None:
            self._refuse(node, "multiplies features of a token with different numbers that it tells")
            return
        self._show(node.output[0], ChosenTokens(found, weights))

    def _by_number(self, told: ByToken) -> np.ndarray | None:
        """Return what each number of a token tells; None if that depends on places."""
        kinds, which = np.unique(np.asarray(told.number(np.arange(self.vocabulary))), return_inverse=True)
        values = [np.asarray(told.whole(kind), np.float32).ravel() for kind in kinds]
        alike = all(np.all(one == one[0]) for one in values)
        return np.array([one[0] for one in values], np.float32)[which] if alike else None

    def _counted(self, node: Any, names: list[str]) -> bool:
        """Go on with numbers of tokens that a mask keeps; return whether a node does that."""
        found = self.shown.get(names[0]) if names else None
        op, constants = node.op_type, [name for name in node.input if name in self.known]
        if not isinstance(found, Counts) or len(names) > 1:
            return False
        if op in ARRANGE and names[0] == node.input[0]:
            own = self._arranged(node, np.arange(found.sequences.size).reshape(1, *found.shape))[0]
            self._show(node.output[0], found._replace(sequences=found.sequences.ravel()[own]))
        elif op in KEEP and op != "Dropout":
            self._show(node.output[0], found)
        elif op in BINARY and len(node.input) == 2 and len(constants) == 1 and self.known[constants[0]].size == 1:
            call, number = BINARY[op], float(self.known[constants[0]].reshape(()))
            left = node.input[0] == names[0]
            new = (lambda x: call(x, number)) if left else (lambda x: call(number, x))
            self._show(node.output[0], found._replace(call=after(new, found.call)))
        else:
            function = call_of(node, self.known, self._of)
            if function is None:
                return False
            self._show(node.output[0], found._replace(call=after(function, found.call)))
        return True

    def _count(self, node: Any, told: ByToken, axes: list[int]) -> bool:
        """Count the tokens of a sequence that a mask keeps; return whether that is what is summed."""
        along = [axis for axis in axes if told.shape[axis] > 1] or axes[:1]
        if node.op_type != "ReduceSum" or len(along) != 1 or told.shape[along[0]] != self.sequence:
            return False
        tokens, weights = np.moveaxis(told.tokens, along[0], -1), self._by_number(told)
        begin = tokens[..., :1]
        whole = np.array_equal(tokens, begin + np.arange(self.sequence)) and np.all(begin % self.sequence == 0)
        if not whole or weights is None:
            return False
        sequences = np.take(told.tokens, [0], along[0]) // self.sequence
        if not self._of(node, "keepdims", 1):
            sequences = sequences.squeeze(tuple(axes))
        self._show(node.output[0], Counts(weights, sequences))
        return True

    def _sum(self, node: Any, found: ChosenTokens, axis: int, axes: list[int]) -> None:
        """Add tokens that have been multiplied with what they tell."""
        count = self.shapes[found.of.node][0]
        own = np.take(found.of.places[0], [0], axis)
        places = own // count // self.sequence * (self.sequence * count) + own % count
        places = places if self._of(node, "keepdims", 1) else places.squeeze(tuple(axes))
        self._show(node.output[0], Summed(found, places))

    def _divided(self, node: Any, one: Summed, other: Counts) -> None:
        """Divide a sum over tokens that are kept by how many they are."""
        every, count = np.arange(1, self.sequence + 1), self.shapes[one.of.of.node][0]
        with np.errstate(all="ignore"):
            numbers = np.asarray(other.call(every.astype(float)), float)
        try:
            sequences = np.broadcast_to(other.sequences, one.shape)
        except ValueError:
            sequences = other.sequences
        kept, weights = np.isin(one.of.weights, (0, 1)).all(), one.of.weights
        alike = sequences.shape == one.shape and np.array_equal(one.places // (self.sequence * count), sequences)
        if not kept or not alike or not np.array_equal(weights, other.weights) or not np.allclose(numbers, every, NEAR):
            self._refuse(node, "divides a sum over tokens by something else than how many of them are kept")
        elif not weights.any():
            self._refuse(node, "keeps no token")
        else:
            name = self._mean_of_kept(node, one.of.of.node, weights == 0)
            self._show(node.output[0], Shown(name, one.places[None], one.of.of.factors))

    def _mean_of_kept(self, node: Any, of: str, hidden: np.ndarray) -> str:
        """Return attention of a constant query to tokens that are hidden or not: the mean of those that are not.

        It has heads of the form that all others have, and what is left over of its features is zero.
        """
        count = self.shapes[of][0]
        plain: dict[str, Any] = {"heads": HEADS, "causal": False}
        form = next((one for one in self.nodes if one["op"] == "attention"), plain)
        if form["causal"] or "window" in form or "slopes" in form or "biases" in form:
            seen = "see what came before, or a window, alone, or or score tokens by place"
            self._refuse(node, f"a mean over tokens that are kept is not taken where others {seen}")
            return of
        group = form["heads"] // form.get("kv_heads", form["heads"])
        own = self.shapes[form["inputs"][0]][0] // form["heads"] if "inputs" in form else count // np.gcd(count, HEADS)
        size, heads = int(own), -(-count // int(own))
        wide, queries, called = heads * size, heads * size * group, f"kept.{count}"
        if not any(one["name"] == called for one in self.nodes):
            self._constant_product(node, FileTensor(INPUT, ()), np.zeros((queries, self.inputs), np.float32), called)
            self.nodes[-1]["bias"] = True
            ones = np.zeros(queries, np.float32)
            ones[::size] = 1
            self.tensors[f"{called}.bias"], self.origins[f"{called}.bias"] = ones, ()
        keys, values = self._mask_of(node, hidden, heads, (0, size)), of
        if wide > count:
            values = self._constant_product(
                node, FileTensor(of, (count,)), np.eye(wide, count, dtype=np.float32), f"{of}.wide"
            )
        given = [FileTensor(called, (queries,)), FileTensor(keys, (wide,)), FileTensor(values, (wide,))]
        more = {"kv_heads": heads} if group > 1 else {}
        more |= {"scaled": form["scaled"]} if "scaled" in form else {}
        self.views.append((False, hidden))
        made = self._add_node(node, "attention", *given, name=f"{of}.kept", heads=heads * group, causal=False, **more)
        if queries == count:
            return made
        real = (np.arange(heads)[:, None] * group * size + np.arange(size)).ravel()[:count]
        return self._picked(made, real, node)

    def _chosen_rows(self, name: str, found: ChosenTokens | Summed, node: Any) -> None:
        """Append the product of tokens and what they tell, and the sum over them."""
        chosen = found.of if isinstance(found, Summed) else found
        of, count = chosen.of.node, self.shapes[chosen.of.node][0]
        weights = np.zeros((count, self.inputs), np.float32)
        weights[:, : len(chosen.weights)] = chosen.weights / self.token_scale
        told = self._constant_product(node, FileTensor(INPUT, ()), weights, f"{of}.told")
        made = self._add_node(node, "mul", FileTensor(of, (count,)), FileTensor(told, (count,)), name=f"{of}.chosen")
        if isinstance(found, ChosenTokens):
            self._show(name, chosen.of._replace(node=made))
            return
        made = self._add_node(node, "tokenmean", FileTensor(made, (count,)), name=f"{of}.chosen.mean")
        self._show(name, Shown(made, found.places[None], chosen.of.factors * self.sequence))

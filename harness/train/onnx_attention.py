"""Products of heads of queries, keys and values, as exporters take attention apart, become attention again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fabric.networks.graph.rotary import BASE, turns
from fabric.networks.graph.tensors import INPUT
from harness.kit.modules import need
from harness.train.onnx_functions import Call
from harness.train.onnx_reader import FileTensor, Origin
from harness.train.onnx_shown import LOWEST, Heads, Scores, Shown
from harness.train.onnx_told import ByToken, ToldReader

__all__ = ["AttentionReader"]

NEAR = 1e-5
"""Constants of a file that differ by less from those of ours, in f32, are the same."""
HIDDEN = -1024.0
"""A hidden key has this number behind its features, which queries multiply by one."""


class AttentionReader(ToldReader):
    """An `AttentionReader` reads products of two tensors: scores, their masks and softmax, and values by shares.

    Parameters
    ----------
    path : Path
        For messages.
    model : onnx.ModelProto
    """

    def _product(self, node: Any, names: list[str]) -> bool:
        """Multiply two tensors: scores, or values by shares of them."""
        if len(node.input) != 2 or not all(name in self.shown for name in node.input):
            return False
        one = self.shown[node.input[0]]
        if isinstance(one, Scores):
            values = self._plain(node.input[1], node)
            if values is not None:
                self._attend(node, one, _over(values, one.shape[:-2]))
            return True
        first, second = self._plain(node.input[0], node), self._plain(node.input[1], node)
        if first is None or second is None:
            return True
        leading = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
        first, second = _over(first, leading), _over(second, leading)
        queries = self._heads(node, first)
        turned = second._replace(
            places=second.places.swapaxes(-1, -2),
            factors=second.factors.swapaxes(-1, -2) if isinstance(second.factors, np.ndarray) else second.factors,
        )
        keys = self._heads(node, turned)
        if queries is not None and keys is not None:
            shape = (*first.shape[:-1], self.sequence)
            factor, every = queries.factor * keys.factor, np.ones((self.sequence, self.sequence), bool)
            self._show(node.output[0], Scores(queries, keys, shape, factor, every))
        return True

    def _einsum(self, node: Any, names: list[str]) -> bool:
        """Take a product that is written with letters for one of turned tensors: scores, or values by shares."""
        letters = str(self._of(node, "equation", b"").decode()).replace(" ", "")
        given, arrow, result = letters.partition("->")
        one, _, other = given.partition(",")
        held = [name not in self.shown for name in node.input]
        if arrow and held in ([False, True], [True, False]) and node.input[held.index(True)] in self.known:
            features, weights = (one, other) if held[1] else (other, one)
            return self._einsum_of_parameter(node, held.index(True), features, weights, result)
        sums, alike = sorted(set(one) & set(other) - set(result)), [k for k in one if k in other and k in result]
        mine, others = ([k for k in part if k not in (*sums, *alike)] for part in (one, other))
        more, mine = mine[:-1], mine[-1:]  # heads of queries that share keys
        if not arrow or [len(sums), len(mine), len(others)] != [1, 1, 1] or not set(names) >= set(node.input):
            self._refuse(node, f"{letters}: products of two tensors are trained in attention alone")
            return True
        ordered = one if isinstance(self.shown[node.input[0]], Scores) else result
        alike = [k for k in ordered if k in alike or k in more]
        first, second, made = ([*alike, *mine, *sums], [*alike, *sums, *others], [*alike, *mine, *others])
        helper, shared = need("onnx.helper", "a network from an .onnx file"), node.input[1]
        if more:
            shared, sizes = f"{node.output[0]}#shared", dict(zip(one, self.shown[node.input[0]].shape, strict=True))
            shape = [*(sizes[k] for k in more), *self.shown[node.input[1]].shape]
            self.known[f"{shared}.shape"] = np.array(shape, np.int64)
            self._read(helper.make_node("Expand", [node.input[1], f"{shared}.shape"], [shared], self._name(node)))
        turned = list[str]()
        for name, had, wanted in ((node.input[0], one, first), (shared, "".join(more) + other, second)):
            turned.append(f"{node.output[0]}#{len(turned)}")
            order = [had.index(k) for k in wanted]
            self._read(helper.make_node("Transpose", [name], turned[-1:], self._name(node), perm=order))
        if not all(name in self.shown for name in turned):
            return True
        product, order = f"{node.output[0]}#", [made.index(k) for k in result]
        self._product(helper.make_node("MatMul", turned, [product], self._name(node)), turned)
        if product in self.shown:
            self._read(helper.make_node("Transpose", [product], list(node.output), self._name(node), perm=order))
        return True

    def _einsum_of_parameter(self, node: Any, place: int, given: str, weights: str, result: str) -> bool:
        """Take a product with a parameter that is written with letters for that of features with a matrix."""
        name, (helper, out) = node.input[place], (need("onnx.helper", "a network from an .onnx file"), node.output[0])
        rest, sums = [k for k in given if k in result], [k for k in given if k in weights and k not in result]
        others, found = [k for k in weights if k not in given], self._numbers_of(name)
        if set(given) != {*rest, *sums} or set(rest) & set(weights) or {*rest, *others} != set(result) or found is None:
            self._refuse(node, f"{given},{weights}->{result}: a product with a parameter is that of features here")
            return True
        order = [weights.index(k) for k in (*others, *sums)]
        sizes = dict(zip(given, self.shown[node.input[1 - place]].shape, strict=True))
        sizes |= dict(zip(weights, self.known[name].shape, strict=True))
        inputs = int(np.prod([sizes[k] for k in sums]))
        matrix = self.known[name].transpose(order).reshape(-1, inputs)
        origin = self.origin[found[0]]
        self.known[f"{out}#w"] = matrix.T
        places = tuple(map(int, found[1].transpose(order).ravel()))
        self.origin[f"{out}#w"] = Origin(origin.name, self.known[found[0]].shape, places=places)
        steps = [
            ("Transpose", node.input[1 - place], {"perm": [given.index(k) for k in (*rest, *sums)]}),
            ("Reshape", [*(sizes[k] for k in rest), inputs], {}),
            ("MatMul", f"{out}#w", {}),
            ("Reshape", [sizes[k] for k in (*rest, *others)], {}),
            ("Transpose", "", {"perm": [[*rest, *others].index(k) for k in result]}),
        ]
        last = ""
        for number, (op, other, how) in enumerate(steps):
            made = out if number == len(steps) - 1 else f"{out}#{number}"
            if isinstance(other, list):
                self.known[f"{made}.shape"], other = np.array(other, np.int64), f"{made}.shape"
            names = [one for one in (last, other) if one]
            self._read(helper.make_node(op, names, [made], self._name(node), **how))
            if made not in self.shown:
                break
            last = made
        return True

    def _numbers_of(self, name: str) -> tuple[str, np.ndarray] | None:
        """Return a parameter of the file, and the place in it of each number of a constant, if those are its own."""
        values = self.known[name]
        own = Shown(name, np.arange(values.size).reshape(1, *values.shape))
        rows = self.rows.get(name, own if name in self.origin else None)
        plain = rows is not None and self.row_factors.get(name, 1.0) == 1 and self.origin.get(rows.node) is not None
        return (rows.node, rows.places[0]) if rows is not None and plain else None

    def _read(self, node: Any) -> None:
        """Read a node that depends on the samples; readers of those have this."""
        raise NotImplementedError

    def _heads(self, node: Any, found: Shown) -> Heads | None:
        """Return the heads that a tensor of shape (..., tokens, features of a head) shows; None if it shows none."""
        count = self.shapes[found.node][0] if self.shapes.get(found.node) else 0
        size, tokens = (found.shape[-1], found.shape[-2]) if len(found.shape) > 1 else (0, 0)
        if not count or tokens != self.sequence:
            self._refuse(node, "products of two tensors are trained in attention alone: queries, keys, values")
            return None
        places = found.places.reshape(len(found.places), -1, tokens, size)
        factors = np.broadcast_to(found.factors, found.places.shape).reshape(places.shape)
        if len(places) == 2:  # the own place first, whichever way it was written
            begin = places.reshape(2, len(places[0]), -1).min((0, 2))
            mine = (places[0] - begin[:, None, None]) % count == np.arange(size)
            places, factors = (np.where(mine, array, array[::-1]) for array in (places, factors))
        own = places[0]
        token, feature = own // count, own % count
        first, sequence = feature[:, 0, 0], token[:, 0, 0] // self.sequence
        right = np.array_equal(
            token, np.broadcast_to((sequence[:, None] * tokens + np.arange(tokens))[..., None], own.shape)
        )
        right &= np.array_equal(feature, np.broadcast_to((first[:, None] + np.arange(size))[:, None], own.shape))
        if right and len(places) == 1 and np.allclose(factors, factors.flat[0], rtol=NEAR):
            return Heads(found.node, sequence, first, size, float(factors.flat[0]))
        if len(places) == 2 and size % 2 == 0 and right:
            order, places, factors = _as_halves(places, factors, own)
            turning = _turning(places, factors, own)
            if turning is not None:
                scale, *how = turning
                return Heads(found.node, sequence, first, size, scale, tuple(how), order)
            what = (
                "pairs are turned otherwise than here: halves of a head, or neighbours, or those of its first features"
            )
            self._refuse(node, what)
            return None
        self._refuse(node, "products of two tensors are trained in attention alone: queries, keys, values")
        return None

    def _on_scores(self, node: Any, found: Scores, constant: np.ndarray, other: str) -> None:
        """Scale scores, or take a mask from them."""
        op = node.op_type
        if found.shares:
            self._refuse(node, "changes shares of attention")
        elif op in ("Mul", "Div") and constant.size == 1 and other not in self.derived and other not in self.origin:
            number = float(constant.reshape(())) if op == "Mul" else 1 / float(constant.reshape(()))
            more = None if found.more is None else found.more * number
            self._show(node.output[0], found._replace(factor=found.factor * number, more=more, table=None))
        elif op in ("Add", "Sub"):
            mask, origin = np.broadcast_to(constant if op == "Add" else -constant, found.shape), self.origin.get(other)
            learned = other in self.derived if origin is None else origin.name not in self.fixed
            more = np.where(mask > LOWEST, mask, 0)
            learned = bool(learned) and bool(np.all(mask > LOWEST) or np.any(more != 0))
            table = self._numbers_of(other) if learned and op == "Add" and found.more is None else None
            table = None if table is None else (table[0], np.broadcast_to(table[1], found.shape))
            found = found._replace(table=table if learned else found.table, learned=found.learned or learned)
            self._mask(node, found, mask > LOWEST, more)
        else:
            self._refuse(node, "changes scores in another way than scale and mask")

    def _mask(self, node: Any, found: Scores, seen: np.ndarray, rest: Any = 0) -> None:
        """Let scores not be seen."""
        whole = np.broadcast_to(seen, found.shape).reshape(-1, self.sequence, self.sequence)
        if not np.all(whole == whole[0]):
            self._refuse(node, "only masks that are the same for all sequences and heads are added to scores")
            return
        if np.any(rest != 0) or found.learned:
            rest = np.broadcast_to(rest, found.shape)
            found = found._replace(more=rest if found.more is None else found.more + rest)
        self._show(node.output[0], found._replace(seen=found.seen & whole[0]))

    def _where(self, node: Any, names: list[str]) -> bool:
        """Mask scores; or take shares as they are where a row of them is none."""
        which, one, other = node.input
        if which in self.nothing and other in self.shown and np.all(self.known.get(one, 1) == 0):
            self._show(node.output[0], self.shown[other])
            return True
        if self._told(which) is not None:
            self._where_told(node, which)
            return True
        condition = self.known.get(which)
        for seen, masked, turn in ((one, other, False), (other, one, True)):
            found = self.shown.get(seen)
            masks = np.all(self.known.get(masked, np.zeros(1)) <= LOWEST)
            if condition is not None and masks and isinstance(found, Scores) and not found.shares:
                self._mask(node, found, ~condition if turn else condition)
                return True
        self._refuse(node, "chooses by what cannot be followed")
        return True

    def _where_told(self, node: Any, which: str) -> None:
        """Choose by the number of a token: scores, or a number that hides them."""
        _, one, other = node.input
        for masked, seen, turn in ((one, other, False), (other, one, True)):
            scores, told = self.shown.get(seen), self._told(which)
            zeros = masked in self.known and not np.any(self.known[masked])
            if zeros and told is not None and seen in self.shown and not isinstance(scores, Scores):
                self._choose(node, seen, told.then(_true if turn else np.logical_not))
                return
            low = masked in self.known and bool(np.all(self.known[masked] <= LOWEST))
            if isinstance(scores, Scores) and low and told is not None:
                self._hide(node, scores, told, np.logical_not if turn else _true)
                return
        self._refuse(node, "chooses by what cannot be followed")

    def _choose(self, node: Any, name: str, told: ByToken) -> None:
        """Multiply tokens with what the numbers of each tell; readers of those have this."""
        raise NotImplementedError

    def _hide_by_numbers(self, node: Any, scores: Scores, told: ByToken) -> None:
        """Add to scores what tells hidden tokens from others."""
        kinds = np.unique(np.asarray(told.number(np.arange(max(self.vocabulary, 1)))))
        for kind in kinds:
            numbers = np.asarray(told.whole(kind), float)
            if np.any((numbers > LOWEST) & (numbers != 0)):
                self._refuse(node, "adds numbers to scores; only masks are")
                return
        self._hide(node, scores, told, lambda x: np.asarray(x, float) <= LOWEST)

    def _hide(self, node: Any, scores: Scores, told: ByToken, call: Call) -> None:
        """Let keys not be seen by any query, by the numbers of their tokens."""
        found = self._hides(node, told, scores.shape, call)
        if found is None:
            return
        seen, hidden, tokens = found
        wanted = scores.queries.sequences[:, None, None] * self.sequence + np.arange(self.sequence)
        if scores.shares or (hidden.any() and not np.all(tokens == wanted)):
            self._refuse(node, "hides tokens by something else than their own numbers, from all others alike")
            return
        hidden = hidden if scores.hidden is None else hidden | scores.hidden
        self._show(node.output[0], scores._replace(seen=scores.seen & seen, hidden=hidden if hidden.any() else None))

    def _is_none(self, node: Any, names: list[str]) -> bool:
        self.nothing.add(node.output[0])
        self.values[node.output[0]] = FileTensor("-", ())
        return True

    def _softmax_of(self, node: Any, names: list[str]) -> bool:
        found = self.shown[node.input[0]]
        if not isinstance(found, Scores):
            return False
        if self._of(node, "axis", -1) not in (-1, len(found.shape) - 1) or found.shares:
            self._refuse(node, "shares are those of the keys of a query")
            return True
        self._show(node.output[0], found._replace(shares=True))
        return True

    def _whole_attention(self, node: Any, names: list[str]) -> bool:
        """Read attention that is one node: (samples, heads, tokens, features of a head), or heads side by side."""
        more = [name for name in node.input[3:] if name]
        mask, told = (self.known.get(more[0]), self._told(more[0])) if more else (None, None)
        one = mask is not None or told is not None
        if len(names) < 3 or len(more) > one or len([name for name in node.output if name]) > 1:
            self._refuse(node, "takes queries, keys, values and a mask that the file says, and gives a result, here")
            return True
        if self._of(node, "softcap", 0.0):
            self._refuse(node, "scores have no soft cap here")
            return True
        given = [self._plain(name, node) for name in node.input[:3]]
        heads = int(self._of(node, "q_num_heads", 0)), *[int(self._of(node, "kv_num_heads", 0))] * 2
        flat = all(one is not None and len(one.shape) == 3 for one in given)
        parted = [_parted_heads(one, count) if one and flat else one for one, count in zip(given, heads, strict=True)]
        q, k, v = (_repeated(one, parted[0]) if one is not None and parted[0] is not None else one for one in parted)
        queries, keys = (self._heads(node, one) if one is not None else None for one in (q, k))
        if q is None or v is None or queries is None or keys is None:
            return True
        seen = np.tri(self.sequence, dtype=bool) if self._of(node, "is_causal", 0) else np.ones(1, bool)
        shape, scale = (*q.shape[:-1], self.sequence), self._of(node, "scale", 1 / np.sqrt(queries.size))
        every = np.broadcast_to(seen, (self.sequence, self.sequence))
        self._show(node.output[0], Scores(queries, keys, shape, queries.factor * keys.factor * scale, every))
        if mask is not None and mask.dtype == bool:
            self._mask(node, self.shown[node.output[0]], mask)
        elif mask is not None:
            self._mask(node, self.shown[node.output[0]], mask > LOWEST, np.where(mask > LOWEST, mask, 0))
        elif told is not None and np.asarray(told.whole(told.number(np.zeros(1, int))[0])).dtype == bool:
            self._hide(node, self.shown[node.output[0]], told, np.logical_not)
        elif told is not None:
            self._hide_by_numbers(node, self.shown[node.output[0]], told)
        self._attend(node, self.shown[node.output[0]]._replace(shares=True), v)
        found = self.shown[node.output[0]]
        if flat and isinstance(found, Shown):
            places = found.places.swapaxes(2, 3)
            self._show(node.output[0], found._replace(places=places.reshape(*places.shape[:3], -1)))
        return True

    def _attend(self, node: Any, scores: Scores, plain: Shown) -> None:
        """Append attention to the network, or refuse scores that it cannot express."""
        values = self._heads(node, plain)
        if values is None:
            return
        queries, keys, size = scores.queries, scores.keys, scores.queries.size
        causal, window = _window_of(scores.seen)
        firsts, scaled = np.unique(queries.firsts), _root_of(scores.factor)
        slopes, biases = _slopes_of(scores, firsts), _biases_of(scores, firsts)
        biases = None if slopes and all(slopes) else biases  # of files, where what is constant is not told
        wrong = [
            (
                biases is None and (slopes is None or (scores.learned and not all(slopes))),
                "only masks, slopes of heads times distances, and a table of each head's own are added to scores",
            ),
            (not scores.shares, "values are multiplied with shares, behind a softmax"),
            (bool(values.turned) or values.factor != 1, "values are not turned or scaled here"),
            (window is None, "a mask is that of all tokens, or of those that came before, or of a window of them"),
            ((queries.turned, queries.order) != (keys.turned, keys.order), "queries and keys are turned, or neither"),
            (keys.size != size or values.size != size, "heads have one size"),
            (len(queries.firsts) != self.samples * len(firsts), "queries are taken once"),
            (
                any(not np.array_equal(queries.sequences, one.sequences) for one in (keys, values)),
                "sequences are mixed",
            ),
        ]
        why = next((what for bad, what in wrong if bad), "")
        own = [self._own_heads(one, queries) for one in (queries, keys, values)]
        if not why and (any(one is None for one in own) or len({len(one) for one in own[1:] if one is not None}) > 1):
            why = "keys and values have the heads of queries, or neighbouring heads of queries share one, in order"
        if why:
            self._refuse(node, why)
            return
        names, hidden = list[str](), None
        if scores.hidden is not None:
            hidden = scores.hidden
            if scaled is None or hidden.all() or not self.vocabulary:
                self._refuse(node, "where tokens are hidden, scores are divided by the root of a whole number here")
                return
        for one, order, called in zip((queries, keys, values), own, ("q", "k", "v"), strict=True):
            assert order is not None
            if called == "q" and scaled is None:  # by another number than the root of a whole one
                one, order = self._rescaled(node, one, order, scores.factor * np.sqrt(size))
            part = self._part(one.node, one.features(order), called, node)
            if part and hidden is not None:
                names.append(self._with_hidden(node, part, len(order), one, keys, called, hidden))
            else:
                names.append(self._turn(part, len(order), one, node) if part else "")
        if all(names):
            heads, shared = len(firsts), len(own[1]) if own[1] is not None else 0
            operands = [FileTensor(part, self.shapes[part]) for part in names]
            more: dict[str, Any] = {"kv_heads": shared} if shared < heads else {}
            more |= {"scaled": scaled} if scaled is not None and (scaled != size or hidden is not None) else {}
            more |= {"window": window} if window else {}
            more |= {"slopes": slopes} if slopes and any(slopes) and biases is None else {}
            more |= {"biases": biases[0]} if biases is not None else {}
            name = self._add_node(node, "attention", *operands, heads=heads, causal=bool(causal), **more)
            if biases is not None and scores.table is not None:
                self._keep_biases(f"{name}.bias", scores.table[0], biases[1])
            self.views.append((bool(causal), hidden))
            if hidden is not None:  # features more of each head, which are zero
                self.spread[name] = _own_features(heads, size, _wider(queries)), heads * _wider(queries)
                self.shapes[name] = (heads * size,)
            rank = np.searchsorted(firsts, queries.firsts)
            token = queries.sequences[:, None] * self.sequence + np.arange(self.sequence)
            places = token[..., None] * (heads * size) + (rank[:, None] * size)[..., None] + np.arange(size)
            shape = (*scores.shape[:-1], size)
            self._show(node.output[0], Shown(name, places.reshape(1, *shape)))

    def _keep_biases(self, key: str, table: str, places: np.ndarray) -> None:
        """Keep the numbers of a parameter that scores get, head after head."""
        values, origin = np.asarray(self.known[table], np.float32), self.origin[table]
        self.tensors[key] = values.ravel()[places]
        self.origins[key] = (Origin(origin.name, values.shape, places=tuple(map(int, places))),)
        self.used[origin.name] += 1

    def _with_hidden(
        self, node: Any, part: str, heads: int, one: Heads, keys: Heads, called: str, hidden: np.ndarray
    ) -> str:
        """Return queries, keys or values with a feature more in each head: one, a large number if hidden, and zero.

        Where heads are turned, which are pairs, another one is zero in each.
        """
        place = next(number for number, other in enumerate(self.nodes) if other["name"] == part)
        product, wider = self.nodes[place], _wider(keys)
        real = _own_features(heads, one.size, wider)
        if product["op"] != "linear" or any(part in other["inputs"] for other in self.nodes):
            self._refuse(node, "where tokens are hidden, queries, keys and values are products of their own here")
            return ""
        count = heads * wider
        more = sorted(set(range(count)) - set(real.tolist()))
        self.nodes[place] = {**product, "outputs": count, "fixed_outputs": more}
        for what in ("weight", "bias"):
            values = self.tensors.get(f"{part}.{what}")
            if values is not None:
                whole = np.zeros((count, *values.shape[1:]), np.float32)
                whole[real] = values
                self.tensors[f"{part}.{what}"] = whole
                (origin,) = self.origins[f"{part}.{what}"]
                self.origins[f"{part}.{what}"] = (origin._replace(ours=tuple(real.tolist())),)
        self.shapes[part] = (count,)
        made = self._turn(part, heads, one._replace(size=wider), node)
        given = FileTensor(made, (count,))
        if called == "q":
            made = self._add_node(node, "shift", given, name=f"{part}.seen")
            self.nodes[-1]["fixed"] = True
            ones = np.zeros(count, np.float32)
            ones[one.size :: wider] = 1
            self.tensors[f"{made}.bias"], self.origins[f"{made}.bias"] = ones, ()
        elif called == "k":
            mask = FileTensor(self._mask_of(node, hidden, heads, (one.size, wider)), (count,))
            made = self._add_node(node, "add", given, mask, name=f"{part}.seen")
        return made

    def _mask_of(self, node: Any, hidden: np.ndarray, heads: int, sizes: tuple[int, int]) -> str:
        """Return the node that gives a large number below zero behind each head's features, for hidden tokens.

        `sizes` are the features of a head, and those with what is behind them.
        """
        key = hidden.tobytes(), heads, sizes
        self.hidden = hidden if self.hidden is None else self.hidden | hidden
        if key not in self.masks:
            flag = self.masks.get((key[0], 0, ()), "")
            if not flag:
                told = np.zeros((1, self.inputs), np.float32)
                told[0, : len(hidden)] = hidden * HIDDEN / self.token_scale  # here, so that gradients stay small
                flag = self._constant_product(node, FileTensor(INPUT, ()), told, "hidden")
                self.masks[key[0], 0, ()] = flag
            size, wider = sizes
            count = heads * wider
            numbers = np.zeros((count, 1), np.float32)
            numbers[size::wider] = 1
            self.masks[key] = self._constant_product(node, FileTensor(flag, (1,)), numbers, f"hidden.{count}")
        return self.masks[key]

    def _linear(self, node: Any, x: FileTensor, transposed: bool) -> str:
        name = super()._linear(node, x, transposed)
        if name and x.node in self.spread:
            (real, count), values = self.spread[x.node], self.tensors[f"{name}.weight"]
            whole = np.zeros((len(values), count), np.float32)
            whole[:, real] = values
            self.tensors[f"{name}.weight"] = whole
            (origin,) = self.origins[f"{name}.weight"]
            self.origins[f"{name}.weight"] = (origin._replace(across=tuple(real.tolist())),)
        return name

    def _add_node(self, node: Any, op: str, *given: FileTensor, **more: Any) -> str:
        parted = list(given)
        for number, value in enumerate(given if op != "linear" else ()):
            if value.node in self.spread:  # what it shows alone
                real, count = self.spread[value.node]
                picks = np.zeros((len(real), count), np.float32)
                picks[range(len(real)), real] = 1
                made = self._constant_product(node, value, picks, f"{value.node}.own")
                parted[number] = FileTensor(made, value.shape)
        return super()._add_node(node, op, *parted, **more)

    def _rescaled(self, node: Any, one: Heads, order: np.ndarray, factor: float) -> tuple[Heads, np.ndarray]:
        """Return heads of queries multiplied by a number, and their first features."""
        part = self._part(one.node, one.features(order), "q", node)
        made = self._times(node, part, float(factor)) if part else ""
        place = {int(first): number * one.size for number, first in enumerate(order)}
        firsts = np.array([place[int(first)] for first in one.firsts])
        return one._replace(node=made, firsts=firsts, order=()), np.arange(len(order)) * one.size

    def _own_heads(self, one: Heads, queries: Heads) -> np.ndarray | None:
        """Return the first features of the heads of a tensor, in the order of those of the queries; None: not alike.

        As many neighbouring heads of queries may share each.
        """
        order = np.argsort(queries.firsts[queries.sequences == 0], kind="stable")
        first = one.firsts[queries.sequences == 0][order]
        for sequence in range(1, self.samples):
            other = queries.sequences == sequence
            here = np.argsort(queries.firsts[other], kind="stable")
            if not np.array_equal(one.firsts[other][here], first):
                return None
        heads = first[np.sort(np.unique(first, return_index=True)[1])]
        return heads if np.array_equal(np.repeat(heads, len(first) // len(heads)), first) else None

    def _turn(self, part: str, heads: int, one: Heads, node: Any) -> str:
        """Return a node, or the one that turns its pairs."""
        if not one.turned:
            return part
        found = next((old for old in self.nodes if old["op"] == "rotary" and old["inputs"] == [part]), None)
        if found is not None:
            return str(found["name"])
        base, turned = one.turned
        how = {} if base == BASE else {"base": base}
        how |= {"turned": turned} if turned < one.size else {}
        given = FileTensor(part, self.shapes[part])
        return self._add_node(node, "rotary", given, name=f"{part}.turned", heads=heads, **how)


def _window_of(seen: np.ndarray) -> tuple[bool, int | None]:
    """Return whether nothing behind a token is seen, and from how many tokens away on nothing is: 0 if all is seen.

    None if neither says what is seen.
    """
    tokens = np.arange(len(seen))
    before = tokens[:, None] - tokens
    causal = len(seen) > 1 and not seen[before < 0].any()
    reach = int(abs(before)[seen].max(initial=0)) + 1
    wanted = (abs(before) < reach) & ((before >= 0) | (not causal))
    return causal, None if not np.array_equal(seen, wanted) else reach * (reach < len(seen))


def _slopes_of(scores: Scores, firsts: np.ndarray) -> tuple[float, ...] | None:
    """Return by how much the scores of each head of queries fall per token of distance; none, if nothing is added.

    None if what is added is something else.  A number that all keys of a query get changes no share.
    """
    if scores.more is None:
        return ()
    tokens = np.arange(len(scores.seen))
    away, found = abs(tokens[:, None] - tokens), dict[int, float]()
    there = scores.seen & (away > 0)
    for first, rows in zip(scores.queries.firsts, scores.more.reshape(-1, *scores.seen.shape), strict=True):
        falls = (np.diagonal(rows)[:, None] - rows.astype(float))[there] / away[there]
        slope = found.setdefault(int(first), float(falls.mean()) if falls.size else 0.0)
        if not np.allclose(falls, slope, rtol=1e-4, atol=1e-6):
            return None
    return tuple(found[int(first)] for first in firsts)


def _biases_of(scores: Scores, firsts: np.ndarray) -> tuple[tuple[int, ...], np.ndarray] | None:
    """Return (which of a head's learned numbers its scores get, the places of those of each head in the parameter).

    None if none are learned, or heads have them otherwise than one another.
    """
    if scores.table is None or not scores.learned:
        return None
    tokens, rows = np.arange(len(scores.seen)), scores.table[1].reshape(-1, *scores.seen.shape)
    of_heads = [rows[scores.queries.firsts == first] for first in firsts]
    if any(not np.array_equal(one, other) for every in of_heads for one, other in pairwise(every)):
        return None
    away = tokens[:, None] - tokens
    every = [one[0] for one in of_heads]
    distances = np.unique(away[scores.seen])
    by_distance = all(
        len(np.unique(one[scores.seen & (away == distance)])) == 1 for one in every for distance in distances
    )
    if by_distance:
        each = [np.array([one[scores.seen & (away == distance)][0] for distance in distances]) for one in every]
    elif scores.seen.all():
        each = [one.T.ravel() for one in every]
    else:
        return None
    numbers, which = np.unique(each[0], return_inverse=True)
    alike = all(len(np.unique(np.stack([which, one]), axis=1).T) == len(numbers) == len(np.unique(one)) for one in each)
    apart = len(np.unique(np.concatenate([np.unique(one) for one in each]))) == len(numbers) * len(each)
    return (tuple(map(int, which)), np.concatenate(each)) if alike and apart else None


def _true(x: np.ndarray) -> np.ndarray:
    return x


def _wider(one: Heads) -> int:
    """Return the features of a head with one that hides it, and another one where pairs are turned."""
    return one.size + 1 + bool(one.turned)


def _own_features(heads: int, size: int, wider: int) -> np.ndarray:
    """Return the places of the features of heads that have more each, behind them."""
    return (np.arange(heads)[:, None] * wider + np.arange(size)).ravel()


def _root_of(factor: float) -> int | None:
    """Return the whole number by whose root scores are divided, if any, given what they are multiplied with."""
    number = round(factor**-2) if factor > 0 else 0
    return number if number and abs(factor * np.sqrt(number) - 1) < 1e-4 else None


def _as_halves(
    places: np.ndarray, factors: np.ndarray, own: np.ndarray
) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """Return pairs of neighbours as pairs of halves, and the order of a head's features that makes them so.

    Scores do not depend on the order in which the features of queries and keys stand.
    """
    size = own.shape[2]
    partner = (places[1] - own)[0, 0]
    count = int(np.flatnonzero((factors[1] != 0).any((0, 1)))[-1]) + 1 if factors[1].any() else 0
    if count < 4 or count % 2 or partner[0] != 1:
        return (), places, factors
    order = np.array([*range(0, count, 2), *range(1, count, 2), *range(count, size)])
    begin = own - np.arange(size)
    new = np.clip(places[1] - begin, 0, size - 1)
    inside = new == places[1] - begin
    moved = np.where(inside, begin + np.argsort(order)[new], -1)
    return tuple(map(int, order)), np.stack([own, moved[..., order]]), factors[..., order]


def _turning(places: np.ndarray, factors: np.ndarray, own: np.ndarray) -> tuple[float, int, int] | None:
    """Return (factor, base, features that are turned) of pairs; None if they are turned in another way.

    Parameters
    ----------
    places, factors : ndarray, shape (2, heads, tokens, features of a head)
        Each feature and its partner.
    own : ndarray of int, shape (heads, tokens, features of a head)
    """
    (cos, sin), size, tokens = factors, own.shape[2], own.shape[1]
    scale = float(np.hypot(cos, sin).flat[0])
    turning = np.flatnonzero((sin != 0).any((0, 1)))
    count = int(turning[-1]) + 1 if len(turning) else 0
    if tokens < 2 or count % 2 or not scale:
        return None
    half = np.arange(size) < count // 2
    partner = own + np.where(half, count // 2, -(count // 2))
    rate = np.arctan2(-sin[0, 1, 1], cos[0, 1, 1]) if count > 2 else 1.0  # of the second pair
    base = round(float(rate ** (-count / 2))) if count > 2 and rate > 0 else BASE
    if base > 1e6:  # of which f32 angles do not tell the last digits
        base = round(base, -round(np.log10(base)) + 3)
    table = turns(count, tokens, max(base, 2))  # pairs, 2, tokens
    rest = np.zeros((tokens, size - count))
    wanted = (
        np.concatenate([table[:, 0].T, table[:, 0].T, rest + 1], axis=1),
        np.concatenate([-table[:, 1].T, table[:, 1].T, rest], axis=1),
    )
    near = all(np.allclose(given / scale, one[None], atol=2e-5) for given, one in zip((cos, sin), wanted, strict=True))
    same = np.array_equal(places[1][..., :count], partner[..., :count])
    return (scale, base, count) if same and near else None


def _parted_heads(found: Shown, heads: int) -> Shown:
    """Return what is shown, (samples, tokens, features of all heads), as (samples, heads, tokens, features of one)."""

    def parted(array: np.ndarray) -> np.ndarray:
        return array.reshape(*array.shape[:3], max(heads, 1), -1).swapaxes(2, 3)

    factors = found.factors
    if isinstance(factors, np.ndarray):
        factors = parted(np.broadcast_to(factors, found.places.shape))
    return found._replace(places=parted(found.places), factors=factors)


def _over(found: Shown, leading: tuple[int, ...]) -> Shown:
    """Return what a product takes, repeated over what the other factor has of samples and heads."""
    if found.shape[:-2] == leading:
        return found
    places = found.places

    def whole(array: np.ndarray) -> np.ndarray:
        more = (1,) * (len(leading) + 2 - len(found.shape))
        return np.broadcast_to(
            array.reshape(len(array), *more, *array.shape[1:]), (len(array), *leading, *array.shape[-2:])
        )

    factors = found.factors
    if isinstance(factors, np.ndarray):
        factors = whole(np.broadcast_to(factors, places.shape))
    return found._replace(places=whole(places), factors=factors)


def _repeated(found: Shown, like: Shown) -> Shown:
    """Return heads that several heads of queries share as many times as they are shared."""
    group = like.shape[1] // max(1, found.shape[1]) if len(like.shape) == len(found.shape) == 4 else 1
    factors = found.factors
    if isinstance(factors, np.ndarray):
        factors = np.repeat(np.broadcast_to(factors, found.places.shape), group, axis=2)
    return found._replace(places=np.repeat(found.places, group, axis=2), factors=factors)

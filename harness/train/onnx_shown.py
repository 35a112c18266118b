"""Tensors of a graph of sequences are followed as what they show of the network's own: for each number a place and a
factor.

What arranges, cuts and joins is done to places; `harness.train.onnx_tokens` says what for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fabric.networks.graph.tensors import INPUT
from harness.kit.modules import need
from harness.train.onnx_dropout import LEAVES_OUT, WHOLE
from harness.train.onnx_reader import LOST, FileTensor, OnnxReader, Origin
from wse_core.errors import UnsupportedError

__all__ = [
    *("ARRANGE", "KEEP", "LOWEST", "PLACE"),
    *(
        "ChosenTokens",
        "Counts",
        "PointwiseFunction",
        "Heads",
        "Looked",
        "Root",
        "Scores",
        "Shown",
        "ShownReader",
        "Summed",
    ),
]

SAMPLES = 3
"""So many sequences are followed: what is done to three is done to any number."""
LOWEST = -1e4
"""A mask takes at least so much from what is not seen."""
BOOL = 9
"""The type of what is true or false has this number."""
PLACE = np.int32
"""Places are such numbers: there is one for each number of a few samples."""
ARRANGE = ("Reshape", "Transpose", "Slice", "Gather", "Unsqueeze", "Squeeze", "Expand", "Flatten", "Tile")
"""These operations of a file move numbers to other places and change none."""
KEEP = ("Identity", "Cast", "CastLike", "Dropout")
"""No number that they are given here, and no place, is changed by these operations of a file."""


class Shown(NamedTuple):
    """A `Shown` says what a tensor of a file shows of a tensor of the network.

    Attributes
    ----------
    node : str
        What gives that.
    places : ndarray of int32, shape (terms, ...)
        A number is the sum of the terms: of what stands at these places, token times features plus feature.
    factors : ndarray, same shape, or float
        Times these.
    """

    node: str
    places: np.ndarray
    factors: Any = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return tuple(self.places.shape[1:])


class PointwiseFunction(NamedTuple):
    """A `PointwiseFunction` is a function of each number of what is shown.

    Attributes
    ----------
    of : Shown
    call : callable
    last : (node, dict), optional
        The node that gave it, of others that are its inputs by these names.
    """

    of: Shown
    call: Callable[[np.ndarray], np.ndarray]
    last: tuple[Any, dict[str, Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return self.of.shape


class Root(NamedTuple):
    """A `Root` is a function of the mean of the squares of all features: steps of a normalisation without mean."""

    of: Shown
    call: Callable[[np.ndarray], np.ndarray]
    whole: bool = False
    """It has been multiplied with what it is of."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return self.of.shape if self.whole else (*self.of.shape[:-1], 1)


class Looked(NamedTuple):
    """A `Looked` is a sum of rows of tables, looked up by the numbers of tokens and by their places.

    Attributes
    ----------
    tables : tuple of (str, ndarray of int or None)
        A parameter, and the row of each place in a sequence; None: a token says it.
    tokens : ndarray of int
        At each place the token, of all samples, each once.
    features : int
    factor : float
        The rows of tokens are multiplied with it.
    """

    tables: tuple[tuple[str, np.ndarray | None], ...]
    tokens: np.ndarray
    features: int
    factor: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return (*self.tokens.shape, self.features)


class ChosenTokens(NamedTuple):
    """A `ChosenTokens` is what is shown, each token times a number that its own number tells.

    Attributes
    ----------
    of : Shown
    weights : ndarray of float32
        By numbers of tokens.
    """

    of: Shown
    weights: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return self.of.shape


class Summed(NamedTuple):
    """A `Summed` is the sum of that over the tokens of a sequence; at these places of their mean."""

    of: ChosenTokens
    places: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return tuple(self.places.shape)


class Counts(NamedTuple):
    """`Counts` are functions of the sum of such numbers of each sequence: at each place the sequence is said."""

    weights: np.ndarray
    sequences: np.ndarray
    call: Callable[[np.ndarray], np.ndarray] = np.asarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return tuple(self.sequences.shape)


class Scores(NamedTuple):
    """`Scores` are products of queries and keys, on their way to a softmax.

    Attributes
    ----------
    queries, keys : Heads
    shape : tuple of int
    factor : float
        They are multiplied with it.
    seen : ndarray of bool, shape (queries, keys)
        Which keys a query sees.
    shares : bool
        The softmax has been taken.
    hidden : ndarray of bool or None
        Which numbers of tokens are hidden from all.
    more : ndarray or None
        What is added to them, of their shape.
    learned : bool
        That may be made of parameters.
    table : (str, ndarray of int) or None
        That is numbers of this parameter, at these places, of their shape.
    """

    queries: Heads
    keys: Heads
    shape: tuple[int, ...]
    factor: float
    seen: np.ndarray
    shares: bool = False
    hidden: np.ndarray | None = None
    more: np.ndarray | None = None
    learned: bool = False
    table: tuple[str, np.ndarray] | None = None


class Heads(NamedTuple):
    """`Heads` says which heads of which sequences a tensor shows.

    Attributes
    ----------
    node : str
    sequences, firsts : ndarray of int, shape (heads of all sequences,)
        Which sequence, and the first feature.
    size : int
    factor : float
    turned : tuple of int
        By their places, with this base, so many features; empty: not.
    order : tuple of int
        The features of a head in the order in which halves of them are turned; empty: as they are.
    """

    node: str
    sequences: np.ndarray
    firsts: np.ndarray
    size: int
    factor: float
    turned: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def features(self, firsts: np.ndarray) -> np.ndarray:
        """Return the features of heads that begin with some, one head after the other."""
        return (firsts[:, None] + np.array(self.order or range(self.size))).ravel()


class ShownReader(OnnxReader):
    """A `ShownReader` follows the tensors of a graph of sequences.

    Parameters
    ----------
    path : Path
        For messages.
    model : onnx.ModelProto
    masked : sequence of int, optional
        As `harness.train.tables.NetworkConfig` has it.
    """

    def __init__(self, path: Path, model: Any, masked: Sequence[int] = ()) -> None:
        super().__init__(path, model, masked)
        for name, values in self.known.items():
            if values.size == 1 and LOST.fullmatch(name):  # an exporter's own constant
                self.origin.pop(name, None)
        self.shown: dict[str, Any] = {}
        self.lists: dict[str, list[Any]] = {}
        self.rows: dict[str, Shown] = {}  # parameters of which rows are taken
        self.row_factors: dict[str, float] = {}  # of those that are multiplied
        self.derived: set[str] = set()  # made of parameters, and no longer one
        self.parts: dict[str, list[tuple[np.ndarray, str]]] = {}
        self.tables: list[tuple[int, int, int]] = []
        self.fixed_places: list[int] = []
        self.place_scales: list[float] = []
        self.table_factors: dict[str, float] = {}  # of tables of places
        self.patches: tuple[int, ...] = ()
        self.token_scale = 1.0
        self.vocabulary = 0
        self.spread: dict[str, tuple[np.ndarray, int]] = {}  # places of features that are shown, among so many
        self.masks: dict[tuple[bytes, int, tuple[int, ...]], str] = {}  # nodes that hide tokens, by tokens and heads
        self.picks: dict[tuple[str, tuple[int, ...]], str] = {}  # names of nodes that give features of others
        self.multiples: dict[tuple[str, float], str] = {}  # names of nodes, by what they are a multiple of
        self.nothing: set[str] = set()  # whether a number is none
        self.takes_mask = False
        self.counts: list[Any] = []  # what tells the tokens that are counted
        self.uncounted: set[int] = set()  # numbers of tokens that are not, where others are
        self.views: list[tuple[bool, np.ndarray | None]] = []  # of attention: causal, and what it hides
        self.hidden: np.ndarray | None = None  # numbers of tokens
        self.sequence, self.alone, self.numbers, self.tied = 0, "", False, ""

    def _begin(self, given: Any) -> tuple[int, ...]:
        """Take the input of the graph: numbers of tokens, or their features."""
        sizes = [item.dim_value for item in given.type.tensor_type.shape.dim]
        if not all(size > 0 for size in sizes[1:]):
            what = f"{given.name}: sequences of a length that is left open"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint="a fixed length: export without it")
        self.samples = sizes[0] if sizes[0] > 0 else SAMPLES
        self.sequence, self.numbers = sizes[1], len(sizes) == 2
        self.inputs = 0 if self.numbers else sizes[2]
        self.shapes[INPUT] = (self.inputs,) if self.inputs else ()
        count = int(np.prod([self.samples, *sizes[1:]]))
        self._show(given.name, Shown(INPUT, np.arange(count, dtype=PLACE).reshape(1, self.samples, *sizes[1:])))
        return ()

    def _show(self, name: str, what: Any) -> None:
        """Note what a tensor of the file shows."""
        self.shown[name] = what
        self.values[name] = FileTensor(what.node if isinstance(what, Shown) else "-", ())

    # --- what is constant ---------------------------------------------------------------------------------------------

    def _whole(self, name: str) -> tuple[int, ...]:
        found = self.shown.get(name)
        return found.shape if found is not None else ()

    def _changed(self, node: Any) -> None:
        """Work out what is made of a parameter; rows that are taken are remembered as such."""
        name, new = node.input[0], node.output[0]
        if node.op_type in ARRANGE:
            values = self.known[name]
            rows = self.rows.get(name) or Shown(name, np.arange(values.size).reshape(1, *values.shape))
            self.rows[new] = rows._replace(places=self._arranged(node, rows.places))
            if name in self.row_factors:
                self.row_factors[new] = self.row_factors[name]
        self._evaluated(node)
        self.derived.add(new)
        self._times_constant(node)

    def _times_constant(self, node: Any) -> None:
        """Note what is a table of parameters, or rows of it, times a number."""
        for given, other in (node.input, node.input[::-1]) if node.op_type in ("Mul", "Div") else ():
            plain = other in self.known and self.known[other].size == 1 and not {other} & {*self.origin, *self.derived}
            if plain and (given in self.rows or given in self.origin) and (node.op_type == "Mul" or given != other):
                if node.op_type == "Div" and given != node.input[0]:
                    continue
                number, values = float(self.known[other].reshape(())), self.known[given]
                whole = Shown(given, np.arange(values.size).reshape(1, *values.shape))
                factor = number if node.op_type == "Mul" else 1 / number
                self.rows[node.output[0]] = self.rows.get(given, whole)
                self.row_factors[node.output[0]] = self.row_factors.get(given, 1.0) * factor

    def _masked(self, node: Any) -> None:
        """Note what is numbers of a parameter, but where a mask hides them."""
        given, shape = list(node.input), self.known[node.output[0]].shape
        if node.op_type == "Where":
            given = given[1:]
        elif node.op_type != "Add":
            return
        for one, mask in (given, given[::-1]):
            hides = self.known[mask] <= LOWEST
            plain = np.all(hides) if node.op_type == "Where" else np.all(hides | (self.known[mask] == 0))
            if one in self.rows and mask not in self.derived and mask not in self.rows and plain:
                rows = self.rows[one]
                self.rows[node.output[0]] = rows._replace(places=np.broadcast_to(rows.places[0], shape)[None])

    def _evaluated(self, node: Any) -> None:
        super()._evaluated(node)
        self._times_constant(node)
        self._masked(node)
        if any(name in self.derived for name in node.input):
            self.derived |= set(node.output)
        if node.op_type in ARRANGE and node.input[0] in self.rows:
            self.rows[node.output[0]] = self.rows[node.input[0]]._replace(
                places=self._arranged(node, self.rows[node.input[0]].places)
            )
            if node.input[0] in self.row_factors:
                self.row_factors[node.output[0]] = self.row_factors[node.input[0]]

    def _kept(self, node: Any, origin: Origin) -> None:
        super()._kept(node, origin)
        if node.output[0] not in self.origin:
            self.derived.add(node.output[0])

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _show_rows(self, name: str, node: str, rows: np.ndarray) -> None:
        """Note that a tensor of the file shows all features of these tokens."""
        count = self.shapes[node][0]
        self._show(name, Shown(node, (rows[..., None] * count + np.arange(count, dtype=PLACE))[None]))

    def _add_node(self, node: Any, op: str, *given: FileTensor, **more: Any) -> str:
        name = super()._add_node(node, op, *given, **more)
        if name and op != "linear" and more.get("shape") is None:
            self.shapes[name] = self.shapes[given[0].node]
        return name

    def _finish(self, name: str, found: Any, node: Any) -> None:
        """Make a node of an unfinished function or look-up; readers of those have this."""
        raise NotImplementedError

    def _elsewhere(self, name: str) -> bool:
        listed = any(one.node == name for key, many in self.lists.items() if self.left[key] for one in many)
        bases = [getattr(found, "of", found) for found in self.shown.values()]  # of functions that are no nodes yet
        shown = sum(getattr(base, "node", "") == name for base in bases) > 1
        return listed or shown or name in self.parts or super()._elsewhere(name)

    def _plain(self, name: str, node: Any) -> Shown | None:
        """Return what a tensor shows, unfinished functions and look-ups made nodes; None if it was refused."""
        found = self.shown[name]
        if isinstance(found, (Looked, PointwiseFunction, ChosenTokens, Summed)) or (
            isinstance(found, Root) and found.whole
        ):
            self._finish(name, found, node)
        elif not isinstance(found, Shown):
            whats = {Root: "a mean of squares that is no normalisation", Scores: "scores"}
            whats[Counts] = "how many tokens are kept"
            self._refuse(node, f"takes {whats.get(type(found), 'what tells tokens from others')}")
            return None
        found = self.shown.get(name)
        return found if isinstance(found, Shown) else None

    def _all_features(self, name: str, node: Any) -> tuple[str, np.ndarray] | None:
        """Return a node and numbers of tokens of which a tensor has all features, in order; None: it was refused."""
        found = self._plain(name, node)
        if found is None:
            return None
        count = self.shapes[found.node][0] if self.shapes.get(found.node) else 0
        places, last = found.places, found.shape[-1] if found.shape else 0
        factor = float(np.ravel(found.factors)[0])
        if len(places) == 1 and np.all(found.factors == factor) and count:
            rows, features = places[0, ..., 0] // count, places[0] % count
            own = features.reshape(-1, last)[0] if last else features
            if np.all(features == own) and np.array_equal(
                places[0] // count, np.broadcast_to(rows[..., None], found.shape)
            ):
                whole = np.array_equal(own, np.arange(count))
                part = found.node if whole else self._part(found.node, own, "", node)
                return (self._times(node, part, factor), rows) if part else None
        self._refuse(node, f"takes {self._in_words(places, count)}")
        return None

    def _in_words(self, places: np.ndarray, count: int) -> str:
        """Return what places of a tensor that cannot be taken as features of tokens show, along its last axis."""
        tokens, features = (places[0] // count, places[0] % count) if count and places.ndim > 2 else (places, places)
        whole = places.shape[-1] == self.sequence > 1 and len(places) == 1
        if whole and np.all(np.diff(tokens, axis=-1) == 1) and np.all(features == features[..., :1]):
            what = "the tokens of a sequence as features, as MLP-Mixers and convolutions do"
            return f"{what}: products are of a token's own here"
        if len(places) == 1 and count and self.sequence > 1 and places.shape[-1] % (self.sequence * count) == 0:
            return "all tokens of a sequence as features of one: products are of a token's own here"
        return "numbers in an order, or with factors, that no operation here gives"

    def _times(self, at: Any, name: str, factor: float) -> str:
        """Return the node that gives a multiple of what another gives."""
        if (name, factor) not in self.multiples:
            made = self._multiple(at, FileTensor(name, self.shapes[name]), factor)
            self.multiples[name, factor] = made.node
        return self.multiples[name, factor]

    def _part(self, node: str, features: np.ndarray, called: str, at: Any) -> str:
        """Return the node that gives these features of a product alone; empty if it cannot be."""
        if np.array_equal(features, np.arange(self.shapes[node][0])):
            return node
        for own, name in self.parts.get(node, []):
            if np.array_equal(own, features):
                return name
        place = next((k for k, one in enumerate(self.nodes) if one["name"] == node), -1)
        one = self.nodes[place] if place >= 0 else {}
        if one.get("op") != "linear":
            return self._picked(node, features, at)
        if any(len(self.origins.get(f"{node}.{what}", ())) > 1 for what in ("weight", "bias")):
            self._refuse(at, f"takes a part of {node}, which looks places up too")
            return ""
        parts = self.parts.setdefault(node, [])
        name = f"{node}.{called or len(parts)}"
        if any(other["name"] == name for other in self.nodes):
            name = f"{node}.{len(parts)}"
        self.nodes.insert(place + 1 + len(parts), {**one, "name": name, "outputs": len(features)})
        parts.append((features, name))
        self.shapes[name] = (len(features),)
        for what in ("weight", "bias"):
            if f"{node}.{what}" in self.tensors:
                self.tensors[f"{name}.{what}"] = self.tensors[f"{node}.{what}"][features]
                (origin,) = self.origins[f"{node}.{what}"]
                if origin.places is not None:
                    places = np.array(origin.places).reshape(self.shapes[node][0], -1)[features].ravel()
                    self.origins[f"{name}.{what}"] = (origin._replace(places=tuple(map(int, places))),)
                    continue
                rows = features if origin.rows is None else np.array(origin.rows)[features]
                self.origins[f"{name}.{what}"] = (origin._replace(rows=tuple(map(int, rows))),)
        return name

    def _picked(self, node: str, features: np.ndarray, at: Any) -> str:
        """Return the product, of ones that are not trained, that gives some features of what is none."""
        key = node, tuple(map(int, features))
        if key not in self.picks:
            weights = np.zeros((len(features), self.shapes[node][0]), np.float32)
            weights[range(len(features)), features] = 1
            given = FileTensor(node, self.shapes[node])
            self.picks[key] = self._constant_product(at, given, weights, f"{node}.part")
        return self.picks[key]

    def _constant_product(self, node: Any, x: FileTensor, weights: np.ndarray, called: str) -> str:
        """Append a product whose weights are not trained."""
        count = len(weights)
        name = super()._add_node(node, "linear", x, shape=(count,), name=called, outputs=count, bias=False)
        self.nodes[-1]["fixed"] = True
        self.tensors[f"{name}.weight"], self.origins[f"{name}.weight"] = weights, ()
        return name

    def _parted(self) -> None:
        """Leave out products whose parts are taken, all of them and each once."""
        for node, parts in self.parts.items():
            every = np.sort(np.concatenate([features for features, _ in parts]))
            if not np.array_equal(every, np.arange(self.shapes[node][0])):
                self.refused.append(f"{node}: not every feature of it is taken once")
            if any(node in one["inputs"] for one in self.nodes):
                self.refused.append(f"{node}: it is taken whole and in parts")
            self.nodes = [one for one in self.nodes if one["name"] != node]
            for what in ("weight", "bias"):
                self.tensors.pop(f"{node}.{what}", None)
                self.origins.pop(f"{node}.{what}", None)

    # --- arrangement --------------------------------------------------------------------------------------------------

    def _arranged(self, node: Any, places: np.ndarray) -> np.ndarray:
        """Return what a node makes of places, shape (terms, ...)."""
        helper, reference = (need(name, "a network from an .onnx file") for name in ("onnx.helper", "onnx.reference"))
        if node.op_type == "Gather":
            axis, which = int(self._of(node, "axis", 0)), self.known[node.input[1]]
            return np.stack([np.take(part, which, axis) for part in places])
        names = [name for name in node.input[1:] if name]
        kinds = {name: helper.np_dtype_to_tensor_dtype(self.known[name].dtype) for name in names}
        whole = helper.np_dtype_to_tensor_dtype(places.dtype)
        ins = [helper.make_tensor_value_info(node.input[0], whole, None)]
        ins += [helper.make_tensor_value_info(name, kinds[name], None) for name in kinds]
        outs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        model = helper.make_model(helper.make_graph([node], "places", ins, outs), opset_imports=self.opsets)
        run, more = reference.ReferenceEvaluator(model).run, {name: self.known[name] for name in names}
        return np.stack([run(None, {node.input[0]: part} | more)[0] for part in places])

    def _move(self, node: Any, names: list[str]) -> bool:
        if names != [node.input[0]]:
            self._refuse(node, "arranges by what samples say")
            return True
        found = self.shown[node.input[0]]
        if isinstance(found, Scores):
            moved = found.shape[-2:]
            count = int(np.prod(found.shape))
            new = self._arranged(node, np.arange(count).reshape(1, *found.shape))[0]
            if np.array_equal(new.ravel(), np.arange(count)) and new.shape[-2:] == moved:
                self._show(node.output[0], found._replace(shape=tuple(new.shape)))
            else:
                self._refuse(node, "arranges scores")
            return True
        if isinstance(found, PointwiseFunction):
            base = self._shift_places(node, found.of)
            if base is not None:
                self._show(node.output[0], found._replace(of=base, last=None))
            return True
        plain = self._plain(node.input[0], node)
        base = self._shift_places(node, plain) if plain is not None else None
        if base is not None:
            self._show(node.output[0], base)
        return True

    def _shift_places(self, node: Any, found: Shown) -> Shown | None:
        try:
            places = self._arranged(node, found.places)
            factors = found.factors
            if isinstance(factors, np.ndarray):
                count = factors.size
                order = self._arranged(node, np.arange(count).reshape(factors.shape))
                factors = factors.ravel()[order]
        except Exception as error:  # operators have one each for what they do not take
            self._refuse(node, f"cannot be followed: {' '.join(str(error).split())[:100]}")
            return None
        return found._replace(places=places, factors=factors)

    def _keep(self, node: Any, names: list[str]) -> bool:
        """Let a tensor be the one that it is made of."""
        if node.input[0] not in self.shown:
            return False
        before = len(self.refused)
        if node.op_type == "Cast":
            self._cast(node, FileTensor("-", ()))
        elif node.op_type == "Dropout" and (ratio := self._drops(node)):
            self._drop(node, ratio)
            return True
        found = self.shown[node.input[0]]
        if self.left[node.input[0]] > 1 and isinstance(
            found, (Looked, PointwiseFunction)
        ):  # made once for all that take it
            found = self._plain(node.input[0], node)
        if len(self.refused) == before:
            self._show(node.output[0], found)
        return True

    def _drop(self, node: Any, ratio: float) -> None:
        """Drop features of tokens."""
        name = node.input[0]
        if isinstance(self.shown[name], Scores):
            self._refuse(node, f'drops shares of attention: {LEAVES_OUT}, "ignore-attention" this alone')
        elif self._of(node, WHOLE, ()):
            self._refuse(node, f"drops what belongs to several tokens together: {LEAVES_OUT}")
        elif (found := self._all_features(name, node)) is not None:
            made = self._add_node(node, "dropout", FileTensor(found[0], self.shapes[found[0]]), ratio=ratio)
            self._show_rows(node.output[0], made, found[1])

    def _join(self, node: Any, names: list[str]) -> bool:
        """Put pieces of one tensor one behind the other."""
        found: list[Any] = [self.shown.get(name) for name in node.input]
        if not all(isinstance(one, Shown) for one in found) or len({one.node for one in found}) > 1:
            return self._beside(node, names)
        axis, terms = int(self._of(node, "axis", 0)), max(len(one.places) for one in found)
        places, factors = [], []
        for one in found:
            lacks = terms - len(one.places)
            every = np.broadcast_to(one.factors, one.places.shape)
            zeros = np.zeros((lacks, *one.shape))
            places.append(np.concatenate([one.places, np.repeat(one.places[:1], lacks, 0)]))
            factors.append(np.concatenate([every, zeros]))
        axis = axis % (places[0].ndim - 1) + 1
        whole = np.concatenate(factors, axis)
        self._show(
            node.output[0], Shown(found[0].node, np.concatenate(places, axis), 1.0 if np.all(whole == 1) else whole)
        )
        return True

    def _beside(self, node: Any, names: list[str]) -> bool:
        """Put features of two nodes side by side."""
        made, order = None, None
        for name in node.input:
            if name not in self.shown:
                self._refuse(node, "puts tensors beside constants")
                return True
            found = self._all_features(name, node)
            if found is None:
                return True
            if order is not None and not np.array_equal(order, found[1]):
                self._refuse(node, "puts tokens behind each other, or in two orders beside each other")
                return True
            order, value = found[1], FileTensor(found[0], self.shapes[found[0]])
            if made is None:
                made = value
            else:
                shape = (made.shape[0] + value.shape[0],)
                made = FileTensor(super()._add_node(node, "concat", made, value, shape=shape), shape)
        assert made is not None
        assert order is not None
        if int(self._of(node, "axis", 0)) % (order.ndim + 1) != order.ndim:
            self._refuse(node, "only features are put side by side here")
        elif made.node:
            self._show_rows(node.output[0], made.node, order)
        return True

    def _cut(self, node: Any, names: list[str]) -> bool:
        """Divide a tensor into pieces: ``Split``, or a sequence of tensors."""
        found = self.shown.get(node.input[0])
        if isinstance(found, (Looked, PointwiseFunction)):
            found = self._plain(node.input[0], node)
        if not isinstance(found, Shown):
            self._refuse(node, "cuts what cannot be followed")
            return True
        axis = int(self._of(node, "axis", 0))
        size = found.shape[axis]
        given = self.known.get(node.input[1]) if len(node.input) > 1 and node.input[1] else None
        if given is None:
            count = int(self._of(node, "num_outputs", len(node.output)))
            ends = np.minimum(np.arange(1, count) * -(-size // count), size)
        elif given.ndim == 0:
            ends = np.arange(int(given), size, int(given))
        else:
            ends = np.cumsum(given)[:-1]
        along = axis % len(found.shape) + 1
        pieces = np.split(found.places, ends, along)
        factors = (
            np.split(found.factors, ends, along)
            if isinstance(found.factors, np.ndarray)
            else [found.factors] * len(pieces)
        )
        made = [Shown(found.node, place, factor) for place, factor in zip(pieces, factors, strict=True)]
        if node.op_type == "Split":
            for name, one in zip(node.output, made, strict=True):
                self._show(name, one)
        else:
            self.lists[node.output[0]] = made
            self.values[node.output[0]] = FileTensor("-", ())
        return True

    def _taken(self, node: Any) -> None:
        """Take a piece out of a list of them."""
        if node.op_type != "SequenceAt" or node.input[1] not in self.known:
            self._refuse(node, "only a piece is taken out of a list here")
            return
        self._show(node.output[0], self.lists[node.input[0]][int(self.known[node.input[1]])])

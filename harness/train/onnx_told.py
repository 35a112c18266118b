"""What the numbers of tokens tell: masks of padding are followed until scores of attention take them.

A mask begins with the numbers of tokens, or with a second input of a graph, which is one number at the token that fills
sequences and another one elsewhere (`network.masked`).  What is made of it depends, at each place of a tensor, on the
number of one token, and on the place: that is what a `ByToken` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from fabric.networks.graph.tensors import INPUT
from harness.train.onnx_functions import BINARY, Call, after, call_of
from harness.train.onnx_shown import ARRANGE, BOOL, KEEP, LOWEST, Shown, ShownReader
from wse_core.errors import UnsupportedError

__all__ = ["ByToken", "ToldReader"]

WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
"""Whole numbers have these types."""


class ByToken(NamedTuple):
    """A `ByToken` says what a tensor of a file tells of the numbers of tokens.

    Attributes
    ----------
    tokens : ndarray of int
        At each place the token, of all samples, on whose number it depends.
    number : callable
        A function of that number.
    rest : callable or None
        A function of what that gives and of places in the tensor; None: what that gives.
    """

    tokens: np.ndarray
    number: Call
    rest: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor of the file has this shape."""
        return tuple(self.tokens.shape)

    def then(self, call: Call) -> Self:
        """Return a function of each of its numbers."""
        if self.rest is None:
            return self._replace(number=after(call, self.number))
        rest = self.rest
        return self._replace(rest=lambda x, at: call(rest(x, at)))

    def at(self, own: np.ndarray) -> Self:
        """Return what has its numbers at other places: `own` are the places here of those there."""
        flat, rest = own.ravel(), self.rest
        moved = None if rest is None else lambda x, at: rest(x, flat[at])
        return self._replace(tokens=self.tokens.ravel()[own], rest=moved)

    def spread(self, shape: tuple[int, ...]) -> Self:
        """Return what repeats it until it has a shape."""
        return self.at(np.broadcast_to(np.arange(self.tokens.size).reshape(self.shape), shape))

    def whole(self, number: Any) -> np.ndarray:
        """Return all its numbers, if `number` gives one of any token."""
        x = np.full(self.tokens.size, number)
        return (x if self.rest is None else np.asarray(self.rest(x, np.arange(x.size)))).reshape(self.shape)


class ToldReader(ShownReader):
    """A `ToldReader` follows what numbers of tokens tell.

    Parameters
    ----------
    path : Path
        For messages.
    model : onnx.ModelProto
    masked : sequence of int
        The token that fills sequences, and what a second input is there.
    """

    def _begin_mask(self, given: Any) -> None:
        """Take a second input: a mask that one token has, by its number."""
        sizes = [item.dim_value for item in given.type.tensor_type.shape.dim]
        what, hint = "", "an example with padding for wse.train.from_torch, or network.masked = [token, its mask]"
        if not self.numbers:
            what = "a second input is a mask of tokens here, and samples are no numbers of tokens"
        elif len(sizes) != 2 or sizes[1] != self.sequence:
            what = "a second input is a mask here, one number for each token"
        elif not self.masked:
            what = "a second input; which token fills sequences, and what its mask is, has to be said"
        if what:
            raise UnsupportedError(f"{given.name}: {what}", where=self.path, feature="onnx", hint=hint)
        self.takes_mask = True
        token, there = self.masked
        places = np.arange(self.samples * self.sequence).reshape(self.samples, self.sequence)
        self.warnings.append(
            f"{given.name} of {self.path.name} is made of the tokens: {there} for token {token}, {1 - there} for others"
        )
        whole = given.type.tensor_type.elem_type != BOOL
        self._show(given.name, ByToken(places, lambda x: _of_kind(np.where(x == token, there, 1 - there), whole)))

    def _told(self, name: str) -> ByToken | None:
        """Return what a tensor tells of the numbers of tokens, if it depends on nothing else."""
        found = self.shown.get(name)
        if isinstance(found, Shown) and found.node == INPUT and self.numbers and len(found.places) == 1:
            return ByToken(found.places[0], lambda x: x)
        return found if isinstance(found, ByToken) else None

    def _tells(self, node: Any, names: list[str]) -> bool:
        """Go on with what the numbers of tokens tell; return whether a node does that alone."""
        op, told = node.op_type, [self._told(name) for name in names]
        first = told[0] if names and names[0] == node.input[0] else None
        if any(one is None for one in told):
            return False
        if op in (*ARRANGE, "GatherND"):
            if first is None or (op != "GatherND" and isinstance(self.shown[names[0]], Shown)):
                return False
            own = self._arranged(node, np.arange(first.tokens.size).reshape(1, *first.shape))[0]
            self._show(node.output[0], first.at(own))
        elif op == "CumSum":
            return first is not None and self._places_of(node, first)
        elif op == "GatherElements":
            return self._same_everywhere(node)
        elif op == "ArgMax":
            return first is not None and self._last_kept(node, first)
        elif op in KEEP:
            return first is not None and self._in_another_type(node, first)
        elif op in BINARY:
            return self._told_of_several(node, BINARY[op])
        else:
            call = call_of(node, self.known, self._of)
            if call is None or first is None:
                return False
            self._show(node.output[0], first.then(call))
        return True

    def _places_of(self, node: Any, told: ByToken) -> bool:
        """Count tokens that are no padding: where it stands behind all others, they have their places, from one on."""
        axis = int(np.ravel(self.known.get(node.input[1], np.array(99)))[0])
        along = told.tokens.shape[axis] if -len(told.shape) <= axis < len(told.shape) else 0
        wanted = np.moveaxis(told.tokens, axis, -1) if along else np.zeros((1, 0))
        whole = along == self.sequence and np.all(wanted % self.sequence == np.arange(self.sequence))
        if not whole or self._of(node, "exclusive", 0) or self._of(node, "reverse", 0):
            self._refuse(node, "counts tokens otherwise than along a sequence, from its first one on")
            return True
        places, rest = told.tokens.ravel() % self.sequence + 1, told.rest
        self.counts.append(told)
        new = (lambda x, at: places[at] * x) if rest is None else (lambda x, at: places[at] * rest(x, at))
        self._show(node.output[0], told._replace(rest=new))
        return True

    def _last_kept(self, node: Any, told: ByToken) -> bool:
        """Take the last token that is no padding for the last one, if the largest number is there without padding."""
        axis = int(self._of(node, "axis", 0)) % max(1, len(told.shape))
        whole = told.shape[axis] == self.sequence and not self._of(node, "select_last_index", 0)
        kinds, which = np.unique(np.asarray(told.number(np.arange(self.vocabulary))), return_inverse=True)
        largest = [np.argmax(told.whole(kind), axis) for kind in kinds]
        last = np.array([bool(np.all(one == self.sequence - 1)) for one in largest], bool)
        if not whole or last.sum() != 1:
            self._refuse(node, "takes a token by the largest number, which is not the last one that is no padding")
            return True
        self.uncounted |= set(map(int, np.flatnonzero(~last[which])))
        found = largest[int(np.flatnonzero(last)[0])]
        self.known[node.output[0]] = np.expand_dims(found, axis) if self._of(node, "keepdims", 1) else found
        return True

    def _same_everywhere(self, node: Any) -> bool:
        """Take numbers that are all the same by places that tokens tell; return whether a node does that."""
        values = self.known.get(node.input[0])
        told = self._told(node.input[1])
        if values is None or told is None or not values.size or np.any(values != values.flat[0]):
            return False
        self.known[node.output[0]] = np.full(told.shape, values.flat[0])
        return True

    def _counted_rows(self, node: Any, told: ByToken) -> np.ndarray | None:
        """Return which row of a table each place of a sequence has, if tokens that are no padding tell it; else None.

        What is padding has another row, which nothing depends on if it stands behind all others and is hidden.
        """
        kinds, which = np.unique(np.asarray(told.number(np.arange(self.vocabulary))), return_inverse=True)
        every = np.arange(self.samples * self.sequence)
        if not len(kinds) or not np.array_equal(np.sort(told.tokens.ravel()), every):
            return None
        rows = np.empty((len(kinds), self.samples, self.sequence), np.int64)
        for own, kind in zip(rows, kinds, strict=True):
            own.ravel()[told.tokens.ravel()] = np.asarray(told.whole(kind)).ravel()
        rows, same = np.unique(rows, axis=0, return_inverse=True)
        which = same.reshape(-1)[which]
        moving = [k for k in range(len(rows)) if np.any(np.diff(rows[k], axis=1))]
        numbers = [np.unique(np.asarray(one.number(np.arange(self.vocabulary)), float)) for one in self.counts]
        if len(moving) != 1 or np.any(rows[moving[0]] != rows[moving[0], :1]) or not np.isin(numbers, (0, 1)).all():
            self._refuse(node, "counts tokens in a way that is none of places of those that are no padding")
            return None
        self.uncounted |= set(map(int, np.flatnonzero(which != moving[0])))
        return rows[moving[0], 0]

    def _in_another_type(self, node: Any, found: ByToken) -> bool:
        """Go on with numbers in another type: what is no number with a point may lose some of it."""
        kind = self._of(node, "to", 0) if node.op_type == "Cast" else 0
        if kind == BOOL:
            self._show(node.output[0], found.then(lambda x: np.asarray(x) != 0))
        elif kind in WHOLE and isinstance(self.shown[node.input[0]], ByToken):
            self._show(node.output[0], found.then(np.trunc))
        elif node.op_type == "Dropout":
            return False
        else:
            self._show(node.output[0], self.shown[node.input[0]])
        return True

    def _told_of_several(self, node: Any, call: Callable[..., np.ndarray]) -> bool:
        """Go on with an operation on several tensors, of which constants are some."""
        parts = [self._told(name) for name in node.input]
        if any(one is None and not self._stays(name) for one, name in zip(parts, node.input, strict=True)):
            return False
        held = [self.known.get(name) for name in node.input]
        held = [None if one is not None else array for one, array in zip(parts, held, strict=True)]
        shape = np.broadcast_shapes(*(one.shape for one in (*parts, *held) if one is not None))
        spread = [one if one is None else one.spread(shape) for one in parts]
        several = [one for one in spread if one is not None]
        if not all(np.array_equal(one.tokens, several[0].tokens) for one in several):
            self._refuse(node, "tells two tokens from others at once")
            return True
        self._show(node.output[0], _combined(several[0].tokens, spread, held, shape, call))
        return True

    def _stays(self, name: str) -> bool:
        """Return whether a constant is no number that is trained, nor made of some."""
        if name not in self.known:
            return False
        values, origin = self.known[name], self.origin.get(name)
        plain = (origin is None and name not in self.derived) or (origin is not None and origin.name in self.fixed)
        return plain or values.dtype.kind != "f" or bool(np.all((values == 0) | (values <= LOWEST)))

    def _hides(
        self, node: Any, told: ByToken, shape: tuple[int, ...], call: Call
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return which keys a query sees, which numbers of tokens are hidden, and tokens of keys; None: refused.

        `call` says of what is told whether it hides a key; `shape` is that of scores.
        """
        count = self.sequence
        try:
            told = told.spread(shape)
        except ValueError:
            self._refuse(node, "hides tokens by something else than their own numbers, from all others alike")
            return None
        values = np.asarray(told.number(np.arange(max(self.vocabulary, 1))))
        kinds, which = np.unique(values, return_inverse=True)
        found = []
        for kind in kinds:
            hides = np.asarray(call(told.whole(kind)), bool).reshape(-1, count, count)
            if not np.all(hides == hides[0]):
                self._refuse(node, "hides tokens in another way from some heads, or in some sequences")
                return None
            found.append(hides[0])
        seen = ~np.all(found, axis=0)
        hidden = np.array([bool(one[seen].all()) for one in found])
        alike = [np.array_equal(one, ~seen | gone) for one, gone in zip(found, hidden, strict=True)]
        if not seen.any() or not all(alike):
            self._refuse(node, "hides tokens by something else than their own numbers, from all others alike")
            return None
        return seen, hidden[which], told.tokens.reshape(-1, count, count)


def _of_kind(values: np.ndarray, whole: bool) -> np.ndarray:
    """Return numbers, or what is true."""
    return values if whole else values != 0


def _combined(
    tokens: np.ndarray,
    parts: list[ByToken | None],
    arrays: list[np.ndarray | None],
    shape: tuple[int, ...],
    call: Callable[..., np.ndarray],
) -> ByToken:
    """Return an operation on what several tensors tell, and on constants."""
    plain = all(one is None or one.rest is None for one in parts)
    if plain and all(array is None or array.size == 1 for array in arrays):
        numbers = [one.number if one is not None else None for one in parts]
        held = [None if array is None else array.reshape(()) for array in arrays]
        return ByToken(tokens, lambda x: call(*(k if f is None else f(x) for f, k in zip(numbers, held, strict=True))))
    alone = next((one for one in parts if one is not None), None)
    first = alone.number if alone is not None and sum(one is not None for one in parts) == 1 else None
    flat = [None if array is None else np.broadcast_to(array, shape).ravel() for array in arrays]

    def rest(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        given = []
        for one, array in zip(parts, flat, strict=True):
            if one is None:
                assert array is not None
                given.append(array[at])
            else:
                own = x if first is not None else np.asarray(one.number(x))
                given.append(own if one.rest is None else one.rest(own, at))
        return np.asarray(call(*given))

    return ByToken(tokens, first or (lambda x: x), rest)

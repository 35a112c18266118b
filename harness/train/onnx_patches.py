"""Graphs of images that are cut into patches: vision transformers are read as sequences.

The convolution whose windows lie side by side becomes the product of a token's features, the pixels of a patch; a
parameter that is put before the patches (class tokens) a column of its weights.  Images that are arranged as patches,
by any steps, are followed pixel by pixel until something else is done with them.  What follows is read as any sequence
(`harness.train.onnx_tokens`), samples are cut as `harness.train.patches` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fabric.networks.graph.tensors import INPUT
from harness.train.onnx_reader import FileTensor
from harness.train.onnx_shown import ARRANGE, KEEP, PLACE, SAMPLES, Shown
from harness.train.onnx_tokens import TokenReader
from harness.train.patches import patched, tokens_of
from wse_core.errors import UnsupportedError

__all__ = ["PatchReader", "has_patches"]

MADE = ("Expand", "Tile", "Reshape", "Unsqueeze", "Identity", "Cast", "CastLike")
"""What is put before patches is still a parameter behind one of these."""
IMAGE = "image"
"""The pixels of the samples have this name among tensors."""


def has_patches(graph: Any) -> bool:
    """Return whether samples are images that a graph's only convolution cuts into patches, or none does; or rows.

    Rows of features, which no convolution takes, are patches of one row.
    """
    known = {item.name for item in graph.initializer}
    given = [item for item in graph.input if item.name not in known]
    cuts = [node for node in graph.node if node.op_type in ("Conv", "ConvTranspose")]
    axes = len(given[0].type.tensor_type.shape.dim) if len(given) == 1 else 0
    if axes not in (3, 4) or len(cuts) > axes - 3:
        return False
    if not cuts:
        return True
    found = {item.name: item for item in cuts[0].attribute}
    strides = list(found["strides"].ints) if "strides" in found else []
    sides = list(found["kernel_shape"].ints) if "kernel_shape" in found else strides
    plain = not any(found["pads"].ints) if "pads" in found else True
    return bool(cuts[0].input[0] == given[0].name and strides and sides == strides and plain)


class PatchReader(TokenReader):
    """A `PatchReader` reads a graph of images that are cut into patches.

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
        self.image: tuple[int, ...] = ()
        self.arranged = False  # images have been arranged as patches

    def _begin(self, given: Any) -> tuple[int, ...]:
        """Take the input of the graph, and see how many tokens its patches and what stands before them are."""
        sizes = [item.dim_value for item in given.type.tensor_type.shape.dim]
        if not all(size > 0 for size in sizes[1:]):
            what = f"{given.name}: images of a size that is left open"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint="fixed sizes")
        self.samples, self.image = sizes[0] if sizes[0] > 0 else SAMPLES, (1, *sizes[1:])[-3:]
        if len(sizes) == 3:
            self._cut_as(1, sizes[2], self._before())
            self._show_patches(given.name)
            return ()
        for cut in (node for node in self.graph.node if node.op_type == "Conv"):
            rows, columns = self._of(cut, "strides", [1, 1])
            before = self._before(self.known[cut.input[1]].shape[0])
            marked = int(before > 0 and len(cut.input) > 2 and bool(cut.input[2]))
            self._cut_as(rows, columns, before, marked)
        count = self.samples * int(np.prod(sizes[1:]))
        self._show(given.name, Shown(IMAGE, np.arange(count, dtype=PLACE).reshape(1, self.samples, *sizes[1:])))
        return ()

    def _cut_as(self, rows: int, columns: int, before: int, marked: int = 0, last: int = 0) -> None:
        """Note what a patch is."""
        self.patches = (*self.image, rows, columns, before, marked, last)
        self.sequence, _ = tokens_of(self.patches)
        self.inputs = self.image[0] * rows * columns
        self.shapes[INPUT] = (self.inputs,)

    def _show_patches(self, name: str) -> None:
        """Note that a tensor shows all features of the tokens that are patches."""
        tokens = np.arange(self.samples * self.sequence, dtype=PLACE).reshape(self.samples, -1)
        own = tokens[:, self.patches[5] :, None] * self.inputs + np.arange(self.inputs, dtype=PLACE)
        self._show(name, Shown(INPUT, own[None]))
        self.arranged = True

    def _before(self, features: int = 0) -> int:
        """Return how many tokens stand before those of the patches: parameters of so many features.

        None are said: a row of them has all.
        """
        made, count = {name: node for node in self.graph.node for name in node.output}, 0
        for node in self.graph.node:
            for name in node.input[:-1] if node.op_type == "Concat" else ():
                while name in made and made[name].op_type in MADE:
                    name = made[name].input[0]
                whole = features or (self.known[name].shape[-1] if name in self.origin else 1)
                count += self.known[name].size // whole if name in self.origin else 0
        return count

    def _read(self, node: Any) -> None:
        found = self.shown.get(node.input[0]) if node.input else None
        if not isinstance(found, Shown) or found.node != IMAGE:
            super()._read(node)
        elif node.op_type == "Conv" and not self.arranged:
            self._cut_into_patches(node)
        elif node.op_type in (*ARRANGE, *KEEP):
            super()._read(node)
        elif node.op_type == "Pad" and not np.any(self.known.get(node.input[1], 1)):
            self._show(node.output[0], found)
        elif self._as_patches(node, node.input[0], found):
            super()._read(node)

    def _as_patches(self, node: Any, name: str, found: Shown) -> bool:
        """Take an arrangement of pixels for patches, once; return whether it is one."""
        places, (channels, height, width) = found.places[0], self.image
        sides = [(rows, columns) for rows in range(1, height + 1) for columns in range(1, width + 1)]
        for rows, columns in sides if places.ndim == 3 and not self.arranged and not self.patches else ():
            down, along, size = height // rows, width // columns, channels * rows * columns
            if places.shape[1:] != (down * along, size):
                continue
            pixels = np.arange(self.samples * channels * height * width).reshape(self.samples, -1)
            for last in range(2):
                if np.array_equal(
                    places, patched(pixels, (*self.image, rows, columns, 0, 0, last)).reshape(places.shape)
                ):
                    self._cut_as(rows, columns, self._before(), 0, last)
                    self._show_patches(name)
                    return True
        self._refuse(
            node, "takes images, and patches of them alone are tokens here: side by side, row by row, cut once"
        )
        return False

    def _cut_into_patches(self, node: Any) -> None:
        """Append the product of the pixels of a patch."""
        filters = self.known.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type != "Conv" or filters is None or node.input[1] not in self.origin:
            self._refuse(node, "images are cut into patches by a convolution with parameters here")
            return
        outputs, (before, marked) = len(filters), self.patches[5:7]
        if filters[0].size != self.inputs:
            self._refuse(node, "patches are of all channels here: group is 1")
            return
        x, biased = FileTensor(INPUT, (self.inputs,)), len(node.input) > 2 and bool(node.input[2])
        named = self._named(node, 1)
        name = self._add_node(node, "linear", x, shape=(outputs,), name=named, outputs=outputs, bias=False)
        values = self._parameter(node, 1, f"{name}.weight")
        assert values is not None
        self.tensors[f"{name}.weight"] = values.reshape(outputs, -1)
        if before:
            (origin,) = self.origins[f"{name}.weight"]
            self.origins[f"{name}.weight"] = (origin._replace(columns=(0, self.inputs)),)
        if marked:
            self._append_table(name, node.input[2], None)
        elif biased:
            self._bias(node, 2, name)
        self.shapes[INPUT] = (self.inputs,)
        _, height, width, rows, columns, *_ = self.patches
        tokens = np.arange(self.samples * self.sequence, dtype=PLACE).reshape(self.samples, -1)[:, before:]
        grid = tokens.reshape(self.samples, 1, height // rows, width // columns) * outputs
        self._show(node.output[0], Shown(name, (grid + np.arange(outputs, dtype=PLACE)[:, None, None])[None]))

    def _mark(self, name: str, one: dict[str, Any]) -> None:
        """Let the bias of a product be that of patches alone: a column, of ones at these."""
        weights, bias = f"{name}.weight", f"{name}.bias"
        (first, *more) = self.origins[weights]
        if first.columns is None:
            self.origins[weights] = (first._replace(columns=(0, self.inputs)), *more)
        if one["bias"]:
            one["bias"] = False
            (origin,) = self.origins.pop(bias)
            self.used[origin.name] -= 1
            del self.tensors[bias]
            self._append_table(name, next(key for key, own in self.origin.items() if own.name == origin.name), None)
            self.patches = (*self.patches[:6], 1, self.patches[7])

    def _join(self, node: Any, names: list[str]) -> bool:
        """Put parameters before the tokens of the patches."""
        tables = [self.rows[name].node if name in self.rows else name for name in node.input if name not in self.shown]
        found = self.shown.get(node.input[-1])
        if not tables or not all(table in self.origin for table in tables):
            return super()._join(node, names)
        if not isinstance(found, Shown):
            self._refuse(node, "parameters are put before all patches as they are cut, along the tokens")
            return True
        one = next((one for one in self.nodes if one["name"] == found.node), {})
        first = one.get("inputs") == [INPUT] and self.takes[node.input[-1]] == 1 and len(names) == 1
        first &= sum(INPUT in other["inputs"] for other in self.nodes) == 1
        tokens, features = np.arange(self.samples * self.sequence, dtype=PLACE), self.shapes[found.node][0]
        whole = tokens.reshape(1, self.samples, -1, 1) * features + np.arange(features, dtype=PLACE)
        rest = whole[:, :, self.patches[5] :]
        if not first or not np.array_equal(found.places, rest) or int(self._of(node, "axis", 0)) not in (1, -2):
            self._refuse(node, "parameters are put before all patches as they are cut, along the tokens")
            return True
        self._mark(found.node, one)
        for table in tables:
            if table not in self.origin or self.known[table].size % features:
                self._refuse(node, f"puts {table} before patches, which is no parameter of {features} features")
                return True
            self._append_table(found.node, table, None)
        self.shapes[INPUT] = (self.inputs,)
        self._show(node.output[0], Shown(found.node, whole))
        return True

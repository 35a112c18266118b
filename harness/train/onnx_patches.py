"""Graphs of images that are cut into patches: vision transformers are read as sequences.

The convolution whose windows lie side by side becomes the product of a token's features, the pixels of a patch; a
parameter that is put before the patches (class tokens) a column of its weights.  What follows is read as any sequence
(`harness.train.onnx_tokens`), samples are cut as `harness.train.patches` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.networks.graph.tensors import INPUT
from harness.train.onnx_reader import FileTensor
from harness.train.onnx_shown import PLACE, SAMPLES, Shown
from harness.train.onnx_tokens import TokenReader
from harness.train.patches import tokens_of
from wse_core.errors import UnsupportedError

__all__ = ["PatchReader", "has_patches"]

MADE = ("Expand", "Tile", "Reshape", "Unsqueeze", "Identity", "Cast", "CastLike")
"""What is put before patches is still a parameter behind one of these."""
IMAGE = "image"
"""The pixels of the samples have this name among tensors."""


def has_patches(graph: Any) -> bool:
    """Return whether the samples of a graph are images, and its only convolution cuts them into patches."""
    known = {item.name for item in graph.initializer}
    given = [item for item in graph.input if item.name not in known]
    cuts = [node for node in graph.node if node.op_type == "Conv"]
    if len(given) != 1 or len(given[0].type.tensor_type.shape.dim) != 4 or len(cuts) != 1:
        return False
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
    """

    def _begin(self, given: Any) -> tuple[int, ...]:
        """Take the input of the graph, and see how many tokens its patches and what stands before them are."""
        sizes = [item.dim_value for item in given.type.tensor_type.shape.dim]
        if not all(size > 0 for size in sizes[1:]):
            what = f"{given.name}: images of a size that is left open"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint="fixed sizes")
        cut = next(node for node in self.graph.node if node.op_type == "Conv")
        rows, columns = self._of(cut, "strides", [1, 1])
        before = self._before(self.known[cut.input[1]].shape[0])
        marked = int(before > 0 and len(cut.input) > 2 and bool(cut.input[2]))
        self.patches = (*sizes[1:], rows, columns, before, marked, 0)
        self.samples = sizes[0] if sizes[0] > 0 else SAMPLES
        self.sequence, _ = tokens_of(self.patches)
        self.inputs = sizes[1] * rows * columns
        self.shapes[INPUT] = (self.inputs,)
        count = self.samples * int(np.prod(sizes[1:]))
        self._show(given.name, Shown(IMAGE, np.arange(count, dtype=PLACE).reshape(1, self.samples, *sizes[1:])))
        return ()

    def _before(self, features: int) -> int:
        """Return how many tokens stand before those of the patches: parameters of so many features."""
        made, count = {name: node for node in self.graph.node for name in node.output}, 0
        for node in self.graph.node:
            for name in node.input[:-1] if node.op_type == "Concat" else ():
                while name in made and made[name].op_type in MADE:
                    name = made[name].input[0]
                count += self.known[name].size // features if name in self.origin else 0
        return count

    def _read(self, node: Any) -> None:
        found = self.shown.get(node.input[0]) if node.input else None
        if isinstance(found, Shown) and found.node == IMAGE:
            self._cut_into_patches(node)
        else:
            super()._read(node)

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
        tokens, features = np.arange(self.samples * self.sequence, dtype=PLACE), self.shapes[found.node][0]
        whole = tokens.reshape(1, self.samples, -1, 1) * features + np.arange(features, dtype=PLACE)
        rest = whole[:, :, self.patches[5] :]
        if not first or not np.array_equal(found.places, rest) or int(self._of(node, "axis", 0)) not in (1, -2):
            self._refuse(node, "parameters are put before all patches as they are cut, along the tokens")
            return True
        for table in tables:
            if table not in self.origin or self.known[table].size % features:
                self._refuse(node, f"puts {table} before patches, which is no parameter of {features} features")
                return True
            self._append_table(found.node, table, None)
        self.shapes[INPUT] = (self.inputs,)
        self._show(node.output[0], Shown(found.node, whole))
        return True

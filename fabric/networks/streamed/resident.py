"""The program, memory and layout of a wafer on which a network's activations stay.

Memory of a PE
    Per level of features a row of ones (for biases) and the rows of the features that the PE's column owns, each row
    with the PE's tokens; slopes of activations, normalised rows and deviations where a layer needs them; two arrays of
    gradients, used in turns by the layers; labels; exponentials.  A table of addresses, filled by the loader, is what
    pointer commands index, since programs of different columns differ in the length of their code.

Layout
    Features over x, tokens (samples) over y: layout A of the white paper.  Weights and commands enter at the north of
    each column, gradients and losses leave at its south.

Source: weight streaming white paper, sections 7.2 and 7.3.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsr, Reg
from fabric.kernels.streamed.forward import COLOR_W, ProductTasks, route_product
from fabric.kernels.streamed.gradient import DOWN, GradientTasks, route_gradient, row_kind
from fabric.kernels.streamed.placement import Placement
from fabric.layout.layout import Layout
from fabric.networks.streamed.commands import FORMS, IDS
from fabric.networks.streamed.network import Network
from fabric.networks.streamed.rows import RowTasks
from fabric.program.program import Program
from wse_core.errors import ConfigError, ProgramError
from wse_core.params import Machine

__all__ = ["Resident"]


class Resident:
    """A network placed on a wafer.

    Parameters
    ----------
    network : Network
    machine : Machine
    width, height : int
        PEs.
    samples : int
        Tokens of this wafer: one sample each.
    form : {"steps", "pairs", "both"}, optional
        How weights may come: with the steps between them, dense rows in pairs without, or either (a branch more per
        wavelet); see `fabric.networks.streamed.commands.DENSE`.

    Attributes
    ----------
    places : list of Placement
        Of the features of each level, inputs first.
    tokens : int
        Samples of a PE.
    arrays : dict[str, int]
        Number of each array in the table of addresses; ``a1`` begins at the row of ones, ``a1.rows`` behind it.

    Raises
    ------
    ConfigError
        Samples that do not divide by the rows of PEs, or a network that does not fit into the SRAM: the message names
        the largest array and its bytes.
    """

    def __init__(
        self, network: Network, machine: Machine, width: int, height: int, samples: int, form: str = "steps"
    ) -> None:
        if form not in FORMS:
            raise ConfigError(f"weights do not come as {form!r}", where="network", hint=", ".join(FORMS))
        if samples < 1 or samples % height:
            raise ConfigError(
                f"{samples} samples of a wafer do not divide into {height} rows of PEs",
                where="mesh",
                hint=f"{max(1, samples // height) * height} samples per wafer",
            )
        self.network, self.machine, self.width, self.height, self.samples = network, machine, width, height, samples
        self.tokens, self.form = samples // height, form
        self.places = [Placement(features, samples, width, height) for features in network.features]
        self.most = [max(1, int(np.diff(place.feature_starts).max())) for place in self.places]
        self.sizes = self._sizes()
        self._views = [(name, 0) for name in self.sizes]
        self._views += [(f"a{k}", self.tokens) for k in range(len(self.places))]
        names = [*self.sizes, *(f"a{k}.rows" for k in range(len(self.places)))]
        self.arrays = {name: k for k, name in enumerate(names)}
        if self._largest()[1] > 2 * machine["mem.words"]:
            raise self._too_large()  # before weights are drawn and programs written for nothing

    def _largest(self) -> tuple[str, int]:
        """Return (name, bytes) of the largest array."""
        words = {"half": 1, "f32": 2}
        sizes = ((name, rows * self.tokens * words[dtype] * 2) for name, (rows, dtype) in self.sizes.items())
        return max(sizes, key=lambda item: item[1])

    def _too_large(self, cause: str | None = None) -> ConfigError:
        name, size = self._largest()
        level = "" if not name[1:].isdigit() else f" of level {name[1:]}"
        return ConfigError(
            f"the network does not fit into a PE's {2 * self.machine['mem.words']} bytes: array "
            f"{name}{level} alone takes {size} bytes",
            cause=cause,
            where="network",
            hint="more PEs, or fewer samples per wafer",
        )

    def _sizes(self) -> dict[str, tuple[int, str]]:
        """Return {array: (rows, format)}."""
        layers, most = self.network.layers, self.most
        found = {f"a{k}": (1 + n, "half") for k, n in enumerate(most)}
        for k, layer in enumerate(layers, 1):
            if layer.activation != "none":
                found[f"s{k}"] = most[k], "half"
            if layer.norm:
                found[f"n{k}"], found[f"v{k}"] = (most[k], "half"), (1, "f32")
        for k in range(2):
            found[f"d{k}"] = max(most[1 + k :: 2], default=1), "half"
        found["labels"], found["expo"] = (most[-1], "half"), (most[-1], "f32")
        return found

    @property
    def one(self) -> int:
        """Bits of 1 in the format of the activations."""
        return 0x3C00 if self.network.dtype == "f16" else self.machine["num.cb16_bias"] << 9

    def delta(self, level: int) -> str:
        """Return the array of the gradients of a level's rows."""
        return f"d{(level - 1) % 2}"

    # --- programs -----------------------------------------------------------------------------------------------------

    def program(self, column: int, row: int | str) -> Program:
        """Return the program of a PE.

        Parameters
        ----------
        column : int
        row : {"only", "top", "bottom", 0, 1}
            Place in the column; the parity of the row in its middle.
        """
        layers, tokens = self.network.layers, self.tokens
        p = Program(f"resident network, column {column}, row {row}", self.machine, half=self.network.dtype)
        table = p.param("table", "u16", count=len(self.arrays))
        held = {}
        for name, (rows, dtype) in self.sizes.items():
            ones = np.full(tokens, self.one, np.uint16) if name[0] == "a" else None
            held[name] = p.array(name, rows * tokens, dtype, init=ones, bank=1 if name[0] == "a" else None)

        def place(number: Reg) -> Reg:
            address = p.reg16("address")
            p.ld16(address, table, index=number)
            return address

        base = p.reg16("address of the source")
        product = ProductTasks(p, column, self.width, held["a0"], held["a1"], tokens, base, self.form)
        dense = self.form != "steps"
        gradient = GradientTasks(p, column, self.places[0], row, 0, held["a0"], held["d0"], tokens, base, dense)
        row_tasks = RowTasks(
            p,
            product,
            gradient,
            held["a0"],
            held["expo"],
            tokens,
            frozenset(layer.activation for layer in layers),
            any(layer.norm for layer in layers),
            place,
        )
        parts: tuple[ProductTasks | GradientTasks | RowTasks, ...] = (product, gradient, row_tasks)
        constant = p.dsr("src1") if dense else None
        with p.task("prepare"):
            for part in parts:
                part.prepare()
            if constant is not None:
                p.load(constant, p.mem1d(held["a0"], tokens))
        p.start("prepare")
        for part in parts:
            part.tasks()
        if constant is not None:
            self._dense_tasks(p, product, constant)
        with p.task("source", kind="control", id=IDS["source"]) as t:
            p.ld16(base, table, index=t.data)
            p.dsr_base(product.column_x, base)
        for name, dsr in (("result", product.result), ("mine", gradient.mine)):
            with p.task(name, kind="control", id=IDS[name]) as t:
                p.dsr_base(dsr, place(t.data))
        p.assemble()
        return p

    def _dense_tasks(self, p: Program, product: ProductTasks, constant: Dsr) -> None:
        """Write the commands between pairs of weights; `constant` reads the constant input."""
        for name, row in (("bias", constant), ("last", product.column_x)):
            with p.task(name, kind="control", id=IDS[name]) as t:
                p.fmachs(product.total, product.total, row, t.data)
        if product.in_pairs is None:
            return
        for name in ("pairs", "steps"):
            with p.task(name, kind="control", id=IDS[name]):
                p.mov16(product.in_pairs, int(name == "pairs"))

    @cached_property
    def layout(self) -> Layout:
        """The `Layout`, with its streams in `inputs` and `outputs`."""
        layout, made = Layout(self.width, self.height, self.machine), {}
        for x in range(self.width):
            for y in range(self.height):
                row = row_kind(y, self.height)
                key = x == 0, x == self.width - 1, x % 2, row
                if key not in made:
                    made[key] = self._fitting(x, row)
                layout.place(made[key], x, y)
        route_product(layout, self.places[0])
        last = self.places[1].features - 1  # its row of gradients is the last one that a pass sends
        route_gradient(layout, self.places[0], self.places[1].owner(last))
        for key, program in made.items():
            symbols = program.assemble().symbols
            addresses = [symbols[name].address + offset for name, offset in self._views]
            for x in range(self.width):
                for y in range(self.height):
                    if key == (x == 0, x == self.width - 1, x % 2, row_kind(y, self.height)):
                        layout.set_param("table", addresses, (x, y, 1, 1))
        self.inputs = [layout.input_stream(x, 0, "N", COLOR_W) for x in range(self.width)]
        south = DOWN[(self.height - 1) % 2]
        self.outputs = [layout.output_stream(x, self.height - 1, "S", south) for x in range(self.width)]
        return layout

    def _fitting(self, column: int, row: int | str) -> Program:
        try:
            return self.program(column, row)
        except ProgramError as error:
            if self._largest()[1] < 1024:
                raise
            raise self._too_large(error.what) from None

    # --- data ---------------------------------------------------------------------------------------------------------

    def located(self, rows: np.ndarray, indices: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the inputs of weights lie, given the output and the input feature of each weight of a layer.

        Returns
        -------
        column : ndarray of int
            That of the input feature; the bias lies with the output feature.
        local : ndarray of int
            Row in that column's tile; row 0 is the row of ones, the input of a bias.
        """
        below, above = self.places[level - 1], self.places[level]
        bias = indices == below.features
        column = np.where(bias, above.owners(rows), below.owners(np.where(bias, 0, indices)))
        return column, np.where(bias, 0, 1 + indices - below.feature_starts[column])

    def tiles(self, name: str, values: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return what the PEs hold of an array, shape (height, width, words of 16 bits).

        Parameters
        ----------
        name : str
            ``a0`` (with a row of ones before) or ``labels``.
        values : ndarray of uint16, shape (features, samples)
        """
        level = 0 if name == "a0" else len(self.places) - 1
        place, first = self.places[level], int(name == "a0")
        found = np.zeros((self.height, self.width, self.sizes[name][0], self.tokens), np.uint16)
        by_row = values.reshape(len(values), self.height, self.tokens)
        starts = place.feature_starts
        for x in range(self.width):
            part = by_row[starts[x] : starts[x + 1]]
            found[:, x, first : first + len(part)] = part.transpose(1, 0, 2)
        return found.reshape(self.height, self.width, -1)

    def rows(self, level: int, tiles: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return the features of a level from what the PEs hold, shape (features, samples); inverse of `tiles`."""
        place = self.places[level]
        held = tiles.reshape(self.height, self.width, 1 + self.most[level], self.tokens)
        found = np.empty((place.features, self.height, self.tokens), tiles.dtype)
        for x in range(self.width):
            low, high = place.feature_starts[x : x + 2]
            found[low:high] = held[:, x, 1 : 1 + high - low].transpose(1, 0, 2)
        return found.reshape(place.features, self.samples)

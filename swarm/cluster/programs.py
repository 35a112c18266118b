"""The program of one PE of a network tells the costs of its tasks.

PEs of all columns and rows run the same tasks on as many tokens and features, so a mesh of three by three columns
stands for any larger one: its middle program has the tiles, and with them the addresses, of the true one.  If a network
does not fit the memory of a PE, as it is for models that no wafer of this model can hold, one of each kind of layer
with a single feature per column stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from fabric.kernels.streamed.forward import WEIGHT
from fabric.kernels.streamed.gradient import row_kind
from fabric.networks.graph.network import Layer, Network
from fabric.networks.streamed.operations.gradients import pays
from fabric.networks.streamed.resident import Resident
from fabric.price.prices import TaskPrice
from fabric.price.tasks import Pricer
from swarm.cluster.shapes import LayerShape, Mesh
from wse_core.errors import ConfigError, ProgramError

__all__ = ["TaskCosts", "tasks_of"]


class TaskCosts:
    """`TaskCosts` have the costs of the tasks of a resident program.

    Parameters
    ----------
    resident : Resident
    column, row
        Of the PE.
    turned : sequence of bool
        Of each layer, whether its gradients are made from a turned copy if its matrix has no gaps.
    """

    def __init__(self, resident: Resident, column: int, row: int | str, turned: Sequence[bool]) -> None:
        image, self.tokens = resident.image(column, row), resident.tokens
        self.turned = turned
        self._costs, self._ids = Pricer(image, resident.machine), resident.ids
        self._address = {name: symbol.address for name, symbol in image.symbols.items()}

    def command(self, name: str, array: str | None = None, data: int | None = None) -> TaskPrice:
        """Return the cost of a command; `array` is the one over whose rows it moves, if that is known."""
        return self._costs.task("control", self._ids[name], self._address.get(array or ""), data)

    def alone(self, *names: str) -> float:
        """Return the cycles of commands one after the other, if none has to wait."""
        return sum(self.command(name).alone for name in names)

    def row(self, name: str, places: int, none: int = 0) -> float:
        """Return what a command that begins a row takes longer if its data ask for gradients, not for `none`."""
        return self.command(name, data=places).alone - self.command(name, data=none).alone

    def weight(self, array: str, form: str, mixed: bool) -> float:
        """Return the cycles of a wavelet with a weight and a step, or with a pair of weights.

        Parameters
        ----------
        array : str
            Where the input features lie.
        form : {"steps", "pairs"}
        mixed : bool
            A command has told which, since both come.
        """
        address = self._address.get(array)
        if address is not None and form == "pairs" and array[0] == "a":
            address += self.tokens  # behind the row of ones
        told = ("control", self._ids[form]) if mixed else None
        return self._costs.task(*self._costs.names()[WEIGHT], address, after=told).alone


def tasks_of(layers: Sequence[LayerShape], tokens: int, mesh: Mesh, form: str) -> TaskCosts:
    """Return the `TaskCosts` of a network with so many tokens per PE.

    Raises
    ------
    ConfigError
        So many tokens do not fit a PE, whatever the network.
    """
    kinds = [(layer.activation, layer.bias, layer.norm) for layer in layers]
    tiles = [-(-layers[0].inputs // mesh.width), *(-(-layer.outputs // mesh.width) for layer in layers)]
    turned = [
        form != "steps" and pays(mesh.machine, "f16", tokens, layer.outputs, above, below, layer.bias)
        for layer, below, above in zip(
            layers, [-(-layer.inputs // mesh.width) for layer in layers], tiles[1:], strict=True
        )
    ]
    return _tasks(tuple(kinds), tuple(tiles), tuple(turned), tokens, mesh, form)


@lru_cache(maxsize=64)
def _tasks(
    kinds: tuple[tuple[str, bool, bool], ...],
    tiles: tuple[int, ...],
    turned: tuple[bool, ...],
    tokens: int,
    mesh: Mesh,
    form: str,
) -> TaskCosts:
    """Return the `TaskCosts` of layers of some kinds, given the features of a column at each level."""
    width, height = min(3, mesh.width), min(3, mesh.height)
    column, row = min(1, width - 1), row_kind(min(1, height - 1), height)
    small = (*dict.fromkeys(kinds), kinds[-1])  # with one layer of each form
    for chosen, sizes in ((kinds, tiles), (small, (1,) * (len(small) + 1))):
        true = sizes is tiles
        if chosen[-1][0] != "none" or chosen[-1][2]:
            chosen, sizes = (*chosen, ("none", False, False)), (*sizes, 1)
        layers = [
            Layer(below * width, above * width, *kind)
            for below, above, kind in zip(sizes, sizes[1:], chosen, strict=False)
        ]
        network = Network.of(layers)
        names = [parameter.name for parameter in network.parameters[: len(layers)]]
        copied = [name for name, one in zip(names, turned, strict=False) if one] if true else names[: any(turned)]
        try:
            resident = Resident(network, mesh.machine, width, height, tokens * height, form, copied)
            words = sum(map(resident.words, resident.plan.arrays))
            if words < mesh.machine["mem.words"]:
                found = [name in resident.turned for name in names] if true else turned
                return TaskCosts(resident, column, row, found)
        except (ConfigError, ProgramError):
            continue
    raise ConfigError(
        f"{tokens} tokens do not fit a PE's {2 * mesh.machine['mem.words']} bytes",
        where="cluster: batch",
        hint="fewer tokens per system, or more rows of PEs",
    )

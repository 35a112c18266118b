"""What there is to say of an operation in weight streaming, and what its steps are written with.

The steps of an operation are written once, as calls of a `StepWriter`: `fabric.networks.streamed.writer` makes words
of them, `swarm.cluster.layer_costs` follows what they cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.strips import counts_once, on_strips
from fabric.networks.graph.tensors import NetworkTensor
from wse_core.formats import Arithmetic

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["PASSING", "Lowering", "Stage", "StepWriter", "TaskWriter"]

Stage: TypeAlias = str | tuple[tuple[str, int | None], ...]
"""A stage is a command for a group of channels, or has those of each channel of the group."""


PASSING = {"join_add": "pass", "join_max": "pass_max"}
"""Columns between the first and the last do this in a join, by what the last does."""


class StepWriter(ABC):
    """A `StepWriter` is what steps are written with.

    Attributes
    ----------
    plan : MemoryPlan
        Arrays and layouts of the network.
    trains : bool
        A way back follows.
    half : Arithmetic
        Constants in words are numbers of this format of 16 bits.
    """

    plan: MemoryPlan
    half: Arithmetic
    trains = True
    _once: int | None = None
    _epsilon: int | None = None

    def begin(self, step: NetworkStep) -> None:
        """Say what is not as before: of which rows of PEs of an image sums count, what is added below a root."""
        network, once = self.plan.network, int(not on_strips(step.node))
        if counts_once(network) and once != self._once:
            self.tell(once=once)
            self._once = once
        number = network.epsilon_number(step.node) if step.direction == "forward" else None
        if number not in (None, self._epsilon):
            self.tell(epsilon=number)
            self._epsilon = number

    def keeps(self, step: NetworkStep) -> bool:
        """Return whether the weights of a product are put down on the way forward and do not come again."""
        return self.trains and self.plan.network.keeps(step.node)

    @abstractmethod
    def tell(self, *names: str, columns: Iterable[int] | None = None, **data: str | int) -> None:
        """Send commands to some columns, or all, then those with data: the name of an array, or a number."""

    @abstractmethod
    def biases(self, step: NetworkStep, name: str) -> None:
        """Send, per query head of a column, all of its biases by a command, or ask for the sums of their gradients."""

    @abstractmethod
    def each(self, tensor: NetworkTensor, *names: str, unit: int = 1) -> None:
        """Send commands to every column, once per feature, or `unit` features, of a tensor that it owns."""

    @abstractmethod
    def numbered(self, tensor: NetworkTensor, name: str, together: int = 1) -> None:
        """Send a command to every column, once per feature of a tensor that it owns: data = its number in the network.

        Of `together` neighbouring features all have the number of such a group.
        """

    @abstractmethod
    def drawn(self, place: int) -> None:
        """Send ``drop_key`` with each key that the memory service draws for a dropout, from 0 on in the network."""

    @abstractmethod
    def owned(self, tensor: NetworkTensor, name: str) -> None:
        """Send a command to every column: data = how many features of a tensor it owns."""

    @abstractmethod
    def heads(self, step: NetworkStep, name: str, sequences: bool = True) -> None:
        """Send a command to every column per head that it owns, and sequence of a PE: data = head x 256 + sequence.

        Query heads that share one of keys and values have one command.
        """

    @abstractmethod
    def join(self, name: str) -> None:
        """Reduce the sums over the columns: once along the ring to the last, and from there along the rows to all."""

    @abstractmethod
    def in_pairs(self, step: NetworkStep) -> bool:
        """Return whether the weights of a matrix go out two by two, without steps."""

    @abstractmethod
    def product(self, step: NetworkStep) -> None:
        """Send a matrix, its rows in order, each with the commands that sum it and those of `then` where it lands.

        Of one that was kept only the latter go out, on the way back.
        """

    @abstractmethod
    def gather(self, step: NetworkStep) -> None:
        """Let every column put down all rows of gradients, one after the other, and multiply kept weights by them."""

    @abstractmethod
    def look_up(self, step: NetworkStep, table: int) -> None:
        """Send rows of a table, before each its number, to the columns of the features.

        The bias's table has the number behind those of all others.
        """

    @abstractmethod
    def copy_gradients(self, step: NetworkStep) -> None:
        """Let every column turn its gradients, if those of the rows of a look-up are made from the copy."""

    @abstractmethod
    def ask_looked_up(self, step: NetworkStep, table: int) -> None:
        """Ask for the gradients of the same rows of a table, number after number."""

    @abstractmethod
    def ask(self, step: NetworkStep) -> None:
        """Ask for the gradients of a matrix, row by row."""

    @abstractmethod
    def factors(
        self, step: NetworkStep, names: Sequence[str], shift: bool = False, gradient: int | None = None
    ) -> None:
        """Send, per row that a column owns, the factor of the feature, then commands.

        Parameters
        ----------
        step : NetworkStep
            Its parameter has the factors in row 0 and the shifts in row 1.
        names : sequence of str
        shift : bool
            The last command carries the shift.
        gradient : int, optional
            Row of the parameter whose gradient the last command sends.
        """

    @abstractmethod
    def filters(self, step: NetworkStep) -> None:
        """Send the filters of a convolution, a row per channel of the result, with the commands that sum it."""

    @abstractmethod
    def ask_filters(self, step: NetworkStep) -> None:
        """Ask for the gradients of filters, a row per channel of the result."""

    @abstractmethod
    def channels(
        self, step: NetworkStep, words: Sequence[Stage], answers: Sequence[int] = (), made: bool = False
    ) -> None:
        """Send commands per group of channels, and per channel in it, that carry factors and shifts.

        Parameters
        ----------
        step : NetworkStep
            Its parameter has the factors in row 0 and the shifts in row 1; without groups a channel is one.
        words : sequence of str or tuple of (str, int or None)
            What each group gets, in this order: a command for the group, or those of each channel of the group, each
            with the row of the parameter whose value it carries.
        answers : sequence of int
            Rows of the parameter whose gradients the commands of a channel send.
        made : bool
            Rows are of the table that the memory service makes of sums, and answers are such sums.
        """

    @abstractmethod
    def round_trip(self, step: NetworkStep) -> None:
        """Let what follows wait until the memory service has made values of what `channels` asked for last."""

    @abstractmethod
    def scale(self) -> None:
        """Send the loss scale."""

    @abstractmethod
    def answer(self) -> None:
        """Ask every column for its number."""


class TaskWriter(Protocol):
    """Who writes tasks is made from a `ProgramCode`, and has what they hold between commands."""

    def tasks(self) -> None:
        """Write the tasks of an operation."""


@dataclass(frozen=True)
class Lowering:
    """An operation has commands, steps and tasks in weight streaming.

    Attributes
    ----------
    commands : dict[str, str]
        What each of its commands does.
    write : dict[str, callable]
        By direction: takes a `StepWriter` and a step, and writes it.
    phases : dict[str, (str, str)]
        By direction, title of the stretch of the stream that begins with such a step, with ``{place}`` and ``{number}``
        of its node, and the layer model's name of it.  A step without one belongs to the stretch before.
    after : dict[str, str]
        By direction, of operations on single rows: the command per row, as it may end a row of a product.
    tasks_of : callable, optional
        Takes a `ProgramCode`, makes what its tasks hold between commands, and returns what writes them.
    joins : bool
        Its tasks come behind those of the ring.
    """

    commands: Mapping[str, str]
    write: Mapping[str, Callable[[StepWriter, NetworkStep], None]]
    phases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    tasks_of: Callable[[ProgramCode], TaskWriter] | None = None
    joins: bool = False

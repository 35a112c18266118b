"""Rows of a matrix with gaps go out with a step to each weight, or whole, zeros in the gaps, whichever PEs take faster.

A weight with a step starts a task that multiplies the step and makes one multiply-add; where rows go out whole, a task
has the next two weights and no step.  A program that takes both has a branch in that task, which costs whole rows a
quarter more.  So the form of all words of a network is chosen for all its matrices together (`form_of`): where about
two thirds of the weights exist, whole rows take the least, and no mask makes a network slower than all weights would.

Sums are the same, bit for bit: they begin at +0, which no zero, whatever its sign, changes.  Only a feature that is
infinite or not a number gives, times zero, what is not a number, as it does where all weights exist; the oracle is
given the same zeros.

Source: weight streaming white paper, section 6.2 (sparse weights carry an index of 16 bits, dense ones none); when to
fill gaps is ours, and the costs are those of the tasks' instructions (`fabric.price`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from fabric.kernels.streamed.forward import WEIGHT, X_BANK, ProductTasks
from fabric.kernels.streamed.gradient import TASKS
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.streamed.operations.gradients import asked_cycles, lacks_memory
from fabric.networks.streamed.operations.linear import DENSE, dense_tasks
from fabric.price.tasks import Pricer
from fabric.program.program import Program
from wse_core.errors import ProgramError
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = ["form_of", "zeros_pay"]

IDS = {name: max(TASKS.values()) + 1 + k for k, name in enumerate(DENSE)}
"""The commands of rows without gaps have these ids in the program whose tasks are priced."""


class _WordCosts(NamedTuple):
    """The words of rows take so many cycles.

    Attributes
    ----------
    step, pair, last : float
        A weight with a step, two weights, and the last one of an odd number.
    """

    step: float
    pair: float
    last: float

    def with_steps(self, rows: int, features: int, density: float) -> float:
        """Return the cycles of rows of which a share exists."""
        return rows * density * features * self.step

    def whole(self, rows: int, features: int) -> float:
        """Return the cycles of rows with zeros in their gaps."""
        return rows * (features // 2 * self.pair + features % 2 * self.last)


def zeros_pay(machine: Machine, half: Half, tokens: int, products: Iterable[tuple[int, int]], density: float) -> bool:
    """Whether products take fewer cycles with zeros in the gaps of a matrix, in a program that takes both forms.

    Parameters
    ----------
    machine : Machine
    half : str
        Format of the features.
    tokens : int
        Of a PE.
    products : iterable of (int, int)
        Rows of each product with the matrix, or its transpose, and the features of a row in the fullest column.
    density : float
        Share of the weights that exist.
    """
    words = _words(machine, half, tokens, "both")
    if words is None or density == 1:
        return False
    products = list(products)
    with_steps = sum(words.with_steps(*product, density) for product in products)
    return sum(words.whole(*product) for product in products) < with_steps


def form_of(plan: MemoryPlan, machine: Machine, tokens: int, densities: Mapping[str, Sequence[float]]) -> str:
    """Return the form of words in which a network's products and gradients take the fewest cycles.

    Parameters
    ----------
    plan : MemoryPlan
    machine : Machine
    tokens : int
        Of a PE.
    densities : mapping of str to sequence of float
        Shares of the weights of each matrix that exist, one after the other in a training.

    Returns
    -------
    {"steps", "pairs", "both"}
    """
    any_dense = any(1 in of_one for of_one in densities.values())
    if any(step.op in ("convolution", "transposed") for step in plan.steps):  # filters have steps over rows of pixels
        return "both" if any_dense else "steps"
    if all(density == 1 for of_one in densities.values() for density in of_one):
        return "pairs"
    forms = ("pairs", "both") if any_dense else ("pairs", "both", "steps")
    taken = {form: _cycles(plan, machine, tokens, densities, form) for form in forms}
    return min(taken, key=lambda form: taken[form])


def _cycles(
    plan: MemoryPlan, machine: Machine, tokens: int, densities: Mapping[str, Sequence[float]], form: str
) -> float:
    """Return the cycles of products, and of gradients of matrices with gaps, in the fullest column."""
    half, total = plan.network.dtype, 0.0
    words = _words(machine, half, tokens, form)
    for step in plan.steps if words else ():
        assert words is not None
        if step.op != "linear" or step.parameter is None:
            continue
        for density in densities[step.parameter.name]:
            features = plan.layout(step.reads[0]).most
            if step.direction == "ask":
                delta = step.reads[1]
                place = machine, half, tokens, delta.rows, plan.layout(delta).most, features
                dots, by_rows = asked_cycles(*place, bool(step.node.size("bias")), density)
                total += dots if form == "steps" else min(dots, by_rows) if density < 1 else 0
                continue
            rows = step.writes[0].rows
            steps, whole = words.with_steps(rows, features, density), words.whole(rows, features)
            of_form = {"steps": steps, "pairs": whole, "both": whole if density == 1 else min(steps, whole)}
            total += of_form[form]
    return total


@lru_cache(maxsize=64)
def _words(machine: Machine, half: Half, tokens: int, form: str) -> _WordCosts | None:
    """Return the cycles of the words of a program's form; so many tokens that it does not fit have none.

    What a form has no word for takes forever.
    """
    p = Program("words of a row", machine, half=half)
    x, y = p.array("x", 3 * tokens, "half", bank=X_BANK), p.array("y", tokens, "half")
    product = ProductTasks(p, 1, 3, x, y, tokens, p.reg16("address of the source"), form)
    constant = p.dsr("src1")
    with p.task("prepare"):
        product.prepare()
        p.load(constant, p.mem1d(x, tokens))
    p.start("prepare")
    product.tasks()
    dense_tasks(product, IDS, constant)
    try:
        prices = Pricer(p.assemble(), machine)
    except ProgramError as error:
        if not lacks_memory(error):
            raise
        return None
    weight = prices.names()[WEIGHT]
    alone = {name: float("inf") for name in ("steps", "pairs")}
    for name in alone if form == "both" else (form,):
        told = ("control", IDS[name]) if form == "both" else None
        alone[name] = prices.task(*weight, after=told).alone
    return _WordCosts(alone["steps"], alone["pairs"], prices.task("control", IDS["last"]).alone)

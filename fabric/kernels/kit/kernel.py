"""A kernel is a name, parameters with limits, and a function that runs it on a machine.

A module declares its kernels with the decorator `kernel`, which enters them into `DECLARED`::

    @kernel("double", "doubles a vector on one PE", "arch §4", [
        KernelParam("n", 64, int, "elements", low=1),
    ])
    def double(machine, n):
        ...
        return {"cycles": ..., "verified": ...}

`fabric.kernels.registry` knows which module declares which kernel and is what others read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fabric.kernels.kit.plmr import refuse
from fabric.kernels.kit.verify import MODES, asked_for
from wse_core.errors import ConfigError, LayoutError, ProgramError
from wse_core.params import Machine
from wse_core.schema import Field, suggestion

__all__ = ["DECLARED", "VERIFY", "Kernel", "KernelParam", "kernel"]

DECLARED: dict[str, Kernel] = {}
"""`DECLARED` has the kernels of the modules that are imported so far, by name."""


@dataclass(frozen=True)
class KernelParam:
    """A `KernelParam` is a parameter of a kernel.

    Attributes
    ----------
    name : str
    default : object
        Value if none is given.
    kind : type
        ``int``, ``float``, ``bool`` or ``str``.
    doc : str
        Meaning, with unit.
    choices : tuple
        The only legal values, if not empty.
    low, high : int, optional
        Limits, both included.
    """

    name: str
    default: object
    kind: type[int] | type[float] | type[bool] | type[str]
    doc: str
    choices: tuple[Any, ...] = ()
    low: int | None = None
    high: int | None = None

    @property
    def field(self) -> Field:
        """Type and limits, as `wse_core.schema` checks them."""
        return Field(self.name, self.kind, self.doc, self.low, self.high, self.choices)

    def check(self, value: Any, place: str) -> Any:
        """Return `value`, or raise `ConfigError` if it has another type or lies outside the limits."""
        return self.field.check(value, f"{place}: {self.name}")


VERIFY = KernelParam(
    "verify",
    "auto",
    str,
    "what of the result is compared: all, a sample that every row and column of PEs takes part in, or nothing; "
    "auto: all, of large matrix products a sample",
    MODES,
)
"""Every kernel has this parameter besides its own."""


@dataclass(frozen=True)
class Kernel:
    """A `Kernel` is a kernel that can be run by name.

    Attributes
    ----------
    name, summary : str
    source : str
        Where the algorithm, and the cycle count that it is held against, come from.
    params : tuple[KernelParam, ...]
    function : callable
        ``function(machine, **params)`` returns the result; called by `run`.
    """

    name: str
    summary: str
    source: str
    params: tuple[KernelParam, ...]
    function: Callable[..., dict[str, Any]] = field(repr=False)

    def run(self, machine: Machine, **values: Any) -> dict[str, Any]:
        """Run the kernel on a machine.

        Parameters
        ----------
        machine : wse_core.params.Machine
        **values
            Parameters; those not named keep their defaults.

        Returns
        -------
        dict
            ``kernel``, ``params``, ``cycles``, ``wavelet_hops``, ``macs``, ``verified``, ``bit_exact``,
            ``max_abs_error`` and whatever else the kernel measures; ``counters`` and ``arrays`` hold arrays.

        Raises
        ------
        ConfigError
            Unknown parameter, wrong type, or a value that is impossible on this machine.
        PlanError
            The machine has too few PEs, colors or filters, or too little memory; names the limit.
        """
        place = f"kernel {self.name}"
        declared = {param.name: param for param in self.params}
        for key in values:
            if key not in declared:
                raise ConfigError(f"unknown parameter {key!r}", where=place, hint=suggestion(key, declared), key=key)
        full = {name: param.check(values.get(name, param.default), place) for name, param in declared.items()}
        try:
            with asked_for(full.get(VERIFY.name, VERIFY.default)):
                result = self.function(machine, **{key: value for key, value in full.items() if key != VERIFY.name})
        except (LayoutError, ProgramError) as error:
            refuse(error, place)
            raise
        return {"kernel": self.name, "params": full, **result}


def kernel(
    name: str, summary: str, source: str, params: Iterable[KernelParam]
) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    """Return a decorator that enters a function into `DECLARED` and leaves it as it is."""

    def enter(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        DECLARED[name] = Kernel(name, summary, source, (*params, VERIFY), function)
        return function

    return enter

"""The memory service is DRAM in front of slower tiers, from which what DRAM does not keep is read ahead.

`BEHIND` lists the tiers behind DRAM.  Layers are streamed in an order that is known beforehand, so half of the DRAM is
a window over the stream: what lies behind it is read into the window in that order while earlier words leave
(`swarm.down`), and written after each update (`swarm.up`).  Numbers: `wse_core.numbers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, Machine

__all__ = ["BEHIND", "Tier", "Tiers"]

BEHIND = {"flash": ("capacity.most", "flash.rate")}
"""These tiers lie behind DRAM, nearest first, each with the modelled numbers of its bytes and of its rate.

A further tier is a row here and two numbers there; where layers lie, what is read and written, at both levels, and what
a run says of it follow.
"""


@dataclass(frozen=True)
class Tier:
    """A `Tier` behind DRAM has room, and a rate at which it is read and, beside that, written.

    Attributes
    ----------
    name : str
    bytes : float
        Capacity.
    rate : float
        Each way [bytes/s].
    """

    name: str
    bytes: float
    rate: float


def _behind(numbers: Mapping[str, Any]) -> tuple[Tier, ...]:
    return tuple(Tier(name, numbers[room], numbers[rate]) for name, (room, rate) in BEHIND.items())


DEFAULTS = {name: number.value for name, number in PARAMETERS.items()}


@dataclass(frozen=True)
class Tiers:
    """The tiers are `Tiers.of` a machine, or by default those of the default machine.

    Attributes
    ----------
    dram_bytes : float
        Capacity of the DRAM.
    stream_rate : float
        Rate of the stream out of DRAM [bytes/s].
    behind : tuple[Tier, ...]
        The tiers behind it, nearest first.
    """

    dram_bytes: float = DEFAULTS["dram.bytes"]
    stream_rate: float = DEFAULTS["stream.rate"]
    behind: tuple[Tier, ...] = _behind(DEFAULTS)

    @classmethod
    def of(cls, machine: Machine) -> Tiers:
        """Return the tiers that a machine's numbers give."""
        return cls(machine["dram.bytes"], machine["stream.rate"], _behind(machine))

    @property
    def window(self) -> float:
        """What is read ahead of the stream has half of the DRAM, this many bytes, if not all layers stay there."""
        return self.dram_bytes / 2

    @property
    def capacity(self) -> float:
        """The tiers behind DRAM hold so many bytes, a copy of what stays in DRAM among them."""
        return sum(tier.bytes for tier in self.behind)

    def check(self, parameters: float, bytes_per_parameter: float) -> None:
        """Raise `ConfigError` if so many parameters do not fit."""
        needed = parameters * bytes_per_parameter
        if needed > self.capacity:
            most = int(self.capacity // bytes_per_parameter)
            raise ConfigError(
                f"{parameters:,} parameters of {bytes_per_parameter} bytes need {needed:,} bytes, "
                f"the memory service has {int(self.capacity):,}",
                where="memx: capacity",
                hint=f"at most {most:,} parameters",
            )

    def homes(self, sizes: Sequence[float]) -> list[int]:
        """Return where each layer lies: 0 is DRAM, k is ``behind[k - 1]``.

        All stay in DRAM if they fit.  Else the first ones do that fit into half of it, and those after them fill one
        tier after the other.

        Parameters
        ----------
        sizes : sequence of float
            Bytes of each layer, with the state of its optimizer.

        Raises
        ------
        ConfigError
            A layer fits into no tier that is left; layers are not parted.
        """
        if sum(sizes) <= self.dram_bytes:
            return [0] * len(sizes)
        rooms = [self.dram_bytes - self.window, *(tier.bytes for tier in self.behind)]
        found, home, used = list[int](), 0, 0.0
        for number, size in enumerate(sizes):
            while used + size > rooms[home]:
                home, used = home + 1, 0.0
                if home == len(rooms):
                    raise ConfigError(
                        f"layer {number + 1} of {int(size):,} bytes fits into no tier that those before it leave",
                        where="memx: capacity",
                        hint=f"DRAM keeps {int(rooms[0]):,} bytes, the tiers behind it {int(self.capacity):,}",
                    )
            used += size
            found.append(home)
        return found

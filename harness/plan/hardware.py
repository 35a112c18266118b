"""Hardware as the planner sees it has a rate of operations, a memory, and links with a bandwidth each.

The A100 node is Table A.1 of the paper on layered accumulation, whose GB are 2^30 bytes; the CS-2 is that of the
weight-streaming paper (sections 6.1 and 8.1.1), whose GB are 10^9.

A link is duplex and has one rate, that of each direction (`Link`).  Sources count differently: the A100's table has
input and output together, as intensities do; the 1.2 Tb/s of a wafer are the links of `swarm.timing`, in each
direction, the same numbers by which the tree between memory service and wafers is timed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from harness.config import toml
from harness.config.options import from_table, option
from harness.plan.units import GIB, parse_bytes
from swarm.timing import Links
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import Machine, machine
from wse_core.schema import suggestion

__all__ = ["A100", "CS2", "Device", "Link", "find_hardware", "load_hardware", "wafer"]


@dataclass(frozen=True)
class Link:
    """A `Link` is a duplex link between devices.

    Attributes
    ----------
    each_way : float
        Rate of each direction [bytes/s], whatever the other one carries.
    """

    each_way: float

    @classmethod
    def of_both(cls, rate: float) -> Link:
        """Return the link whose input and output together have a rate [bytes/s]."""
        return cls(rate / 2)

    @property
    def both(self) -> float:
        """Input and output together have this rate [bytes/s]."""
        return 2 * self.each_way


@dataclass(frozen=True)
class Device:
    """A `Device` is a device and what connects it.

    Attributes
    ----------
    flops : float
        Operations per second of one device in 16 bit.
    memory : float
        Bytes of one device.
    node : float
        Devices joined by `links`["node"]; infinite for the what-if of `harness.plan.sweep.wide_node`.
    links : dict[str, Link]
        Of one device.  ``node`` carries tensor parallelism, ``network`` everything between nodes, ``cpu`` what is
        offloaded, ``pcie`` both of these together, ``service`` weights and gradients at the memory service; others are
        media.
    """

    name: str
    flops: float
    memory: float
    node: float = 1
    links: dict[str, Link] = dataclasses.field(default_factory=dict)

    def threshold(self, link: str) -> float:
        """Return operations per byte from which an operation is bound by compute, not by the link."""
        if link not in self.links:
            raise UnsupportedError(f"{self.name} has no link {link!r}", hint=suggestion(link, self.links))
        return self.flops / self.links[link].both

    def with_network(self, link: str) -> Device:
        """Return the same hardware with another link between its nodes."""
        self.threshold(link)
        return dataclasses.replace(self, name=f"{self.name}, {link}", links=self.links | {"network": self.links[link]})


TABLE_A1 = {
    "memory": 2039,
    "node": 600,
    "pcie": 63,
    "network": 50,
    "cpu": 31.5,
    "ethernet": 6.25,
    "nvme": 3.2,
    "disk": 0.1,
}
"""GB/s per device, input and output together (Table A.1); node is NVLink, network InfiniBand at 200 Gb/s."""

A100 = Device("a100", 312e12, 80 * GIB, 16, {name: Link.of_both(rate * GIB) for name, rate in TABLE_A1.items()})


def wafer(numbers: Machine) -> Device:
    """Return a wafer as the planner counts it, by the numbers ``plan.*``, ``link.*`` and ``stream.rate``."""
    rate = numbers["plan.cores"] * numbers["plan.core_operations"] * (numbers["plan.core_ghz"] * 1e9)
    links = {
        "memory": Link.of_both(numbers["plan.memory_rate"]),
        "network": Link(Links.of(numbers).bytes_per_second),
        "service": Link(numbers["stream.rate"]),
    }
    return Device("cs2", rate, numbers["plan.memory_bytes"], 1, links)


CS2 = wafer(machine())

PRESETS = ("a100", "cs2")


EACH_WAY = "each way"


@dataclass(frozen=True)
class _File:
    """A hardware file has these keys."""

    name: str = option(doc="name of the device")
    flops: float = option(doc="operations per second of a device", low=1.0)
    memory: str = option(doc="memory of a device, with its unit")
    node: int = option(1, doc="devices joined by the link `node`", low=1)
    links: dict = option({}, doc='bandwidth of each link, with its unit: "50 GB/s", or "25 GB/s each way"')


def load_hardware(path: str | Path) -> Device:
    """Return the hardware that a TOML file describes; memory and links are texts with a unit."""
    table = toml.parse(toml.read_text(path, f"hardware by name: {', '.join(PRESETS)}"), path)
    given = from_table(_File, table, path)
    links = {name: _link(text, f"{path}: links.{name}") for name, text in given.links.items()}
    return Device(given.name, given.flops, parse_bytes(given.memory, f"{path}: memory"), given.node, links)


def _link(text: object, place: str) -> Link:
    """Return the link of a text: input and output together, or one direction if it ends in ``each way``."""
    if isinstance(text, str) and text.rstrip().endswith(EACH_WAY):
        return Link(parse_bytes(text.rstrip().removesuffix(EACH_WAY), place, True))
    return Link.of_both(parse_bytes(text, place, True))


def find_hardware(name: str, numbers: Machine | None = None) -> Device:
    """Return the hardware of a name or of a TOML file; `numbers` are those of a wafer (default: wse2)."""
    if name.endswith(".toml"):
        return load_hardware(name)
    if name.lower() not in PRESETS:
        raise ConfigError(f"no hardware {name!r}", hint=suggestion(name, [*PRESETS, "FILE.toml"]))
    return A100 if name.lower() == "a100" else wafer(numbers or machine())

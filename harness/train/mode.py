"""A network is run in one of two ways: layer by layer on one wafer, or weights streamed past the activations.

The vendor runs models of less than `MOST_PARAMETERS` parameters that fit on the wafer layer by layer, and streams the
weights of all others.  Both can be asked for; what is asked for and cannot be done is refused with the reason.

Source: vendor documentation, execution modes; requirement LP-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.config.machine import PARTS
from harness.config.options import place
from harness.train.pipeline_config import refuse_unsupported
from harness.train.pipeline_support import SUPPORT, WITHOUT
from harness.train.placement import check
from wse_core.errors import ConfigError, UnsupportedError, WseError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["MOST_PARAMETERS", "REFERENCE", "ModeChoice", "choose", "unused"]

MOST_PARAMETERS = 10**9
"""Models with so many parameters or more need their weights streamed."""


@dataclass(frozen=True)
class ModeChoice:
    """A `ModeChoice` is a mode of execution with the reason for it.

    Attributes
    ----------
    mode : {"pipelined", "streaming", "reference"}
    reason : str
    """

    mode: str
    reason: str


REFERENCE = ModeChoice("reference", "asked for: numpy on the host, without wafers, memory service, tree and clock")
"""`--reference` chooses this mode: numpy on the host."""


def unused(config: TrainConfig, mode: str) -> list[str]:
    """Return the keys that a file sets and that decide nothing in a mode, each with the reason, one text per reason."""
    if mode == "pipelined":
        reasons = {key: found.why for key, found in SUPPORT.items() if found.what == WITHOUT}
        whys = {"memx": reasons["memx.files"], "swarm": reasons["swarm"]}
        for part, begins in PARTS.items():
            reasons |= {f"{table}.{begin}": whys[part] for table in (part, "machine") for begin in begins}
    else:
        reasons = {"pipeline": "only the pipelined mode has one"} if mode == "streaming" else {}
    found: dict[str, list[str]] = {}
    for key in config.given:
        owner = next((name for name in reasons if key == name or key.startswith(f"{name}.")), None)
        if owner is not None:
            found.setdefault(reasons[owner], []).append(key)
    return [f"{', '.join(keys)} without effect in the {mode} mode: {why}" for why, keys in found.items()]


def choose(config: TrainConfig, asked: str | None = None) -> ModeChoice:
    """Return the mode of a training run.

    Parameters
    ----------
    config : TrainConfig
    asked : {"auto", "pipelined", "streaming"}, optional
        Instead of what the file says.

    Raises
    ------
    ConfigError, UnsupportedError
        The mode that was asked for cannot be; the message says why.
    """
    wanted = config.mode if asked is None else asked
    if wanted == "streaming":
        config.check_shards()
        return ModeChoice("streaming", "asked for")
    if wanted == "auto":
        try:
            reason = _against(config)
        except (ConfigError, UnsupportedError) as error:
            reason = error.what
        if reason:
            try:
                config.check_shards()
            except ConfigError as error:
                error.cause = f"weights are streamed: {reason}"
                raise
            return ModeChoice("streaming", reason)
        return ModeChoice("pipelined", f"less than {MOST_PARAMETERS:.0e} parameters, and they fit")
    try:
        reason = _against(config)
    except WseError as error:
        error.where = place(config.source, error.where or "mode")
        raise
    if reason:
        raise ConfigError(
            f"the layers cannot all lie on one wafer: {reason}",
            where=place(config.source, "mode"),
            hint="--mode streaming",
        )
    return ModeChoice("pipelined", "asked for")


def _against(config: TrainConfig) -> str:
    """Return what speaks against the pipelined mode; errors say why it cannot be."""
    refuse_unsupported(config)
    count = config.build_network().size
    if count >= MOST_PARAMETERS:
        return f"{count:,} parameters, {MOST_PARAMETERS:.0e} or more"
    check(config)
    return ""

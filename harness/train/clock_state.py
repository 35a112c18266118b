"""A checkpoint has the clock of a system: a run that goes on reports the cycles that an uninterrupted one does.

What is under way between memory service and wafers belongs to the state of training as weights do: when links, updates
and flash are free again, and when each new weight may leave.  `split` makes tensors and JSON values of it for
`harness.train.checkpoint`, `joined` puts them together again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wse_core.errors import CheckpointError

__all__ = ["PREFIX", "joined", "split"]

PREFIX = "clock."
"""Names of the clock's tensors in a checkpoint begin with this."""
NEW, ROOM = f"{PREFIX}new.", f"{PREFIX}room."


def split(state: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return (tensors, JSON values) of what `swarm.system.System.state` returned."""
    tensors = {f"{ROOM}{way}": np.asarray(state[way]["room"], np.float64) for way in ("down", "up")}
    tensors |= {NEW + name: new for name, new in state["service"]["new"].items()}
    values = {key: state[key] for key in ("clock", "done", "ended")}
    values |= {way: state[way]["servers"] for way in ("down", "up")}
    return tensors, values | {"settled": state["service"]["settled"]}


def joined(tensors: Mapping[str, np.ndarray], values: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return what `swarm.system.System.restore` takes.

    Parameters
    ----------
    tensors : dict[str, ndarray]
    values
        As they were read, whatever they are.
    sizes : dict[str, int]
        Weights of each parameter by name.

    Raises
    ------
    CheckpointError
        Something is missing, or is not what `split` makes.
    """
    try:
        new = {name: np.asarray(tensors[NEW + name], np.float64) for name in sizes if NEW + name in tensors}
        found: dict[str, Any] = {
            way: {"servers": list(map(float, values[way])), "room": tensors[f"{ROOM}{way}"]} for way in ("down", "up")
        }
        found |= {"clock": int(values["clock"]), "done": int(values["done"]), "ended": list(map(int, values["ended"]))}
        found["service"] = {"settled": float(values["settled"]), "new": new}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the state of the clock is damaged: {error!r}") from None
    for name, times in new.items():
        if len(times) != sizes[name]:
            raise CheckpointError(f"the clock knows {len(times)} weights of {name}, there are {sizes[name]}")
    return found

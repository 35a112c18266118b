"""The time that keys and values take to another mesh is found from sizes and modelled numbers alone.

Entries are followed from PE to PE: along the columns, where each row takes and passes on what `shared_out` says, then
along the rows to the other mesh, whose roots receive, flood and pick.  Each PE begins when it has read its part of the
prompt (`fabric.networks.inference.prefill.cycles`).  A PE that sends is not held up by one that receives later: where
that is slower, all of it is on its side.

Measured against the engine: tests/fabric/networks/inference/test_move.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.move.code import QUEUE_ALONG
from fabric.networks.inference.move.follow import Follower
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.prefill.channels import FROM_WEST, TO_EAST
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.work import Work
from fabric.price import timing

__all__ = ["MoveCycles"]

Ends = NDArray[np.float64]


class MoveCycles(Work):
    """A `MoveCycles` predicts the cycles of a prompt on one mesh and of its way to another, without running them.

    Parameters
    ----------
    meshes : TwoMeshes
    """

    def __init__(self, meshes: TwoMeshes) -> None:
        super().__init__(meshes.machine)
        m = self.m
        self.meshes, self.old, self.new = meshes, meshes.before.place, meshes.behind.place
        self.prompt = PromptCycles(meshes.prefill)
        self.dsr, self.edit, self.taken = m["ce.dsr_load"], m["ce.dsr_edit"], m["ce.branch_taken"]
        self.issue, self.drain, self.way = timing.issue(m), m["vec.drain"], timing.way(m, 1)
        self.wavelets = wavelets_of(meshes.entry, self.old.dtype)
        flood = meshes.decode.sums["back"]
        self.root: int = flood.piece.root if flood.floods else 0  # type: ignore[union-attr]
        self.turn, self.end = 2, self.load + self.taken  # of what is repeated as often as a variable says
        self.walk = self.dsr + m["ce.dsr_dimension"] + self.edit

    # --- work of a PE -------------------------------------------------------------------------------------------------

    def _entry(self, rows: int, heads: int, part: int, loads: int) -> int:
        """Return the cycles of an entry between its place in the cache and a vector, keys and values."""
        by_head = heads * -(-part // self.m.lanes("mov16"))
        return 2 * self.walk + self.serial(rows, loads) + self.serial(by_head, loads) + 2

    def _own(self) -> int:
        """Return the cycles of taking an entry out of the cache."""
        return self._entry(self.old.kv_rows, self.old.kv_heads, self.old.part, 1)

    def pick(self) -> int:
        """Return the cycles in which a PE of the other mesh puts its features of a token into its cache."""
        first, second = max(0, self.load - 2), max(0, self.load - 3)  # of loads, while an address is made
        each = 9 + first + second + self.taken
        return (
            1
            + 2 * self.new.kv_rows * each
            + self.taken
            + self._entry(self.new.kv_rows, self.new.kv_heads, self.new.part, 1)
        )

    # --- what moves ---------------------------------------------------------------------------------------------------

    def _costs(self) -> dict[str, float]:
        """Return what `Follower` asks for."""
        m, flood = self.m, self.meshes.decode.sums["back"]
        into, hops = flood.queues.flood_in, 1 + self.root
        whole = wavelets_of(self.old.width * self.meshes.entry, self.old.dtype)
        places = (
            m["queue.out_depth"][TO_EAST]
            + (1 + hops) * m["router.depth"]
            + m["queue.in_depth"][into]
            + m["ramp.in_buffer"]
        )
        ready = 2 * self.dsr + self.issue
        flooded = ready + timing.sending(m, whole, into, flood.queues.flood_out) + self.drain if flood.floods else 0
        found: dict[str, float] = {
            "turn": self.turn,
            "load": self.load,
            "taken": self.taken,
            "end": self.end,
            "edit": self.edit,
            "drain": self.drain,
            "ready": ready,
            "way": self.way,
            "own": self._own(),
            "put": self.dsr + self.edit + self.vector("mov16", self.meshes.entry, 1) + 1,
            "pick": self.pick(),
            "sent_along": timing.sending(m, self.wavelets, *QUEUE_ALONG),
            "sent_across": timing.sending(m, self.wavelets, QUEUE_ALONG[0], TO_EAST),
            "wavelets": self.wavelets,
            "places": places,
            "flood": flooded,
            "hop": self.root * m["router.hop"],
            "root_hops": hops * m["router.hop"],
        }
        for name, train, queues in (
            ("along", self.wavelets, QUEUE_ALONG),
            ("across", self.wavelets, (FROM_WEST, TO_EAST)),
            ("root", whole, (into, TO_EAST)),
        ):
            received = timing.receiver(m, train, *queues)
            found |= {
                f"rest_{name}": received(0.0, -np.inf),  # the entry was there already
                f"late_{name}": received(-np.inf, 0.0),  # the receiver had waited
            }
        return found | {"root_rest": found["rest_root"], "root_late": found["late_root"]}

    def _follower(self) -> Follower:
        """Return what follows the entries."""
        shares = [(s.kept, s.sent, s.received, s.passed, s.has) for s in self.meshes.shares]
        rows = self.meshes.rows()
        ways = [(row.source, row.target, r < self.old.height) for r, row in enumerate(rows)]
        down = self.new.height > self.old.height
        return Follower(self._costs(), np.array(shares, np.int64), np.array(ways, np.uint8), down, self.new.height)

    def moved(self, begun: Ends) -> float:
        """Return when the last PE of the other mesh has its entries.

        Parameters
        ----------
        begun : ndarray, shape (height, width)
            When each PE of the first mesh has read the prompt.
        """
        old, new = self.old, self.new
        follower = self._follower()
        at = np.zeros((len(self.meshes.shares), old.width))
        at[: old.height] = begun + timing.stamp(self.m) + 1
        taken = np.zeros(new.height)
        layers = old.decoder.layers
        before, moved = np.append(at, taken), np.zeros(at.size + new.height)
        for layer in range(layers):
            follower.layer(at, taken)
            at[: old.height] += 2 * (self.load + 1) + 1
            at += 1 + self.taken
            now = np.append(at, taken)
            # Each PE takes as long as in the layer before, but for the rounding of times.
            if layer > 1 and np.abs(now - before - moved).max() < 1e-3:
                taken += (layers - 1 - layer) * moved[at.size :]
                break
            moved, before = now - before, now
        far = max(self.root, new.width - 1 - self.root)
        return float(taken.max()) + (timing.way(self.m, far) if far else 0)

    def cycles(self) -> tuple[int, int]:
        """Return the cycles of the prompt, and those from its end to the last entry in its place."""
        begun = self.prompt.ends()
        read = float(begun.max())
        return round(read), round(self.moved(begun) - read)

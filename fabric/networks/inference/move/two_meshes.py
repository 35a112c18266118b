"""Two meshes side by side: the one to the west reads a prompt, the one to the east decodes.

Both have the weights from the beginning, each as it wants them, so that only keys and values move; the last token of
the prompt is the decoder's first step, so that its hidden features need not.  Both programs are there from the
beginning too: none is loaded in between.  Where decoding has more rows, PEs below the western mesh pass on what its
columns hand down.  Tokens of the answer pass the routers of the western mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.fit import needed_words
from fabric.networks.inference.move.code import COLOR_ACROSS, COLOR_ALONG, MovingRow, Sender
from fabric.networks.inference.move.plan import shared_out, taken
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import NOTHING, DecoderPlacement
from fabric.networks.inference.prefill.channels import COLOR_EAST, Ends
from fabric.networks.inference.prefill.fit import prompt_words
from fabric.networks.inference.prefill.oracle import PrefillOracle
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.prefill.reading import embeddings, readings
from fabric.networks.inference.resident import ResidentDecoder
from fabric.program.program import Program
from wse_core.errors import ConfigError, PlanError, UnsupportedError
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["Move", "TwoMeshes", "moved_cache"]


@dataclass(frozen=True)
class Move:
    """What the reading of a prompt and the move of its keys and values took.

    Attributes
    ----------
    begun, cycles : int
        The cycle in which the first embedding enters, and how many there are from then until the last PE has read the
        prompt.
    transition : int
        From then on until the last PE of the other mesh has its entries.
    hops : int
        Wavelet hops of both.
    """

    begun: int
    cycles: int
    transition: int
    hops: int


class TwoMeshes:
    """A `TwoMeshes` has programs, routes and data of a prompt on one mesh and its answer on another.

    Parameters
    ----------
    machine : Machine
    prefill, decode : DecoderPlacement
        Of the same decoder and format; the first with room for the tokens that it reads.
    length : int
        Tokens that the first mesh reads: all but the last of the prompt.
    policy, answers
        As of `Decode`.

    Raises
    ------
    ConfigError
        No token to read.
    UnsupportedError
        Keys and values of 8 bits.
    PlanError
        The meshes do not lie side by side on the wafer.
    """

    def __init__(
        self,
        machine: Machine,
        prefill: DecoderPlacement,
        decode: DecoderPlacement,
        length: int,
        policy: str = "shift",
        answers: int | None = None,
    ) -> None:
        if length < 1:
            raise ConfigError(
                "a prompt of one token has no keys and values to move", where="--decode-mesh", hint="a longer prompt"
            )
        if prefill.int8 or decode.int8:
            raise UnsupportedError(
                "keys and values of 8 bits that move to another mesh",
                where="--decode-mesh",
                cause="columns of another mesh have other parts of heads, and each part has an exponent of its own",
                hint="a cache of 16 bits",
            )
        self.machine = machine
        self.width, self.height = prefill.width + decode.width, max(prefill.height, decode.height)
        if self.width > machine["fabric.width"] or self.height > machine["fabric.height"]:
            raise PlanError(
                f"the two meshes take {self.width} x {self.height} PEs side by side; the wafer has "
                f"{machine['fabric.width']} x {machine['fabric.height']}",
                where="--decode-mesh",
                limit="width" if self.width > machine["fabric.width"] else "height",
                needed=self.width,
                available=machine["fabric.width"],
            )
        before, behind = PromptPlacement(prefill, length), PromptPlacement(decode, length)
        self.prefill = Prefill(machine, before)
        self.decode = Decode(machine, decode, policy, answers=answers, arrived=(before, behind))
        self.shares, self.take = shared_out(before, behind), taken(before, behind)
        self.before, self.behind = before, behind

    @property
    def entry(self) -> int:
        """An entry, a PE's part of a token's key and value in a layer, has so many numbers of 16 bits."""
        return 2 * self.before.place.kv_rows

    def words(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the words that a PE of each mesh needs, by what they are, the largest first."""
        old, new = self.before.place, self.behind.place
        held = max(share.has for share in self.shares) * self.entry
        first = prompt_words(self.before) | {"entries that move": held + self.entry + 8}
        coming = old.width * self.entry + 2 + 4 * new.kv_rows
        second = needed_words(new) | {"entries that move": coming + 4}
        by_size = [dict(sorted(each.items(), key=lambda item: -item[1])) for each in (first, second)]
        return by_size[0], by_size[1]

    def most_words(self) -> dict[str, int]:
        """Return the words of a PE of the mesh that needs more."""
        return max(self.words(), key=lambda found: sum(found.values()))

    def admit(self) -> None:
        """Refuse what does not fit into the memory of the PEs of a mesh.

        Raises
        ------
        PlanError
            Names the mesh and the largest part.
        """
        room = self.machine["mem.words"]
        for words, place, task in zip(
            self.words(), (self.before.place, self.behind.place), ("reads the prompt", "decodes"), strict=True
        ):
            total, name = sum(words.values()), next(name for name in words if name not in ("code", "vectors"))
            if total > room:
                raise PlanError(
                    f"the mesh of {place.width} x {place.height} that {task} needs {2 * total:,} of {2 * room:,} bytes "
                    f"of PE (0, 0), the most of them for {name} ({2 * words[name]:,} bytes)",
                    where="--mesh" if place is self.before.place else "--decode-mesh",
                    hint="more PEs, or fewer tokens",
                    limit="memory",
                    needed=2 * total,
                    available=2 * room,
                )

    def rows(self) -> list[MovingRow]:
        """Return what each row of the western mesh, and of the PEs below it, does."""
        first, other = self.before.place.height, self.behind.place.height
        down, rows, most = other > first, len(self.shares), max(share.has for share in self.shares)
        found = []
        for r in range(rows):
            above, below = (r > 0, r < rows - 1) if first != other else (False, False)
            source, target = (above, below) if down else (below, above)
            found.append(MovingRow(r % 2, down, source, target, r < other, most))
        return found

    def layout(self) -> Layout:
        """Return the `Layout` of both meshes; built."""
        old, new = self.before.place, self.behind.place
        layout, rows = Layout(self.width, self.height, self.machine), self.rows()
        self.prefill.paint(layout, rows)
        self.decode.paint(layout)
        relays: dict[tuple[int, Ends, MovingRow], Program] = {}
        for r in range(old.height, new.height):
            for c in range(old.width):
                role = c % 2, Ends(c > 0, c < old.width - 1), rows[r]
                if role not in relays:
                    relays[role] = self._relay(*role)
                layout.place(relays[role], c, r)
        self._route(layout, rows)
        whole = 0, 0, old.width, len(rows)
        for name in ("kept", "sent", "received", "passed", "has"):
            values = np.array([getattr(share, name) for share in self.shares], np.uint16)
            layout.set_param(f"moved_{name}", np.repeat(values[:, np.newaxis, np.newaxis], old.width, 1), whole)
        if old.width > 1:
            columns = np.broadcast_to(np.arange(old.width, dtype=np.uint16)[:, np.newaxis], (new.height, old.width, 1))
            layout.set_param("columns_before", columns, (0, 0, old.width, new.height))
        other = old.width, 0, new.width, new.height
        take = np.broadcast_to(self.take, (new.height, *self.take.shape))
        layout.set_param("take", take, other)
        has = np.array(self.behind.counts, np.uint16)[:, np.newaxis, np.newaxis]
        layout.set_param("moved_has", np.repeat(has, new.width, 1), other)
        layout.build()
        return layout

    def _relay(self, parity: int, ends: Ends, row: MovingRow) -> Program:
        """Return the program of a PE below the western mesh."""
        place = self.before.place
        p = Program(f"moving {parity} {ends} {row}", self.machine, half="cb16" if place.dtype == "cb16" else "f16")
        sender = Sender(p, place, parity, ends, row, None)
        with p.task("relay"):
            sender.emit()
        p.assemble()
        return p

    def _route(self, layout: Layout, rows: Sequence[MovingRow]) -> None:
        """Paint the ways along columns, those along rows below the western mesh, and those across."""
        old, new = self.before.place, self.behind.place
        for r, row in enumerate(rows):
            if row.target:
                ahead, step = ("S", 1) if row.down else ("N", -1)
                color = COLOR_ALONG[row.parity]
                layout.route(color, (0, r, old.width, 1), rx="R", tx=ahead)
                layout.route(color, (0, r + step, old.width, 1), rx="N" if row.down else "S", tx="R")
        if new.height > old.height:
            below = old.height, new.height - old.height
            for x in range(old.width - 1):
                layout.route(COLOR_EAST[x % 2], (x, below[0], 1, below[1]), rx="R", tx="E")
                layout.route(COLOR_EAST[x % 2], (x + 1, below[0], 1, below[1]), rx="W", tx="R")
        flood = self.decode.sums["back"]
        root = flood.piece.root if flood.floods else 0  # type: ignore[union-attr]
        layout.route(COLOR_ACROSS, (old.width - 1, 0, 1, new.height), rx="R", tx="E")
        if root:
            layout.route(COLOR_ACROSS, (old.width, 0, root, new.height), rx="W", tx="E")
        layout.route(COLOR_ACROSS, (old.width + root, 0, 1, new.height), rx="W", tx="R")

    def read(
        self,
        weights: Mapping[str, ArrayLike],
        tokens: Sequence[int],
        backend: Backend | None = None,
        tables: tuple[Mapping[str, Bits], Mapping[str, Bits]] | None = None,
    ) -> tuple[ResidentDecoder, Move]:
        """Read a prompt and move its keys and values; return the decoder that goes on, and what it took.

        Parameters
        ----------
        weights : mapping
            Tensors by the hub's names.
        tokens : sequence of int
            As many as the meshes are for.
        backend : {"compiled", "reference"}, optional
        tables : pair of mappings, optional
            What `tables` made of the weights, if it is there already.
        """
        old, new = self.before.place, self.behind.place
        first, second = tables or self.tables(weights)
        fabric = Fabric(self.layout(), backend)
        meshes = (0, 0, old.width, old.height), (old.width, 0, new.width, new.height)
        for rect, table in zip(meshes, (self.prefill.tables(first), second), strict=True):
            for symbol, bits in table.items():
                fabric.write(symbol, bits, rect)
        for stream in (self.prefill.inputs[0], self.decode.inputs[0]):
            fabric.entered(stream)  # from now on it is noted when wavelets enter
        for stream, row in zip(self.prefill.inputs, embeddings(self.prefill, weights, tokens), strict=True):
            fabric.send(stream, row)
        fabric.launch("prompt", meshes[0])
        fabric.launch("token", meshes[1])
        if new.height > old.height:
            fabric.launch("relay", (0, old.height, old.width, new.height - old.height))
        run = fabric.run(on_wait="return")
        begun = int(fabric.entered(self.prefill.inputs[0])[0])
        read = int(readings(fabric, "stamps", meshes[0])[-1].max())
        moved = int(readings(fabric, "moved", meshes[1]).max())
        return ResidentDecoder(self.decode, weights, fabric=fabric), Move(
            begun, read - begun, moved - read, run.wavelet_hops
        )

    def tables(self, weights: Mapping[str, ArrayLike]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Return what the host writes into each mesh before the prompt."""
        return Decode(self.machine, self.before.place).tables(weights), self.decode.tables(weights)

    def oracle(
        self,
        weights: Mapping[str, ArrayLike],
        tokens: Sequence[int],
        tables: tuple[Mapping[str, Bits], Mapping[str, Bits]] | None = None,
    ) -> Oracle:
        """Return the oracle of the decoder behind a prompt: what moves is put where it belongs, by plain numpy."""
        first, second = tables or self.tables(weights)
        reader = Oracle(Decode(self.machine, self.before.place, prompt=self.before), weights, dict(first))
        PrefillOracle(self.prefill, reader).read(tokens)
        found = Oracle(self.decode, weights, dict(second))
        found.rows.begin(self.behind.counts)
        found.keys[:], found.values[:] = moved_cache(reader, found, self.before, self.behind)
        return found


def moved_cache(old: Oracle, new: Oracle, before: PromptPlacement, behind: PromptPlacement) -> tuple[Bits, Bits]:
    """Return keys and values of a prompt in the places of another mesh, from those of an oracle."""
    layers, features = old.place.decoder.layers, old.place.decoder.kv_features
    whole = np.zeros((2, layers, before.length, features + 1), np.uint16)  # the last feature is a zero
    keys, values = new.keys.copy(), new.values.copy()

    def entries(oracle: Oracle, arrays: tuple[Bits, Bits], row: int, slot: int) -> list[Bits]:
        """Return views of the keys and the values in a slot of a row, (layers, width, kv_heads, part) each."""
        return [arrays[0][:, row, :, :, :, slot], arrays[1][:, row, :, :, slot]]

    for placement, oracle, arrays, into in (
        (before, old, (old.keys, old.values), True),
        (behind, new, (keys, values), False),
    ):
        place = oracle.place
        names = place.keys.reshape(place.width, place.kv_heads, place.part)
        for row, (first, count) in enumerate(zip(placement.firsts, placement.counts, strict=True)):
            for slot in range(count):
                for which, view in enumerate(entries(oracle, arrays, row, slot)):
                    if into:
                        whole[which, :, first + slot, names] = np.moveaxis(view, 0, -1)
                    else:
                        view[...] = whole[which, :, first + slot][:, names]
        whole[..., NOTHING] = 0
    return keys, values

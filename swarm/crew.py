"""Wafers on other ranks: one process has the memory service and the tree, the others simulate wafers for it.

What a `WaferPort` does to its wafer is little: a batch is placed, words are sent, numbers may leave, the engine runs to
a cycle, times and numbers come back.  For a wafer elsewhere these are noted (`FarFabric`) and done there together when
all wafers advance (`swarm.passage.travel`); the port beside the memory service is the same for either kind.  Which rank
has a wafer, and how many there are, changes no value and no cycle: wafers share nothing while they run.

The first rank decides everything: it reads and writes files, hears Ctrl-C and tells of errors, also of those of a wafer
elsewhere.  The others do what they are told until it ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.host.engines import Backend, chosen
from fabric.host.result import RunResult
from fabric.host.streams import Received
from fabric.layout.streams import Stream
from fabric.networks.streamed.resident import Resident, resident_of
from fabric.networks.streamed.wafer import Wafer
from fabric.ranks.world import RankLostError, World
from swarm.passage import together
from swarm.ports import WaferPort
from wse_core.errors import InternalError, WseError

__all__ = ["Crew", "FarFabric", "FarWafer", "crew", "current", "wafers_here"]


class Ran(NamedTuple):
    """A `Ran` is what a run of a wafer elsewhere gave.

    Attributes
    ----------
    run : RunResult
    entered : list of ndarray
        Per input stream, when words entered.
    came : list of Received
        Per output stream.
    """

    run: RunResult
    entered: list[NDArray[np.int64]]
    came: list[Received]


class FarFabric:
    """Stands where a wafer's `Fabric` stands; `cycle` is that of its last run.

    Parameters
    ----------
    rank : int
        Who has it.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.cycle = rank, 0
        self.notes: list[tuple[Any, ...]] = []
        self.answer: Any = None
        self._ran: Ran | None = None

    def taken(self) -> Any:
        """Return what was answered to the last note, or raise what happened there."""
        answer, self.answer = self.answer, None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def send(self, stream: Stream, values: Any, control: Any = None, at: Any = None) -> None:
        """Note a call of `Fabric.send`."""
        self.notes.append(("send", stream.index, values, control, at))

    def accept(self, stream: Stream, at: Any) -> None:
        """Note a call of `Fabric.accept`."""
        self.notes.append(("accept", stream.index, at))

    def run(self, max_cycles: int | None = None, **how: str) -> RunResult:
        """Return what the run gave that `Crew.advance` asked for."""
        ran = self._ran = self.taken()
        self.cycle = ran.run.cycle
        return ran.run

    def entered(self, stream: Stream) -> NDArray[np.int64]:
        """Return when words entered in the last run."""
        return self._ran.entered[stream.index] if self._ran else np.empty(0, np.int64)

    def receive(self, stream: Stream) -> Received:
        """Return what left in the last run."""
        assert self._ran is not None
        return self._ran.came[stream.index]


class FarWafer:
    """Stands where a `Wafer` stands that another rank simulates."""

    def __init__(self, resident: Resident, rank: int) -> None:
        self.resident, self.fabric = resident, FarFabric(rank)

    def load(self, inputs: NDArray[np.uint16], labels: NDArray[np.uint16], first: int = 0) -> None:
        """Note a call of `Wafer.load`."""
        self.fabric.notes.append(("load", inputs, labels, first))


class Crew:
    """A `Crew` has the ranks, as the first one sees them.

    Parameters
    ----------
    world : World
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.midway = False  # the others wait for what this rank has not said yet
        self._known: list[FarFabric] = []

    def wafers(
        self, count: int, resident: Resident, parts: tuple[Any, ...], backend: Backend | None
    ) -> list[Wafer | FarWafer]:
        """Return `count` wafers, in turn on all ranks, with a `Resident` and the arguments that make it elsewhere."""
        far = {k: FarWafer(resident, k % self.world.size) for k in range(count) if k % self.world.size}
        for wafer in far.values():
            self._known.append(wafer.fabric)
            wafer.fabric.notes.append(("build", parts, backend or chosen()[0]))
        near = self.exchange(lambda: [Wafer(resident, backend) for k in range(count) if k not in far])
        for wafer in far.values():
            wafer.fabric.cycle = wafer.fabric.taken()
        mine = iter(near)
        return [far[k] if k in far else next(mine) for k in range(count)]

    def exchange(self, here: Callable[[], Any]) -> Any:
        """Have the others do what was noted for their wafers while ``here()`` runs; return what that returns."""
        wanted = {key: (fabric.rank, fabric.notes) for key, fabric in enumerate(self._known) if fabric.notes}
        for fabric in self._known:
            fabric.notes = []
        if not wanted:
            return here()
        self.midway = True
        self.world.share(wanted)
        try:
            found = here()
        finally:
            for answers in self.world.share(None)[1:]:
                for key, answer in answers.items():
                    self._known[key].answer = answer
            self.midway = False
        return found

    def advance(self, ports: Sequence[WaferPort], horizons: Sequence[float], pool: Executor) -> list[bool]:
        """Have every wafer simulated until its horizon; return whether anything happened there."""
        near, far = [], set()
        for number, (port, horizon) in enumerate(zip(ports, horizons, strict=True)):
            if isinstance(port.wafer, Wafer):
                near.append((port.advance, horizon))
                continue
            far.add(number)
            how = port.wanted(horizon)
            if how is not None:
                port.wafer.fabric.notes.append(("run", how))
        heard = iter(self.exchange(lambda: together(pool, near)))
        return [
            port.advance(horizon) if number in far else next(heard)
            for number, (port, horizon) in enumerate(zip(ports, horizons, strict=True))
        ]

    def activations(self, wafers: Sequence[Wafer | FarWafer], level: int) -> list[NDArray[np.uint16]]:
        """Return the activations of a level on each of some wafers, as `Wafer.activations`."""
        for wafer in wafers:
            if isinstance(wafer, FarWafer):
                wafer.fabric.notes.append(("activations", level))
        near = self.exchange(lambda: iter([w.activations(level) for w in wafers if isinstance(w, Wafer)]))
        return [wafer.fabric.taken() if isinstance(wafer, FarWafer) else next(near) for wafer in wafers]

    def release(self, wafers: Sequence[Any]) -> None:
        """Let the others forget wafers, with whatever is exchanged next."""
        for wafer in wafers:
            if isinstance(wafer, FarWafer):
                wafer.fabric.notes = [("release",)]


def wafers_here(count: int, resident: Resident, parts: tuple[Any, ...], backend: Backend | None) -> list[Wafer]:
    """Return `count` wafers of this process; called as `Crew.wafers`."""
    return [Wafer(resident, backend) for _ in range(count)]


_CREW: contextvars.ContextVar[Crew | None] = contextvars.ContextVar("crew", default=None)


def current() -> Crew | None:
    """Return the ranks on which wafers of systems made here are, if any."""
    return _CREW.get()


@contextlib.contextmanager
def crew(world: World | None = None) -> Iterator[bool]:
    """Spread the wafers of every `System` made inside the block over ranks; say whether this is the first of them.

    The others serve it and come back when it leaves the block; there is nothing to do for them then.

    Parameters
    ----------
    world : World, optional
        Default the ranks of the MPI run that this process is one of.

    Raises
    ------
    ConfigError
        There is no MPI.

    Examples
    --------
    A script ``train.py``, run as ``mpiexec -n 2 python train.py``:

    >>> with crew() as first:                             # doctest: +SKIP
    ...     if first:
    ...         trainer = Trainer(load_train("digits", ["wafers=2"]))
    ...         print(trainer.step().loss)
    """
    if world is None:
        from fabric.ranks.mpi import MpiWorld

        world = MpiWorld()
    if world.rank:
        _serve(world)
        yield False
        return
    found = Crew(world)
    token = _CREW.set(found)
    try:
        yield True
    except BaseException as error:
        if found.midway:  # nobody hears an end any more
            print(f"wse: ended while ranks were at work: {type(error).__name__}", file=sys.stderr, flush=True)
            world.abort(1)
        raise
    finally:
        _CREW.reset(token)
        if not found.midway:
            world.share(None)


# --- the other ranks --------------------------------------------------------------------------------------------------
def _serve(world: World) -> None:
    """Do what the first rank says until it ends; it hears Ctrl-C for all."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    wafers: dict[int, Wafer] = {}
    try:
        while (wanted := world.share(None)[0]) is not None:
            mine = {key: notes for key, (rank, notes) in wanted.items() if rank == world.rank}
            world.share({key: _answer(wafers, key, notes) for key, notes in mine.items()})
    except RankLostError:
        raise
    except BaseException as error:
        print(f"wse: rank {world.rank} ends all: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        world.abort(1)
        raise
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


def _answer(wafers: dict[int, Wafer], key: int, notes: list[tuple[Any, ...]]) -> Any:
    """Do what was noted for a wafer; return what the last of it gives, or the error that it ends with."""
    found = None
    try:
        for what, *words in notes:
            found = _DOES[what](wafers, key, *words)
    except WseError as error:
        return error
    except Exception as error:
        return InternalError(f"{type(error).__name__} on a rank: {error}", cause=traceback.format_exc())
    return found


def _build(wafers: dict[int, Wafer], key: int, parts: tuple[Any, ...], backend: Backend | None) -> int:
    wafer = wafers[key] = Wafer(resident_of(*parts), backend)
    for stream in chain(*wafer.resident.inputs):
        wafer.fabric.entered(stream)  # from here on it is kept in mind
    return wafer.fabric.cycle


def _run(wafers: dict[int, Wafer], key: int, how: dict[str, Any]) -> Ran:
    wafer = wafers[key]
    run = wafer.fabric.run(**how)
    return Ran(
        run,
        [wafer.fabric.entered(stream) for stream in chain(*wafer.resident.inputs)],
        [wafer.fabric.receive(stream) for stream in wafer.resident.outputs],
    )


_DOES: dict[str, Callable[..., Any]] = {
    "build": _build,
    "run": _run,
    "load": lambda wafers, key, *words: wafers[key].load(*words),
    "send": lambda wafers, key, index, values, control, at: wafers[key].fabric.send(index, values, control, at=at),
    "accept": lambda wafers, key, index, at: wafers[key].fabric.accept(index, at),
    "activations": lambda wafers, key, level: wafers[key].activations(level),
    "release": lambda wafers, key: wafers.pop(key) and None,
}

"""A block that all ranks run: every fabric made in it is one over the ranks, and it ends for all of them together.

An error that all ranks come to, a fault or a deadlock, is raised on rank 0 and ends the others without a word; an error
of one rank alone is told by that rank, which then ends the others, since they wait for it.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator

from fabric.ranks.world import RankLostError, World
from wse_core.errors import UnsupportedError
from wse_core.errors.base import EXIT_RUN

__all__ = ["PATIENCE", "joined", "refuse_ranks", "world"]

PATIENCE = 10.0  # seconds in which other ranks come to the same end; each may be inside of a long cycle
EXIT_INTERRUPTED = 130

_WORLD: contextvars.ContextVar[World | None] = contextvars.ContextVar("ranks", default=None)


def world() -> World | None:
    """Return the ranks that fabrics made here are spread over, if any."""
    return _WORLD.get()


def refuse_ranks(what: str) -> None:
    """Refuse what runs in one process only."""
    if _WORLD.get() is not None:
        raise UnsupportedError(
            f"{what} over ranks", where="ranks", feature=f"{what} over ranks", hint="the same run in one process"
        )


@contextlib.contextmanager
def joined(ranks: World | None = None) -> Iterator[World]:
    """Spread every `Fabric` made inside the block over ranks, all of which run the block.

    Parameters
    ----------
    ranks : World, optional
        Default those of the MPI run that this process is one of.

    Raises
    ------
    ConfigError
        There is no MPI.

    Examples
    --------
    A script ``chain.py``, run as ``mpiexec -n 2 python chain.py``:

    >>> with joined() as ranks:                           # doctest: +SKIP
    ...     fabric = Fabric(layout)
    ...     cycles = fabric.run().cycles
    ...     if ranks.rank == 0:
    ...         print(cycles)
    """
    if ranks is None:
        from fabric.ranks.mpi import MpiWorld

        ranks = MpiWorld()
    token = _WORLD.set(ranks)
    try:
        yield ranks
    except RankLostError:
        raise
    except BaseException as error:
        if not _all_end(ranks, error) or ranks.rank == 0:
            raise
        raise SystemExit(_status(error)) from None
    finally:
        _WORLD.reset(token)


def _status(error: BaseException) -> int:
    """Return the exit status of a process that ends with an error."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return int(getattr(error, "exit_code", EXIT_RUN))


def _all_end(ranks: World, error: BaseException) -> bool:
    """Say whether all ranks end with this error; if not, tell of it and end them."""
    name = type(error).__name__
    text = f"{name}: {error}" if str(error) else name
    if ranks.agree(text, PATIENCE):
        return True
    print(f"wse: rank {ranks.rank} of {ranks.size} ends all: {text}", file=sys.stderr, flush=True)
    ranks.abort(_status(error))
    return False

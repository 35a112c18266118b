"""Ranks in one process behind the interface of one engine: each call is made on all of them at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fabric.ranks.engine import RankedEngine
from tests.thread_ranks import worlds

__all__ = ["Chorus"]

_POOL = ThreadPoolExecutor(4)


class Chorus:
    """`size` ranks of a fabric, at most 4; what they return is the same on all of them."""

    def __init__(self, spec, size):
        self._worlds = worlds(size)
        self.spec = spec
        self.engines = [None] * size
        self.engines = self._all(lambda world: RankedEngine(spec, world))

    def _all(self, call):
        def one(world):
            try:
                return call(world)
            except BaseException:
                world.abort(1)  # those that wait for it
                raise

        return [future.result() for future in [_POOL.submit(one, world) for world in self._worlds]]

    def __getattr__(self, name):
        if not callable(getattr(RankedEngine, name, None)):
            found = self._all(lambda world: getattr(self.engines[world.rank], name))
            assert all(value == found[0] for value in found), (name, found)
            return found[0]

        def call(*args, **options):
            found = self._all(lambda world: getattr(self.engines[world.rank], name)(*args, **options))
            assert not isinstance(found[0], str) or len(set(found)) == 1, (name, found)
            return found[0]

        return call

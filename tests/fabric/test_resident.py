"""Memory that a process has in RAM: its own, not its parent's, and what a part of a run takes."""

from __future__ import annotations

import mmap
import subprocess
import sys

from fabric.host.resident import peak_bytes, resident_bytes, restart_peak

MUCH = 64 << 20


def taken(size):
    """Return memory of the system itself that is in use; what an allocator is given back it may keep."""
    some = mmap.mmap(-1, size)
    some[::4096] = b"1" * (size // 4096)
    return some


def test_the_most_is_remembered_until_it_is_started_anew():
    restart_peak()
    before = peak_bytes()
    taken(MUCH).close()
    assert before + MUCH / 2 < peak_bytes() < before + 2 * MUCH
    restart_peak()
    assert peak_bytes() < before + MUCH / 2


def test_what_is_there_now():
    before = resident_bytes()
    some = taken(MUCH)
    assert before + MUCH / 2 < resident_bytes() < before + 2 * MUCH
    some.close()
    assert resident_bytes() < before + MUCH / 2


def test_a_child_begins_with_its_own():
    """The number that the kernel keeps for the parent of processes begins with what its parent had."""
    some = taken(4 * MUCH)
    code = "from fabric.host.resident import peak_bytes; print(peak_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1 << 20 < int(done.stdout) < len(some)
    some.close()

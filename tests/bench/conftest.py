"""Benchmarks are collected only when pytest is asked for them with --benchmark-only, as `make bench` does."""
from __future__ import annotations


def pytest_ignore_collect(collection_path, config):
    """Leave the long benchmarks out of an ordinary test run; the smoke test beside them stays in."""
    if collection_path.name == "test_speed.py" and not config.getoption("benchmark_only", default=False):
        return True
    return None

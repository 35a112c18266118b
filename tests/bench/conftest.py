"""Benchmarks are collected only when pytest is asked for them with --benchmark-only, as `make bench` does."""

from __future__ import annotations


def pytest_ignore_collect(collection_path, config):
    """Leave the long benchmarks out of an ordinary test run, and the smoke test beside them out of a benchmark run."""
    if not collection_path.name.startswith("test_"):
        return None
    smoke = collection_path.name == "test_smoke.py"
    return True if smoke == bool(config.getoption("benchmark_only", default=False)) else None

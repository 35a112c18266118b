"""Benchmarks are collected only when pytest is asked for them with --benchmark-only, as `make bench` does."""
from __future__ import annotations


def pytest_ignore_collect(collection_path, config):
    """Leave the long benchmarks out of an ordinary test run, and the smoke test beside them out of a benchmark run."""
    other = "test_smoke.py" if config.getoption("benchmark_only", default=False) else "test_speed.py"
    return True if collection_path.name == other else None

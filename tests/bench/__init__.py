"""Benchmarks: how fast the engine runs, measured as ratios within one run; docs/performance.md explains them."""

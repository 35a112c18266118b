"""Command line and everything around a run: configuration, jobs, progress, diagnosis.

This package may import every other one; no other package imports it.
"""

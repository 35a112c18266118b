"""A run leaves a run file behind: its format, its writer and reader, and heat maps are here.

Submodules are imported by name (``from traces.writer import RunWriter``); the package itself loads nothing.
"""

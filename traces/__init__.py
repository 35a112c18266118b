"""What a run leaves behind: the format of run files, its writer and reader, and heat maps.

Submodules are imported by name (``from traces.writer import RunWriter``); the package itself loads nothing.
"""

"""Settings of users are brought from text to checked values.

`options` (keys of a TOML table as a dataclass), `toml` (files), `assignments` (words ``key=value``), `machine` (preset
and modelled numbers).  What a value may be is said and checked by `wse_core.schema`.
"""

"""A sweep does many runs from one file: kernels or plans over lists and ranges of parameters and of modelled numbers.

=============  ======================================================================================================
`description`  the file: which axes, in which combinations; `load` gives a `Sweep` of points
`subjects`     what a point runs: a kernel of the registry, or a plan of `harness.plan`
`point`        one point, and what measuring it gives
`workers`      points side by side in processes of this host
`cluster`      the same on a cluster that Dask knows
`journal`      a line per point that is done: a sweep that was ended goes on behind the last one
`table`        rows as CSV and Parquet
`picture`      one number of the table over one axis
`run`          all of that in a directory: `run` is what ``wse sweep`` calls
=============  ======================================================================================================

    from harness.sweep.description import load
    from harness.sweep.run import run

    rows = run(load("sizes.toml"), "sweeps/sizes", processes=2).rows
"""

from __future__ import annotations

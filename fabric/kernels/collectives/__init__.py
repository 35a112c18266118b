"""Collectives are broadcast, reduce, all-reduce, scatter, gather and all-gather, along lines and over rectangles.

Kernels, one module each:

==================  ===============================================================================================
broadcast           ``broadcast``: a vector of one PE to a row, a column or the rectangle
chain               ``chain_reduce``: the sum over a row by a chain of fused additions, the simplest reduce
reduce              ``reduce``: the sum over rows, columns or a rectangle by any tree
allreduce           ``allreduce``: the same sum in every PE, by reduce and broadcast or by rings
gather              ``scatter``, ``gather``, ``allgather``
==================  ===============================================================================================

Tools: `pieces` (what kernels of this and other families are put together from), `costs` (published closed forms and
lower bounds).

To add a collective
    1. What it does on one line becomes a piece in `pieces`: ``roles``, ``routes``, ``emit``, ``hops``, ``end``.
       `pieces.line_moves.Scatter` is a short example.
    2. The kernel in this package composes pieces over the lines of a form (`pieces.sums.lines_of`,
       `pieces.lines.compose`), takes colors from `pieces.sums.color_pool`, and compares bits, cycles and hops.
    3. Enter the module and its kernels in `fabric.kernels.registry.MODULES`; published forms and bounds go to `costs`.

Colors are taken from the front of `color_pool`, a set per line; queues 2 and up, one per line, 0 and 1 for floods.
"""

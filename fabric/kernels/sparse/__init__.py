"""Sparse matrices lie on the wafer in these products; those whose weights stream past are `fabric.kernels.streamed`.

==================  ===============================================================================================
spmv                ``spmv``: y = A x, A in CSR, blocks of rows and columns, no zero multiplied
==================  ===============================================================================================

Colors and queues: the sum along the rows takes colors from the front of the pool, x the first one left over; queue 3
for x.

To add one: `spmv.Blocks` cuts a pattern into the blocks of PEs, `spmv.row_cycles` counts what an entry costs; the sums
are pieces of `fabric.kernels.collectives.pieces`.
"""

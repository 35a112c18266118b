"""Matrix-vector products y = A x are done over a mesh of PEs: local products, then a sum along the lines.

==================  ===============================================================================================
gemv                ``gemv``: one product; pipeline, two-way K-tree (MeshGEMV) and rings
chain               ``gemv_chain``: one product after the other without a transpose, rows and columns in turn
line_sum            `LineSum`, the all-reduces of both behind one face, and the choice by the closed forms
==================  ===============================================================================================

The local part is `fabric.kernels.matmul.local`, the sums are pieces of `fabric.kernels.collectives.pieces`.

Colors and queues: the sums take colors from the front of the pool, x the last one; queue 3 for x.

To add an all-reduce: a piece in `fabric.kernels.collectives.pieces` with ``roles``, ``routes``, ``emit``, ``total``,
``hops`` and ``end``, then its name in `line_sum.ALGORITHMS` and in `LineSum`.
"""

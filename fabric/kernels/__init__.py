"""Kernels are algorithms with a page each, a program, a layout, bits that are compared and a closed form of their
cycles.

==================  ===============================================================================================
`kit`               what every kernel stands on: declaration, run, comparisons, sizes, report, words of closed forms
`basic`             one PE, one link: a vector operation, a ping
`collectives`       broadcast, reduce, all-reduce, scatter, gather; their pieces are used by all families
`matmul`            matrix products
`matvec`            matrix-vector products
`sparse`            products with sparse matrices that stay on the wafer
`stencil`           stencils over grids
`streamed`          products whose weights stream past; `fabric.networks` makes whole networks of them
==================  ===============================================================================================

A family's page says what its modules are and how to add a member.  Attention will be a family of its own beside these:
it stands on `matmul` and on the pieces of `collectives`.

`fabric.kernels.registry.KERNELS` has all kernels by name.  Families import from the kit, from
`collectives.pieces`, and from the families above them in the table; no kernel imports `fabric.kernels.registry`.
"""

"""Kernels of collectives are put together from these pieces.  None of these modules is a kernel.

A piece stands on a `Line` and knows five things: its routes, its part of a program, the order of its additions, its
hops and its closed form.  Kernels of any family use pieces, several of them in one program.

==================  ===============================================================================================
lines               a row, a column or a snake of PEs, and the composition of programs from roles along lines
flood               a vector to all PEs of a line or rectangle, copied by the routers
trees               who adds what in which order: star, chain, two phases, binary and optimal trees
line_reduce         the reduce of a line along one of those trees
ktree               the reduce of a line by a two-way K-tree, toward the middle of groups
ring                which PE comes after which on a plain or folded ring, and its routes
ring_allreduce      the all-reduce of a line on such a ring
line_moves          scatter, gather and all-gather of a line: data that move and are not calculated with
neighbours          every place of a line to the next r places
sums                the choice for a rectangle: its lines, colors, and the fastest tree for each line
==================  ===============================================================================================
"""

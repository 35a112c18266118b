"""Kernels of one PE or one link calibrate the machine: what an operation and a hop cost.

==================  ===============================================================================================
vector              ``vector``: one vector operation on one PE; any operation of the table
vector_checks       what an operation gives, and the comparisons of a result with it
ping                ``ping``: one wavelet over a number of hops
==================  ===============================================================================================

Colors and queues: `ping` uses color 3 on queue 2; `vector` none.

To add one: a module with its page (`ping` is the shortest), entered in `fabric.kernels.registry.MODULES`.
"""

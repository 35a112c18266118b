"""The oracle does in numpy, on bit patterns, what wafers do in weight streaming, in the machine's order of operations.

One function per operation and direction (`table`), from the meaning of the operation and the order of additions alone:
nothing here knows commands, tasks, words or arrays of PEs.  Whole arrays at a time: rows of all columns and PEs
together, since no rounding depends on a neighbour except where columns are joined (ring order), tokens are summed (in
order) and PEs are chained (north to south).

Tests hold wafers against it, and training without wafers runs on it (`swarm.oracle`).
"""

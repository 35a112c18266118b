"""One fabric over several processes, its ranks: each has some of its rows, and neighbours exchange what crosses.

=============  =======================================================================================================
module         what it is
=============  =======================================================================================================
`world`        what ranks need of each other: neighbours swap messages, all gather
`mpi`          ranks that an MPI launcher started; the optional dependency mpi4py
`rows`         which rows are whose
`clock`        cycles of one rank, the exchanges between them, and when all stop
`engine`       the engine interface over ranks: every rank calls the same, and every rank gets the same
`joined`       a block that all ranks run: it ends for all of them, and is told of once
=============  =======================================================================================================

Every rank runs the same program: it builds the same fabrics, copies the same arrays, and comes to the same results.
"""

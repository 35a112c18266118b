"""Stencils are applied to grids in three dimensions, a column of cells along z on each PE.

==================  ===============================================================================================
points7             ``stencil``: 7 points; routers multicast a column to four neighbours, one color of five per PE
points25            ``stencil25``: 25 points, radius 4; turns of a localized broadcast, one color per direction
==================  ===============================================================================================

Colors and queues: `points7` colors 0..4 and input queues 1..4, `points25` colors and queues 0..3.

To add one: radius 1 is nearest to `points7`, anything wider to `points25`, whose data movement is the piece
`fabric.kernels.collectives.pieces.neighbours`.  Published stencils that the machine is compared with are
`harness.validation.programs`.
"""

"""Matrix products C = A B, and A times B transposed, are done over a mesh of PEs.

==================  ===============================================================================================
gemm                the kernels ``gemm`` and ``gemm_t``: a table of all algorithms, where the time goes, `make`
local               C += A B on the SRAM of one PE: instructions and cycles; what every product ends in
problem             `Problem`: the mesh, the sizes and the formats that are asked for
distributed         `Product`: how matrices are cut over PEs, the order of additions, counts, what a result says
summa               SUMMA, by broadcasts
relay               SUMMA without broadcasts: cores hand the tiles on (software routing)
relay_axis          what a PE needs for tiles that it hands on
relay_cycles        how long that takes: every PE followed from step to step
allgather           the same broadcasts, all of them before the product
shift               Cannon and MeshGEMM, by cyclic shifts
transposed          dist-GEMM-T: B shifts along columns, sums run along rows; every PE followed from step to step
broadcast_axis      what a PE needs for tiles that are broadcast along its row or column (summa, allgather)
ring_axis           what a PE needs for tiles on a ring (shift, transposed)
==================  ===============================================================================================

Colors and queues: along x color 8 and up, input queue 0, output queue 2; along y 9 or 11 and up, input queue 1, output
queue 3 (`relay`: colors 8..15, input queues 4..7, output queues 0..3); more stand at the head of the module.

To add an algorithm of C = A B: a subclass of `distributed.Product` with ``algorithm``, ``build``, ``layout``,
``inputs``, ``order``, ``colors``, ``way``, ``hops`` and ``expected``, then its class in `gemm.ALGORITHMS`; all tests of
``tests/fabric/kernels/test_products.py`` take it from there.
"""

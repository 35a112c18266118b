"""Matrix products: all-gather, SUMMA, Cannon and MeshGEMM, and A times B transposed."""

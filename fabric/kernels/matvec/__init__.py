"""Matrix-vector products, alone and in chains."""

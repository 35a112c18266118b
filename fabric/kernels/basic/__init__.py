"""Kernels of one PE or one link: a vector operation, a ping."""

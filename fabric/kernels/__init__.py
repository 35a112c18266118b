"""Kernels of the fabric: one module per family of algorithms, each with a page about it at its head.

`fabric.kernels.registry.KERNELS` has them by name.
"""

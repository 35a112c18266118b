"""Clusters layer by layer: costs against cycle-level kernels, one clock, published constants."""

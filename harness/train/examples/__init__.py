"""Configurations for ``wse train`` are kept here; they can be named without a path."""

"""Configurations for ``wse train`` that can be named without a path."""

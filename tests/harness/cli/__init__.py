"""The commands of `wse`."""

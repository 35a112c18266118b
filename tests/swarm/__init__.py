"""The fabric between memory service and wafers."""

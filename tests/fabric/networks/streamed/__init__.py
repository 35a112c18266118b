"""Streamed networks: what their operations become, and that it stays so."""

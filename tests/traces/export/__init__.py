"""Exports: what was written is read back by something that knows nothing of the writer."""

"""What every command stands on: terminal, staged files, provenance, optional modules."""

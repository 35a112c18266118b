"""Every command stands on these: terminal, tables and pictures as files, staging, samples, optional modules."""

"""What every command stands on: terminal, tables and pictures as files, staging, samples, optional modules."""

"""Jobs and their files."""

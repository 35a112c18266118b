"""Scripts that make files of the project."""

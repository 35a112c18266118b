"""These tools make pages and pictures of the documentation."""

"""Products with sparse matrices that stay on the wafer."""

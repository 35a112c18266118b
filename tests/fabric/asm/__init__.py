"""Units without the Python sugar, listings and control payloads."""

"""Output, files and pages."""

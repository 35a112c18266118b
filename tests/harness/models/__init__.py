"""Language models: files, conversions, plain numpy."""

"""Language models: files, conversions, plain numpy, training."""

"""The composed model of inference, its parts, and the published tables."""

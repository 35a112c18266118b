"""Tests of run files and heat maps."""

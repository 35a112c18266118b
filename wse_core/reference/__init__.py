"""Slow, plain-Python twins of the compiled parts: the oracle that tests compare with, and a readable description."""

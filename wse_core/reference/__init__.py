"""Slow, plain-Python twins of the compiled parts are the oracle that tests compare with, and a readable description."""

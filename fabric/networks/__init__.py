"""Whole networks live on the wafer: their operations, and the programs that train them or answer by them."""

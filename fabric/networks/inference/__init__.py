"""Decoders of language models: a token goes in, the next one comes out, weights and cache stay in the PEs.

`decoder` says what a decoder is: its sizes and constants, and how much it holds.
"""

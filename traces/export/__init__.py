"""Traces are written in the formats of other viewers, a module each; `traces.export.formats` lists them."""

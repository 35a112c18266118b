"""Language models are here: files of the hub, presets, plain numpy, and a small trained one that is shipped.

`hub` loads and writes a model's directory, of which `configuration` reads the sizes, `tensors` the weights and `tokens`
the tokenizer; `keys` says what is done with each key of a file, by the tables of `architectures` and `text_files`, and
`explain` shows it.  `rounding` brings weights to the formats of the PEs; `presets` knows published sizes; `plain` is
the decoder in numpy's own order, `bound` how far a 16-bit one may be from it.  `wse train pydoc` trained the
shipped model.
"""

"""Language models: files of the hub, presets, plain numpy, and a small trained one that is shipped.

`hub` loads and writes a model's directory, of which `configuration` reads the sizes, `tensors` the weights and `tokens`
the tokenizer; `rounding` brings weights to the formats of the PEs; `presets` knows published sizes; `plain` is the
decoder in numpy's own order.  `tools/models` trains the shipped model.
"""

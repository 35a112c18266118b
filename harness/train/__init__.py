"""The host trains networks by weight streaming or layer by layer, from a file of `wse train` or from a program.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`config`        the TOML file of ``wse train``: what follows from its keys, and which fit each other
`tables`        its tables and keys
`feed`          batches that a program hands over instead
`initial`       first parameters: drawn, or from files
`weights`       weights, masks and optimizer state in files of other programs' forms
`clipping`      gradients clipped by their norm
`data`          data sets, and the data service that gives every wafer its shard
`onnx_file`     networks from ONNX files, and trained weights back into them
`torch_module`  networks from PyTorch modules: `from_torch`
`sources`       files of samples in their forms; what is too large for memory stays in them
`sparsity`      masks and learning rates over the iterations
`loss_scale`    dynamic scaling of the loss
`checkpoint`    everything that training needs to go on, written all or nothing
`record`        what an iteration gave; log, table and figure of a run
`plain`         the same training by plain numpy
`trainer`       training on wafers, iteration after iteration
`examples`      configurations that can be named without a path
==============  ======================================================================================================

Iterations are counted from 0 where they are looked up (data, learning rate) and from 1 where they are reported.
"""

from harness.train.torch_module import from_torch

__all__ = ["from_torch"]

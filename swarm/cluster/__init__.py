"""A cluster that trains by weight streaming, layer by layer: what cycle-level wafers cannot reach in size.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`costs`         cycles of a layer on a wafer: the kernels' closed forms for an average weight
`models`        GPT-style models as lists of layers; what of them fits into wafers and memory service
`cluster`       memory service, tree and wafers together: rates, latencies, capacities
`events`        one clock over all of them: when each layer is streamed, computed, received and updated
==============  ======================================================================================================
"""

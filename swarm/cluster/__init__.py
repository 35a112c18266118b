"""A cluster that trains by weight streaming, layer by layer: what cycle-level wafers cannot reach in size.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`layer_costs`   cycles of a layer on a wafer: the kernels' closed forms for an average weight
`cluster`       memory service, tree and wafers together: rates, latencies, capacities
`timeline`      one clock over all of them: when each layer is streamed, computed, received and updated
==============  ======================================================================================================
"""

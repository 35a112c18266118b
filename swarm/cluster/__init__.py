"""A cluster trains by weight streaming, layer by layer, at sizes that cycle-level wafers cannot reach.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`shapes`        a layer and the mesh it is laid out on
`programs`      the program of a PE, whose tasks stand for those of all PEs
`columns`       one row of PEs at work: when each column can go on, who waits for whom
`layer_costs`   cycles, words and numbers of each phase of an iteration on a wafer
`told`          the same told one command after the other: what each costs depends on those before
`graph_costs`   the phases of any network, operation by operation
`cluster`       memory service, tree and wafers together: rates, latencies, capacities
`timeline`      one clock over all of them: when each layer is streamed, computed, received and updated
`check`         an iteration at both levels, side by side
==============  ======================================================================================================
"""

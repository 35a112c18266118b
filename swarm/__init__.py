"""The system of many wafers: SwarmX, the fabric that copies weights and adds gradients, and what stands around it.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`system`        memory service, tree and wafers joined: an iteration of the whole system, its time on one clock
`oracle`        a wafer's place taken by numpy, the same order of additions
`tree`          broadcast-reduce nodes, their tree, the order of additions, traffic of each link
`planes`        links side by side, a tree on each
`nodes`         which nodes trees take: one 1:4 or two 1:2
`timing`        rates and latency
`cluster`       the same layer by layer, for systems too large for cycles
==============  ======================================================================================================
"""

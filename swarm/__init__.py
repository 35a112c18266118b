"""SwarmX: the fabric that copies weights to many wafers and adds their gradients.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`tree`          broadcast-reduce nodes, their tree, the order of additions, traffic of each link
`planes`        links side by side, a tree on each
`nodes`         which nodes trees take: one 1:4 or two 1:2
`timing`        rates and latency
`params`        every number with its source
==============  ======================================================================================================
"""

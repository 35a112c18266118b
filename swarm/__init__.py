"""SwarmX: the fabric that copies weights to many wafers and adds their gradients.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`tree`          broadcast-reduce nodes, their tree, the order of additions, traffic of each link
`timing`        rates and latency
`params`        every number with its source
==============  ======================================================================================================
"""

"""The system of many wafers: SwarmX, the fabric that copies weights and adds gradients, and what stands around it.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`system`        memory service, tree and wafers joined: iterations of the whole system on one clock
`passage`       a pass of all wafers: each part goes as far as nothing can reach it
`service`       when each weight is up to date, and what lies behind DRAM
`down`, `up`    the ways of words to the wafers, and of what they give back to the updates
`ports`         a wafer at the end of a link
`ways`          all of these together, pass after pass
`replay`        what an iteration would take on other ways
`servers`       what serves one thing after the other at a rate
`oracle`        a wafer's place taken by numpy, the same order of additions
`tree`          broadcast-reduce nodes, their tree, the order of additions, traffic of each link
`planes`        links side by side, a tree on each
`timing`        rates and latency
`cluster`       the same layer by layer, for systems too large for cycles
==============  ======================================================================================================
"""

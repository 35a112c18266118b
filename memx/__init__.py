"""The memory service MemoryX: parameters and optimizer state live here and nowhere else.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`pattern`       which weights of a matrix exist, their 16-bit index, its transpose
`parameter`     one weight matrix: dense FP32 store beside the sparse store that is streamed; masks that change
`store`         where the dense store lies: in memory, or in files for runs larger than memory
`optimizer`     SGD, momentum, Adam, AdamW in FP32 on active weights
`tiers`         capacity and speed: DRAM, what lies behind it, prefetch
`coordinator`   the parameters of a network, and what is streamed of them in an iteration
==============  ======================================================================================================
"""

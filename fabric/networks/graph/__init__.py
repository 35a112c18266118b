"""A network is a graph of operations: the one form that both ways to run a network, and all oracles, start from.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`tensors`       what flows between operations: activations, gradients, parameters, with shape and format
`nodes`         an operation of a graph, and a step of a schedule
`operations`    one row per operation: shapes, parameters, what it keeps, its numpy form, its reverse
`activations`   rows of the functions that are applied to each number
`attention`     the row of attention
`rotary`        the row of places in a sequence
`network`       the graph, checked; the layers of a chain as a recipe
`reverse`       the schedule of an iteration or of a test: one flat list of steps
`layouts`       where the features of a tensor lie
`plan`          which arrays a PE has for the tensors of a schedule
==============  ======================================================================================================
"""

"""Weights come past in these products while activations stay: what weight streaming does to one layer.

==================  ===============================================================================================
forward             ``ws_forward``: Y = W X and, with the transposed stream, W^T dY; `ProductTasks`
gradient            ``ws_gradient``: dY X^T at the places of a mask; `GradientTasks`
gradient_cycles     how long that takes: rows of PEs followed mask row by mask row
placement           where features and tokens lie; how weights are cut into a stream per column of PEs
==================  ===============================================================================================

`ProductTasks` and `GradientTasks` are the tasks alone: `fabric.networks.streamed` puts both into one program with the
element-wise work of a network.

Colors and queues: weights and commands on color 4, input queue 0; the ring of columns on colors 0 to 2, queues 2; rows
of gradients and sums to the south on colors 5 and up.  The modules name them all; no two of them clash, since a network
uses both at once.

To add a phase: tasks that are started by commands, as those two have them, and their ids in
`fabric.networks.streamed.commands`.
"""

"""Each operation of a network has a module for weight streaming: its commands, its tasks, and the words of its steps.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`lowering`      what there is to say of an operation, and who writes its steps
`code`          what the tasks of a program share: pointers, rows of f32 numbers, the ring that joins sums
`linear`        products and gradients of weights
`rows`          what works on single rows: activations and their slopes
`attention`     attention, key after key of a block of a sequence
`blocks`        what rows of PEs on which a sequence lies hand on to each other
`head_columns`  the ring of columns on which a head lies
`strips`        what rows of PEs on which an image lies hand each other
`rotary`        turned places
`norm`          normalisation over the features
`loss`          softmax cross-entropy, and how many samples are classified right
`table`         all of them by name
==============  ======================================================================================================
"""

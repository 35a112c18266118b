"""What each operation of a network is in weight streaming: its commands, its tasks, and the words of its steps.

==============  ======================================================================================================
module          content
==============  ======================================================================================================
`lowering`      what there is to say of an operation, and who writes its steps
`code`          what the tasks of a program share: pointers, rows of f32 numbers, the ring that joins sums
`linear`        products and gradients of weights
`rows`          what works on single rows: activations and their slopes
`norm`          normalisation over the features
`loss`          softmax cross-entropy, and how many samples are classified right
`table`         all of them by name
==============  ======================================================================================================
"""

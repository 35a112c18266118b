"""External weight memory: parameter store, weight streaming, optimizer, sparsity and checkpoints.

Nothing is modelled here yet: the package reserves its name and place.  A run uses the memory of the processing
elements only, and whatever the host copies into it.
"""

"""Several wafers: nodes, links and the tree that broadcasts weights and reduces gradients between them.

Nothing is modelled here yet: the package reserves its name and place.  A run covers one wafer or a rectangle of it.
"""

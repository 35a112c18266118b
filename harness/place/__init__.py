"""Placement: every kernel of a network gets a rectangle of the wafer, so that the slowest one is as fast as it can be.

==================  ================================================================================================
module              holds
==================  ================================================================================================
`kgraph`            the text in which the vendor's contest states a problem
`kernels`           how large a kernel of it is, how long it takes and what memory it needs
`solution`          the text of a placement, what makes one valid, its score
`shapes`            for a time limit: the least height of a kernel for every width
`bands`             columns of rows of stacks: how a placement is described, sized and made
`search`            the search over such descriptions and over time limits
`moves`             the steps of that search
`wiring`            where rectangles sit in what room is left, so that wires are short
`solve`             a contest problem from text to text: processes, time, interruption
`layers`            what a fully connected layer of the pipelined mode costs in a rectangle
`network`           the same for the layers of a network whose costs are functions of width and height
`picture`           a placement as PNG and as text
==================  ================================================================================================
"""

"""Language models can answer on the wafer: small ones cycle by cycle, requests to large ones put together from parts.

`generate` lets a model answer by PE programs, token by token; `estimate` says by closed forms how long that takes.

What no simulation of every cycle could carry is put together: `costs` has the parts, each a closed form of a kernel or
a run on one PE; `parts` holds them against the cycle level.  `authors` puts together program A, that of the paper's
authors as it is, `correct` program B, a decoder that computes what the model says.  `requests` makes tokens per second
of them, `capacity` says what fits, `comparators` are the two systems that the paper compares with, and `published` and
`tables` set all of it beside the paper's cells.
"""

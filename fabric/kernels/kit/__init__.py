"""What every kernel stands on; no module here knows an algorithm.

==================  ===============================================================================================
kernel              what a kernel is: name, parameters, function; the table of all of them
data                the parameters `seed` and `data`, whole numbers, wavelets of a vector
tiles               matrices cut over a mesh of PEs, in the order in which SRAM holds them
session             a run: data in, launch, time stamps, data out
verify              how much of a result is compared: all, a sample, nothing
check               the two comparisons that decide `verified`
ahead               what a large kernel will take, said before it is made
watch               who hears how far a run is, and the time that is left
sizes               sizes that fit into a PE, and the message when they do not
report              what a result says
plmr                what an algorithm asks of a mesh of cores, and whether the mesh has it
==================  ===============================================================================================

Float formats, and the machine's operations on them, are `wse_core.formats`.
"""

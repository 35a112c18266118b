"""What programs of one PE are made of, how they are written, and how they are assembled (`fabric.program.program`).

`values` and `operands` hold the things that a program names; each other module is one part of
`fabric.program.program.Program`, `assembler` makes the image.  Modules import only from those before them:

===========  ========================================================================
values       numbers of the host and words of SRAM
operands     registers, labels, variables, queues, descriptors, DSRs, tasks
emission     symbolic instructions, immediates, errors with a place in the source
registers    who has which register
memory       variables and the descriptors of walks over them
ports        queues and the descriptors of wavelets
dsrs         data structure registers
vector       vector operations
operations   the methods that the op table names
scalar       instructions of special form
tasks        tasks and functions
flow         labels, branches, loops
numbering    task ids, queues and DSR numbers
assembler    layout of SRAM, encoding, the image
===========  ========================================================================
"""

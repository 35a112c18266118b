"""Programs of one PE are written in Python (`fabric.program.program.Program`), on top of the assembler (`fabric.asm`).

A `Program` holds one object of each part and hands out the parts' methods as its own.  Modules import only from those
before them:

===========  ========================================================================
source       where the user's program is
registers    who has which register
memory       variables and the descriptors of walks over them
ports        queues and the descriptors of wavelets
dsrs         data structure registers
vector       vector operations
operations   operations of the op table, scalar or vector
scalar       instructions of special form
tasks        tasks and functions
flow         labels, branches, loops
methods      one method per operation of the op table
program      `Program`
stubs        makes ``program.pyi``: what editors and type checkers see
functions    exp, log, reciprocal, 1 / sqrt, GELU of vectors
===========  ========================================================================
"""

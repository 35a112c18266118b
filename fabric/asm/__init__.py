"""The assembler, on its own: what a compiler and the Python sugar (`fabric.program`) both stand on.

`unit.Unit` takes everything that becomes one image and assembles it; places in a source are passed in.  Nothing here
knows of Python frames or imports `fabric.program`.  Modules import only from those before them:

===========  ========================================================================
values       numbers of the host and words of SRAM
instruction  symbolic instructions, places in a source, references to tasks
operands     registers, labels, variables, queues, descriptors, DSRs, tasks
descriptors  walks over variables, wavelets that come and go, FIFOs
checks       what vector operations ask of their operands
numbering    task ids, queues and DSR numbers
assembler    layout of SRAM, encoding, the image
unit         `Unit`: all that becomes one image
mark         a moment of a unit, to which it can go back
control      payloads of control wavelets
disasm       the text form: listings, and back to words
===========  ========================================================================
"""

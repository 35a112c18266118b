"""CSL is the language in which programs for this machine are written; here it becomes images of programs.

==============  =======================================================================================================
room            what it does
==============  =======================================================================================================
`diagnostics`   sources, spans, messages with file, line, column, caret and hint
`syntax`        the grammar, the parser, the nodes of the tree, the printer
`types`         what types there are and which converts to which
`tree`          typed run-time code as the back end takes it: no names, no comptime, every node with its span
`comptime`      values and the evaluator: params, modules, `layout`, builtins that a compiler obeys
`check`         run-time code of a PE program: names, types, builtins, tasks; makes `tree`
`ir`            the intermediate form: blocks of operations on virtual registers
`rules`         what cycles depend on and nobody has published: unrolling, products with constants
`lower`         from `tree` to `ir`
`optimise`      passes over `ir` that do not change what it computes
`allocate`      virtual registers to the sixteen of a PE
`emit`          `ir` to the assembler: instructions, DSRs, queues, tasks
`compile`       all of it, for each program of a layout
`artefact`      the directory that a compilation leaves and that a host script loads
`library`       our own CSL sources of the modules in angle brackets
`census`        which features a tree of programs uses, and which of them this compiler has
==============  =======================================================================================================
"""

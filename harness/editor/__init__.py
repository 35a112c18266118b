"""An editor asks about sources in CSL: names and where they are declared, messages, cycles of a line, completion.

`outline` reads a text that need not be whole; `projects` knows which layouts a file belongs to and what the compiler
says of them; `answers` puts both together, without any protocol; `server` speaks the Language Server Protocol by the
library pygls (extra ``editor``).
"""

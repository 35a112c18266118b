"""Programs as the assembler takes them: what is emitted, decided, and refused with which words."""

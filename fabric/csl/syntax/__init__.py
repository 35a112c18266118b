"""CSL is read as text, parsed into a tree, and laid out again."""

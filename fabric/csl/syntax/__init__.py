"""CSL as text and as a tree."""

"""What is below the Python sugar: operands, numbering, encoding, text form, control words."""

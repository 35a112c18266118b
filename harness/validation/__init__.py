"""Published cycle counts, and the programs that are run to compare with them."""

"""The host side of a fabric: symbols, copies, launches, runs, errors, debugging."""

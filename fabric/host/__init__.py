"""The host side of a fabric has symbols, copies, launches, runs, errors and debugging."""

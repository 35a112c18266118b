"""Options, words of the command line and job files."""

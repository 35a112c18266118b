"""The command line has one module per command."""

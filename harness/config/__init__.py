"""One schema for what users set: TOML, command line, machine numbers."""

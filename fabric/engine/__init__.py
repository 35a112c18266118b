"""The compiled engine: tables, cycle loop, host access."""

"""The compiled engine has tables, a cycle loop and host access."""

"""The package `tools.release` has what makes and tries distributions: `wheels` builds them, `smoke` uses one."""

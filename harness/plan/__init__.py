"""The planner says what a training run needs in compute, memory, links and time, before anyone builds it.

Two published families of formulas stand side by side, each with its own conventions; docs/planner.md has the list.
"""

"""The package `harness` has the command line and everything around a run: configuration, jobs, progress, diagnosis.

This package may import every other one; no other package imports it.
"""

import os

# Threads of numpy's BLAS that have nothing to do sleep after some 1,000 cycles of the processor, not after 2^28: half
# of the CPU time of the smallest commands was theirs.  BLAS asks when numpy is loaded, which no command does before.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "10")

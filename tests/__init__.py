"""Tests; the directories mirror those of the packages."""

import os

# Before numpy is imported: products are small, and threads that wait for a share of one take more time than it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

"""Tests of the command line and what stands around a run."""

"""Whole networks that live on the wafer."""

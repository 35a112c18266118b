"""What a tree of programs uses of the language, feature by feature, and what of it this compiler does not have."""

from __future__ import annotations

from fabric.csl.census.census import Census, take
from fabric.csl.census.features import features_of

__all__ = ["Census", "features_of", "take"]

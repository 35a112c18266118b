"""The tools of the field are ``cslc``, ``cs_python`` and the modules that host scripts import inside of it."""

from __future__ import annotations

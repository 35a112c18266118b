"""The compiler leaves a directory with ``out.json`` and the image of all programs and routes."""

from __future__ import annotations

from fabric.csl.artefact.bundle import Bundle, HostName, HostProgram, bundle_of
from fabric.csl.artefact.files import read_bundle, write_bundle

__all__ = ["Bundle", "HostName", "HostProgram", "bundle_of", "read_bundle", "write_bundle"]

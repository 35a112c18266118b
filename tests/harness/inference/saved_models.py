"""Small models of random weights, saved as directories of the hub's layout."""

from __future__ import annotations

import numpy as np

from harness.models.configuration import Configuration
from harness.models.hub import save_model
from harness.models.tokens import character_file
from tests.fabric.networks.inference.small_models import random_weights

__all__ = ["HOST", "LETTERS", "saved"]

HOST = {"host_seconds": 0, "step_seconds": []}
"""What an answer took the host, left out where answers are compared."""
LETTERS = "abcdefghijklmnopq"
"""Tokens of a small model."""


def saved(directory, decoder, letters=None, weights=None, **configuration):
    """Save a model and return its directory; `letters`: its tokens, without them it has no tokenizer."""
    found = random_weights(decoder) if weights is None else weights
    held = {name: values.astype(np.float32) for name, values in found.items()}
    save_model(directory, Configuration(decoder, **configuration), held, letters and character_file(letters))
    return directory

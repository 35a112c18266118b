"""The digits are those of scikit-learn, though it is not imported."""

from __future__ import annotations

import gzip
import subprocess
import sys
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from harness.kit import samples


def test_the_digits_are_those_of_the_library():
    datasets = pytest.importorskip("sklearn.datasets")
    wanted = datasets.load_digits()
    images, labels = samples.load_digits()
    assert (images.dtype, labels.dtype) == (np.float64, np.int64)
    assert np.array_equal(images, np.hstack([wanted.data / 16.0, np.ones((1797, 1))]))
    assert np.array_equal(labels, wanted.target)


def test_nothing_of_the_library_is_imported():
    pytest.importorskip("sklearn")
    code = "import sys; from harness.kit.samples import load_digits; load_digits(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in loaded if name.startswith(("sklearn", "scipy"))] == []


@pytest.mark.parametrize("text", [None, "1,2,3\n"])
def test_another_file_is_left_to_the_library(tmp_path, monkeypatch, text):
    pytest.importorskip("sklearn.datasets")
    if text is not None:
        path = tmp_path / samples.DIGITS
        path.parent.mkdir(parents=True)
        with gzip.open(path, "wt") as file:
            file.write(text)
    usual = samples.load_digits()
    monkeypatch.setattr(samples, "find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / "__init__.py")))
    found = samples.load_digits()
    assert all(np.array_equal(a, b) for a, b in zip(found, usual, strict=True))

"""<kernels/fft/fft3d_layout>: transforms in three dimensions against numpy, and sizes that it refuses."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from harness.sdk import utils
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from tests.examples import mixed
from tests.fabric.csl.test_programs import PROGRAMS

AS_THEY_ARE = {"streaming": False, "order": MemcpyOrder.ROW_MAJOR, "nonblock": False}
NORMS = ("backward", "ortho", "forward")


def compiled(directory, size, width, half=False, arch="wse2"):
    """Compile a transform of ``size`` cubed places on ``width`` squared PEs."""
    params = {"WIDTH": width, "SIZE": size, "HALF": int(half)}
    options = Options(params=params, fabric=(width + 7, width + 2), arch=arch)
    write_bundle(bundle_of(compile_file(PROGRAMS / "fft3d/layout.csl", options)), directory)
    return directory


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Return a function that compiles a transform, once."""

    @cache
    def made(size, width, half=False, arch="wse2"):
        return compiled(tmp_path_factory.mktemp("fft") / "out", size, width, half, arch)

    return made


def factors(size, dtype):
    """Return cosine and sine of pi k / (size / 2) in turn."""
    angle = 2 * np.pi * np.arange(size // 2) / size
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).ravel().astype(dtype)


def tiles(values, width):
    """Return values (y, x, z) as tiles (row, column, z, y, x, 2) of real and imaginary parts."""
    size = len(values)
    tile = size // width
    cut = values.reshape(width, tile, width, tile, size).transpose(0, 2, 4, 1, 3)
    return np.stack([cut.real, cut.imag], axis=-1)


def whole(parts, size, width):
    """Return tiles as values (y, x, z); `tiles` the other way round."""
    tile = size // width
    cut = parts[..., 0] + 1j * parts[..., 1]
    return cut.reshape(width, width, size, tile, tile).transpose(0, 3, 1, 4, 2).reshape(size, size, size)


def transformed(directory, values, width, function, *args, half=False):
    """Run one function on values (y, x, z); return its result and the cycles that each PE counted."""
    size = len(values)
    dtype = np.float16 if half else np.float32
    kind = MemcpyDataType.MEMCPY_16BIT if half else MemcpyDataType.MEMCPY_32BIT
    runner = SdkRuntime(directory)
    runner.load()
    runner.run()

    def send(name, array):
        words = np.zeros(array.shape, np.uint32)
        utils.memcpy_view(words, np.dtype(dtype))[...] = array
        area = (0, 0, width, width, words.size // width**2)
        runner.memcpy_h2d(runner.get_id(name), words.ravel(), *area, data_type=kind, **AS_THEY_ARE)

    send("twiddle_array", np.broadcast_to(factors(size, dtype), (width, width, size)))
    given = tiles(values, width)
    send("X", given)
    runner.launch(function, *(np.int16(word) for word in args), nonblock=False)
    words = np.zeros(given.size, np.uint32)
    area = (0, 0, width, width, given.size // width**2)
    runner.memcpy_d2h(words, runner.get_id("X"), *area, data_type=kind, **AS_THEY_ARE)
    clocks = np.zeros(width * width * 2, np.uint32)
    area = (0, 0, width, width, 2)
    clock = {"data_type": MemcpyDataType.MEMCPY_32BIT, **AS_THEY_ARE}
    runner.memcpy_d2h(clocks, runner.get_id("fft_time"), *area, **clock)
    runner.stop()
    parts = utils.memcpy_view(words.reshape(given.shape), np.dtype(dtype)).astype(np.float64)
    low, high = clocks.reshape(-1, 2).T.astype(np.uint64)
    return whole(parts, size, width), low + (high << 32)


def numbers(size, seed, real=False):
    """Return complex values (y, x, z), without imaginary parts if asked."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((size, size, size)) + 0j
    return values if real else values + 1j * rng.standard_normal(values.shape)


def near(found, values, norm, inverse, unit):
    """Assert that a result is numpy's within a few roundings of its largest number."""
    wanted = (np.fft.ifftn if inverse else np.fft.fftn)(values, norm=NORMS[norm])
    assert np.abs(found - wanted).max() <= 12 * unit * np.abs(wanted).max()


@pytest.mark.parametrize(("cut", "arch"), mixed([(8, 4), (4, 2), (4, 4), (8, 1)], ["wse2", "wse3"]))
def test_a_transform_is_the_one_of_numpy(bundle, cut, arch):
    size, width = cut
    out = bundle(size, width, arch=arch)
    values = numbers(size, width)
    for inverse in (0, 1):
        found, cycles = transformed(out, values, width, "csfftExecC2C", 0, inverse)
        near(found, values, 0, inverse, 2.0**-24)
        assert (cycles > 0).all()


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_norms_count_as_those_of_numpy(bundle, norm, inverse):
    out = bundle(8, 2)
    values = numbers(8, 3)
    near(transformed(out, values, 2, "csfftExecC2C", norm, inverse)[0], values, norm, inverse, 2.0**-24)


@pytest.mark.parametrize("norm", [0, 1, 2])
def test_real_numbers_go_there_and_come_back(bundle, norm):
    out = bundle(4, 2)
    values = numbers(4, 5, real=True)
    there = transformed(out, values, 2, "csfftExecR2C", norm)[0]
    near(there, values, norm, False, 2.0**-24)
    back = transformed(out, there, 2, "csfftExecC2R", norm)[0]
    near(back, there, norm, True, 2.0**-24)
    assert np.abs(back - values).max() < 1e-5


@pytest.mark.parametrize("width", [2, 4])
def test_numbers_of_16_bits(bundle, width):
    out = bundle(4, width, half=True)
    values = numbers(4, 6).astype(np.complex64)
    values = values.real.astype(np.float16) + 1j * values.imag.astype(np.float16)
    for norm, inverse in ((0, 0), (1, 1)):
        found = transformed(out, values, width, "csfftExecC2C", norm, inverse, half=True)[0]
        near(found, values, norm, inverse, 2.0**-11)


@pytest.mark.parametrize(
    ("size", "width", "said"), [(6, 2, "powers of two"), (12, 3, "powers of two"), (8, 3, "share the places evenly")]
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, size, width, said):
    with pytest.raises(CslError, match=said):
        compiled(tmp_path / "out", size, width)

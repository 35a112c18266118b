"""The Python side of the scalar forms: shapes, types, mistakes, the float mode of the caller, the stub."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from tests.float_mode import MODES, current, float_mode
from wse_core import numerics
from wse_core.errors import ConfigError
from wse_core.reference import numerics as reference

HERE = Path(numerics.__file__).parent


def test_shapes_and_types():
    a = np.full((3, 1), 0x3C00, np.uint16)
    b = np.array([0x3C00, 0x4000], np.uint16)
    total = numerics.add(a, b)
    assert total.dtype == np.uint16
    assert total.tolist() == [[0x4000, 0x4200]] * 3
    assert isinstance(numerics.add(0x3C00, 0x3C00), np.uint16)
    assert numerics.add(a[:0], b).shape == (0, 2)
    assert numerics.add(a[::-2].T, np.uint16(0)).tolist() == [[0x3C00, 0x3C00]]
    assert numerics.mul([0x3C00], [0x4000]).tolist() == [0x4000]
    assert numerics.add(a.astype(">u2"), b).tolist() == total.tolist()
    assert numerics.decode(a).shape == (3, 1)
    assert numerics.convert.__name__ == "convert"
    a.flags.writeable = False
    assert numerics.neg(a).tolist() == [[0xBC00]] * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: numerics.add(0, 0, "f8"),
        lambda: numerics.add(0, 0, None),
        lambda: numerics.add(0, 0, "bf16"),
        lambda: numerics.fma_mixed(0, 0, 0, "f32"),
        lambda: numerics.add(0, 0, "cb16", 0),
        lambda: numerics.add(0, 0, "cb16", 63),
        lambda: numerics.add(0, 0, "cb16", 42.0),
        lambda: numerics.add(0, 0, "cb16", True),
        lambda: numerics.add(0, 0, ftz="no"),
        lambda: numerics.add(0, 0, ftz=2),
        lambda: numerics.fma(0, 0, 0, ftz=None),
        lambda: numerics.convert(0, "f16", "f32", ftz=1.0),
        lambda: numerics.encode(1.0, bias=np.True_),
        lambda: numerics.add(0x10000, 0),
        lambda: numerics.add(-1, 0),
        lambda: numerics.add(np.float16(1), 0),
        lambda: numerics.add(np.zeros(2, np.uint16), np.zeros(3, np.uint16)),
        lambda: numerics.scale(0, 0.5),
        lambda: numerics.to_int(0, "f16", "int64"),
        lambda: numerics.to_int(0, "f16", "int16", "up"),
        lambda: numerics.from_int(2**31),
        lambda: numerics.from_int(1.0),
        lambda: numerics.encode("1"),
        lambda: numerics.encode(1j),
    ],
)
def test_mistakes_are_named(call):
    with pytest.raises(ConfigError):
        call()


def test_reference_refuses_settings_that_do_not_exist():
    for wrong in ((reference.FMT_F32, 42, 0), (reference.FMT_CB16, 63, 0), (reference.FMT_F16, 42, 2)):
        with pytest.raises(ValueError, match="no such settings"):
            reference.Num(*wrong)


def in_every_way(rng):
    """Return results of every array form, for operands with many subnormals and ties."""
    results = {}
    for fmt, bits in (("f16", 16), ("cb16", 16), ("f32", 32)):
        a, b, c = (rng.integers(0, 1 << bits, 3000).astype(f"u{bits // 8}") for _ in range(3))
        a[:1000] &= (1 << bits - 1) - 1 >> 5  # tiny ones
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "lt", "le"):
            results[fmt, name] = getattr(numerics, name)(a, b, fmt)
        for name in ("sqrt", "neg", "absolute", "to_int", "decode"):
            results[fmt, name] = getattr(numerics, name)(a, fmt)
        results[fmt, "fma"] = numerics.fma(a, b, c, fmt)
        results[fmt, "scale"] = numerics.scale(a, b.astype(np.int64) % 40 - 20, fmt)
        results[fmt, "from_int"] = numerics.from_int(a.astype(np.int64) % 2**31, fmt)
        results[fmt, "encode"] = numerics.encode((a.astype(np.uint32) & 0xFF7FFFFF).view(np.float32), fmt)
        for target in ("f16", "cb16", "bf16", "f32"):
            results[fmt, target] = numerics.convert(a, fmt, target)
        if fmt != "f32":
            wide = rng.integers(0, 1 << 28, 3000).astype(np.uint32)
            results[fmt, "fma_mixed"] = numerics.fma_mixed(a, b, wide, fmt)
            results[fmt, "add_mixed"] = numerics.add_mixed(a, wide, fmt)
    return results


@pytest.mark.parametrize("mode", MODES)
def test_results_do_not_depend_on_the_float_mode_of_the_caller(mode):
    want = in_every_way(np.random.default_rng(50))
    with float_mode(mode) as before:
        got = in_every_way(np.random.default_rng(50))
        after = current()
    assert after == before, "the caller's mode is put back"
    for name, values in want.items():
        assert values.tobytes() == got[name].tobytes(), name


@pytest.mark.parametrize("mode", MODES)
def test_the_float_mode_is_put_back_after_an_error(mode):
    with float_mode(mode) as before:
        with pytest.raises(ConfigError):
            numerics.encode(np.zeros(3), "f8")
        assert current() == before


def test_examples_in_the_docstrings():
    for module in (numerics, reference):
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert found.failed == 0


def test_the_stub_lists_the_public_functions_and_their_arguments():
    tree = ast.parse((HERE / "numerics.pyi").read_text(encoding="utf-8"))
    stubs = {node.name: [arg.arg for arg in node.args.args] for node in tree.body if isinstance(node, ast.FunctionDef)}
    constants = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert set(stubs) | constants == set(numerics.__all__)
    for name, arguments in stubs.items():
        assert list(inspect.signature(getattr(numerics, name)).parameters) == arguments, name


def test_reference_has_every_scalar_form():
    text = (HERE / "arithmetic.pxd").read_text(encoding="utf-8")
    forms = set(re.findall(r"^cdef inline \w+ ((?:f32|h|hs|bf16|i16|u16|i32)_\w+|convert)\(", text, re.MULTILINE))
    assert len(forms) > 45
    assert forms <= set(dir(reference.Num))

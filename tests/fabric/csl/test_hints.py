"""Slips of people who come from other languages: the message names what CSL has instead."""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.sources import compile_texts, running

VARS = "var i: i16 = 0; var x: f32 = 0.0; var p: bool = true; var q: bool = true; var n: i16 = 4;"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("for (var k: i16 = 0; k < 4; k += 1) { i = k; }", "for (@range(i16, n)) |i|"),
        ("for (i = 0; i < 4; i += 1) { x = 1.0; }", "for (@range(i16, n)) |i|"),
        ("for (int k = 0; k < 4; k++) { i = 1; }", "for (@range(i16, n)) |i|"),
        ("i++;", "write i += 1"),
        ("i--;", "write i -= 1"),
        ("while (i < 4) : (i++) { }", "write i += 1"),
        ("if (p && q) { i = 1; }", "'and' is the operator"),
        ("if (!p && n == 4) { i = 1; }", "'and' is the operator"),
        ("if (p || q) { i = 1; }", "'or' is the operator"),
        ("x = i * 2.0;", "@as(f32, ...)"),
        ("int k = 3;", "var k: i16 = ..."),
        ("double y = 3.0;", "var y: f32 = ..."),
        ("const k = p ? 1 : 2;", "if (c) a else b"),
        ("task k() void { }", "at the top of a file"),
        ("param k: i16;", "at the top of a file"),
        ("x = 2.0 * i;", "@as(f32, ...)"),
    ],
)
def test_a_hint(tmp_path, text, hint):
    with pytest.raises(CslError) as caught:
        compile_texts(tmp_path, {"top.csl": running(text, VARS)})
    assert hint in (caught.value.diagnostics[0].hint or "")


@pytest.mark.parametrize(
    ("operation", "meant"),
    [("@faddh(d, d, d);", "is @fadds meant?"), ("@fadds(e, e, e);", "is @faddh meant?"), ("@fadds(d, d, d);", None)],
)
def test_floats_of_another_size(tmp_path, operation, meant):
    arrays = "var a: [4]f32; var b: [4]f16;"
    dsds = "".join(
        f"const {d} = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> {a}[i] }});" for d, a in ("da", "eb")
    )
    made = compile_texts(tmp_path, {"top.csl": running(operation, arrays, dsds)})
    found = [entry.hint for entry in made.report.diagnostics if entry.severity == "warning"]
    assert found[:1] == ([meant] if meant else [])


@pytest.mark.parametrize("text", ["#include <stdio.h>", "const a = 1;\nimport numpy as np", '{ "a": 1 }'])
def test_what_a_file_has_at_its_top(tmp_path, text):
    with pytest.raises(CslError) as caught:
        compile_texts(tmp_path, {"top.csl": text})
    assert caught.value.diagnostics[0].hint == "a file has const, var, param, fn, task, comptime and layout at its top"

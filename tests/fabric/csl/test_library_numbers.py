"""Functions of the library over numbers of every type, and over complex ones."""

from __future__ import annotations

from tests.fabric.csl.test_features import words


def test_functions_of_numbers_of_every_type(tmp_path):
    body = """
  y[0] = math.max(3, x) + math.min(x, 3);
  y[1] = math.subsat(low, 1000);
  y[2] = math.subsat(x, -32768);
  y[3] = math.subsat(x, 3);
  y[4] = @as(i16, math.subsat(u, 9)) + @as(i16, math.sign(u));
  y[5] = @as(i16, math.max(0.5, f) * 4.0);
"""
    text = 'const math = @import_module("<math>"); var x: i16 = 7; var low: i16 = -32000; var u: u16 = 7;'
    text += " var f: f32 = 2.5;"
    assert words(tmp_path, body, text, count=6) == [10, -32768, 32767, 4, 1, 10]


def test_complex_numbers(tmp_path):
    text = """
const c = @import_module("<complex>");
var f: f32 = 2.5;
var h: f16 = 1.5;
var kept: c.complex_64;
var rows: [2]c.complex(f32);
"""
    body = """
  const p = c.get_complex(f, @as(f32, 1.0));
  kept = c.add_complex(p, c.multiply_complex(p, p));
  y[0] = kept.real;
  y[1] = kept.imag;
  rows[1] = c.subtract_complex_64(kept, c.get_complex_64(f, f));
  y[2] = rows[1].real;
  y[3] = rows[1].imag;
  const q = c.multiply_complex_32(c.get_complex_32(h, h), c.get_complex_32(1.0, 2.0));
  y[4] = q.real;
  y[5] = q.imag;
"""
    z = complex(2.5, 1.0)
    kept = z + z * z
    less, half = kept - complex(2.5, 2.5), complex(1.5, 1.5) * complex(1.0, 2.0)
    wanted = [kept.real, kept.imag, less.real, less.imag, half.real, half.imag]
    assert words(tmp_path, body, text, count=6, kind="f4") == wanted

"""A cache may have keys and values of 8 bits: how a PE makes them of f32 with its own operations, token by token.

A *part* is what a column has of the keys, or of the values, of a token and a head.  Its numbers x are kept as whole
numbers n of 8 bits, from -128 to 127, and one exponent E of 8 bits for all of them: x is about n * 2^(E - 133).  E is
the exponent in f32 (0 to 255) of the largest x of the part, so that this n is 64 to 127 in size; n is x * 2^(133 - E)
rounded to nearest, ties to even, and at most 127.  So an error is at most half of 2^(E - 133), which is 1/128 of the
largest number of the part, or all of it where 127 is the limit.  Parts are of one PE, so that nothing moves for them.

A power of two is what a PE can multiply by exactly: 16-bit numbers come back from 8 bits by operations on whole rows,
four or more elements a cycle, and all that follows is that of a cache of 16 bits which has these numbers.

Rounding needs no operation of its own: f32 numbers of 2^23 and more are whole, so x + `WHOLE` has n + 128 in its low
16 bits.  Back: the bits `OPENER` | (n + 128) are a 16-bit float, of which a difference makes n, without any rounding.

Two numbers share a word: those of the first half of a part's features have the low bytes, of the second half the high
ones; an exponent of keys (low) shares one with that of values.  A layer's cache has the words of keys, feature by
feature, those of values, token by token, and the exponents of a head, token by token.

Source: derived here.
"""

from __future__ import annotations

from collections.abc import Callable

from fabric.asm.operands import Dsd, Dsr, Var
from fabric.networks.inference.writer import DecoderWriter, Idioms
from wse_core.formats import Half

__all__ = ["BYTE", "LARGEST", "TOP", "emit_codes", "emit_entries", "opener"]

TOP = 133
"""The exponent in f32 of a part's largest number is this where its n are the numbers themselves: 127 + 6."""
LARGEST = 127.0
"""No n is larger."""
WHOLE = 1.5 * 2.0**23 + 128
"""Behind the addition of this to a number of f32, its low 16 bits are the number, rounded, plus 128."""
BYTE = 0xFF
"""The low byte of a word has these bits."""
MANTISSA = {"f16": 10, "cb16": 9}
"""A 16-bit float has so many bits of mantissa."""


def opener(half: Half, bias: int) -> tuple[int, float]:
    """Return the bits of a 16-bit float that has whole numbers up to 255 in its low byte, and that float plus 128."""
    bits = MANTISSA[half]
    exponent = bits + (15 if half == "f16" else bias)
    return exponent << bits, 2.0**bits + 128


def emit_codes(
    w: Idioms,
    numbers: Var,
    count: int,
    codes: Var,
    each: int,
    offset: int,
    exponents: Var,
    registers: Callable[[], tuple[Dsr, Dsr]],
) -> None:
    """Write the n + 128 of the keys and values of so many tokens, and the E of their parts; the numbers are lost.

    Parameters
    ----------
    w : Idioms
        With registers of descriptors ``first`` and ``second``.
    numbers : Var
        f32: queries, keys and values of each token.
    count : int
        Of tokens.
    codes : Var
        Takes those of a token one behind the other, `each` words from those of the next, from word `offset` on.
    exponents : Var
        Takes those of a token's parts, keys first.
    registers : callable
        Gives a destination and a second source of words, of several tokens.
    """
    p, place = w.p, w.place
    rows, parts, part, own = place.shapes["qkv"].rows, 2 * place.kv_heads, place.part, 2 * place.kv_rows
    largest, least = p.reg32("largest"), p.reg32("least")
    exponent, power, at = p.reg16("exponent"), p.reg16("power"), p.reg16("exponents")
    read, scaled = w.second, w.first  # type: ignore[attr-defined]
    p.load(read, p.mem1d(numbers, part, offset=place.query_rows))
    p.load(scaled, p.mem1d(numbers, part, offset=place.query_rows, save=True))
    p.ldi(at, exponents)
    with w.times(count):
        with w.times(parts):
            p.ldi32(largest, 0.0)
            p.fmaxs(largest, largest, read)
            p.ldi32(least, 0.0)
            p.fmins(least, least, read)
            p.dsr_off(read, 2 * part)
            p.fnegs(least, least)
            p.fmaxs(largest, largest, least)
            p.slr16(exponent, largest.high, 7)
            p.st16(exponent, at)
            p.add16(at, at, 1)
            p.ldi(power, TOP)
            p.sub16(power, power, exponent)
            p.fscales(scaled, scaled, power)
        if count > 1:
            p.dsr_off(read, 2 * (rows - own))
            p.dsr_off(scaled, 2 * (rows - own))
    p.free(largest, least, exponent, power, at)
    whole = p.mem4d(numbers, (count, own), (rows, 1), offset=place.query_rows)
    p.fmins(whole, whole, LARGEST)
    p.fadds(whole, whole, WHOLE)
    of_codes = p.mem1d(codes, own, offset=offset, dtype="u16")
    of_numbers = p.mem1d(numbers, own, stride=2, offset=2 * place.query_rows, dtype="u16")
    if count == 1:
        p.mov16(of_codes, of_numbers)
        return
    into, low = registers()
    p.load(into, of_codes)
    p.load(low, of_numbers)
    with p.loop(count):
        p.mov16(into, low)
        p.dsr_off(into, each)
        p.dsr_off(low, 2 * rows)


def emit_entries(w: DecoderWriter) -> None:
    """Write the words that the cache takes of the tokens of a step: keys, values, exponents of each."""
    p, place = w.p, w.place
    rows, lanes, heads, each = place.shapes["qkv"].rows, place.lanes, place.kv_heads, place.entry_words

    def registers() -> tuple[Dsr, Dsr]:
        return w.register("dest", "entry to write"), w.register("src1", "entry to read")

    emit_codes(w, w.qkv, lanes, w.qkv_half, rows, place.query_rows, w.exponents, registers)

    def codes(offset: int) -> Dsd:
        sizes, strides = (lanes, 2 * heads, place.kept_part), (rows, place.part, 1)
        return p.mem4d(w.qkv_half, sizes, strides, offset=place.query_rows + offset, dtype="u16")

    words = p.mem4d(w.entries, (lanes, 2 * place.kept_rows), (each, 1))
    p.sll16(words, codes(place.kept_part), 8)
    p.or16(words, words, codes(0))
    both = p.mem4d(w.entries, (lanes, heads), (each, 1), offset=2 * place.kept_rows)
    p.sll16(both, p.mem4d(w.exponents, (lanes, heads), (2 * heads, 1), offset=heads), 8)
    p.or16(both, both, p.mem4d(w.exponents, (lanes, heads), (2 * heads, 1)))

"""The parts of a prompt's program have a writer in common: variables of a PE, descriptors, the local product, idioms.

What `Idioms.keep` declares comes first and in the order of `fabric.networks.inference.writer.DecoderWriter`, behind the
words kept for the code: decoding finds it where prefill leaves it.  Everything of a row's tokens lies token by token,
features side by side, except queries, scores and mixed values: head by head, then token by token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fabric.asm.operands import Address, Reg, Var
from fabric.networks.inference.prefill.placement import PromptPlacement, TokenShape
from fabric.networks.inference.writer import CHUNK, Idioms
from fabric.program.functions import Emit
from fabric.program.program import Program

__all__ = ["PromptWriter"]


class PromptWriter(Idioms):
    """A `PromptWriter` has the variables and descriptors of one PE's program that reads a prompt.

    Parameters
    ----------
    p : Program
        Empty.
    prompt : PromptPlacement
    """

    def __init__(self, p: Program, prompt: PromptPlacement) -> None:
        place = prompt.place
        super().__init__(p, place)
        self.prompt = prompt
        s, heads, part, half = prompt.tokens, place.heads, place.part, place.dtype
        self.keep(prompt.slots)

        pieces, self.norm_size = prompt.slots * prompt.piece, prompt.slots * place.hidden
        self.norms = p.array("norms_of_columns", place.last_norm_at * self.norm_size, "f32", bank=4)
        if "row_biases" in self.biases:
            count = place.decoder.layers * place.bias_words["row_biases"] * prompt.slots
            self.biases["row_biases"] = p.array("biases_of_columns", count, half)
        self.x = p.array("x", pieces, "f32", bank=4)  # the residual stream; apart from what is added to it
        if place.decoder.norms_behind:
            self.back = p.array("back", pieces, "f32", bank=0)  # what a part of a layer gives
        elif place.decoder.centred or place.decoder.norms == "beside":
            self.back = p.array("squares_of", pieces, "f32", bank=0)  # squares of what is centred, another norm
        if place.decoder.norms == "beside":
            self.inner_given = p.array("inner_given", pieces, half)  # what the feed-forward part reads
        self.given = p.array("given", pieces, half)  # what a product reads
        self.scratch = p.array("scratch", pieces, "f32", bank=2)
        self.piece = p.array("piece", prompt.piece, half)  # a chunk that comes from its home
        self.sums = p.array("sums", s, "f32")  # of squares
        rows = prompt.shapes["qkv"].rows
        self.qkv = p.array("qkv", s * rows, "f32", bank=0)
        self.queries = p.array("queries", heads * s * part, half)
        self.key_tile = p.array("key_tile", prompt.tile_elements["scores"], half, bank=1)
        self.value_tile = p.array("value_tile", prompt.tile_elements["mix"], half, bank=1)
        if place.int8:
            self.codes = p.array("codes", 2 * s * place.kv_rows, "u16")  # keys and values of 8 bits
            self.exponents = p.array("exponents", 2 * s * place.kv_heads, "u16")
        self.partial = p.array("partial", max(prompt.block, prompt.piece), "f32", bank=0)
        scores = heads * s * prompt.width_of_keys
        self.scores = p.array("scores", scores, "f32", bank=0)
        self.shares = p.array("shares", scores, half)
        self.block = p.array("block", prompt.block, half)  # shares of a block of keys that come from their home
        self.limits = p.array("limits", s * prompt.width_of_keys, "f32", bank=2)  # the causal mask
        if place.decoder.window is not None:
            self.window_limits = p.array("window_limits", s * prompt.width_of_keys, "f32", bank=2)
        self.peaks = p.array("peaks", heads * s, "f32")
        self.totals = p.array("totals", heads * s, "f32")
        self.mixed = p.array("mixed", heads * s * part, "f32", bank=0)
        self.mixed_half = p.array("mixed_half", s * place.query_rows, half)
        inner = prompt.inner_vectors
        self.gate_up = p.array("gate_up", inner * prompt.shapes["gate_up"].rows, "f32", bank=0)
        self.inner = p.array("inner", inner * place.ffn, "f32", bank=4)
        self.inner_half = p.array("inner_half", inner * place.ffn, half)
        if place.squares:
            self.squares = p.array("squares", s * place.squares, "f32")  # sums over the features of each norm
        self.declare_pointers()
        self.functions = Emit(p, CHUNK)
        self.total, self.column = p.dsr("src0", name="product"), p.dsr("src1", name="factors")
        self.first, self.second = p.dsr("src0", name="first"), p.dsr("src1", name="second")
        self.written = p.dsr("dest", name="written")
        self.second_half, self.written_half = p.dsr("src1", name="second half"), p.dsr("dest", name="written half")

    # --- idioms -------------------------------------------------------------------------------------------------------

    def product(self, shape: TokenShape, result: Var, a_base: Reg, b_base: Reg, result_base: Reg | None = None) -> None:
        """Write result += A B for tiles at addresses in registers; moves `b_base` behind B, if there is one column.

        Parameters
        ----------
        shape : TokenShape
        result : Var
            Or one of several results, at `result_base`.
        a_base, b_base : Reg
        result_base : Reg, optional
        """
        p = self.p
        size, full, rest = shape.groups()
        p.load(self.total, p.mem1d(result, shape.rows))
        if result_base is not None:
            p.dsr_base(self.total, result_base)
        p.load(self.column, p.mem1d(self.weights, shape.rows, save=True, check=False))
        scalars = [p.reg16("b") for _ in range(size)]

        def group(count: int) -> None:
            for k in range(count):
                p.ld16(scalars[k], b_base, offset=k)
            p.add16(b_base, b_base, count)
            for k in range(count):
                p.fmachs(self.total, self.total, self.column, scalars[k])

        with self.times(shape.columns):
            p.dsr_base(self.column, a_base)
            with self.times(full):
                group(size)
            if rest:
                group(rest)
            p.dsr_off(self.total, 2 * shape.rows)
        p.free(*scalars)

    @contextmanager
    def rows(self, count: int, **vectors: tuple[Var | Address, int]) -> Iterator[dict[str, Reg]]:
        """Repeat what the block writes with addresses in registers, each moved on by so many words per turn."""
        p = self.p
        found = {name: p.reg16(name) for name in vectors}
        for name, (var, _) in vectors.items():
            p.ldi(found[name], var)
        with self.times(count):
            yield found
            for name, (_, words) in vectors.items():
                p.add16(found[name], found[name], words)
        p.free(*found.values())

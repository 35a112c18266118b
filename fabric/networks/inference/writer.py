"""The parts of a decoder's program have a writer in common: variables of a PE, registers of descriptors, small idioms.

Weights, norms, biases and caches of all layers lie in the order in which a step uses them; a *pointer* in memory to the
next one moves on with every use, so one copy of the code serves all layers.  A step sets the pointers back when it
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Literal

from fabric.asm.operands import Address, Dsd, Dsr, Reg, Var
from fabric.kernels.matmul.local import emit_column, emit_product
from fabric.networks.inference.placement import DecoderPlacement
from fabric.program.functions import Emit
from fabric.program.program import Program

__all__ = ["CHUNK", "CODE_WORDS", "DecoderWriter", "Idioms", "code_words", "function_room", "resident_variables"]

CHUNK = 32
"""The exponentials of at least so many scores are taken at a time."""
CODE_WORDS = 4096
"""The program has room for so many words; a test assembles programs and sees that none is longer."""
NORM_WORDS = 512
"""Norms of heads have room for so many more words of code."""
GELU_WORDS = 40
"""The function gelu in the tanh form has room for so many more words of code."""
MARK_WORDS = 60
"""So many more words of code are kept for what only some layers do."""
BEHIND_WORDS, MORE_NORMS = 100, 700
"""Norms behind the parts of a layer, and two more norms, have room for so many more words of code."""
WINDOW_WORDS, LOCAL_WORDS, CAP_WORDS = 150, 300, 350
"""A window of attention, local positions, and a cap of scores or logits have room for so many more words of code."""
BIAS_WORDS = 40
"""Each kind of biases but those of queries, keys and values has room for so many more words of code."""
BATCH_WORDS = 900
"""A batch has room for so many more words of code."""
EXPERT_WORDS = 1200
"""A router and experts have room for so many more words of code."""
INT8_WORDS = 480
"""Keys and values of 8 bits have room for so many more words of code."""
HEAD_WORDS = 2048
"""A program without layers, of the last norm and the output matrix, has room for so many words of code."""
CENTRED_WORDS, ERF_WORDS = 150, 250
"""Each norm that subtracts the mean, and gelu with the error function, have room for so many more words of code."""


def code_words(place: DecoderPlacement) -> int:
    """Return the words kept for the program of a PE."""
    decoder = place.decoder
    if not decoder.layers:
        return HEAD_WORDS
    found = CODE_WORDS + NORM_WORDS * (decoder.head_norms or decoder.projection_norms)
    found += BEHIND_WORDS * decoder.norms_behind + MORE_NORMS * (decoder.norms == "both")
    found += WINDOW_WORDS * (decoder.window is not None) + LOCAL_WORDS * decoder.is_local
    found += CAP_WORDS * ((decoder.score_cap is not None) + (decoder.logit_cap is not None))
    found += EXPERT_WORDS * bool(decoder.experts)
    found += CENTRED_WORDS * 3 * decoder.centred + ERF_WORDS * (decoder.activation == "gelu_erf")
    found += GELU_WORDS * (decoder.activation == "gelu") + BATCH_WORDS * bool(place.batch) + INT8_WORDS * place.int8
    return (
        found
        + MARK_WORDS * bool(decoder.marked)
        + BIAS_WORDS * (decoder.o_bias + 2 * decoder.ffn_bias + decoder.head_bias)
    )


def function_room(place: DecoderPlacement) -> int:
    """Return of how many numbers at a time a step takes functions."""
    if not place.decoder.layers:
        return CHUNK
    return max(CHUNK, place.ffn, place.turned_heads if place.decoder.head_norms else place.heads)


def resident_variables(p: Program, place: DecoderPlacement, slots: int = 0, code: int = 0) -> dict[str, Var]:
    """Declare what stays in a PE: weights, cache, norms, biases, norms of heads.

    With `slots`, hidden features of that many chunks are handed over from a program that reads prompts, and everything
    lies behind the words kept for code, so that both programs of a PE have it at the same place; so it does with
    `code`, the words that two programs keep for it.
    """
    if slots or code:
        p.unit.data_from = code or code_words(place)
    layers = place.decoder.layers
    found = {"weights": p.array("weights", place.weight_words, place.dtype, bank=1)}
    if layers:
        kind = "u16" if place.int8 else place.dtype
        found["cache"] = p.array("cache", layers * place.caches * place.cache_words, kind, bank=1)
    found["norms"] = p.array("norms", place.norm_vectors * place.hidden, "f32", bank=4)
    for symbol, words in place.bias_words.items():
        more = place.head_bias_words if symbol == "biases" else 0
        found[symbol] = p.array(symbol, layers * words + more, place.dtype)
    if place.head_norms:
        found["head_norms"] = p.array("head_norms", layers * place.head_norms, "f32", bank=2)
    if slots:
        found["last"] = p.array("last", slots * place.hidden, "f32")
    return found


class Idioms:
    """`Idioms` writes what programs of decoders need again and again.

    Parameters
    ----------
    p : Program
    place : DecoderPlacement
    """

    def __init__(self, p: Program, place: DecoderPlacement) -> None:
        self.p, self.place, self.cuts = p, place, 0
        self._registers: dict[str, Dsr] = {}
        self.functions: Emit  # which the programs make, of as many numbers as they take at a time
        self.norm_size = place.hidden  # numbers of a vector of norms
        self.pointers: dict[str, Var] = {}

    def keep(self, slots: int, code: int = 0) -> None:
        """Declare what stays in a PE, as of `resident_variables`."""
        kept = resident_variables(self.p, self.place, slots, code)
        self.weights, self.norms = kept["weights"], kept["norms"]
        if "cache" in kept:
            self.cache = kept["cache"]
        self.head_norms = kept.get("head_norms")
        self.biases = {symbol: kept[symbol] for symbol in self.place.bias_words}
        if slots:
            self.last = kept["last"]

    def declare_pointers(self) -> None:
        """Declare the pointers to the next of what stays in a PE and is used layer by layer."""
        names = ("weights", "norms", "biases", "cache") + ("head_norms",) * bool(self.place.head_norms)
        names += ("row_biases",) * ("row_biases" in self.biases)
        self.pointers = {name: self.p.scalar(f"{name}_at", "u16") for name in names}
        if self.place.decoder.marked:
            self.marks = self.p.param("marks", "u16", count=len(self.place.marks))
            self.kind = self.p.scalar("kind", "u16")  # the mark of the layer that a PE is in

    def rewind(self) -> None:
        """Set all pointers to the first layer."""
        norms = self.norms[self.place.mask_vectors * self.norm_size]
        first: dict[str, Var | Address] = {"weights": self.weights, "norms": norms, **self.biases}
        if self.place.decoder.layers:
            first["cache"] = self.cache
        if self.head_norms is not None:
            first["head_norms"] = self.head_norms
        self.point(**first)

    @contextmanager
    def layers(self) -> Iterator[None]:
        """Repeat what the block writes for all layers, each of which has its mark in ``kind``."""
        p, decoder = self.p, self.place.decoder
        if not decoder.marked:
            with self.times(decoder.layers):
                self.mark("layer")
                yield
            return
        left = p.reg16("layers left")
        with p.loop(decoder.layers, counter=left):
            self.mark("layer")
            self.enter_layer(left)
            yield
        p.free(left)

    def enter_layer(self, left: Reg) -> None:
        """Write that the mark of a layer comes into ``kind``, if layers differ; `left`: layers left, with it."""
        if self.place.decoder.marked:
            kind = self.p.reg16("kind")
            self.p.ld16(kind, self.marks, index=left)
            self.p.st16(kind, self.kind)
            self.p.free(kind)

    @contextmanager
    def where(self, name: str, so: bool = True) -> Iterator[None]:
        """Write the block for layers of which a field of `LayerKind` is true, or not `so`; at least one is there."""
        p, decoder = self.p, self.place.decoder
        if name not in decoder.marked:
            yield
            return
        kind = p.reg16("kind")
        p.ld16(kind, self.kind)
        p.and16(kind, kind, 1 << decoder.marked.index(name))
        with p.if_("ne" if so else "eq", kind, 0, "16"):
            p.free(kind)
            yield

    def mark(self, name: str) -> None:
        """Mark a place by a label that nobody sees but who prices the program (`fabric.networks.inference.course`)."""
        self.p.label(f".{name}")

    @contextmanager
    def cut(self, name: str) -> Iterator[None]:
        """Mark what the block writes: PEs do it together, so that it takes as long as they wait for one another."""
        self.cuts += 1
        number = self.cuts
        self.mark(f"{number} {name}")
        yield
        self.mark(f"{number} behind {name}")

    def point(self, **addresses: Var | Address) -> None:
        """Set pointers in memory to variables or addresses."""
        address = self.p.reg16("address")
        for name, var in addresses.items():
            self.p.ldi(address, var)
            self.p.st16(address, self.pointers[name])
        self.p.free(address)

    @contextmanager
    def taking(self, name: str, words: int) -> Iterator[Reg]:
        """Give a pointer in a register; behind the block it points so many words further."""
        p = self.p
        address = p.reg16(name)
        p.ld16(address, self.pointers[name])
        yield address
        p.ld16(address, self.pointers[name])
        p.add16(address, address, words)
        p.st16(address, self.pointers[name])
        p.free(address)

    def register(self, kind: Literal["dest", "src0", "src1"], name: str) -> Dsr:
        """Return a register of descriptors, taken when it is first asked for."""
        if name not in self._registers:
            self._registers[name] = self.p.dsr(kind, name=name)
        return self._registers[name]

    def in_pieces(self, var: Var | Address, count: int, apply: Callable[[Reg | Var | Address], None]) -> None:
        """Write what `apply` does with an address to all of a vector, as many numbers at a time as functions take."""
        p, most = self.p, self.functions.count
        if count <= most:
            with self.functions.first(count):
                apply(var)
            return
        left, now, at = p.reg16("left"), p.reg16("now"), p.reg16("at")
        p.ldi(left, count)
        p.ldi(at, var)
        with p.while_("ne", left, 0, "16"):
            p.mov16(now, left)
            with p.if_("gtu", now, most, "16"):
                p.ldi(now, most)
            with self.functions.first(most, now):
                apply(at)
            p.sub16(left, left, now)
            p.add16(now, now, now)
            p.add16(at, at, now)
        p.free(left, now, at)

    @property
    def positions(self) -> list[bool]:
        """Whether positions are local, of each kind of positions by which layers turn."""
        kinds = self.place.decoder.kinds
        return [local for local in (False, True) if any(kind.turns and kind.local is local for kind in kinds)]

    def times(self, count: int) -> AbstractContextManager[object]:
        """Repeat what the block writes, without a loop for one turn."""
        return self.p.loop(count) if count > 1 else nullcontext()

    @contextmanager
    def lanes(self) -> Iterator[Reg | None]:
        """Repeat what the block writes for all tokens of a step; give the number of each, None for the only one."""
        if self.place.lanes == 1:
            yield None
            return
        with self.p.loop(self.place.lanes, index=True) as lane:
            yield lane


class DecoderWriter(Idioms):
    """A `DecoderWriter` has the variables and descriptors of one PE's program of a decoder.

    Parameters
    ----------
    p : Program
        Empty.
    place : DecoderPlacement
    slots : int
        Chunks of hidden features that a prompt's program hands over in a PE; 0: there is none.
    code : int
        Words kept for code by this program and another one, which has the same at the same place; 0: there is none.
    """

    def __init__(self, p: Program, place: DecoderPlacement, slots: int = 0, code: int = 0) -> None:
        super().__init__(p, place)
        # Of several tokens in a step each has such a vector, one behind the other.
        lanes, hidden, told = place.lanes, place.lanes * place.hidden, place.told
        self.keep(slots, code)

        self.x = p.array("x", hidden, "f32", bank=0)  # the residual stream
        self.given = p.array("given", hidden + told, place.dtype)  # what a product reads, or what enters
        self.scratch = p.array("scratch", hidden, "f32", bank=2)
        self.back = p.array("back", hidden, "f32", bank=4)  # result of a product along x
        self.entered = p.array("entered", hidden + told, "f32") if told else self.back  # what a step begins with
        self.one = p.array("one", lanes, "f32")
        if place.decoder.layers:
            self._layer_vectors()
        if place.last:
            self.logits = p.array("logits", lanes * place.vocabulary, "f32", bank=0)
        if place.requests > 1:
            self.request = p.scalar("request", "u16")  # whose turn it is
        if place.batch:
            self.goes_on = p.array("goes_on", told, "u16")  # of each token: 0 if its request begins with it

        if place.squares:
            self.squares = p.array("squares", lanes * place.squares, "f32")  # sums over the features of each norm

        self.declare_pointers()
        self.functions = Emit(p, function_room(place))
        self.total, self.column = p.dsr("src0", name="product"), p.dsr("src1", name="factors")
        self.first, self.second = p.dsr("src0", name="first"), p.dsr("src1", name="second")
        self.written = p.dsr("dest", name="written")

    def _layer_vectors(self) -> None:
        """Declare the vectors inside of layers."""
        p, place, shapes, lanes = self.p, self.place, self.place.shapes, self.place.lanes
        rows, heads, part = shapes["qkv"].rows, lanes * place.heads, place.part
        self.qkv = p.array("qkv", lanes * rows, "f32", bank=0)
        self.qkv_half = p.array("qkv_half", lanes * rows, place.dtype)
        self.scores = p.array("scores", heads * place.capacity, "f32", bank=0)
        count = heads * place.capacity
        # Of one token shares have a place of their own; of several they come to lie where their scores were.
        self.shares_at = self.scores if lanes > 1 else p.array("shares", count, place.dtype)
        self.shares = p.mem1d(self.shares_at, count, dtype=place.dtype)
        if place.int8:
            self.exponents = p.array("exponents", 2 * lanes * place.kv_heads, "u16")  # of keys and values to keep
            self.entries = p.array("entries", lanes * place.entry_words, "u16")
            self.powers = p.array("powers", place.capacity, "u16", bank=2)  # of the numbers in a head's slots
            self.opened = p.array("opened", max(place.capacity, 4 * part), place.dtype, bank=0)  # some of these numbers
        self.peaks = p.array("peaks", heads, "f32")
        if place.decoder.window is not None:
            self.limits = p.array("limits", lanes * place.capacity, "f32", bank=2)  # of scores, by slots
        self.mixed = p.array("mixed", heads * part + heads, "f32", bank=0)  # values by shares, then sums of shares
        self.mixed_half = p.array("mixed_half", heads * part, place.dtype)
        if place.decoder.norms == "beside":
            self.inner_given = p.array(
                "inner_given", lanes * place.hidden, place.dtype
            )  # what the feed-forward part reads
        inner = place.inner_vectors
        self.gate_up = p.array("gate_up", inner * shapes["gate_up"].rows, "f32", bank=0)
        self.inner = p.array("inner", inner * place.ffn, "f32", bank=4)
        self.inner_half = p.array("inner_half", inner * place.ffn, place.dtype)

    def of_lanes(self, var: Var, count: int, each: int = 0, offset: int = 0) -> Dsd:
        """Describe `count` elements of each token's vector, of `each` elements or as many, from `offset` on."""
        lanes, each = self.place.lanes, each or count
        if lanes == 1 or each == count:
            return self.p.mem1d(var, lanes * count, offset=offset)
        return self.p.mem4d(var, (lanes, count), (each, 1), offset=offset)

    def of_inner(self, offset: int = 0) -> Dsd:
        """Describe the features of each vector of gate_up, of the gate or, from `offset` on, of the other part."""
        count, n, each = self.place.inner_vectors, self.place.ffn, self.place.shapes["gate_up"].rows
        if count == 1 or each == n:
            return self.p.mem1d(self.gate_up, count * n, offset=offset)
        return self.p.mem4d(self.gate_up, (count, n), (each, 1), offset=offset)

    def for_lanes(self, var: Var, count: int) -> Dsd:
        """Describe `count` elements that each token takes, the same for all."""
        lanes = self.place.lanes
        return self.p.mem1d(var, count) if lanes == 1 else self.p.mem4d(var, (lanes, count), (0, 1))

    # --- pointers -----------------------------------------------------------------------------------------------------

    def rewind(self) -> None:
        """Set all pointers to the first layer, of the request whose turn it is."""
        super().rewind()
        if self.place.requests > 1:
            p, cache, words = self.p, self.p.reg16("cache"), self.p.reg16("words")
            p.ld16(words, self.request)
            p.mul16(words, words, self.place.cache_words)
            p.ldi(cache, self.cache)
            p.add16(cache, cache, words)
            p.st16(cache, self.pointers["cache"])
            p.free(cache, words)

    def forward(self) -> None:
        """Set the pointers behind the last layer, to the last norm and the output matrix."""
        place, layers = self.place, self.place.decoder.layers
        self.point(weights=self.weights[place.head_at], norms=self.norms[place.last_norm_at * place.hidden])
        if place.head_bias_words:
            self.point(biases=self.biases["biases"][layers * place.bias_words["biases"]])

    # --- idioms -------------------------------------------------------------------------------------------------------

    def expert_products(self, name: str, result: Var, vector: Var, picked: Var, before: int = 0) -> None:
        """Write result = A vector of each token, with the A of each chosen expert, one behind the other; or their sum.

        They are added if `vector` has one vector for each expert.  The pointer of weights is at the first expert, in
        whose weights this A begins `before` words from the first.
        """
        p, place = self.p, self.place
        shape, added, chosen = replace(place.shapes[name], columns=1), name == "down", place.decoder.chosen
        p.mov32(p.mem1d(result, shape.rows * place.lanes * (1 if added else chosen)), 0)
        words = place.tile_words(place.shapes["gate_up"]) + place.tile_words(place.shapes["down"])
        expert, a_base, b_base = p.reg16("expert"), p.reg16("weights"), p.reg16("vector")
        p.ldi(expert, picked)
        p.ldi(b_base, vector)
        p.load(self.total, p.mem1d(result, shape.rows))
        p.load(self.column, p.mem1d(self.weights, shape.rows, save=True))
        with self.times(place.lanes):
            with self.times(chosen):
                first = p.reg16("first")
                p.ld16(a_base, expert)
                p.ld16(first, self.pointers["weights"])
                p.mul16(a_base, a_base, words)
                p.add16(a_base, a_base, first)
                p.free(first)
                p.add16(a_base, a_base, before)
                p.dsr_base(self.column, a_base)
                emit_column(p, shape, self.total, self.column, b_base)
                p.add16(expert, expert, 1)
                if not added:  # the same vector for all experts of a token, another result
                    p.sub16(b_base, b_base, shape.depth)
                    p.dsr_off(self.total, 2 * shape.rows)
            if place.lanes > 1:
                p.dsr_off(self.total, 2 * shape.rows) if added else p.add16(b_base, b_base, shape.depth)
        p.free(expert, a_base, b_base)

    def product(self, name: str, result: Var, vector: Var) -> None:
        """Write result = A vector with the next tile of weights."""
        p, shape = self.p, self.place.shapes[name]
        p.mov32(p.mem1d(result, shape.rows * shape.columns), 0)
        with self.taking("weights", self.place.tile_words(shape)) as a_base:
            b_base = p.reg16("vector")
            p.ldi(b_base, vector)
            emit_product(p, shape, result, self.total, self.weights, self.column, a_base, b_base)
            p.free(b_base)

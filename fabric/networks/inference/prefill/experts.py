"""Experts of a prompt: every tile of theirs goes round the column, and meets the tokens of a row that chose it.

All PEs of a row have the logits of the row's tokens, since the router's matrix lies whole in every column, and decide
alike.  Each sorts its tokens by their experts: a count for each expert, where its tokens begin, and the tokens one
behind the other.  Then the experts come one by one, as products do without experts: in each of H steps the tile of
another row is there.  What moves along the row in a step are the chunks of those tokens that chose the expert, one by
one, and not a word for the others.  So arithmetic and what moves along rows grow with how many experts a token is
given to, and what goes round the columns with how many there are.

Steps take as long as the tokens of a row want, which differs from row to row and from prompt to prompt; tokens that
are not there, where a row has an empty place, choose nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fabric.asm.operands import Reg, Var
from fabric.networks.inference.experts import ExpertChoice
from fabric.networks.inference.prefill.channels import Channels, Ends
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.ring import TileRing
from fabric.networks.inference.prefill.writer import PromptWriter

__all__ = ["PromptExperts"]


class PromptExperts:
    """A `PromptExperts` writes experts into the program of a prompt: their choice, and their products.

    Parameters
    ----------
    w : PromptWriter
        Of a decoder with experts.
    ring : TileRing
    channels : Channels
    ends : Ends
        Of the row.
    goes : Var
        Where the home of each step lies.
    """

    def __init__(self, w: PromptWriter, ring: TileRing, channels: Channels, ends: Ends, goes: Var) -> None:
        p, place, prompt = w.p, w.place, w.prompt
        self.w, self.ring, self.channels, self.ends, self.goes = w, ring, channels, ends, goes
        self.choice = ExpertChoice(w, prompt.tokens)
        # Of each expert where its tokens begin and end in the two lists, which have a token, and its vector inside.
        self.first = p.array("expert_begins", place.decoder.experts + 1, "u16")
        self.last = p.array("expert_ends", place.decoder.experts + 1, "u16")
        self.tokens = p.array("tokens_by_expert", prompt.inner_vectors, "u16")
        self.vectors = p.array("vectors_by_expert", prompt.inner_vectors, "u16")
        self.chunk = p.array("chunk_of_token", place.hidden, place.dtype)
        self.expert = p.scalar("current_expert", "u16")
        self.there = p.param("tokens_there", "u16")

    @staticmethod
    def words(prompt: PromptPlacement) -> int:
        """Return the words of its variables."""
        place = prompt.place
        lists = 2 * (place.decoder.experts + 1) + 2 * prompt.inner_vectors
        return ExpertChoice.words(place, prompt.tokens) + lists + place.hidden + 2

    def sort(self) -> None:
        """Write the lists of tokens by expert."""
        w, p, decoder = self.w, self.w.p, self.w.place.decoder
        there, pick, expert, place = (p.reg16(name) for name in ("tokens there", "pick", "expert", "place"))
        p.mov16(self.first, 0)
        p.ld16(there, self.there)
        p.ldi(pick, self.choice.picked)
        with p.loop(there), w.times(decoder.chosen):
            p.ld16(expert, pick)
            p.ld16(place, self.first[1], index=expert)
            p.add16(place, place, 1)
            p.st16(place, self.first[1], index=expert)
            p.add16(pick, pick, 1)
        p.ldi(place, 0)
        p.ldi(pick, self.first)
        with w.times(decoder.experts):
            p.ld16(expert, pick, offset=1)
            p.add16(place, place, expert)
            p.st16(place, pick, offset=1)
            p.add16(pick, pick, 1)
        p.mov16(self.last, self.first)
        vector = p.reg16("vector")
        p.ldi(vector, 0)
        p.ldi(pick, self.choice.picked)
        with p.loop(there, index=True) as token, w.times(decoder.chosen):
            p.ld16(expert, pick)
            p.ld16(place, self.last, index=expert)
            p.st16(token, self.tokens, index=place)
            p.st16(vector, self.vectors, index=place)
            p.add16(place, place, 1)
            p.st16(place, self.last, index=expert)
            p.add16(pick, pick, 1)
            p.add16(vector, vector, 1)
        p.free(there, pick, expert, place, vector)

    def inward(self) -> None:
        """Write gate_up = the products of each token's chunks with the matrices of its experts."""
        self.w.p.mov32(self.w.gate_up, 0)
        self._each("gate_up", 0, self._spread)

    def outward(self) -> None:
        """Write that what the experts give is added to the residual stream, or is in ``back``, at the homes."""
        w, place = self.w, self.w.place
        if place.decoder.norms_behind:
            w.p.mov32(w.back, 0)
        before = place.tile_words(place.shapes["gate_up"])
        self._each("down", before, self._sum)
        with w.taking("weights", place.decoder.experts * self.each):
            pass

    @property
    def each(self) -> int:
        """The matrices of an expert take so many words in a PE."""
        place = self.w.place
        return place.tile_words(place.shapes["gate_up"]) + place.tile_words(place.shapes["down"])

    def _each(self, name: str, before: int, step: Callable[[str, Reg, Reg, Reg], None]) -> None:
        """Write that each expert's matrix goes round; `step` takes the name, a token's place, the tile and steps left.

        The matrix begins `before` words from the first of an expert.
        """
        w, p = self.w, self.w.p
        w.mark(f"experts {name}")
        number = p.reg16("expert")
        p.ldi(number, 0)
        p.st16(number, self.expert)
        p.free(number)
        again = p.label()
        address, first = p.reg16("address"), p.reg16("first")
        p.ld16(address, self.expert)
        p.ld16(first, w.pointers["weights"])
        p.mul16(address, address, self.each)
        p.add16(address, address, first)
        p.add16(address, address, before)
        p.free(first)
        with self.ring.steps(name, address, w.prompt.tile_elements[name]) as (tile, left):
            p.free(address)
            at, count = p.reg16("at"), p.reg16("count")
            w.mark(f"entries {name}")
            p.ld16(at, self.expert)
            p.ld16(count, self.last, index=at)
            p.ld16(at, self.first, index=at)
            p.sub16(count, count, at)
            with p.loop(count, counter=count):
                w.mark(f"entry {name}")
                step(name, at, tile, left)
                p.add16(at, at, 1)
            w.mark(f"through {name}")
            p.free(at, count)
        number = p.reg16("expert")
        p.ld16(number, self.expert)
        p.add16(number, number, 1)
        p.st16(number, self.expert)
        p.branch("ne", number, w.place.decoder.experts, again, "16")
        p.free(number)
        w.mark(f"behind experts {name}")

    def _element(self, reg: Reg, numbers: Var, at: Reg, words: int) -> None:
        """Write reg = as many words as a number of a list says, times `words`."""
        self.w.p.ld16(reg, numbers, index=at)
        self.w.p.mul16(reg, reg, words)

    def _spread(self, name: str, at: Reg, tile: Reg, left: Reg) -> None:
        """Write that the chunk of a token comes from its home and meets the tile."""
        w, p, hidden = self.w, self.w.p, self.w.place.hidden
        goes, base = p.reg16("goes"), p.reg16("piece")
        p.ld16(goes, self.goes, index=left)

        def find(slot: Reg, base: Reg) -> None:
            p.mul16(slot, slot, w.prompt.piece)
            p.ldi(base, w.given)
            p.add16(base, base, slot)
            self._element(slot, self.tokens, at, hidden)
            p.add16(base, base, slot)

        with w.cut(f"spread {name}"):
            self.channels.spread(self.ends, goes, self.chunk, base, find)
        shape = w.prompt.shapes[name]
        result = self._address(w.gate_up, at, 2 * shape.rows)
        w.product(shape, w.gate_up, tile, base, result)
        p.free(base, result)

    def _address(self, var: Var, at: Reg, words: int) -> Reg:
        """Return a register with the address of a token's vector in a variable, of so many words each."""
        p = self.w.p
        found, first = p.reg16("vector"), p.reg16("first")
        self._element(found, self.vectors, at, words)
        p.ldi(first, var)
        p.add16(found, found, first)
        p.free(first)
        return found

    def _sum(self, name: str, at: Reg, tile: Reg, left: Reg) -> None:
        """Write that a token's part of a chunk is summed toward its home."""
        w, p, hidden, shape = self.w, self.w.p, self.w.place.hidden, self.w.prompt.shapes[name]
        p.mov32(p.mem1d(w.partial, hidden), 0)
        base = self._address(w.inner_half, at, shape.depth)
        w.product(shape, w.partial, tile, base)
        p.free(base)
        goes = p.reg16("goes")
        p.ld16(goes, self.goes, index=left)
        with w.cut(f"sum {name}"):
            self.channels.sum_home(self.ends, goes, w.partial, hidden, partial(self._add, at))

    def _add(self, at: Reg, slot: Reg) -> None:
        """Write that a token's sum is added where its features are at home."""
        w, p, hidden = self.w, self.w.p, self.w.place.hidden
        token = p.reg16("token")
        p.mul16(slot, slot, 2 * w.prompt.piece)
        self._element(token, self.tokens, at, 2 * hidden)
        p.add16(slot, slot, token)
        p.free(token)
        p.load(w.first, p.mem1d(w.back if w.place.decoder.norms_behind else w.x, hidden))
        p.dsr_off(w.first, slot)
        p.fadds(w.first, w.first, p.mem1d(w.partial, hidden))

"""How long a step of the resident decoder takes, part by part, from sizes and modelled numbers alone.

Work on a PE is counted instruction by instruction from the text of the parts, with conflicts of banks; all-reduces are
those of the trees (`LineSum.ends`), each begun by every PE when it is ready (`Front`).  Lengths that follow the tokens
of a row are rounded up to multiples of 4.

Measured against the engine part by part and step by step: tests/fabric/networks/inference/test_decode_cycles.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from fabric.kernels.collectives.pieces.ktree import KTree
from fabric.kernels.kit import timing
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.matmul.local import product_cycles
from fabric.networks.inference.attention import unrolled
from fabric.networks.inference.axes import QUEUE_HEAD
from fabric.networks.inference.decode import PARTS, Decode
from fabric.networks.inference.elementwise import ANGLE_BANK, TURNED_BANK
from fabric.networks.inference.front import Front
from fabric.networks.inference.rows import Rows
from fabric.networks.inference.work import Work
from fabric.networks.inference.writer import CHUNK

__all__ = ["StepCycles", "held_tokens"]

FOUR = 4


def up(n: int) -> int:
    """Return n rounded up to a multiple of 4."""
    return FOUR * -(-n // FOUR)


def held_tokens(rows: int, count: int, policy: str) -> list[int]:
    """Return how many tokens each row holds when the cache has `count`."""
    if policy == "concat":
        return [0] * (rows - 1) + [count]
    return [count // rows + (row < count % rows) for row in range(rows)]


class StepCycles(Work):
    """Closed forms of a decoder's step.

    Parameters
    ----------
    decode : Decode
    """

    def __init__(self, decode: Decode) -> None:
        super().__init__(decode.machine)
        self.decode, self.place = decode, decode.place
        self.stamp = timing.stamp(self.m) if decode.timed else 0

    # --- words --------------------------------------------------------------------------------------------------------

    def _meetings(self, offset: int, pitch: int, rows: int, slack: int = 0) -> int:
        """Return how many of `rows` rows of two f32 vectors, so many words apart and more with each, meet in a bank.

        `slack`: words that elements of one step may lie apart.
        """
        m = self.m
        if m["mem.conflict_rule"] == "none":
            return 0
        apart = [(offset + pitch * row) % m["mem.banks"] for row in range(rows)]
        return sum(min(a, m["mem.banks"] - a) <= slack for a in apart)

    # --- work ---------------------------------------------------------------------------------------------------------

    def product(self, name: str) -> int:
        """Return the cycles of a local product, its result cleared before."""
        shape = self.place.shapes[name]
        return self.vector("mov32", shape.rows, 1) + self.taking + 1 + product_cycles(shape, self.m)

    def norm(self) -> tuple[int, int]:
        """Return the cycles before and behind the all-reduce of a norm."""
        m, n = self.m, self.place.hidden
        load, fp = self.load, m["ce.fp_latency"]
        square = 3 * m["ce.dsr_load"] + timing.operation(m, n * (1 + m["mem.conflict_cycles"]))
        before = square + 1 + self.serial(n, 1) + fp
        behind = load + 2 * fp + 1 + self.function("rsqrt", 1) + load + self.vector("fmuls", n, 2)
        behind += self.taking + m["ce.dsr_load"] + m["ce.dsr_edit"] + self.vector("fmuls", n, 1)
        return before, behind + self.vector("fs2h", n, 2)

    def angles(self) -> int:
        """Return the cycles of turning one angle by another."""
        n = self.place.pairs
        return 2 * self.vector("fmuls", n, 3) + 2 * self.vector("fmuls", n, 3) + 2 * self.vector("fadds", n, 2)

    def begin(self, held: int, grows: bool, replaces: bool) -> int:
        """Return the cycles of the beginning of a step in a row."""
        m, load = self.m, self.load
        taken = m["ce.branch_taken"]
        common = 3 + load + 3 + (1 if grows else taken) + load + 5 + 1 + (taken if self.place.height > 1 else 1) + 2
        change = 12 if grows else 0
        if replaces:
            change = 2 + load + 3 + m["ce.dsr_load"] + 1 + self.vector("mov16", max(0, held - 1), 1) + 7
        return common + change + self.angles()

    def rotary(self) -> int:
        """Return the cycles of turning queries and keys."""
        place = self.place
        heads, n = place.heads + place.kv_heads, place.pairs
        rows = heads * -(-n // 2)
        meetings = sum(
            n * self._meetings(first - ANGLE_BANK - second, 4 * n, heads)
            for first, second in ((0, 2 * n), (2 * n, 2 * n), (0, 0), (2 * n, 0))
        )
        slack = 2 if n > 1 else 0
        meetings += -(-n // 2) * self._meetings(-TURNED_BANK - 2 * heads * n, 2 * n, heads, slack)
        meetings += -(-n // 2) * self._meetings(2 * n - TURNED_BANK, 2 * n, heads, slack)
        found = meetings + 2 * self.vector("fmuls", heads * n, 3, 2) + 2 * self.vector("fmuls", heads * n, 2, 2)
        found += 2 * (self.vector("fmuls", rows, 2, 1))
        return found + self.vector("fmuls", place.query_rows, 1) + self.vector("fs2h", place.shapes["qkv"].rows, 2)

    def cache(self, goes: bool, comes: int) -> int:
        """Return the cycles of a layer's change of its cache; `comes`: 0 nothing, 1 from below, 2 the PE's own."""
        m, place, load = self.m, self.place, self.load
        n, by_head = place.kv_rows, place.kv_heads * -(-place.part // m.lanes("mov16"))
        found = 3 + 2 * load + 3
        walk = m["ce.dsr_load"] + m["ce.dsr_dimension"] + m["ce.dsr_edit"]
        moving = self.decode.policy == "shift" and place.height > 1
        if moving:
            found += load + m["ce.branch_taken"]
        if goes:
            found += 2 * walk + self.serial(n, 1) + self.serial(by_head, 1) + 2 * m["ce.dsr_load"] + 1
            found -= m["ce.branch_taken"] - 1
        found += load + (m["ce.branch_taken"] if not comes else 1)
        if comes:
            found += 2 * walk + self.serial(n, 1) + self.serial(by_head, 1)
        if comes == 1:
            found += 1 + timing.transfer(m, n, 1, 1, 1) - (timing.way(m, 1) if goes else 0) + m["ce.branch_taken"]
        elif comes and moving:
            found += m["ce.branch_taken"]
        return found

    def scores(self, held: int) -> int:
        """Return the cycles of the scores of a PE."""
        m, place = self.m, self.place
        n, together = up(held), unrolled(place)
        feature = timing.elementwise(m, "fmachs", n) + m["ce.dsr_edit"]
        group = together + 1 + together * feature
        head = 2 * m["ce.dsr_edit"] + self.loop(place.part // together, group) + 1
        kv = self.loop(place.decoder.group, head) + 1
        begin = 2 + 3 * m["ce.dsr_load"] + 2 * m["ce.dsr_edit"] + timing.elementwise(m, "mov32", place.heads * n)
        return begin + 4 + self.loop(place.kv_heads, kv)

    def peaks(self, held: int) -> int:
        """Return the cycles of the largest scores of a PE."""
        m, n = self.m, up(held)
        empty = timing.elementwise(m, "mov32", n - held)
        head = 2 * m["ce.dsr_edit"] + empty + 1 + timing.operation(m, n) + m["ce.fp_latency"] + 3
        return 2 + 2 * (m["ce.dsr_load"] + m["ce.dsr_edit"]) + 7 + self.loop(self.place.heads, head)

    def exponentials(self, size: int) -> int:
        """Return the cycles of the exponentials of so many scores."""
        m, most = self.m, self.decode.place.heads * self.decode.place.capacity
        chunk = max(CHUNK, self.place.ffn, self.place.heads)
        found, left = 2 + self.load, size
        while left > 0:
            now = min(left, chunk)
            found += self.function("exp", now) + 6 * m["ce.dsr_edit"] + 3 + 2 + m["ce.branch_taken"] + 5
            left -= now
        assert size <= most
        return found + m["ce.branch_taken"]

    def shares(self, held: int) -> int:
        """Return the cycles of a PE's exponentials, their sums and their rounding."""
        m, n, heads = self.m, up(held), self.place.heads
        begin = self.load + m["ce.dsr_load"] + m["ce.dsr_edit"] + 3
        less = self.load + m["ce.dsr_edit"] + timing.elementwise(m, "fsubs", n) + 2
        total = 1 + m["ce.dsr_edit"] + timing.operation(m, n) + m["ce.fp_latency"] + 2
        found = 2 * begin + self.loop(heads, less) + self.exponentials(heads * n) + self.loop(heads, total)
        return found + self.load + m["ce.dsr_edit"] + self.vector("fs2h", heads * n, 2)

    def mix(self, held: int) -> int:
        """Return the cycles of a PE's values by their shares."""
        m, place, n = self.m, self.place, up(held)
        four = 5 + FOUR * timing.elementwise(m, "fmachs", place.part)
        turns = n // FOUR
        inner = 2 + (turns * (four + 1 + m["ce.branch_taken"]) - (m["ce.branch_taken"] - 1) if turns else 5)
        head = 2 * m["ce.dsr_edit"] + inner + 1
        kv = self.loop(place.decoder.group, head) + 1
        begin = self.vector("mov32", place.query_rows, 1) + 2 * m["ce.dsr_load"] + 6 + self.load
        return begin + self.loop(place.kv_heads, kv)

    def divide(self) -> int:
        """Return the cycles of the division by the sums of the shares."""
        m, place = self.m, self.place
        head = self.load + m["ce.dsr_edit"] + timing.elementwise(m, "fmuls", place.part) + 2
        found = self.function("reciprocal", place.heads) + 2 + m["ce.dsr_load"] + self.loop(place.heads, head)
        return found + self.vector("fs2h", place.query_rows, 2)

    def swiglu(self) -> int:
        """Return the cycles of SwiGLU."""
        n = self.place.ffn
        found = (
            self.vector("fnegs", n, 2)
            + self.vector("fmins", n, 1)
            + self.function("exp", n)
            + self.vector("fadds", n, 1)
        )
        return found + self.function("reciprocal", n) + 2 * self.vector("fmuls", n, 2) + self.vector("fs2h", n, 2)

    def residual(self) -> int:
        """Return the cycles of adding to the residual stream."""
        return self.vector("fadds", self.place.hidden, 2)

    def search(self) -> tuple[int, int, int]:
        """Return the cycles of the arg max before, between and behind its all-reduces."""
        m, n = self.m, self.place.vocabulary
        before = self.load + m["ce.dsr_load"] + m["ce.dsr_edit"] + 1 + timing.operation(m, n) + m["ce.fp_latency"]
        between = self.load + 1 + self.vector("fsubs", n, 2) + 2 * self.vector("fmuls", n, 1)
        between += self.vector("fmins", n, 1) + self.vector("fadds", n, 2)
        between += m["ce.dsr_load"] + m["ce.dsr_edit"] + 1 + timing.operation(m, n) + m["ce.fp_latency"]
        return before, between, self.load + 1

    # --- a step -------------------------------------------------------------------------------------------------------

    def _sum_heads(self, front: Front, held: Sequence[int]) -> None:
        """Move the front over the sum of the scores inside the columns of each head."""
        piece = self.decode.sums["back"].piece
        if self.place.group == 1 or not isinstance(piece, KTree):
            return
        m, starts = self.m, list(front.columns)

        def ends(count: int) -> list[int]:
            """Return the times of the columns behind a sum of `count` scores."""
            found = list(starts)
            w, load, edit = wavelets_of(count, "f32"), m["ce.dsr_load"], m["ce.dsr_edit"]
            issue, queue = timing.issue(m), piece.queues[0]
            for group in piece.levels[0]:
                root = group[len(group) // 2]
                begins = [starts[c] + self.load for c in range(len(starts))]
                ready, passed = begins[root], 0
                for side in piece.sides(group):
                    first = begins[side[0]] + 2 * load + edit + issue
                    for before, place in pairwise(side):
                        first = max(begins[place] + 3 * load + edit + issue, first + timing.way(m, abs(place - before)))
                    arrival = max(first + timing.way(m, abs(side[-1] - root)), passed)
                    ready = int(timing.received(m, w, ready + 2 * load + edit + issue, arrival, queue, queue))
                    passed = arrival + w + 1
                send = ready + 2 * load + edit + issue
                for c in group:
                    arrival = send + timing.way(m, abs(c - root))
                    found[c] = arrival + timing.train(m, w, QUEUE_HEAD, QUEUE_HEAD)
                found[root] = send + w
                if len(group) == 1:
                    found[root] = starts[root]
            return found

        counts = [self.place.heads * up(n) for n in held]
        slowest = {count: ends(count) for count in set(counts)}
        most = max(slowest, key=lambda count: max(slowest[count]))
        front.columns = slowest[most]
        front.work([max(slowest[count]) - max(slowest[most]) for count in counts])

    def parts(self, before: int) -> dict[str, int]:
        """Return the cycles of each of `decode.PARTS` of the step that takes token number `before`; of the last layer.

        A part's cycles are from when the slowest PE is through with the part before to when it is through with it.
        """
        return self._run(before)[0]

    def layer(self, before: int) -> dict[str, int]:
        """Return the cycles of the parts of one layer, the last, of the step that takes token number `before`."""
        found = self.parts(before)
        names = PARTS[PARTS.index("norm 1") : PARTS.index("norm 3")]
        # The first part of the last layer begins with the end of the layer before; its second norm takes as long.
        return {name: found["norm 2" if name == "norm 1" else name] for name in names}

    def step(self, before: int) -> int:
        """Return the cycles of the step that takes token number `before`, from hand-over to hand-over."""
        return self._run(before)[1]

    def answer(self, before: int) -> int:
        """Return the cycles behind the layers of the step that takes token number `before`, until the next one left."""
        parts, whole = self._run(before)
        return whole - sum(parts.values()) + sum(parts[name] for name in ("norm 3", "head", "argmax"))

    def transition(self) -> int:
        """Return the cycles in which the hidden features of a prompt's last token come to where a step has them."""
        prompt, place, sums, m = self.decode.prompt, self.place, self.decode.sums, self.m
        assert prompt is not None
        front = Front(place.width, place.height)
        front.work(m["task.start"])
        front.along_y(sums["last"])
        clear = self.vector("mov32", place.hidden, 1)
        front.work(clear + self.load + 1 + 3 + 2 * m["ce.dsr_load"] + m["ce.dsr_edit"])
        front.work(timing.elementwise(m, "mov32", place.hidden))
        front.along_x(sums["back"])
        front.work(self.vector("mov32", place.hidden, 2) + 4)
        return front.last

    def _run(self, before: int) -> tuple[dict[str, int], int]:
        front, times = Front(self.place.width, self.place.height), {}

        def done(part: str) -> None:
            front.work(self.stamp)
            times[part] = front.last

        self.through(front, before, self.entering(), done)
        whole = self.answered(front, done)
        order = [name for name in PARTS if name in times]
        cuts = [0, *[times[name] for name in order]]
        return {name: cuts[k + 1] - cuts[k] for k, name in enumerate(order)}, whole

    def entering(self) -> int:
        """Return the cycles until column 0 has the embedding of a token that the wafer waits for."""
        m, hidden = self.m, self.place.hidden
        passing = self.decode.column * m["router.hop"] if self.decode.arrived else 0  # the mesh that read the prompt
        return timing.ramps(m) + passing + timing.operation(m, hidden // 2) + self.vector("fh2s", hidden, 2)

    def through(
        self, front: Front, before: int, entering: int, done: Callable[[str], None], opens: bool = True
    ) -> None:
        """Move the front behind the last layer, `entering` being the cycles until column 0 has what enters.

        `opens`: of several requests the first one, with which a position begins.
        """
        place, m, sums = self.place, self.m, self.decode.sums
        rows, policy = place.height, self.decode.policy
        was, held = held_tokens(rows, before, policy), held_tokens(rows, before + 1, policy)
        grows = [b > a for a, b in zip(was, held, strict=True)]
        first = next(r for r in range(rows) if grows[r])
        replaces = [policy == "shift" and r > first and was[r] > 0 for r in range(rows)]
        front.columns = [entering + self.stamp, *[0] * (place.width - 1)]
        front.along_x(sums["back"])
        pointers = 4 if place.decoder.qkv_bias else 3
        front.work(self.vector("mov32", place.hidden, 2) + 2 * pointers)
        turns = place.requests > 1
        front.work(turns * (self.load + 5))
        done("enter")
        front.work(turns * (self.load + (1 if opens else m["ce.branch_taken"])))
        if opens:
            front.work([self.begin(n, g, r) for n, g, r in zip(was, grows, replaces, strict=True)])
        done("begin")
        front.work(1)
        comes = self._comes(was, grows, replaces)
        for _ in range(place.decoder.layers):
            self._layer(front, held, list(zip(replaces, comes, strict=True)), done)

    def answered(self, front: Front, done: Callable[[str], None]) -> int:
        """Move the front from behind the last layer to the next token; return when that has left."""
        m, sums = self.m, self.decode.sums
        self._norm(front, "norm 3", done)
        self._product(front, "head", "head")
        done("head")
        head, middle, tail = self.search()
        front.work(head)
        front.along_x(sums["largest"])
        front.work(middle)
        front.along_x(sums["smallest"])
        front.work(tail)
        done("argmax")
        corner = front.columns[0] + front.rows[0]
        leaving = 2 * m["ce.dsr_load"] + timing.issue(m) + 2 + m["ramp.execute"] + m["ramp.out"] + m["router.hop"]
        return int(corner + leaving)

    def _norm(self, front: Front, part: str, done: Callable[[str], None]) -> None:
        """Move the front over a norm."""
        head, tail = self.norm()
        front.work(head)
        front.along_y(self.decode.sums["norm"])
        front.work(tail)
        done(part)

    def _product(self, front: Front, name: str, total: str) -> None:
        """Move the front over a product and its all-reduce."""
        front.work(self.product(name))
        (front.along_x if total == "back" else front.along_y)(self.decode.sums[total])

    def _layer(
        self, front: Front, held: Sequence[int], entries: Sequence[tuple[bool, int]], done: Callable[[str], None]
    ) -> None:
        """Move the front over a layer; `entries` says of each row whether one leaves and where one comes from."""
        place, m, sums = self.place, self.m, self.decode.sums
        self._norm(front, "norm 1", done)
        self._product(front, "qkv", "qkv")
        if place.decoder.qkv_bias:
            front.work(self.taking + m["ce.dsr_edit"] + self.vector("faddhs", place.shapes["qkv"].rows, 3))
        done("qkv")
        front.work(self.rotary())
        done("rotary")
        front.work([self.cache(goes, comes) for goes, comes in entries])
        done("cache")
        front.work([self.scores(n) for n in held])
        self._sum_heads(front, held)
        done("scores")
        front.work([self.peaks(n) for n in held])
        front.along_y(sums["peaks"])
        done("peaks")
        front.work([self.shares(n) for n in held])
        done("shares")
        front.work([self.mix(n) for n in held])
        front.along_y(sums["mixed"])
        done("mix")
        front.work(self.divide())
        done("divide")
        self._product(front, "o", "back")
        front.work(self.residual())
        done("o")
        self._norm(front, "norm 2", done)
        self._product(front, "gate_up", "gate_up")
        done("gate_up")
        front.work(self.swiglu())
        done("swiglu")
        self._product(front, "down", "back")
        front.work(self.residual() + self.taking + self.load)
        done("down")
        front.work(1 + m["ce.branch_taken"])

    def _comes(self, was: Sequence[int], grows: Sequence[bool], replaces: Sequence[bool]) -> list[int]:
        """Return where each row's entry comes from: 0 nowhere, 1 below, 2 its own."""
        rows, shift = len(was), self.decode.policy == "shift"
        found = []
        for r in range(rows):
            if not (grows[r] or replaces[r]):
                found.append(0)
            else:
                below = shift and r < rows - 1 and was[r] > 0
                found.append(1 if below else 2)
        return found

    def request(self, prompt: int, answer: int) -> list[int]:
        """Return the cycles of all steps of a prompt read token by token and an answer."""
        most = Rows.most(self.place.height, self.place.tokens_per_row, self.decode.policy)
        return [self.step(before) for before in range(min(most, prompt + answer - 1))]

"""Tokens of the cache are held by the rows of a mesh; here they are followed token by token.

Policies
    shift: the newest token enters the bottom row, and rows pass their oldest entry up where the row above has fewer, so
    that no two rows differ by more than one token and order is kept from top to bottom.  As long as there are fewer
    tokens than rows, row t keeps token t itself: every row has it, since sums are given back to all rows.
    concat: all tokens enter the bottom row.
    round: token t stays on row t mod R; balanced, nothing moves, order is lost.

Source: WaferLLM, section 4.3 (shift and concat); ``round`` is of this project.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from wse_core.errors import ConfigError

__all__ = ["POLICIES", "Row", "Rows"]

POLICIES = ("shift", "concat", "round")


@dataclass
class Row:
    """A `Row` has the tokens of a row of PEs: in slots, and the slots from the oldest to the newest."""

    slots: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The row has these tokens, from the oldest to the newest."""
        return [self.slots[slot] for slot in self.order]

    def leave(self) -> tuple[int, int]:
        """Take the oldest token out; return (token, its slot)."""
        slot = self.order.pop(0)
        return self.slots[slot], slot

    def enter(self, token: int, slot: int | None = None) -> None:
        """Put a token into a slot that was left, or into a new one."""
        if slot is None:
            slot = len(self.slots)
            self.slots.append(token)
        else:
            self.slots[slot] = token
        self.order.append(slot)


class Rows:
    """A `Rows` has the tokens of all rows, by the rule itself and not by its closed form.

    Parameters
    ----------
    rows : int
    capacity : int
        Tokens that a row has room for.
    policy : {"shift", "concat", "round"}
    blocks : sequence of int, optional
        The first tokens go into blocks of so many in each row, from the first one on, and nothing moves until then.

    Attributes
    ----------
    rows : list of Row
    moves : int
        Entries that went to a neighbour.
    """

    def __init__(self, rows: int, capacity: int, policy: str = "shift", blocks: Sequence[int] | None = None) -> None:
        if policy not in POLICIES:
            raise ConfigError(f"unknown cache policy {policy!r}", where="cache", hint=", ".join(POLICIES))
        self.rows = [Row() for _ in range(rows)]
        self.capacity, self.policy, self.count, self.moves = capacity, policy, 0, 0
        self.blocks = list(accumulate(blocks or ()))

    def begin(self, counts: Sequence[int]) -> None:
        """Let a prompt in, in blocks of so many tokens."""
        for row, count in zip(self.rows, counts, strict=True):
            for token in range(self.count, self.count + count):
                row.enter(token)
            self.count += count

    def append(self) -> None:
        """Let the next token in.

        Raises
        ------
        ConfigError
            The row that would get one more is full.
        """
        token, rows = self.count, self.rows
        bottom = len(rows) - 1
        counts = [len(row.order) for row in rows]
        given = bool(self.blocks) and token < self.blocks[-1]
        moving = self.policy == "shift" and token >= len(rows) and not given
        if given:
            at = next(row for row, end in enumerate(self.blocks) if token < end)
        elif moving:
            at = bottom
            while at > 0 and counts[at] == counts[at - 1]:
                at -= 1
        else:
            at = bottom if self.policy == "concat" else token % len(rows)
        if counts[at] >= self.capacity:
            raise ConfigError(
                f"the cache is full: row {at} of PEs holds {self.capacity} tokens and cannot take token {token}",
                where="cache",
                hint="a mesh with more rows, or more tokens per row",
            )
        entry = token
        if moving:
            for row in reversed(rows[at + 1 :]):  # passes its oldest on, takes what comes from below
                leaving, slot = row.leave()
                row.enter(entry, slot)
                entry = leaving
                self.moves += 1
        rows[at].enter(entry)
        self.count += 1

    @staticmethod
    def most(rows: int, capacity: int, policy: str, counts: Sequence[int] | None = None) -> int:
        """Return how many tokens a cache takes; `counts`: of a prompt that the rows have already."""
        if policy != "concat":
            return rows * capacity
        return capacity + (sum(counts[:-1]) if counts else 0)

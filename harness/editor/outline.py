"""Names of a text in CSL and where they hold, found by its tokens: the text may be in the middle of being written."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from fabric.csl.syntax.style import TOKEN

__all__ = ["Declaration", "Outline", "Token"]

DECLARING = {"const", "var", "param", "color", "fn", "task"}
IMPORT = re.compile(r'@import_module\s*\(\s*"([^"\n]*)"')
FILE = re.compile(r'"([^"\n]*\.csl|<[^"\n>]*>)"')


@dataclass(frozen=True)
class Token:
    """A token is a word or mark of a text, from `start` up to `end`."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Declaration:
    """A `Declaration` is a name and where it holds.

    Attributes
    ----------
    name, kind : str
        ``const``, ``var``, ``param``, ``color``, ``fn``, ``task``, ``argument`` or ``capture``.
    start, end : int
        The name itself.
    begin, until : int
        Where the name is known; the whole text for what stands outside of all blocks.
    module : str or None
        What is imported under this name.
    """

    name: str
    kind: str
    start: int
    end: int
    begin: int
    until: int
    module: str | None = None


class Outline:
    """An outline has the names of a text.

    Attributes
    ----------
    text : str
    tokens : list of Token
        Without comments.
    declarations : list of Declaration
        In the order of the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            Token(match.lastgroup or "", match[0], match.start(), match.end())
            for match in TOKEN.finditer(text)
            if match.lastgroup not in ("comment", "end", "blank")
        ]
        self._starts = [token.start for token in self.tokens]
        self._ends = self._blocks()
        self.declarations = sorted(self._found(), key=lambda each: each.start)

    def _blocks(self) -> dict[int, int]:
        """Return per token that opens a bracket the number of the one that closes it, or of the end."""
        ends, still = {}, []
        for k, token in enumerate(self.tokens):
            if token.text in ("{", ".{", "(", "["):
                still.append(k)
            elif token.text in ("}", ")", "]") and still:
                ends[still.pop()] = k
        return ends | dict.fromkeys(still, len(self.tokens))

    def _offset(self, k: int) -> int:
        """Return where a token ends, of the last one the end of the text."""
        return self.tokens[k].end if k < len(self.tokens) else len(self.text)

    def _found(self) -> list[Declaration]:
        found = []
        blocks: list[tuple[int, int]] = [(0, len(self.text))]
        for k, token in enumerate(self.tokens):
            while len(blocks) > 1 and token.start >= blocks[-1][1]:
                blocks.pop()
            if token.text in ("{", ".{"):
                blocks.append((token.start, self._offset(self._ends[k])))
            following = self.tokens[k + 1] if k + 1 < len(self.tokens) else None
            if token.text in DECLARING and following is not None and following.kind == "word":
                where = blocks[-1] if len(blocks) > 1 else (0, len(self.text))
                found.append(
                    Declaration(
                        following.text, token.text, following.start, following.end, *where, self._imported(k + 2)
                    )
                )
                if token.text in ("fn", "task"):
                    found += self._arguments(k + 2)
            elif token.text == "|":
                found += self._captures(k, blocks[-1])
        return found

    def _imported(self, k: int) -> str | None:
        """Return what the declaration imports whose tokens go on with number `k`."""
        stop = next((token.start for token in self.tokens[k:] if token.text == ";"), len(self.text))
        begin = self.tokens[k].start if k < len(self.tokens) else stop
        match = IMPORT.search(self.text, begin, stop)
        return match[1] if match else None

    def _arguments(self, k: int) -> list[Declaration]:
        """Return the arguments of a function whose parenthesis is token `k`."""
        if k >= len(self.tokens) or self.tokens[k].text != "(":
            return []
        last = self._ends[k]
        body = next((j for j in range(last, len(self.tokens)) if self.tokens[j].text in ("{", ";")), None)
        if body is None or self.tokens[body].text == ";":
            return []
        where = self.tokens[k].start, self._offset(self._ends[body])
        names = [
            token
            for token, after in zip(self.tokens[k:last], self.tokens[k + 1 : last], strict=False)
            if token.kind == "word" and after.text == ":"
        ]
        return [Declaration(token.text, "argument", token.start, token.end, *where) for token in names]

    def _captures(self, k: int, block: tuple[int, int]) -> list[Declaration]:
        """Return the names between bars, the first of which is token `k`."""
        names = []
        for j in range(k + 1, len(self.tokens) - 1, 2):
            name, after = self.tokens[j], self.tokens[j + 1]
            if name.kind != "word" or after.text not in (",", "|"):
                return []
            names.append(name)
            if after.text == "|":
                return [Declaration(n.text, "capture", n.start, n.end, n.start, block[1]) for n in names]
        return []

    # ---- questions

    def at(self, offset: int) -> Token | None:
        """Return the token at an offset, or the one that ends there."""
        k = bisect_right(self._starts, offset) - 1
        if k < 0:
            return None
        token = self.tokens[k]
        if token.start == offset and token.kind == "mark" and k and self.tokens[k - 1].end == offset:
            token = self.tokens[k - 1]
        return token if offset <= token.end else None

    def chain(self, offset: int) -> list[str]:
        """Return the names of ``a.b.c`` up to the word at an offset, which may still be empty behind a point."""
        k = bisect_right(self._starts, offset - 1) - 1 if offset else -1
        names: list[str] = []
        if k >= 0 and self.tokens[k].text == "." and self.tokens[k].end <= offset:
            names, k = [""], k
        elif k >= 0 and self.tokens[k].kind == "word" and offset <= self.tokens[k].end:
            names, k = [self.tokens[k].text], k - 1
        else:
            return []
        while k >= 1 and self.tokens[k].text == "." and self.tokens[k - 1].kind == "word":
            names.insert(0, self.tokens[k - 1].text)
            k -= 2
        return names

    def resolve(self, name: str, offset: int) -> Declaration | None:
        """Return the declaration that a name means at an offset."""
        known = [d for d in self.declarations if d.name == name and d.begin <= offset <= d.until]
        local = [d for d in known if d.begin > 0 and d.start <= offset]
        return max(local, key=lambda d: (d.begin, d.start)) if local else next((d for d in known if not d.begin), None)

    def visible(self, offset: int) -> list[Declaration]:
        """Return what is declared for an offset, the nearest declaration of each name."""
        found: dict[str, Declaration] = {}
        for name in dict.fromkeys(d.name for d in self.declarations):
            one = self.resolve(name, offset)
            if one is not None:
                found[name] = one
        return list(found.values())

    def exported(self) -> list[Declaration]:
        """Return what other files reach by an import."""
        return [d for d in self.declarations if not d.begin and d.kind != "argument"]

    def call(self, offset: int) -> tuple[str, int] | None:
        """Return the function or builtin in whose parenthesis an offset lies, and the number of the argument."""
        k = bisect_right(self._starts, offset - 1) - 1
        depth, number = 0, 0
        while k >= 0:
            text = self.tokens[k].text
            if text in (")", "]", "}"):
                depth += 1
            elif text in ("(", "[", "{", ".{"):
                if depth == 0 and text == "(" and k and self.tokens[k - 1].kind == "word":
                    return self.tokens[k - 1].text, number
                if depth == 0:
                    number = 0
                depth = max(0, depth - 1) if depth else 0
            elif text == "," and not depth:
                number += 1
            elif text == ";" and not depth:
                return None
            k -= 1
        return None

    def remark(self, declaration: Declaration) -> str:
        """Return the comment above a declaration, or behind it."""
        begin = self.text.rfind("\n", 0, declaration.start) + 1
        lines: list[str] = []
        above = self.text[:begin].splitlines()
        while above and above[-1].strip().startswith("//"):
            lines.insert(0, above.pop().strip().lstrip("/").strip())
        stop = self.text.find("\n", declaration.end)
        line = self.text[declaration.end : stop if stop >= 0 else len(self.text)]
        _, bars, behind = line.partition("//")
        return " ".join(lines) or (behind.strip() if bars else "")

    def line_of(self, declaration: Declaration) -> str:
        """Return the text of a declaration up to its body or value's end, at most one line."""
        begin = self.text.rfind("\n", 0, declaration.start) + 1
        stop = self.text.find("\n", declaration.end)
        line = self.text[begin : stop if stop >= 0 else len(self.text)].partition("//")[0].strip()
        return line.removesuffix("{").strip()

    def files(self) -> list[str]:
        """Return the files and modules that the text names."""
        return list(dict.fromkeys(FILE.findall(self.text)))

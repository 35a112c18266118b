"""Valid programs made wrong: words and statements of them deleted, doubled, swapped or replaced.

A word is mostly replaced by one of its own kind (name, builtin, number, operator), so that the parser lets it pass and
what comes after has to find the mistake.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

__all__ = ["mutate", "programs"]

WORDS = re.compile(r'//[^\n]*|\s+|"(?:\\.|[^"\\\n])*"|@?\w+|\.\{|\.\*|[-+*/%<>=!&|^]=|->|=>|<<=?|>>=?|.', re.DOTALL)
KEYWORDS = set(
    re.findall(
        r"\w+",
        "param fn task layout comptime if else for while switch break continue return export inline struct enum align",
    )
)
LAYOUTS = {
    "chain/layout.csl": {"width": 5, "n": 16},
    "stream/layout.csl": {"H2D": 1, "D2H": 2},
    "routes/layout.csl": {},
    "fifo/layout.csl": {},
    "grid/layout.csl": {"P": 2},
    "vectors/program.csl": {},
    "scalars/program.csl": {},
}
NUMBERS = ("0", "1", "-1", "3", "24", "31", "255", "65536", "70000", "0.5", "1e39", "4294967296")
TYPES = ("i16", "u16", "i32", "f32", "f16", "bool", "color", "u8", "i64", "void", "type", "[*]f32", "[4]i16", "*i16")
OTHERS = ("true", "{}", '"x"', "void", "return", "&", "*", "comptime", "var", "const", "-", "")
OPERATORS = ("+", "-", "*", "/", "%", "<<", ">>", "&", "^", "==", "!=", "<=", ">", "and", "or")


def programs() -> list[tuple[dict[str, str], str, dict[str, int]]]:
    """Return our programs: files by name, the name of the layout, params."""
    root = Path(__file__).with_name("programs")
    found = []
    for top, params in LAYOUTS.items():
        directory = (root / top).parent
        files = {path.name: path.read_text(encoding="utf-8") for path in sorted(directory.glob("*.csl"))}
        found.append((files, Path(top).name, params))
    return found


def kind(word: str) -> str:
    """Return of which kind a word is."""
    if word in KEYWORDS:
        return "other"
    if word in ("const", "var"):
        return "keyword"
    if word in OPERATORS:
        return "operator"
    if word in TYPES:
        return "type"
    if word[0] == "@":
        return "builtin"
    if word[0].isdigit():
        return "number"
    if word[0].isalpha() or word[0] == "_":
        return "name"
    return "other"


def mutate(text: str, chance: random.Random) -> str:
    """Return a text with one to three changes."""
    words = [match[0] for match in WORDS.finditer(text)]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        solid = [k for k, word in enumerate(words) if word and not word.isspace() and not word.startswith("//")]
        alike = [k for k in solid if kind(words[k]) != "other"]
        if chance.random() < 0.2:
            _change_statement(words, chance)
        elif chance.random() < 0.15:
            _disorder(words, chance.choice(solid), chance.choice(solid), chance)
        else:
            _replace(words, chance.choice(alike), alike, chance)
    return "".join(words)


def _change_statement(words: list[str], chance: random.Random) -> None:
    """Delete, double or move what stands between two semicolons."""
    ends = [k for k, word in enumerate(words) if word in (";", "{", "}")]
    whole = [k for k in range(len(ends) - 1) if words[ends[k + 1]] == ";"]
    k = chance.choice(whole or [0])
    piece = slice(ends[k] + 1, ends[k + 1] + 1)
    taken = words[piece]
    way = chance.randrange(3)
    if way == 0:
        del words[piece]
    elif way == 1:
        words[piece] = taken * 2
    else:
        del words[piece]
        other = chance.choice([k for k, word in enumerate(words) if word == ";"] or [0])
        words[other + 1 : other + 1] = taken


def _disorder(words: list[str], k: int, other: int, chance: random.Random) -> None:
    way = chance.randrange(4)
    if way == 0:
        words[k] = ""
    elif way == 1:
        words[k] = f"{words[k]} {words[k]}"
    elif way == 2:
        words[k], words[other] = words[other], words[k]
    else:
        words[k] = chance.choice(OTHERS)


def _replace(words: list[str], k: int, solid: list[int], chance: random.Random) -> None:
    own = kind(words[k])
    pool = [words[s] for s in solid if kind(words[s]) == own and words[s] != words[k]]
    more = {"number": NUMBERS, "type": TYPES, "operator": OPERATORS, "name": NUMBERS}.get(own, ())
    chosen = more if more and (not pool or chance.random() < (0.1 if own == "name" else 0.3)) else pool
    words[k] = chance.choice(chosen or OTHERS)

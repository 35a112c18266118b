"""Vocabularies without a ``tokenizer.json`` become the table of one: of bytes with merges, and of pieces with scores.

Files of other programs keep the texts of tokens, which of them are special, and either merges or scores; how a text is
cut first is a name.  The library `tokenizers` reads what comes of it, so that one place makes tokens of texts.

Pieces are joined as sentencepiece does it, best score first: each way to make a piece of two others is a merge, in the
order of scores (`merges_of`).

Sources: the conversions of the hub's library transformers; regular expressions are those of the models' own files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = ["BYTE", "CONTROL", "OWN", "UNKNOWN", "Vocabulary", "byte_table", "merges_of", "piece_table"]

NORMAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = range(1, 7)
"""Types of tokens; `OWN` are those that are cut out of a text first, although they are not special."""

LONGEST = 256
"""A piece that is joined of others has at most so many characters: ways to join one grow with its square."""

SPACE = "\u2581"
"""Stands for a space in pieces."""

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3, QWEN2 = WORDS % r"\p{N}{1,3}", WORDS % r"\p{N}"
LARGE, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASES = r"[^\r\n\p{L}\p{N}]?" + LARGE + "*" + SMALL + r"+%s|[^\r\n\p{L}\p{N}]?" + LARGE + "+" + SMALL + "*%s"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = CASES % ("", "") + r"|\p{N}|" + SIGNS
GPT4O = CASES % (("(?i:'s|'t|'re|'ve|'m|'ll|'d)?",) * 2) + r"|\p{N}{1,3}|" + SIGNS

DIGITS, PLAIN = "digits", "plain"
"""Cuts that are steps of the library: at each digit and then as GPT-2 does it, and as GPT-2 does it."""

CUTS = {
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe", "lfm2"), LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), QWEN2),
    **dict.fromkeys(("tekken",), TEKKEN),
    **dict.fromkeys(("gpt-4o", "llama4"), GPT4O),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), DIGITS),
    **dict.fromkeys(("gpt-2", "gpt2", "olmo", "phi-2", "mpt", "jais"), PLAIN),
}
"""How a text is cut before bytes are joined, by the names that files have."""

WHOLE = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "lfm2", "tekken")
"""Cuts whose parts are one token if there is one with this text, whatever the merges say."""


@dataclass(frozen=True)
class Vocabulary:
    """A `Vocabulary` has the tokens of a file.

    Attributes
    ----------
    tokens : sequence of str
        Their texts, by their numbers.
    types : sequence of int
        `NORMAL` and so on.
    begin, end : int or None
        Tokens that stand before and behind a text.
    """

    tokens: Sequence[str]
    types: Sequence[int]
    begin: int | None = None
    end: int | None = None

    def __post_init__(self) -> None:
        if len(self.types) != len(self.tokens):
            raise ConfigError(f"{len(self.types):,} types of {len(self.tokens):,} tokens")
        for token in (self.begin, self.end):
            if token is not None and not (isinstance(token, int) and 0 <= token < len(self.tokens)):
                raise ConfigError(f"token {shown(token)} before or behind a text is none of {len(self.tokens):,}")

    def ids(self) -> dict[str, int]:
        """Return the number of each text.

        Raises
        ------
        ConfigError
            Two tokens have one text.
        """
        found = {text: number for number, text in enumerate(self.tokens)}
        if len(found) < len(self.tokens):
            twice = next(text for number, text in enumerate(self.tokens) if found[text] != number)
            raise ConfigError(f"two tokens have the text {shown(twice)}")
        return found

    def added(self) -> list[dict[str, Any]]:
        """Return the tokens that are cut out of a text before everything else."""
        return [
            {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": kind == CONTROL}
            for number, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (CONTROL, OWN) and text
        ]  # fmt: skip

    def around(self) -> dict[str, Any] | None:
        """Return the step that puts tokens before and behind a text, or None."""
        if self.begin is None and self.end is None:
            return None
        special: dict[str, Any] = {}
        parts: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
        for token, at in ((self.begin, 0), (self.end, len(parts) + 1)):
            if token is not None:
                text = self.tokens[token]
                parts.insert(at, {"SpecialToken": {"id": text, "type_id": 0}})
                special[text] = {"id": text, "ids": [token], "tokens": [text]}
        return {"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": special}


def _table(vocabulary: Vocabulary, **parts: Any) -> dict[str, Any]:
    """Return the table of a ``tokenizer.json``."""
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer"))
    whole = {"added_tokens": vocabulary.added(), "post_processor": vocabulary.around()}
    return {"version": "1.0", **empty, **whole, **parts}


def byte_table(vocabulary: Vocabulary, merges: Sequence[Any], cut: Any) -> dict[str, Any]:
    """Return the ``tokenizer.json`` of tokens of bytes, which merges join.

    Raises
    ------
    UnsupportedError
        Nobody here knows how a text is cut first.
    """
    if not isinstance(cut, str) or cut not in CUTS:
        what = named(cut) if isinstance(cut, str) else "without a name"
        raise UnsupportedError(f"texts are cut in the way {what}, which is not known here",
                               hint=f"--prompt-ids; known are {', '.join(CUTS)}")  # fmt: skip
    pairs = [merge.split(" ") if isinstance(merge, str) else [] for merge in merges]
    wrong = next((merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2), None)
    if wrong is not None:
        raise ConfigError(f"merge {shown(wrong)} is no pair of texts")
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    first: dict[str, Any]
    if CUTS[cut] == PLAIN:
        first = bytes_ | {"use_regex": True}
    else:
        step = (
            {"type": "Digits", "individual_digits": True}
            if CUTS[cut] == DIGITS
            else {"type": "Split", "pattern": {"Regex": CUTS[cut]}, "behavior": "Isolated", "invert": False}
        )
        first = {"type": "Sequence", "pretokenizers": [step, bytes_ | {"use_regex": CUTS[cut] == DIGITS}]}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": cut in WHOLE,
             "vocab": vocabulary.ids(), "merges": pairs}  # fmt: skip
    normalizer = {"type": "NFC"} if CUTS[cut] == QWEN2 else None
    return _table(vocabulary, normalizer=normalizer, pre_tokenizer=first, decoder=bytes_, model=model)


def merges_of(
    ids: Mapping[str, int], scores: Mapping[str, float], skipped: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Return the merges that pieces with scores come to, best first.

    `skipped`: pieces that are no part of a merge.
    """
    found = []
    for piece, score in scores.items():
        if piece in skipped:
            continue
        parts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        own = [
            (first, second, score)
            for first, second in parts
            if first in ids and second in ids and first not in skipped and second not in skipped
        ]
        found += sorted(own, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    found.sort(key=lambda pair: (pair[2], len(pair[0]), len(pair[1])), reverse=True)
    return [(first, second) for first, second, _ in found]


def piece_table(
    vocabulary: Vocabulary, scores: Sequence[float] | None, unknown: int | None, space: bool = True
) -> dict[str, Any]:
    """Return the ``tokenizer.json`` of pieces, which are joined best score first.

    Parameters
    ----------
    vocabulary : Vocabulary
    scores : sequence of float or None
        None: pieces are joined in the order of their numbers, the first ones first.
    unknown : int or None
        Token of what has none.
    space : bool
        Whether a space is put before a text.
    """
    tokens, types = list(vocabulary.tokens), list(vocabulary.types)
    longest = max((len(text) for text, kind in zip(tokens, types, strict=True) if kind == NORMAL), default=0)
    if longest > LONGEST:
        raise ConfigError(f"a piece of {longest:,} characters; at most {LONGEST} are read")
    for number, text in enumerate(tokens):  # some files have spaces for the mark in tokens that are nothing else
        if types[number] == OWN and text and not text.strip(" "):
            tokens[number], types[number] = SPACE * len(text), NORMAL
    whole = Vocabulary(tokens, types, vocabulary.begin, vocabulary.end)
    ids = whole.ids()
    if scores is not None and len(scores) != len(tokens):
        raise ConfigError(f"{len(scores):,} scores of {len(tokens):,} tokens")
    by_text = {text: -float(number) if scores is None else scores[number] for text, number in ids.items()}
    skipped = {text for text, kind in zip(tokens, types, strict=True) if kind in (UNKNOWN, CONTROL, UNUSED, BYTE, OWN)}
    fallback = {f"<0x{byte:02X}>" for byte in range(256)} <= set(ids)
    known = unknown is not None and 0 <= unknown < len(tokens)
    model = {"type": "BPE", "dropout": None, "unk_token": tokens[unknown] if known and unknown is not None else None,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
             "byte_fallback": fallback, "ignore_merges": False, "vocab": ids,
             "merges": [list(pair) for pair in merges_of(ids, by_text, skipped)]}  # fmt: skip
    marks = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                                   {"type": "ByteFallback"}, {"type": "Fuse"}]  # fmt: skip
    if space:
        marks.insert(0, {"type": "Prepend", "prepend": SPACE})
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return _table(
        whole,
        normalizer={"type": "Sequence", "normalizers": marks},
        decoder={"type": "Sequence", "decoders": steps},
        model=model,
    )

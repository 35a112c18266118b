"""The English of docstrings: what a machine can check of "the first sentence can be understood alone".

An editor shows the first sentence of a docstring without the file around it.  So it has a subject and a verb: a
function says in the imperative what it does, everything else is the subject of a sentence ("A `Layout` says ...", "The
queue has so many ...").  Grammar is not parsed: a sentence must have one of the `VERBS`, or one of the `NOUNS_TOO`
right behind a name in backticks or a pronoun, and besides those of clauses ("what is run", "steps that a loop takes"),
of which each of the `RELATIVES` begins one; a function may begin with one of the `IMPERATIVES`, and anything that is
true or false with "Whether".  Who uses another word adds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

__all__ = ["docstrings", "faults", "first_sentence", "python_files", "word_set"]

FEWEST = 4
"""A sentence has at least so many words."""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


IMPERATIVES = word_set(
    """
    Activate Add Advance Allocate Anneal Announce Answer Append Apply Arrange Ask Assemble Attach Begin Bind Book Bring
    Build Calculate Call Cancel Carry Change Check Choose Classify Clean Clear Clip Close Collect Compare Compile
    Complete Compute Convert Copy Count Create Cycle Decide Declare Delete Describe Discard Divide Do Draw Drop Emit End
    Enter Evaluate Exchange Execute Explain Export Extend Fill Find Flush Fold Follow Force Forget Free Gather Generate
    Give Go Hand Have Hear Hold Import Insert Install Issue Join Jump Keep Lead Leave Let List Load Log Look Lower Make
    Map Mark Measure Merge Move Multiply Name Note Number Occupy Open Optimise Paint Parse Place Plan Point Print
    Project Push Put Raise Read Receive Record Reduce Refuse Register Remove Repeat Replace Report Reserve Restore
    Return Rewrite Round Route Run Save Say Scale Search Send Set Settle Share Shift Show Simplify Simulate Skip Sort
    Split Spread Start Stop Store Stream Sum Swap Take Tell Test Time Train Turn Undo Update Use Verify Wait Walk
    Whether Work Wrap Write Yield
    """
)
VERBS = word_set(
    """
    adds allows appear appears appends applies are arrive arrives ask asks assembles assigns become becomes begin begins
    belong belongs binds bounds brings calibrate came can cannot carries carry checks chooses clears closes collects
    come comes compares compiles compresses computes connects consist consists contains converts could creates decides
    declare declares decodes defines delivers depends describe describes did differ divides do does emits enables
    enclose encodes enters evaluates exceeds exchanges executes exists expects explains expresses fails falls fill fills
    finds fixes flattens flows follows forwards generates get gets give gives go goes grows had handles hands hangs
    happen happens has have helps hides hold holds includes initialises initializes inserts installs is jumps keep keeps
    know knows lays leads learns leaves lets lie lies live lives locates loses lowers make makes may means meets merges
    move multiplies must need needs obeys occurs offers opens overlaps owns paints parses passes performs pops predicts
    prefers presents prints produces provides pulls pushes puts raises reach reaches receives reduces refers refuse
    refuses relates remains remembers removes renders replaces represents reproduces requires reserves resolves restores
    rests returns reveals rewrites rounds say says see selects send sends separates serves shall should shows simulates
    sits sleeps solves sorts speaks stand stands states stays subtracts suits supplies take takes talks tell tells took
    tracks trains translates travel treats tries understands updates use uses validates varies wake wakes wants was
    weighs were will wins would wraps yields
    """
)
NOUNS_TOO = word_set(
    """
    answers begin builds call calls changes copies cost costs count counts covers crosses cut cuts depend differs draw
    draws drives drops end ends estimates explain exports fall feeds fit fits follow forms functions guards imports
    issues joins lead leave let limits links lists loads look looks maps marks matches mean measures meet models moves
    name names orders packs pass picks places plans points posts prices print queries ranks read reads records releases
    repeats reports run runs searches sees sets share shares shifts show splits starts stay steps stops stores streams
    sums switches tests turn turns values visits wait waits walks want work works write writes
    """
)
"""Forms that are nouns as well; they count as verbs where only a verb can stand."""
RELATIVES = word_set("that which who whose whom where what how when while if unless until because")
AUXILIARIES = word_set("is are was were has have had can cannot could may must will would shall should do does did")
PRONOUNS = {"it", "that", "which", "who", "they", "nobody", "everything", "this", "these", "code"}


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[^.][.!?])\s+(?=[A-Z`\d\"(])", paragraph)[0]


def faults(kind: str, text: str) -> list[str]:
    """Return what is wrong with a docstring of a "module", "class", "property", "function" or "value"."""
    sentence = first_sentence(text)
    tokens = re.findall(r"[A-Za-z][\w'-]*|[,:;()]", re.sub(r"`+[^`]*`+", "code", sentence))
    words = [token for token in tokens if token[0].isalpha()]
    found = []
    if len(words) < FEWEST:
        found.append(f"fewer than {FEWEST} words")
    if re.match(r"[a-z]+\b(?!-[A-Z])", sentence):
        found.append("begins with a small letter")
    first = words[0] if words else ""
    if not (kind == "function" and first in IMPERATIVES) and first != "Whether" and not _says(tokens):
        found.append("has no verb")
    return found


def _says(tokens: list[str]) -> bool:
    """Whether a sentence has a verb besides one for each of its clauses, which end at a mark."""
    clauses, before = 0, ""
    for token, behind in pairwise([*(token.lower() for token in tokens), ""]):
        is_verb = token in VERBS or (token in NOUNS_TOO and before in PRONOUNS)
        if is_verb and before not in AUXILIARIES:
            if not clauses:
                return True
            clauses -= 1
        elif token in RELATIVES and (token, behind) != ("that", "of"):
            clauses += 1
        elif not token[0].isalpha():
            clauses = 0
        before = token
    return False


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name, text) of the docstrings of a file: its own, of classes, functions and values."""
    if text := ast.get_docstring(tree):
        yield "module", "", text
    yield from _below(tree, "")


def _below(parent: ast.AST, prefix: str) -> Iterator[tuple[str, str, str]]:
    body = getattr(parent, "body", [])
    for node, before in zip(body, [None, *body], strict=False):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{prefix}{node.name}"
            if text := ast.get_docstring(node):
                yield _kind(node), name, text
            yield from _below(node, f"{name}.")
        elif isinstance(before, (ast.Assign, ast.AnnAssign)) and (text := _text(node)):
            target = before.targets[0] if isinstance(before, ast.Assign) else before.target
            yield "value", f"{prefix}{ast.unparse(target)}", text


def _text(node: ast.AST) -> str:
    """Return the text of a statement that is one, else nothing."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _kind(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    decorators = (ast.unparse(decorator) for decorator in node.decorator_list)
    return "property" if any("property" in decorator for decorator in decorators) else "function"


def python_files(root: Path, rooms: tuple[str, ...]) -> Iterator[Path]:
    """Yield the sources and stubs below some directories, without those that are generated."""
    for room in rooms:
        for path in sorted([*(root / room).rglob("*.py"), *(root / room).rglob("*.pyi")]):
            if path.name not in ("program.pyi", "_build_info.py"):
                yield path

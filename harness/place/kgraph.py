"""Kernel graphs are the text in which the ISPD 2020 contest states a placement problem; they are read strictly.

A head in ``(* ... *)`` has ``key=value`` lines: `width` and `height` of the wafer [PEs], `memlimit` of a PE [words],
and the weights of the score `wdeltat`, `wlength`, `wadapter`; `test` is its name.  Then come lines of two kinds::

    conv[7] W=14 H=14 R=3 S=3 C=512 K=512 T=2 U=2 name='k7'         a kernel
    conv[7]:y -> conv[8]:x, shape:[14][14][512]                     a connection

``input`` and ``output`` are where data come from and go to; they need no place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from harness.place.kernels import FORMAL, ContestKernel
from wse_core.errors import ConfigError
from wse_core.schema import Field, suggestion

__all__ = ["ContestProblem", "parse_problem", "read_problem"]

MOST_BYTES = 10_000_000
"""Of a file: the largest of the contest has 12 kB."""
HEAD = {
    "width": Field("width", int, low=1, high=4096, unit="PEs"),
    "height": Field("height", int, low=1, high=4096, unit="PEs"),
    "memlimit": Field("memlimit", int, low=1, high=2**30, unit="words"),
    "wdeltat": Field("wdeltat", float, low=0.0, high=1e12),
    "wlength": Field("wlength", float, low=0.0, high=1e12),
    "wadapter": Field("wadapter", float, low=0.0, high=1e12),
}
# Products of these fit into 64 bits in `harness.place.shapes`.
SIZE = Field("size", int, low=1, high=2**14)
FILTER = Field("size", int, low=1, high=64)
ENDS = ("input", "output")
COMMENT = re.compile(r"\(\*(.*?)\*\)", re.S)
NODE = re.compile(r"(\w+)\s*\[\s*(\d+)\s*\]\s+(.*)")
EDGE = re.compile(
    r"(\w+)\s*\[\s*(\d+)\s*\]\s*:\s*\w+\s*->\s*(\w+)\s*\[\s*(\d+)\s*\]\s*:\s*\w+\s*,\s*shape\s*:\s*[\[\]\d\s]+"
)
WORD = re.compile(r"(\w+)\s*=\s*('[^']*'|\[[^\]]*\]|[^\s'\[=]+)\s*")
NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class ContestProblem:
    """A `ContestProblem` is a placement problem of the contest.

    Attributes
    ----------
    name : str
        What the head calls the test.
    width, height : int
        Of the wafer [PEs].
    memory : int
        Of a PE [words].
    time_weight, wire_weight, adapter_weight : float
        What the score multiplies the slowest kernel, the length of wires and the number of adapters with.
    kernels : tuple of ContestKernel
        In the order of the file.
    wires : tuple of (int, int)
        Connections between kernels, as positions in `kernels`; those with the input or the output are left out.
    """

    name: str
    width: int
    height: int
    memory: int
    time_weight: float
    wire_weight: float
    adapter_weight: float
    kernels: tuple[ContestKernel, ...]
    wires: tuple[tuple[int, int], ...]


def read_problem(path: str | PathLike[str]) -> ContestProblem:
    """Read a ``.kgraph`` file.

    Raises
    ------
    ConfigError
        It cannot be read, or says something that is no problem; the message has the line.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise ConfigError("is a directory", where=path, hint="the name of a .kgraph file")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path) from None
    if len(data) > MOST_BYTES:
        raise ConfigError(f"is larger than {MOST_BYTES:,} bytes", where=path, hint="a .kgraph file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("is no text", where=path, hint="a .kgraph file") from None
    return parse_problem(text, str(path))


def parse_problem(text: str, where: str = "kgraph") -> ContestProblem:
    """Return the problem that a text states; `ConfigError` says in which line it is wrong."""
    head: dict[str, str] = {}
    for comment in COMMENT.finditer(text):
        for key, value in re.findall(r"^\s*(\w+)\s*=\s*(.*?)\s*$", comment[1], re.M):
            if key not in (*HEAD, "test"):
                raise ConfigError(
                    f"the head has no key {key[:40]!r}", where=where, hint=suggestion(key, (*HEAD, "test"))
                )
            if key in head:
                raise ConfigError(f"{key} stands in the head twice", where=where, hint="once")
            head[key] = value
    missing = [key for key in HEAD if key not in head]
    if missing:
        raise ConfigError(
            f"the head lacks {', '.join(missing)}", where=where, hint="a head (* width=633 ... *) as the contest has it"
        )
    numbers = {key: field.parse(head[key], f"{where}: {key}") for key, field in HEAD.items()}
    # Line numbers stay what they are in the file.
    body = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    kernels, wires = _body(body, where)
    if not kernels:
        raise ConfigError("has no kernel", where=where, hint="lines such as conv[1] W=14 H=14 ... name='k1'")
    return ContestProblem(
        head.get("test", "")[:80],
        numbers["width"],
        numbers["height"],
        numbers["memlimit"],
        numbers["wdeltat"],
        numbers["wlength"],
        numbers["wadapter"],
        tuple(kernels),
        tuple(wires),
    )


def _body(body: str, where: str) -> tuple[list[ContestKernel], list[tuple[int, int]]]:
    """Return kernels and wires of the lines below the head."""
    kernels: list[ContestKernel] = []
    nodes: dict[int, tuple[str, int | None]] = {}
    edges: list[tuple[str, tuple[str, int], tuple[str, int]]] = []
    names: set[str] = set()
    for number, raw in enumerate(body.splitlines(), 1):
        line, place = raw.strip(), f"{where}: line {number}"
        if not line:
            continue
        if edge := EDGE.fullmatch(line):
            edges.append((place, (edge[1], _index(edge[2], place)), (edge[3], _index(edge[4], place))))
        elif node := NODE.fullmatch(line):
            kind, index = node[1], _index(node[2], place)
            if index in nodes:
                raise ConfigError(f"there is a node {index} already", where=place, hint="another number")
            kernel = _node(kind, node[3], place)
            if kernel is not None:
                if kernel.name in names:
                    raise ConfigError(f"there is a kernel {kernel.name} already", where=place, hint="another name")
                names.add(kernel.name)
            nodes[index] = kind, None if kernel is None else len(kernels)
            kernels += [] if kernel is None else [kernel]
        else:
            raise ConfigError(
                "is neither a kernel nor a connection",
                where=place,
                hint="conv[1] W=14 H=14 ... name='k1', or conv[1]:y -> conv[2]:x, shape:[14][14][64]",
            )
    return kernels, _wires(edges, nodes)


def _index(text: str, place: str) -> int:
    """Return the number of a node."""
    if len(text) > 9:
        raise ConfigError("the number of a node is above 999999999", where=place, hint="a smaller one")
    return int(text)


def _wires(
    edges: list[tuple[str, tuple[str, int], tuple[str, int]]], nodes: dict[int, tuple[str, int | None]]
) -> list[tuple[int, int]]:
    """Return the connections between kernels; each end must be there."""
    wires = []
    for place, *pair in edges:
        found = []
        for kind, index in pair:
            if index not in nodes or nodes[index][0] != kind:
                raise ConfigError(f"there is no {kind}[{index}]", where=place, hint="one of the nodes above")
            found.append(nodes[index][1])
        first, second = found
        if first is not None and second is not None:
            if first == second:
                raise ConfigError("connects a kernel with itself", where=place, hint="two kernels")
            wires.append((first, second))
    return wires


def _node(kind: str, text: str, place: str) -> ContestKernel | None:
    """Return the kernel of a line, or None for input and output."""
    if kind not in (*FORMAL, *ENDS):
        raise ConfigError(f"{kind[:40]!r} is no kernel", where=place, hint=suggestion(kind, (*FORMAL, *ENDS)))
    words: dict[str, str] = {}
    rest = text
    while rest:
        word = WORD.match(rest)
        if not word:
            raise ConfigError(f"{rest[:40]!r} is no key=value", where=place, hint="for example W=14")
        key = word[1] if word[1] == "name" else word[1].upper()
        if key in words and key != "name":  # some files of the contest name a node twice: the last one counts
            raise ConfigError(f"{word[1]} stands there twice", where=place, hint="once")
        words[key] = word[2].strip("'")
        rest = rest[word.end() :]
    name = words.pop("name", "")
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name[:40]!r} is no name of a kernel", where=place, hint="name='k1': letters and digits")
    if kind in ENDS:
        return None
    formal = FORMAL[kind]
    for key in words:
        if key not in formal:
            raise ConfigError(f"{kind} has no {key[:40]}", where=place, hint=suggestion(key, formal))
    missing = [key for key in formal if key not in words]
    if missing:
        raise ConfigError(f"{kind} needs {', '.join(missing)}", where=place, hint="all of them")
    sizes = ((FILTER if key in "RSTU" else SIZE).parse(words[key], f"{place}: {key}") for key in formal)
    return ContestKernel(name, kind, tuple(sizes)).checked(place)

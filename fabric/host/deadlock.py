"""The wait-for chain of a stuck engine says why nothing moves.

An engine reports who waits (`waiters()` of the engine interface, docs/internals.md).  From these entries and the
routes of the `FabricSpec` a graph of "waits for" is followed:

* a vector operation without wavelets waits for the routers on the way back to whoever sends the color, and, if those
  hold none, for the compute element at their end;
* one without room in its output queue waits for the router's queue of that color from the ramp;
* a wavelet in a router waits for the queue that has no room for it: the neighbour's, or the CE's input queue, which in
  turn waits for a thread or task that takes from it;
* a task that is activated or has data waits for the main thread to end, because tasks run to completion.

A cycle of the graph is the usual deadlock; without one the chain ends where something is missing (a sender that is
done, a blocked task, a switch that nobody advances).

The routes are those of the specification, all switch positions taken together: what a program rewrote at run time is
not seen, so the chain is an explanation, not a proof.  Timing: none, runs after the engine has stopped.
Sources: docs/machine.md, "Router", "CE"; arch §14.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from wse_core import isa
from wse_core.encoding import DIR_HOST, N_QUEUES
from wse_core.errors import DeadlockError
from wse_core.image import DIR_R, DIRS, STEP, TASK_TEARDOWN, FabricSpec

__all__ = ["Wait", "deadlock", "explain"]

Key: TypeAlias = tuple[Any, ...]
"""A `Key` is what waits or is waited for: its kind, its place, and its number there."""
Entry: TypeAlias = dict[str, Any]
"""An entry is the engine's record of something that waits."""

_SIDES = ("the west", "the east", "the north", "the south", "its CE")
_MAX_STARTS = 64  # threads whose chains are followed
_MAX_CHAIN = 4096
_MAX_PLACES = 3  # lines that one operation is said to stand on


@dataclass(frozen=True)
class Wait:
    """One link of a chain: `text` says who waits for what; `entry` is the engine's record of it."""

    text: str
    entry: Entry = field(compare=False, default_factory=dict)

    def __str__(self) -> str:
        return self.text


def deadlock(engine: Any, spec: FabricSpec) -> DeadlockError:
    """Return the `DeadlockError` that describes a stuck engine.

    Parameters
    ----------
    engine : Engine or ReferenceMachine
        Its `run` returned ``stuck``.
    spec : FabricSpec

    Returns
    -------
    DeadlockError
        ``waiters`` holds the chain as `Wait` objects.
    """
    entries = engine.waiters()
    chain, is_cycle = explain(entries, spec)
    count: dict[str, int] = {}
    for entry in entries:
        count[entry["kind"]] = count.get(entry["kind"], 0) + 1
    names = {"thread": "thread", "router": "router queue", "queue": "input queue", "task": "task", "stream": "stream"}
    held = ", ".join(f"{n} {names[kind]}{'s' * (n != 1)}" for kind, n in sorted(count.items()))
    shape = "in a circle" if is_cycle else "for something that will not come"
    hint = None
    if chain and chain[-1].entry.get("hint"):
        hint = chain[-1].entry["hint"]
    elif is_cycle and any(link.entry.get("reason") == "resource" for link in chain):
        hint = (
            "what waits to begin needs the microthread, or a DSR, of an operation that waits for it; on WSE-2 the "
            "fabric's queues number the microthreads: operations beside each other need queues of different numbers"
        )
    elif is_cycle:
        hint = (
            "an asynchronous operation does not hold up tasks; a deeper queue or another order of the sends breaks "
            "the circle"
        )
    if not is_cycle and (lost := _lost(engine, entries, chain, spec)):
        chain = [*chain, lost]
        hint = "a task for each event, or .activate of one and .unblock of the other: activations are not counted"
    return DeadlockError(
        f"nothing can move any more and work is left ({held}): waiting {shape}",
        waiters=chain,
        cycle=max(0, engine.last_active),
        hint=hint,
        is_cycle=is_cycle,
    )


def _lost(engine: Any, entries: Sequence[Entry], chain: Sequence[Wait], spec: FabricSpec) -> Wait | None:
    """Return a task that was activated again before it had begun, of the PEs of a chain first; None if there is none.

    What should follow the second activation may be what others wait for.
    """
    found = engine.lost()
    if not found:
        return None
    near = [(link.entry["x"], link.entry["y"]) for link in chain if "x" in link.entry]
    places = [*reversed(near), *((entry["x"], entry["y"]) for entry in entries if "x" in entry)]
    x, y, task = next((row for place in places for row in found if row[:2] == place), found[0])
    name = _Graph(entries, spec).task_name(x, y, task)
    text = f"PE ({x}, {y}): task {name} was activated again before it had begun, which made it run once for both"
    return Wait(text, {"kind": "end", "x": x, "y": y})


def explain(entries: Sequence[Entry], spec: FabricSpec) -> tuple[list[Wait], bool]:
    """Return (chain, whether it is a circle) for the waiters of a stuck engine.

    Parameters
    ----------
    entries : list of dict
        `waiters()` of the engine.
    spec : FabricSpec

    Returns
    -------
    list of Wait
        Each waits for the next; the last one waits for the first if it is a circle.
    bool
    """
    graph = _Graph(entries, spec)
    best, best_rank = [], (-1, 0)
    for start in graph.starts():
        path, is_cycle = graph.follow(start)
        rank = (is_cycle, len(path) if not is_cycle else -len(path))
        if rank > best_rank:
            best, best_rank = path, rank
    is_cycle = best_rank[0] == 1
    return _shorten([Wait(graph.text(key), graph.entries.get(key, {})) for key in best], best), is_cycle


class _Graph:
    """The graph says who waits for whom, found on demand.

    Nodes are keys: ("thread", x, y, name), ("router", x, y, color, port), ("queue", x, y, queue), ("task", x, y, id),
    ("stream", index), and ("end", ...) for what is missing.
    """

    def __init__(self, entries: Sequence[Entry], spec: FabricSpec) -> None:
        self.spec = spec
        self.entries: dict[Key, Entry] = {}
        self.outputs = {link: k for k, link in enumerate(spec.outputs)}
        self.at: dict[tuple[int, int], list[Key]] = {}
        for entry in entries:
            key = _key(entry)
            self.entries[key] = entry
            if key[0] in ("thread", "task", "queue"):
                self.at.setdefault(key[1:3], []).append(key)
        self.ends: dict[Key, tuple[str, str]] = {}

    def starts(self) -> list[Key]:
        order = {"thread": 0, "task": 1, "queue": 2, "router": 3, "stream": 4}
        keys = sorted(self.entries, key=lambda k: (order[k[0]], tuple(map(str, k[1:]))))
        step = max(1, len(keys) // _MAX_STARTS)
        return keys[::step]

    def follow(self, start: Key) -> tuple[list[Key], bool]:
        """Walk depth first to the first circle; without one return the first path found, to its end."""
        path, seen, index = [start], {start: 0}, 0
        first = None
        ahead = [iter(self.next(start))]
        visited = {start}
        while ahead:
            node = next(ahead[-1], None)
            if node is None:
                if first is None:
                    first = list(path)
                ahead.pop()
                del seen[path.pop()]
                continue
            index += 1
            if node in seen:
                return path[seen[node] :], True
            if node in visited or len(path) > _MAX_CHAIN or index > 100 * _MAX_CHAIN:
                continue
            visited.add(node)
            seen[node] = len(path)
            path.append(node)
            ahead.append(iter(self.next(node)))
        return first or [start], False

    # --- who waits for whom ---------------------------------------------------------------------------------------

    def next(self, key: Key) -> list[Key]:
        kind = key[0]
        if kind == "end":
            return []
        return getattr(self, "_next_" + kind)(key, self.entries[key])

    def threads(self, x: int, y: int, but: Key | None = None) -> list[Key]:
        """Return waiting threads of a PE, the main thread first."""
        keys = [k for k in self.at.get((x, y), ()) if k[0] == "thread" and k != but]
        return sorted(keys, key=lambda k: k[3] != "main")

    def _next_thread(self, key: Key, entry: Entry) -> list[Key]:
        x, y, reason, color = key[1], key[2], entry["reason"], entry["color"]
        if reason == "input" and color is not None:
            return self._senders(x, y, color)
        if reason == "output" and color is not None:
            router = ("router", x, y, color, DIR_R)
            return (
                [router]
                if router in self.entries
                else [
                    self._end(
                        x,
                        y,
                        f"PE ({x}, {y}): the router has no route for color {color} from the ramp",
                        f"layout.route({color}, ({x}, {y}), rx='R', ...)",
                    )
                ]
            )
        return self.threads(x, y, key)

    def _next_router(self, key: Key, entry: Entry) -> list[Key]:
        _, x, y, color, port = key
        e = self._leaves_as(x, y, color, port)
        reason = entry["reason"]
        if reason == "teardown":
            others = self.threads(x, y) + [k for k in self.at.get((x, y), ()) if k[:1] == ("task",)]
            return others or [
                self._end(
                    x,
                    y,
                    f"PE ({x}, {y}): color {e} is in teardown and nothing there ends it",
                    f"a task with id {TASK_TEARDOWN} that calls td_exit({e})",
                )
            ]
        if reason == "rx":
            return [
                self._end(
                    x,
                    y,
                    f"PE ({x}, {y}): color {e} is not taken from {_SIDES[port]} in the present switch position",
                    "a control wavelet that advances the switch, or sw_pos",
                )
            ]
        found = []
        for d in entry["blocked"]:
            if d == DIR_R:
                found += self._consumers(x, y, e)
            elif (number := self.outputs.get((x, y, DIR_R if d == DIR_HOST else d, e))) is not None:
                found.append(
                    self._end(
                        x,
                        y,
                        f"output stream {number} (color {e}): the host takes no more wavelets",
                        "Fabric.accept with more cycles, or accept(stream, None) to take all",
                    )
                )
            else:
                there = ("router", x + STEP[d][0], y + STEP[d][1], e, d ^ 1)
                if there in self.entries:
                    found.append(there)
        if reason == "inject":
            ramp = ("router", x, y, color, DIR_R)
            found += [ramp] if ramp in self.entries and ramp != key else []
        return found

    def _consumers(self, x: int, y: int, color: int) -> list[Key]:
        k = self.spec.program_index[y, x]
        if k < 0:
            return []
        queues = [q for q, c in enumerate(self.spec.programs[k].inq_color) if c == color]
        keys = [("queue", x, y, q) for q in queues if ("queue", x, y, q) in self.entries]
        return keys or self.threads(x, y)

    def _next_queue(self, key: Key, entry: Entry) -> list[Key]:
        _, x, y, number = key
        color = entry["color"]
        task = number % N_QUEUES if self.spec.machine["task.by_queue"] else color
        program = self.spec.programs[self.spec.program_index[y, x]]
        threads = self.threads(x, y)
        if threads:
            return threads
        if not program.data_tasks >> task & 1:
            return [
                self._end(
                    x,
                    y,
                    f"PE ({x}, {y}): no operation takes color {color}, and it has no data task there",
                    f"an operation with a fabin on color {color}, or a data task",
                )
            ]
        return [
            self._end(
                x,
                y,
                f"PE ({x}, {y}): the data task of color {color} is blocked and nothing unblocks it",
                f"unblock({task})",
            )
        ]

    def _next_task(self, key: Key, entry: Entry) -> list[Key]:
        _, x, y, task = key
        threads = [k for k in self.threads(x, y) if k[3] == "main"]
        name = self.task_name(x, y, task)
        return threads or [
            self._end(x, y, f"PE ({x}, {y}): task {name} is blocked and nothing unblocks it", f"unblock({name})")
        ]

    def _next_stream(self, key: Key, entry: Entry) -> list[Key]:
        x, y, d, color = self.spec.inputs[key[1]]
        if d == DIR_R:
            return self._consumers(x, y, color)
        router = ("router", x, y, color, d)
        return [router] if router in self.entries else self.threads(x, y)

    # --- the way back to the senders of a color --------------------------------------------------------------------

    def _route(self, x: int, y: int, color: int) -> tuple[int, int]:
        """Return (rx, tx) of a color at a PE, all positions together."""
        table = self.spec.routes.get(color)
        if table is None:
            return 0, 0
        row = table[y, x]
        rx = tx = 0
        for p in range(4):
            if row["valid"] >> p & 1:
                rx |= int(row["rx"][p])
                tx |= int(row["tx"][p])
        if row["inject"]:
            rx |= 1 << DIR_R
        return rx, tx

    def _leaves_as(self, x: int, y: int, color: int, port: int) -> int:
        """Return the color as which a wavelet of `color` in `port` leaves (color swap)."""
        need = 3 if port == DIR_R else 1 << port // 2
        pair = [self.spec.routes.get(c) for c in (color, color ^ 1)]
        if any(table is None or int(table[y, x]["swap"]) & need != need for table in pair):
            return color
        return color ^ 1

    def _senders(self, x: int, y: int, color: int) -> list[Key]:
        """Return the routers that hold wavelets of `color` on the way to the CE of a PE, else the PEs that send it."""
        streams = [k for k, link in enumerate(self.spec.inputs) if link == (x, y, DIR_R, color)]
        if not streams and not self._route(x, y, color)[1] >> DIR_R & 1:
            return [
                self._end(
                    x,
                    y,
                    f"PE ({x}, {y}): no route brings color {color} to this PE",
                    f"layout.route({color}, ({x}, {y}), rx=..., tx='R')",
                )
            ]
        held, sources = [], []
        routed = self._route(x, y, color)[1] >> DIR_R & 1
        ahead, seen = deque([(x, y, color)] if routed else ()), {(x, y, color)}
        while ahead:
            px, py, e = ahead.popleft()
            for port in range(5):
                if not self._route(px, py, e)[0] >> port & 1:
                    continue
                c = self._leaves_as(px, py, e, port)  # its own inverse: how the wavelet came in
                router = ("router", px, py, c, port)
                if router in self.entries:
                    held.append(router)
                elif port == DIR_R:
                    sources.append((px, py, c))
                else:
                    qx, qy = px + STEP[port][0], py + STEP[port][1]
                    if not (0 <= qx < self.spec.width and 0 <= qy < self.spec.height):
                        streams += [
                            k
                            for k, (sx, sy, d, sc) in enumerate(self.spec.inputs)
                            if (sx, sy, d, sc) == (px, py, port, c)
                        ]
                    elif self._route(qx, qy, c)[1] >> (port ^ 1) & 1 and (qx, qy, c) not in seen:
                        seen.add((qx, qy, c))
                        ahead.append((qx, qy, c))
        if held:
            return held
        found: list[Key] = []
        for px, py, _ in sources:
            threads = self.threads(px, py)
            tasks = [k for k in self.at.get((px, py), ()) if k[0] == "task"]
            found += threads or tasks
        if found:
            return found
        if sources:
            px, py, c = sources[0]
            more = f" (nor one of {len(sources) - 1} other PEs)" if len(sources) > 1 else ""
            return [
                self._end(
                    px,
                    py,
                    f"PE ({px}, {py}){more}: has nothing left to do and sends no more wavelets of color {c}",
                    "fewer elements at the receiver, or more at the sender; was it launched?",
                )
            ]
        if streams:
            return [
                self._end(
                    x,
                    y,
                    f"input stream {streams[0]} (color {color}): all its wavelets are taken",
                    "Fabric.send more of them, or expect fewer",
                )
            ]
        return [
            self._end(
                x,
                y,
                f"color {color} on its way to PE ({x}, {y}): no PE and no stream sends it",
                f"rx='R' in a route of color {color}, or an input stream",
            )
        ]

    def _end(self, x: int, y: int, text: str, hint: str) -> Key:
        key = ("end", x, y, text)
        self.entries.setdefault(key, {"kind": "end", "x": x, "y": y, "hint": hint})
        return key

    # --- text -----------------------------------------------------------------------------------------------------

    def task_name(self, x: int, y: int, task: int) -> str:
        """Return a task as the program calls it, or its id."""
        program = self.spec.programs[self.spec.program_index[y, x]]
        at = int(program.entry[task])
        names = [name for name, label in program.labels.items() if label == at and not name.startswith(".")]
        return f"{names[0]!r}" if at >= 0 and names else f"{task}"

    def _place(self, x: int, y: int, op: str | None) -> str:
        """Return where an operation stands in a program that was compiled; several places if it has some of the kind.

        Lines of Python say where an instruction was made, often in a library, and are left out.
        """
        program = self.spec.programs[self.spec.program_index[y, x]]
        lines = {word: line for word, line in program.lines.items() if line.partition(":")[0].endswith(".csl")}
        if not lines:
            return ""
        found = sorted({lines[at] for at, code, *_ in isa.decode(program.code) if code.name == op and at in lines})
        return f" ({' or '.join(found)})" if 0 < len(found) <= _MAX_PLACES else ""

    def text(self, key: Key) -> str:
        kind, entry = key[0], self.entries.get(key, {})
        if kind == "end":
            return key[3]
        if kind == "stream":
            x, y, _, color = self.spec.inputs[key[1]]
            return (
                f"input stream {key[1]}: {entry['left']} wavelets of color {color} for PE ({x}, {y}) find no room "
                "in its router"
            )
        pe = f"PE ({key[1]}, {key[2]})"
        if kind == "thread":
            length = entry["length"]
            done = f", {entry['done']} of {'endless' if length is None else length} elements done"
            queue = (entry["queue"] or 0) % N_QUEUES
            what = {
                "input": f"a wavelet of color {entry['color']} (input queue {queue})",
                "output": f"room in output queue {queue} (color {entry['color']})",
                "fifo": "a FIFO",
                "resource": "a DSR or microthread in use",
            }[entry["reason"]]
            who = "main thread" if entry["thread"] == "main" else f"microthread {entry['thread'][2:]}"
            place = self._place(key[1], key[2], entry["op"])
            return f"{pe}: {who}, {entry['op']}{place}{done if length != 0 else ''}, waits for {what}"
        n = entry.get("wavelets", 0)
        some = f"{n} wavelet{'s' * (n != 1)}"
        if kind == "router":
            color, port = key[3], key[4]
            why = {
                "teardown": "in teardown",
                "rx": "for the switch to take this direction",
                "inject": "for the other side of CE injection",
                "room": "for room",
            }[entry["reason"]]
            if entry["reason"] == "room" and not entry["blocked"]:
                why = "although nothing blocks them"
            to = [{DIR_R: "the CE", DIR_HOST: "the host"}.get(d) or DIRS[d] for d in entry["blocked"]]
            return f"{pe}: {some} of color {color} from {_SIDES[port]} wait {why}{' to ' + ', '.join(to) if to else ''}"
        if kind == "queue":
            return f"{pe}: {some} of color {entry['color']} in input queue {key[3] % N_QUEUES} that nothing takes"
        return f"{pe}: task {self.task_name(key[1], key[2], key[3])} is activated and cannot start"


def _key(entry: Entry) -> Key:
    kind = entry["kind"]
    if kind == "stream":
        return kind, entry["index"]
    last = {"thread": ("thread",), "router": ("color", "port"), "queue": ("queue",), "task": ("task",)}[kind]
    return (kind, entry["x"], entry["y"], *(entry[name] for name in last))


def _shorten(chain: list[Wait], keys: list[Key]) -> list[Wait]:
    """Fold long runs of links of one shape: a color handed on from router to router or from PE to PE."""
    shapes = [_shape(key, link) for key, link in zip(keys, chain, strict=True)]
    result, k = [], 0
    while k < len(chain):
        stop = k
        while stop + 1 < len(chain) and shapes[stop + 1] == shapes[k]:
            stop += 1
        hidden = stop - k - 1
        if hidden > 1:
            what = "routers" if keys[k][0] == "router" else "threads"
            result += [chain[k], Wait(f"... {hidden} more {what} in the same way"), chain[stop]]
        else:
            result += chain[k : stop + 1]
        k = stop + 1
    return result


def _shape(key: Key, link: Wait) -> tuple[Any, ...]:
    """Return what makes two links of a chain alike; places and colors do not count."""
    entry = link.entry
    if key[0] == "router":
        return key[0], key[4], entry["reason"], tuple(entry["blocked"])
    if key[0] == "thread":
        return key[0], key[3], entry["op"], entry["reason"]
    return key

"""Tasks of several PEs are composed along lines, rings, trees and chains of messages: who waits for whom.

Prices of tasks say what a PE does between what it does with others (`TaskPrice.meetings`).  Here they are put together:
a `Bond` says that what one meeting sends another one takes, so many routers further, and `follow` finds when everybody
is through.  Two rules are all there is:

* A meeting begins when its PE is ready and the first wavelets of all that it takes are there; those of a message come
  behind those of the message before it in the same queue.
* A PE that sends goes on when its ramp has room for what has not left; where the next PE is late, when that has made
  room.  One that takes goes on behind the last wavelet, which comes at the rate of the slowest queue on its way.

So what a kernel costs follows from its programs and its routes, whatever its shape: a chain is a line of links, a tree
has several into one place.  `links_of` reads them from the routes and switches of a fabric.

Timing: docs/machine.md, "Router", "Queue"; rates are those of `fabric.price.timing`.
Known differences: what colors lose on links that they share is not counted.  The cycle in which a switch moves
between two messages is a gap here also where slow routers (`router.hop` of two) let the next message close it.
Operations of microthreads with the fabric, control wavelets, filters, swaps and injection are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.price.code import Meeting
from fabric.price.layout import programs_of
from fabric.price.prices import TaskPrice
from fabric.price.program import pricer
from fabric.price.state import Given
from wse_core.encoding import DSD_FABOUT, F_CONTROL, N_POSITIONS, N_QUEUES
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.image import DIR_R, STEP, FabricSpec, ProgramImage
from wse_core.params import Machine

__all__ = ["Bond", "follow", "links_of", "price_lines"]

Node = tuple[int, int]
"""A node is a place with the number of one of its meetings."""
WHERE = "price: lines"


class Bond(NamedTuple):
    """A message: what a meeting sends and another one takes.

    Attributes
    ----------
    sender, receiver : (int, int)
        Place and number of the meeting.
    hops : int
        Links between routers.
    out, into : int
        Output queue of the sender and input queue of the receiver.
    """

    sender: Node
    receiver: Node
    hops: int
    out: int
    into: int


def follow(machine: Machine, tasks: Sequence[TaskPrice], links: Sequence[Bond], start: float = 0) -> list[float]:
    """Return the cycle in which each place can choose its next task.

    Parameters
    ----------
    machine : Machine
    tasks : sequence of TaskPrice
        Of each place; all are chosen in cycle `start`.
    links : sequence of Bond

    Raises
    ------
    ProgramError
        Meetings wait for each other in a circle, or for a message that nobody sends, or the price of a task is not
        known.
    """
    return _Following(machine, tasks, links, start).ends()


class _Following:
    """The meetings of all places, each reckoned once those that it waits for are."""

    def __init__(self, machine: Machine, tasks: Sequence[TaskPrice], links: Sequence[Bond], start: float) -> None:
        self.machine, self.tasks, self.start = machine, tasks, start
        self.into: dict[Node, dict[int, list[Bond]]] = {}
        self.out: dict[Node, list[Bond]] = {}
        for link in links:
            self.into.setdefault(link.receiver, {}).setdefault(link.into, []).append(link)
            self.out.setdefault(link.sender, []).append(link)
        self.first: dict[Node, float] = {}
        self.last: dict[Node, float] = {}
        self.taken: dict[Bond, tuple[float, float]] = {}
        """Each message has the time when its first wavelet can be taken, and when it is."""
        self.streams: dict[Bond, tuple[float, int]] = {}
        """Wavelets that follow one another up to a message have the time when the first came, and how many are before
        it.
        """
        self.before: dict[Bond, Bond] = {}
        last_in: dict[tuple[int, int], Bond] = {}
        for link in sorted(links, key=lambda link: link.receiver):  # those to one meeting stay in their order
            queue = link.receiver[0], link.into
            if queue in last_in:
                self.before[link] = last_in[queue]
            last_in[queue] = link

    def ends(self) -> list[float]:
        """Return when each place is through."""
        for place, task in enumerate(self.tasks):
            _ = task.alone  # which refuses what is not known
            for number, meeting in enumerate(task.meetings):
                if self.into.get((place, number), {}).keys() != set(meeting.takes):
                    raise ProgramError(f"place {place} waits for a message that nobody sends", where=WHERE)
        found = []
        for place, task in enumerate(self.tasks):
            if not task.meetings:
                found.append(self.start + task.alone)
                continue
            whole = self._reckoned(("last", (place, len(task.meetings) - 1)))
            found.append(whole + task.alone - task.meetings[-1].end)
        return found

    def _meeting(self, node: Node) -> Meeting:
        return self.tasks[node[0]].meetings[node[1]]

    def _reckoned(self, wanted: tuple[str, Node]) -> float:
        """Return first or last cycle of a meeting, those that it needs first; the ways may be as long as a wafer."""
        todo, begun = [wanted], set()
        while todo:
            what, node = todo[-1]
            table = self._table(what)
            needed = (
                [] if node in table else [one for one in self._needs(what, node) if one[1] not in self._table(one[0])]
            )
            if needed:
                begun.add((what, node))
                if not begun.isdisjoint(needed):
                    raise ProgramError("places wait for each other", where=f"{WHERE}: {node[0]}")
                todo += needed
                continue
            if node not in table:
                table[node] = self._first(node) if what == "first" else self._last(node)
            begun.discard((what, node))
            todo.pop()
        return self._table(wanted[0])[wanted[1]]

    def _table(self, what: str) -> dict[Node, float]:
        return self.first if what == "first" else self.last

    def _needs(self, what: str, node: Node) -> list[tuple[str, Node]]:
        """Return what a first or a last cycle follows from."""
        place, number = node
        queues = self.into.get(node, {}).values()
        if what == "first":
            senders = [("first", links[0].sender) for links in queues]
            return senders + ([("last", (place, number - 1))] if number else [])
        late = [("first", link.receiver) for link in self.out.get(node, ()) if self._fills(link)]
        return [("first", node), *late, *(("first", link.sender) for links in queues for link in links[1:])]

    def _room(self, link: Bond) -> int:
        """Return the wavelets that have room between two PEs."""
        m = self.machine
        routers = m["router.depth"] * (link.hops + 1)
        return m["queue.out_depth"][link.out % N_QUEUES] + routers + self._inside(link)

    def _inside(self, link: Bond) -> int:
        return self.machine["queue.in_depth"][link.into % N_QUEUES] + self.machine["ramp.in_buffer"]

    def _fills(self, link: Bond) -> bool:
        """Whether a message is longer than what has room on its way."""
        return self._meeting(link.sender).wavelets > self._room(link)

    def _ready(self, node: Node) -> float:
        """Return the cycle in which a PE could begin a meeting."""
        place, number = node
        meeting = self._meeting(node)
        if not number:
            return self.start + meeting.first
        return self.last[place, number - 1] + meeting.first - self.tasks[place].meetings[number - 1].end

    def _arrival(self, link: Bond) -> float:
        """Return the cycle in which a receiver can take the first wavelet of a message."""
        m = self.machine
        found = self.first[link.sender] + timing.way(m, link.hops)
        before, stream = self.before.get(link), None
        if before is not None:
            queues = before.into % N_QUEUES, before.out % N_QUEUES
            sent = self._meeting(before.sender)
            _, begun = self.taken[before]
            since, count = self.streams[before]
            count += sent.wavelets
            behind = since + timing.train(m, count + 1, *queues, before.hops) - 1
            if behind >= found:
                found, stream = behind, (since, count)
            if sent.advances and sent.wavelets - 1 > self._inside(before):
                # What moves the switch follows the last wavelet, which enters the queue when there is room for it.
                late = begun + sent.wavelets - 1 - self._inside(before) + m["ramp.in"] + 2
                if late > found:
                    found, stream = late, None
        self.streams[link] = stream or (found, 0)
        return found

    def _first(self, node: Node) -> float:
        """Return the cycle of the first step of a meeting."""
        arrivals = {links[0]: self._arrival(links[0]) for links in self.into.get(node, {}).values()}
        first = max([self._ready(node), *arrivals.values()])
        self.taken |= {link: (arrival, first) for link, arrival in arrivals.items()}
        return first

    def _last(self, node: Node) -> float:
        """Return the cycle behind the last step of a meeting."""
        m, meeting, first = self.machine, self._meeting(node), self.first[node]
        found = first + meeting.length
        for links in self.into.get(node, {}).values():
            begun = first
            for link in links:
                arrival = self.taken[link][0] if link in self.taken else self._arrival(link)
                self.taken[link] = arrival, max(begun, arrival)
                sent = self._meeting(link.sender)
                queues = link.into % N_QUEUES, link.out % N_QUEUES
                begun = timing.receiver(m, sent.wavelets - sent.advances, *queues)(begun, arrival)
            found = max(found, begun)
        for link in self.out.get(node, ()):
            queues = link.into % N_QUEUES, link.out % N_QUEUES
            found = max(found, first + timing.sending(m, meeting.wavelets, *queues, link.hops))
            if self._fills(link):
                found = max(found, self.first[link.receiver] + meeting.wavelets - self._room(link))
        return found


def links_of(spec: FabricSpec, tasks: Mapping[tuple[int, int], TaskPrice]) -> list[Bond]:
    """Return the links between the meetings of PEs, along the routes and switches of a fabric.

    Parameters
    ----------
    spec : FabricSpec
    tasks : mapping of (x, y) to TaskPrice
        Places are numbered in its order.

    Raises
    ------
    UnsupportedError
        A color that is used has filters, swaps or injection, or tasks do not take all that is sent.
    """
    return _Carried(spec, tasks).links


class _Message(NamedTuple):
    """A `_Message` is a message on its way: who sent it, in which queue, how far it has come, what its last wavelet
    commands.
    """

    sender: Node
    out: int
    hops: int
    advances: bool


class _Carried:
    """All messages of all places are carried here, one after the other, in the order in which routers let them through.

    There is no time in it: a place goes on when what it takes is there, a message when the position of a switch lets it
    in.  Which message comes to which meeting follows from that alone.
    """

    def __init__(self, spec: FabricSpec, tasks: Mapping[tuple[int, int], TaskPrice]) -> None:
        self.spec, self.tasks = spec, tasks
        self.places = list(tasks)
        self.number = {pe: k for k, pe in enumerate(tasks)}
        self.links: list[Bond] = []
        self.position: dict[tuple[int, tuple[int, int]], int] = {}
        self.queues: dict[tuple[int, tuple[int, int], int], deque[_Message]] = {}
        self.there: dict[tuple[int, tuple[int, int]], deque[_Message]] = {}
        self.at = dict.fromkeys(tasks, 0)
        todo: deque[tuple[int, int]] = deque(tasks)
        while todo:
            pe = todo.popleft()
            while self.at[pe] < len(tasks[pe].meetings) and self._meets(pe, todo):
                self.at[pe] += 1
        left = next((pe for pe in tasks if self.at[pe] < len(tasks[pe].meetings)), None)
        if left is not None or any(self.there.values()) or any(self.queues.values()):
            where = "" if left is None else f": {left} waits"
            raise UnsupportedError(f"messages that this task does not take{where}", where=WHERE, feature="lines")

    def _meets(self, pe: tuple[int, int], todo: deque[tuple[int, int]]) -> bool:
        """Let a place have its next meeting, if what it takes is there."""
        image = self.spec.programs[self.spec.program_index[pe[1], pe[0]]]
        meeting, node = self.tasks[pe].meetings[self.at[pe]], (self.number[pe], self.at[pe])
        colors = [image.inq_color[queue] for queue in meeting.takes]
        for color in colors:
            if sum(self._wavelets(message) for message in self.there.get((color, pe), ())) < self._data(meeting):
                return False
        for color, queue in zip(colors, meeting.takes, strict=True):
            left = self._data(meeting)
            while left > 0:
                message = self.there[color, pe].popleft()
                left -= self._wavelets(message)
                self.links.append(Bond(message.sender, node, message.hops, message.out, queue))
            if left:
                raise UnsupportedError(f"{pe} takes a message in parts", where=WHERE, feature="lines")
        for queue in meeting.sends:
            color = image.outq_color[queue]
            message = _Message(node, queue, 0, meeting.advances)
            self.queues.setdefault((color, pe, DIR_R), deque()).append(message)
            self._carry(color, pe, todo)
        return True

    @staticmethod
    def _data(meeting: Meeting) -> int:
        """Return the wavelets of a meeting without the one that moves switches on."""
        return meeting.wavelets - meeting.advances

    def _wavelets(self, message: _Message) -> int:
        pe = self.places[message.sender[0]]
        return self._data(self.tasks[pe].meetings[message.sender[1]])

    def _carry(self, color: int, pe: tuple[int, int], todo: deque[tuple[int, int]]) -> None:
        """Let messages of a color through the router of a PE, and those that wait for that."""
        routers = [pe]
        while routers:
            x, y = there = routers.pop()
            route = self.spec.routes[color][y, x]
            if route["filter"] or route["swap"] or route["inject"] or route["teardown"]:
                raise UnsupportedError(
                    f"color {color} at PE {there}: a filter, a swap or injection", where=WHERE, feature="lines"
                )
            position = self.position.get((color, there), int(route["pos"]))
            for port in range(DIR_R + 1):
                queue = self.queues.get((color, there, port))
                if not queue or not int(route["rx"][position]) >> port & 1:
                    continue
                message = queue.popleft()
                onward = message._replace(advances=False)  # only the switch of the own router moves
                for side in range(DIR_R + 1):
                    if not int(route["tx"][position]) >> side & 1:
                        continue
                    if side == DIR_R:
                        self.there.setdefault((color, there), deque()).append(message)
                        todo.append(there)
                    else:
                        after = x + STEP[side][0], y + STEP[side][1]
                        onward = onward._replace(hops=message.hops + 1)
                        self.queues.setdefault((color, after, side ^ 1), deque()).append(onward)
                        routers.append(after)
                if message.advances:
                    self.position[color, there] = _advanced(route, position)
                routers.append(there)
                break


def _advanced(route: Any, position: int) -> int:
    """Return the position of a switch behind one: the next valid one, the first again if it is a ring."""
    valid = [k for k in range(N_POSITIONS) if int(route["valid"]) >> k & 1]
    later = [k for k in valid if k > position]
    return later[0] if later else valid[0] if route["ring"] else position


def price_lines(
    layout: Layout, task: str = "main", machine: Machine | None = None, given: Given | None = None
) -> dict[tuple[int, int], float]:
    """Return when each PE is through with a task that the host launches on all of them in cycle 0.

    Parameters
    ----------
    layout : Layout
    task : str
    machine : Machine, optional
        Default that of the layout.
    given : mapping, optional
        Contents of variables, as of `fabric.price.price`; they need not be in all programs.

    Raises
    ------
    UnsupportedError
        Filters, swaps or injection, operations that microthreads do with the fabric, or tasks besides this one.
    ProgramError
        The price of a task is not known.
    """
    machine = layout.machine if machine is None else machine
    spec = layout.build()
    kinds: dict[tuple[int, tuple[tuple[int, int], ...]], TaskPrice] = {}
    tasks: dict[tuple[int, int], TaskPrice] = {}
    for program, x, y, _, words in programs_of(layout, each=True):
        key = program, tuple(words.items())
        if key not in kinds:
            memory: dict[str | int, object] = dict(words.items())
            memory |= {name: v for name, v in (given or {}).items() if name in spec.programs[program].symbols}
            known = pricer(layout.programs[program], machine, given=memory)
            names = known.names()
            if list(names) != [task]:
                raise UnsupportedError(
                    f"program {spec.programs[program].name!r} has tasks besides {task!r}: {', '.join(names)}",
                    where=WHERE,
                    feature="lines",
                )
            kinds[key] = known.task(*names[task])
            image = spec.programs[program]
            _plain(image)
            if kinds[key].beside:
                raise UnsupportedError(
                    "microthreads that meet the fabric",
                    where=f"program {spec.programs[program].name!r}",
                    feature="lines",
                )
        tasks[x, y] = kinds[key]
    return dict(zip(tasks, follow(machine, list(tasks.values()), links_of(spec, tasks)), strict=True))


def _plain(image: ProgramImage) -> None:
    """Refuse a program that sends control wavelets of its own."""
    rows = image.descriptors
    if len(rows) and bool(((rows["kind"] == DSD_FABOUT) & (rows["flags"] & F_CONTROL > 0)).any()):
        raise UnsupportedError("control wavelets", where=f"program {image.name!r}", feature="lines")

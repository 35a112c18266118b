"""Random functions of the intermediate form, as text: the same seed makes the same one.

Registers that are set once are known by the blocks that see them; a few variables are set again and again.  Memories
are of every kind that passes tell apart: reached by pointers or not, of one word or several, the function's own.
"""

from __future__ import annotations

import random

__all__ = ["make"]

MEMORIES = {
    "a": 'memory("u16", 8)',
    "b": 'memory("u16", 8, apart=True)',
    "c": 'memory("u16", 4, frame=True, apart=True)',
    "o": 'memory("u16", 10, apart=True)',
    "s": 'memory("u16", 2, apart=True)',
    "w": 'memory("u32", 4)',
    "x": 'memory("u16", 8)',
    "z": 'memory("u32", 2, frame=True, apart=True)',
}
WIDE = ("w", "z")
POINTED = ("a", "x", "w")
ENDS = {
    1: (0, 1, 2, 3, 7, 0x7FFF, 0x8000, 0x8001, 0xFFFF),
    2: (0, 1, 5, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF),
}
ALU = {1: ("add", "sub", "mul", "and", "or", "xor", "add", "sub"), 2: ("add", "sub", "mul", "and", "or", "xor")}
CONDITIONS = ("eq", "ne", "lt", "le", "ltu", "leu")


class Maker:
    """Makes one function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.blocks = 1
        self.dsrs = 0
        self.lines: list[str] = []
        self.variables: list[str] = []
        self.arguments: list[str] = []
        self.totals: dict[int, str] = {}
        """Registers in which the numbers of loads are mixed, so that a wrong one is seen."""
        self.places: list[tuple[str, str, int]] = []
        self.seen: list[str] = []
        """Registers in sight."""
        self.depth = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def new(self, size: int) -> str:
        self.count += 1
        return f"{'v' if size == 1 else 'd'}{self.count}"

    def put(self, line: str) -> None:
        self.lines.append(f"    {line}")

    # ---- operands

    def number(self, size: int) -> str:
        return str(self.random.choice((*ENDS[size], self.random.randrange(1 << 16 * size), self.random.randrange(16))))

    def register(self, size: int) -> str:
        """Return a register in sight."""
        found = [name for name in self.seen if (name[0] == "v") == (size == 1)]
        if not found or self.chance(0.08):
            return self.set("const", self.number(size), size)
        return self.random.choice(found[-6:] if self.chance(0.6) else found)

    def operand(self, size: int) -> str:
        return self.number(size) if self.chance(0.3) else self.register(size)

    def set(self, op: str, rest: str, size: int, fresh: bool = False) -> str:
        """Put an operation with a register for its result: a new one, or a variable; addresses are never variables."""
        again = [name for name in self.variables if not fresh and (name[0] == "v") == (size == 1)]
        made = self.random.choice(again) if again and self.chance(0.15) else self.new(size)
        self.put(f"{made} = {op} {rest}")
        if made not in self.variables:
            self.seen.append(made)
        return made

    # ---- operations

    def operation(self) -> None:
        makers = [self.alu] * 6 + [self.load] * 6 + [self.store] * 5 + [self.through] * 4 + [self.convert, self.copy]
        makers += [self.call, self.vector, self.vector, self.outside, self.shift, self.product]
        self.random.choice(makers)()

    def alu(self) -> None:
        size = self.random.choice((1, 1, 2))
        op = f"{self.random.choice(ALU[size])}{16 * size}"
        self.set(op, f"{self.operand(size)}, {self.operand(size)}", size)

    def shift(self) -> None:
        size = self.random.choice((1, 2))
        by = self.random.choice((0, 1, 2, 15, 16 * size - 1)) if self.chance(0.7) else self.register(1)
        self.set(f"{self.random.choice(('sll', 'slr', 'sar'))}{16 * size}", f"{self.operand(size)}, {by}", size)

    def product(self) -> None:
        """Put a product with a number that shifts and sums make."""
        size = self.random.choice((1, 2))
        high, low = sorted(self.random.sample(range(16 * size), 2))
        by = (1 << low) + self.random.choice((1, -1)) * (1 << high) & (1 << 16 * size) - 1
        self.set(f"mul{16 * size}", f"{self.register(size)}, {by}", size)

    def convert(self) -> None:
        if self.chance(0.5):
            self.set(self.random.choice(("low", "high")), self.register(2), 1)
        else:
            self.set(self.random.choice(("sx32", "zx32")), self.operand(1), 2)

    def copy(self) -> None:
        size = self.random.choice((1, 2))
        self.set("copy", self.register(size), size)

    def place(self) -> tuple[str, str, int]:
        """Return a place of memory: data, register that is added to it (or nothing), size of a number there.

        Mostly one that was met before: what a pass knows of memory it knows of places that come again.
        """
        known = [place for place in self.places if not place[1] or place[1] in self.seen]
        if not known or self.chance(0.3):
            self.places.append(self.new_place())
            return self.places[-1]
        return self.random.choice(known[-5:])

    def new_place(self) -> tuple[str, str, int]:
        name = self.random.choice([name for name in MEMORIES if name != "o"])
        size = 2 if name in WIDE else 1
        count = int(MEMORIES[name].split(", ")[1].rstrip(")"))
        if name in "cz" or self.chance(0.55):
            return f"@{name}+{size * self.random.randrange(count)}", "", size
        at = self.set("and16", f"{self.register(1)}, {count // 2 - 1}", 1, True)
        if size == 2:
            at = self.set("sll16", f"{at}, 1", 1, True)
        if self.chance(0.5):
            at = self.set("add16", f"{at}, {size * self.random.randrange(count // 2)}", 1, True)
            return f"@{name}", at, size
        return f"@{name}+{size * self.random.randrange(count // 2)}", at, size

    def load(self) -> None:
        data, base, size = self.place()
        self.taken(f"{base} [{data}]", size)

    def taken(self, rest: str, size: int) -> None:
        """Put a load whose number is mostly seen in the end."""
        made = self.set("load", rest, size)
        if self.chance(0.7):
            total, turned = self.totals[size], self.new(size)
            self.put(f"{turned} = mul{16 * size} {total}, 5")
            self.put(f"{total} = add{16 * size} {turned}, {made}")

    def store(self) -> None:
        data, base, size = self.place()
        value = self.register(size)
        self.put(f"store {value}{f', {base}' if base else ''} [{data}]")
        if self.chance(0.4):  # what was stored is loaded again, perhaps after something else
            for _ in range(self.random.randrange(2)):
                self.operation()
            if not base or base in self.seen:
                self.taken(f"{base} [{data}]", size)

    def through(self) -> None:
        """Put a load or store through a pointer."""
        known = [(place, size) for place, _, size in self.places[-5:] if place[1] in POINTED]
        place, size = self.random.choice(known or [("@a+1", 1)])
        at = self.set("const", place, 1, True)
        if self.chance(0.7):  # what no pass sees through
            hidden = self.set(
                "and16", f"{self.random.choice(self.arguments)}, {size * self.random.choice((1, 4))}", 1, True
            )
            at = self.set("add16", f"{hidden}, {at}", 1, True)
        if self.chance(0.5):
            self.taken(f"{at} [0]", size)
        else:
            self.put(f"store {self.register(size)}, {at} [0]")

    def call(self) -> None:
        values = [self.register(1) for _ in range(2)]
        places = [f"{self.new(1)}=r-1" for _ in values]
        for place, value in zip(places, values, strict=True):
            self.put(f"{place} = copy {value}")
        arguments = ", ".join(places)
        if self.chance(0.5):
            self.put(f"call {arguments} [&g]")
            return
        result = self.new(1)
        self.put(f"{result}=r2 = call {arguments} [&h]")
        self.set("copy", f"{result}=r2", 1)

    def descriptor(self, file: str, fabric: bool = False) -> str:
        self.dsrs += 1
        dsr = f"{file}#{self.dsrs}"
        count = 3
        if fabric:
            kind = "fabout" if file == "dest" else "fabin"
            self.put(f"dsr_load [{dsr}, {kind}(extents=({count},), color=2)]")
            return dsr
        name, stride = self.random.choice(("a", "x")), self.random.choice((1, 1, 2, 0 if file != "dest" else 1))
        base = f"@{name}+{self.random.randrange(8 - 2 * stride)}"
        if self.chance(0.3):
            self.put(f"dsr_load [{dsr}, mem1d(extents=({count},), strides=({stride},))]")
            at = self.set("const", base, 1, True)
            self.put(f"dsr_base {at} [{dsr}]")
            return dsr
        self.put(f"dsr_load [{dsr}, mem1d(base={base}, extents=({count},), strides=({stride},))]")
        if self.chance(0.2):
            edit, number = self.random.choice((("dsr_len", 2), ("dsr_stride", 1)))
            value = str(number) if self.chance(0.5) else self.set("const", str(number), 1)
            self.put(f"{edit} {value} [{dsr}]")
        return dsr

    def vector(self) -> None:
        op = self.random.choice(("add16", "xor16", "sub16"))
        choice = self.random.randrange(5)
        if choice == 0:  # a running sum
            dsr = self.descriptor("src1")
            total = self.set("copy", self.register(1), 1)
            self.put(f"{total} = vector {total} [{op}(dst, 0, {dsr})]")
            return
        first = self.descriptor("dest", self.chance(0.15))
        second = self.descriptor("src0", self.chance(0.15))
        later = ", ending=later(low, activate=3)" if self.chance(0.1) else ""
        if choice == 1:
            self.put(f"vector {self.register(1)} [{op}({first}, {second}, 0{later})]")
        elif choice == 2:
            self.put(f"vector [mov16({first}, {second}{later})]")
        else:
            self.put(f"vector [{op}({first}, {second}, {self.descriptor('src1')}{later})]")

    def outside(self) -> None:
        if self.chance(0.3):
            made = self.new(1)
            self.put(f"{made} = rand16")
            self.seen.append(made)
        else:
            self.put(f"task [activate, {self.random.randrange(4)}]")

    # ---- statements

    def begin(self) -> str:
        """Return the name of a block to be placed later."""
        self.blocks += 1
        return f"b{self.blocks}"

    def place_block(self, name: str) -> None:
        self.lines.append(f"  {name}:" + (f" depth {self.depth}" if self.depth else ""))

    def condition(self) -> tuple[str, str]:
        size = self.random.choice((1, 1, 2))
        return f"{self.operand(size)}, {self.operand(size)}", f"br{16 * size}, {self.random.choice(CONDITIONS)}"

    def some(self, most: int) -> None:
        """Put statements whose registers are in sight of each other only."""
        seen = len(self.seen)
        for _ in range(self.random.randint(1, most)):
            self.statement()
        del self.seen[seen:]

    def statement(self) -> None:
        if self.depth < 2 and self.chance(0.07):
            self.loop()
        elif self.depth < 3 and self.chance(0.07):
            self.choose()
        else:
            self.operation()

    def choose(self) -> None:
        args, what = self.condition()
        then, otherwise, after = self.begin(), self.begin(), self.begin()
        self.put(f"br {args} [{what}, {then}, {otherwise}]")
        for name in (then, otherwise):
            self.place_block(name)
            if name == then or self.chance(0.7):
                self.some(5)
            self.put(f"jmp [{after}]")
        self.place_block(after)

    def loop(self) -> None:
        """Put a loop that counts, its test at the end or at the begin."""
        index, turns, step = self.new(1), self.random.randint(1, 4), self.random.choice((1, 1, 2))
        start = self.random.choice((0, 0, 1, 0xFFFE))
        last = start + turns * step & 0xFFFF
        test, body, after = self.begin(), self.begin(), self.begin()
        self.put(f"{index} = const {start}")
        at_end = self.chance(0.5)
        self.put(f"jmp [{body if at_end else test}]")
        self.depth += 1
        if not at_end:
            self.place_block(test)
            self.put(f"br {index}, {last} [br16, ne, {body}, {after}]")
        self.place_block(body)
        seen = len(self.seen)
        if self.chance(0.6):
            self.seen.append(index)
        if self.chance(0.6):
            scaled = self.new(1)
            self.put(f"{scaled} = sll16 {index}, {self.random.choice((1, 1, 2))}")
            self.seen.append(scaled)
        if self.chance(0.4):  # a sum in memory
            name = self.random.choice(("@s", "@a+3", "@b+1"))
            first, second = self.new(1), self.new(1)
            self.put(f"{first} = load [{name}]")
            self.put(f"{second} = add16 {first}, {self.register(1)}")
            self.put(f"store {second} [{name}]")
        self.some(6)
        del self.seen[seen:]
        self.put(f"{index} = add16 {index}, {step}")
        if at_end:
            self.put(f"br {index}, {last} [br16, ne, {body}, {after}]")
        else:
            self.put(f"jmp [{test}]")
        self.depth -= 1
        self.place_block(after)

    def function(self) -> str:
        """Return the text of a function of two arguments."""
        kind = self.random.choice(("fn", "fn", "task"))
        first, second = self.new(1), self.new(1)
        fixed = [f"{first}=r2", f"{second}=r3"]
        self.put(f"entry [{', '.join(fixed)}]")
        self.arguments = [self.new(1), self.new(1)]
        self.seen += self.arguments
        for name, place in zip(self.seen, fixed, strict=True):
            self.put(f"{name} = copy {place}")
        self.variables = [self.set("const", self.number(size), size) for size in (1, 1, 2)]
        for size in (1, 2):
            self.totals[size] = self.new(size)
            self.put(f"{self.totals[size]} = const 1")
        for _ in range(self.random.randint(3, 20)):
            self.statement()
        for k, name in enumerate((*self.variables, *self.totals.values())):
            self.put(f"store {name} [@o+{2 * k}]")
        if kind == "fn":
            value, result = self.register(1), self.new(1)
            self.put(f"{result}=r2 = copy {value}")
            self.put(f"ret {result}=r2")
        else:
            self.put("ret")
        heads = [f"@{name} = {memory}" for name, memory in MEMORIES.items()]
        heads += ["&g = function(fn, places=(2, 4), clobbers=(2, 3, 4, 5))"]
        heads += ["&h = function(fn, result=1, places=(2, 3), clobbers=(2, 3, 8, 9))"]
        params = f"({', '.join(fixed)})" if kind == "fn" else "()"
        result = " result=1" if kind == "fn" else ""
        return "\n".join([*heads, f"{kind} f{params}{result}:", "  b1:", *self.lines])


def make(seed: int) -> str:
    """Return the text of the function of a seed."""
    return Maker(seed).function()

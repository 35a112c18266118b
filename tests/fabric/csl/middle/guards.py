"""Functions that come out wrong if a pass forgets what it must look at, as text; each says which guard it stands for.

``p`` points to ``@a+1``, ``n`` is 7: parameters of which no pass knows anything.
"""

from __future__ import annotations

__all__ = ["GUARDS", "HEAD", "function"]

HEAD = """@a = memory(u16, 8)
@b = memory(u16, 8, apart=True)
@c = memory(u16, 4, frame=True, apart=True)
@i = memory(u16, 2, frame=True, apart=True, init=(3, 4))
@o = memory(u32, 4, apart=True)
@w = memory(u32, 4)
@x = memory(u16, 8)
&g = function(fn, places=(2,), clobbers=(2, 3, 4, 5))
&h = function(fn, result=1, places=(2,), clobbers=(2, 3, 8, 9))
"""


def function(body: str, kind: str = "fn") -> str:
    """Return the text of a function; the body begins in a first block where `p` and `n` are set."""
    params = "v1=r2, v2=r3" if kind == "fn" else ""
    begin = "  b1:\n    entry [v1=r2, v2=r3]\n    v3 = copy v1=r2\n    v4 = copy v2=r3\n"
    lines = [line.strip() for line in body.replace("p!", "v3").replace("n!", "v4").strip().splitlines()]
    shown = "\n".join(f"  {line}" if line.startswith("b") and ":" in line else f"    {line}" for line in lines)
    return f"{HEAD}{kind} f({params}):\n{begin}{shown}\n"


MEMORY = {
    "a store through a pointer": "v5 = load [@a+1]\nstore n!, p! [0]\nv6 = load [@a+1]",
    "a load through a pointer": "v5 = load p! [0]\nstore n! [@a+1]\nv6 = load p! [0]",
    "a store at an index": "v5 = load [@a+3]\nv7 = and16 n!, 3\nstore n!, v7 [@a]\nv6 = load [@a+3]",
    "a load at an index": "v7 = and16 n!, 3\nv5 = load v7 [@a]\nstore n! [@a+3]\nv6 = load v7 [@a]",
    "half of a number": "d5 = load [@w]\nstore n! [@w+1]\nd6 = load [@w]",
    "the other half": "v5 = load [@w+1]\nd7 = zx32 n!\nstore d7 [@w]\nv6 = load [@w+1]",
    "a load of another size": "d5 = load [@w]\nv6 = load [@w]",
    "a call": "v5 = load [@b+3]\nv7=r-1 = copy n!\ncall v7=r-1 [&g]\nv6 = load [@b+3]",
    "a vector operation": """v5 = load [@a+1]
        dsr_load [dest#1, mem1d(base=@a, extents=(3,))]
        vector n! [mov16(dest#1, 0)]
        v6 = load [@a+1]""",
    "a vector operation, and a pointer": """v5 = load p! [0]
        dsr_load [dest#1, mem1d(base=@a, extents=(3,))]
        vector n! [mov16(dest#1, 0)]
        v6 = load p! [0]""",
    "a vector operation somewhere": """v5 = load [@a+1]
        dsr_load [dest#1, mem1d(extents=(3,))]
        dsr_base p! [dest#1]
        vector n! [mov16(dest#1, 0)]
        v6 = load [@a+1]""",
}
"""What is known of memory, and what ends it; `v5` and `v6`, or `d5` and `d6`, are looked at."""

VALUES = {
    "sums of differences": "v5 = sub16 n!, 3\nv6 = add16 v5, 10",
    "differences of sums": "v5 = add16 n!, 3\nv6 = sub16 v5, 1",
    "a factor of all ones": "v5 = mul16 n!, 65535\nv6 = mul16 n!, 65534",
    "a difference of two powers": "v5 = mul16 n!, 28\nv6 = mul16 n!, 24",
    "a shift of a constant": "v5 = sll16 3, n!\nv6 = sar16 32768, n!",
    "known shifts by more than there is": "v5 = sll16 5, 17\nv6 = sar16 32768, 19",
    "known numbers with signs": "v5 = sar16 32768, 3\nv6 = slr16 32768, 3",
    "a difference that is no sum": "v5 = sub16 3, n!\nv6 = sub16 n!, 3",
    "a difference with an address": "v5 = sub16 7, @a\nv6 = sub16 @a+2, 1",
    "a known address moved back": "v7 = const 65535\nv5 = load v7 [@a+3]\nv6 = load [@a+2]",
    "widening with a sign": "d5 = sx32 65535\nd6 = zx32 65535",
    "a register that is fixed does not last": "v5 = copy v1=r2\nv7=r2 = const 3\nv6 = add16 v5, 1",
    "a result lies in a fixed register": """v7=r3 = add16 n!, 1
        v5 = add16 n!, 1
        v8=r3 = const 0
        v6 = add16 v5, 2""",
    "a fixed register is set again": """v7=r2 = copy n!
        call v7=r2 [&g]
        v7=r2 = copy n!
        call v7=r2 [&g]
        v5 = const 1
        v6 = const 1""",
    "arguments stay where they are": """v7=r-1 = const 5
        call v7=r-1 [&g]
        v8=r-1 = copy n!
        v6=r2 = call v8=r-1 [&h]
        v5 = copy v6=r2""",
    "a variable that is set again": "v7 = copy n!\nv5 = copy v7\nv7 = add16 v7, 1\nv6 = add16 v5, v7",
    "an expression of what was set again": """v7 = copy n!
        v5 = add16 v7, 1
        v7 = const 9
        v6 = add16 v7, 1
        v6 = add16 v6, n!""",
    "a holder that was set again": """v5 = add16 n!, 9
        v7 = copy v5
        v5 = const 2
        v6 = add16 n!, 9
        v6 = add16 v6, v7""",
    "a copy of a copy": "v7 = copy n!\nv8 = copy v7\nv7 = const 3\nv5 = copy v8\nv6 = copy v7",
    "an offset follows a base": """v7 = add16 n!, @a
        dsr_load [src1#1, mem1d(extents=(2,))]
        dsr_base v7 [src1#1]
        v5 = const 0
        v5 = vector v5 [add16(dst, 0, src1#1)]
        v6 = const 0""",
    "a stride that is negative": """dsr_load [src1#1, mem1d(base=@x+4, extents=(3,))]
        dsr_stride 65535 [src1#1]
        v5 = const 0
        v5 = vector v5 [sub16(dst, 0, src1#1)]
        v6 = const 0""",
    "a constant of 32 bits for a vector": """d7 = const 65541
        dsr_load [dest#1, mem1d(base=@w, extents=(2,))]
        dsr_load [src0#1, mem1d(base=@o, extents=(2,))]
        vector d7 [add32(dest#1, src0#1, 0)]
        v5 = load [@w+1]
        v6 = low 65541""",
    "a constant of 32 bits to be stored": "d7 = const 65541\nstore d7 [@w]\nv5 = const 0\nv6 = high 196608",
    "a sum begins with what it is not kept in": """v7 = const 3
        dsr_load [src1#1, mem1d(base=@x, extents=(3,))]
        v5 = copy v7
        v5 = vector v5 [add16(dst, 0, src1#1)]
        v6 = copy v7""",
    "effects stay in their order": """v5 = rand16
        task [activate, 2]
        v7 = rand16
        task [activate, 1]
        v6 = rand16""",
}

FRAMES = {
    "its own memory that begins with numbers": "v5 = load [@i]\nv6 = load [@i+1]",
    "its own memory at an index": "store n! [@c+1]\nv7 = and16 n!, 1\nv5 = load v7 [@c]\nv6 = load [@c+1]",
    "its own memory that a pointer reaches": """v7 = const @c
        store n!, v7 [0]
        v5 = load [@c]
        v6 = const 0""",
    "its own memory whose address is stored": """store @c [@b]
        store n! [@c]
        v7 = load [@b]
        v5 = load v7 [0]
        v6 = load [@c]""",
    "its own memory in two sizes": "store n! [@c]\nstore p! [@c+1]\nd5 = load [@c]\nd6 = load [@c]",
    "its own memory that a descriptor reaches": """store n! [@c+1]
        dsr_load [dest#1, mem1d(base=@c, extents=(2,))]
        vector p! [mov16(dest#1, 0)]
        v5 = load [@c+1]
        v6 = const 0""",
}

VECTORS = {
    "a load of what was written": "v7 = load [@a+1]",
    "a load of who knows what": "v7 = load p! [0]",
    "a load into an operand": "n! = load [@x]",
}
"""Loads between two vector operations that write `@a` and take `n`."""

AROUND = """dsr_load [dest#1.1, mem1d(base=@a, extents=(3,))]
dsr_load [dest#2.2, mem1d(base=@b, extents=(3,))]
v7 = const 1
vector n! [mov16(dest#1.1, 0)]
LOAD
vector n! [mov16(dest#2.2, 0)]
v5 = copy v7
v6 = load [@b]"""

AHEAD = {
    **{name: AROUND.replace("LOAD", load) for name, load in VECTORS.items()},
    "a load at what was computed": """dsr_load [src1#1, mem1d(base=@b, extents=(1,))]
        dsr_load [dest#1, mem1d(base=@x, extents=(3,))]
        v7 = vector [mov16(dst, src1#1)]
        v5 = load v7 [@a]
        vector v5 [mov16(dest#1, 0)]
        v6 = copy v7""",
    "a load over what was computed": """dsr_load [src1#1, mem1d(base=@b, extents=(1,))]
        dsr_load [dest#1, mem1d(base=@x, extents=(3,))]
        v5 = vector [mov16(dst, src1#1)]
        v5 = load [@a+4]
        vector v5 [mov16(dest#1, 0)]
        v6 = copy v5""",
}

LOADED = "mem1d(base=@x, extents=(3,))"
DESCRIPTORS = {
    "one that is edited is not another": f"""v7 = const 1
        dsr_load [src1#1, {LOADED}]
        dsr_len v7 [src1#1]
        v5 = const 0
        v5 = vector v5 [add16(dst, 0, src1#1)]
        dsr_load [src1#2, {LOADED}]
        v6 = const 0
        v6 = vector v6 [add16(dst, 0, src1#2)]""",
    "one that will be edited is not another": f"""v7 = const 1
        dsr_load [src1#1, {LOADED}]
        v5 = const 0
        v5 = vector v5 [add16(dst, 0, src1#1)]
        dsr_load [src1#2, {LOADED}]
        dsr_off v7 [src1#2]
        v6 = const 0
        v6 = vector v6 [add16(dst, 0, src1#2)]
        dsr_load [src1#3, {LOADED}]
        v6 = vector v6 [add16(dst, 0, src1#3)]""",
    "another one came between": f"""dsr_load [src1#1, {LOADED}]
        v5 = const 0
        v5 = vector v5 [add16(dst, 0, src1#1)]
        dsr_load [src1#2, mem1d(base=@a, extents=(2,))]
        v5 = vector v5 [add16(dst, 0, src1#2)]
        dsr_load [src1#3, {LOADED}]
        v6 = const 0
        v6 = vector v6 [add16(dst, 0, src1#3)]""",
    "a call uses the same numbers": f"""dsr_load [src1#1, {LOADED}]
        v5 = const 0
        v5 = vector v5 [add16(dst, 0, src1#1)]
        v7=r-1 = copy n!
        call v7=r-1 [&g]
        dsr_load [src1#2, {LOADED}]
        v6 = const 0
        v6 = vector v6 [add16(dst, 0, src1#2)]""",
}

LOOP = """v9 = const 0
BEFORE
jmp [b2]
b2: depth 1
INSIDE
v9 = add16 v9, 1
br v9, 3 [br16, ne, b2, b3]
b3:
v5 = copy v6"""


def in_a_loop(inside: str, before: str = "v6 = const 0") -> str:
    """Return a body that does something three times; `v6` is looked at."""
    return LOOP.replace("INSIDE", inside).replace("BEFORE", before)


LOOPS = {
    "memory that is written": in_a_loop("v7 = load [@a+1]\nv6 = add16 v6, v7\nstore v6, p! [0]"),
    "memory that a call writes": in_a_loop("v7 = load [@b]\nv6 = add16 v6, v7\nv8=r-1 = copy v6\ncall v8=r-1 [&g]"),
    "memory that a vector operation writes": in_a_loop(
        "v7 = load [@a+1]\nv6 = add16 v6, v7\ndsr_load [dest#1, mem1d(base=@a, extents=(2,))]\n"
        "vector v6 [mov16(dest#1, 0)]"
    ),
    "what is set in the loop": in_a_loop("v7 = add16 v9, 3\nv6 = add16 v6, v7"),
    "what is set twice": in_a_loop("v7 = add16 n!, 3\nv6 = add16 v6, v7\nv7 = add16 n!, 5\nv6 = xor16 v6, v7"),
    "a random number": in_a_loop("v7 = rand16\nv6 = add16 v6, v7"),
    "the result of a call": in_a_loop(
        "v8=r-1 = copy v9\nv10=r2 = call v8=r-1 [&h]\nv7 = add16 v10=r2, 3\nv6 = add16 v6, v7"
    ),
    "a sum that a call sees": in_a_loop(
        "v7 = load [@b+1]\nv6 = add16 v7, 3\nstore v6 [@b+1]\nv8=r-1 = copy v9\ncall v8=r-1 [&g]"
    ),
    "a sum of two places": in_a_loop(
        "v7 = load [@b+1]\nv6 = add16 v7, 3\nstore v6 [@b+1]\nv8 = load [@b+2]\nv8 = add16 v8, v6\nstore v8 [@b+2]"
    ),
    "a sum at a place that moves": in_a_loop("v7 = load v9 [@b]\nv6 = add16 v7, 3\nstore v6, v9 [@b]"),
    "a sum at a place that does not": in_a_loop(
        "v7 = load v10 [@b]\nv6 = add16 v7, 3\nstore v6, v10 [@b]", "v6 = const 0\nv10 = and16 n!, 3"
    ),
    "a sum that a pointer reads": in_a_loop(
        "v7 = load [@a+1]\nv6 = add16 v7, 3\nstore v6 [@a+1]\nv8 = load p! [0]\nstore v8 [@o]"
    ),
    "a sum that a pointer writes": in_a_loop("v7 = load [@a+1]\nv6 = add16 v7, 3\nstore v6 [@a+1]\nstore v9, p! [0]"),
    "a sum that a vector operation reads": in_a_loop(
        "v7 = load [@a+1]\nv6 = add16 v7, 3\nstore v6 [@a+1]\ndsr_load [dest#1, mem1d(base=@x, extents=(2,))]\n"
        "dsr_load [src1#1, mem1d(base=@a, extents=(2,))]\nvector [mov16(dest#1, src1#1)]"
    ),
    "a sum that a vector operation somewhere reads": in_a_loop(
        "v7 = load [@a+1]\nv6 = add16 v7, 3\nstore v6 [@a+1]\ndsr_load [dest#1, mem1d(base=@x, extents=(2,))]\n"
        "dsr_load [src1#1, mem1d(extents=(2,))]\ndsr_base p! [src1#1]\nvector [mov16(dest#1, src1#1)]"
    ),
    "a sum that a vector operation writes": in_a_loop(
        "v7 = load [@a+1]\nv6 = add16 v7, 3\nstore v6 [@a+1]\ndsr_load [dest#1, mem1d(base=@a, extents=(2,))]\n"
        "vector v9 [mov16(dest#1, 0)]"
    ),
    "a sum in a branch that is not taken": in_a_loop(
        "br n!, v9 [br16, eq, b4, b5]\nb4: depth 1\nv7 = load [@b+1]\nv6 = add16 v7, 3\nstore v6 [@b+1]\njmp [b5]\n"
        "b5: depth 1"
    ),
    "a loop that is left in two ways": """v9 = const 0
        jmp [b2]
        b2: depth 1
        v7 = load [@b+1]
        v6 = add16 v7, n!
        store v6 [@b+1]
        br v9, 2 [br16, eq, b4, b3]
        b3: depth 1
        v9 = add16 v9, 1
        br v9, 5 [br16, ne, b2, b5]
        b4:
        v5 = load [@b+1]
        store v5 [@o]
        jmp [b6]
        b5:
        v5 = const 3
        jmp [b6]
        b6:
        v6 = copy v5""",
    "a descriptor that moves on": in_a_loop(
        "dsr_load [src1#1, mem1d(base=@x, extents=(2,))]\ndsr_off v9 [src1#1]\nv6 = vector v6 [add16(dst, 0, src1#1)]"
    ),
    "a descriptor that a call disturbs": in_a_loop(
        "dsr_load [src1#1, mem1d(base=@x, extents=(2,))]\nv6 = vector v6 [add16(dst, 0, src1#1)]\n"
        "v8=r-1 = copy v9\ncall v8=r-1 [&g]"
    ),
    "more descriptors than are free": in_a_loop(
        "\n".join(
            f"dsr_load [src1#{k}, mem1d(base=@x+{k}, extents=(2,))]\nv6 = vector v6 [add16(dst, 0, src1#{k})]"
            for k in range(1, 6)
        )
    ),
}

WALK = """v9 = const START
v10 = const 0
v6 = const 0
jmp [b2]
b2: depth 1
BODY
v7 = sll16 v9, 1
v6 = add16 v6, v7
v9 = add16 v9, STEP
v10 = add16 v10, 1
br v10, 6 [br16, eq, b4, b3]
b3: depth 1
br v9, END [ROW, b2, b4]
b4:
v5 = copy v10"""


def walk(start: int | str, step: int, end: int | str, row: str = "br16, ne", body: str = "") -> str:
    """Return a body in which an index is only used twice as large; it ends after six turns in any case."""
    text = WALK.replace("START", str(start)).replace("STEP", str(step)).replace("END", str(end)).replace("ROW", row)
    return text.replace("BODY\n", f"{body}\n" if body else "")


def branch(compared: str, line: str) -> str:
    """Return lines that do something if two numbers are equal."""
    return f"br {compared} [br16, eq, b5, b6]\nb5: depth 1\n{line}\njmp [b6]\nb6: depth 1"


INDICES = {
    "walks to its end": walk(0, 1, 4),
    "ends beyond what its double can say": walk(32766, 1, 32769),
    "is compared by size": walk(0x3FFE, 1, 0x4001, "br16, lt"),
    "is compared with what is not known": walk(0, 1, "n!"),
    "steps over its end": walk(0, 0x5555, 10922),
    "begins behind its end": walk(0x8003, 1, 3),
    "begins at its end and steps far": walk(3, 0x8000, 3),
    "stands still": walk(0, 0, 4),
    "begins at an address": walk("@a", 1, 4),
    "is used as it is": walk(0, 1, 4, body="v6 = add16 v6, v9"),
    "is shifted by two numbers": walk(0, 1, 4, body="v8 = sll16 v9, 2\nv6 = add16 v6, v8"),
    "shifts others": walk(0, 1, 4, body="v8 = sll16 n!, v9\nv6 = add16 v6, v8"),
    "is set to something else": walk(0, 1, 4, body=branch("v10, 2", "v9 = copy n!")),
    "has two steps": walk(0, 0x5555, 10922, body=branch("v10, 9", "v9 = add16 v9, 1")),
    "has two beginnings": walk(0, 1, 4, body=branch("v10, 2", "v9 = const 0")),
}  # fmt: skip

JUMPS = {
    "a number that is none is not itself": """d7 = const 2143289344
        br d7, d7 [brs, eq, b2, b3]
        b2:
        v5 = const 1
        v6 = const 1
        jmp [b4]
        b3:
        v5 = const 2
        v6 = const 2
        jmp [b4]
        b4:""",
    "known floats are no whole numbers": """br 3221225472, 3212836864 [brs, lt, b2, b3]
        b2:
        v5 = const 1
        v6 = const 1
        jmp [b4]
        b3:
        v5 = const 2
        v6 = const 2
        jmp [b4]
        b4:""",
    "blocks that only lead to each other": """v5 = const 1
        v6 = copy n!
        br n!, 9 [br16, eq, b2, b4]
        b2:
        jmp [b3]
        b3:
        jmp [b2]
        b4:""",
    "both ways lead to one block": """v5 = const 1
        br n!, 9 [br16, eq, b2, b3]
        b2:
        jmp [b4]
        b3:
        jmp [b4]
        b4:
        v6 = copy v5""",
    **{
        f"known numbers compared by {condition}, {a} and {b}": f"""br {a}, {b} [br{bits}, {condition}, b2, b3]
        b2:
        v5 = const 1
        v6 = const 1
        jmp [b4]
        b3:
        v5 = const 2
        v6 = const 2
        jmp [b4]
        b4:"""
        for bits in (16, 32)
        for condition in ("eq", "ne", "lt", "le", "ltu", "leu")
        for a, b in ((1 << bits - 1, (1 << bits - 1) - 1), (0, (1 << bits) - 1), (5, 5), (32768, 5))
    },
    **{
        f"a number compared with itself by {condition}": f"""br n!, n! [br16, {condition}, b2, b3]
        b2:
        v5 = const 1
        v6 = const 1
        jmp [b4]
        b3:
        v5 = const 2
        v6 = const 2
        jmp [b4]
        b4:"""
        for condition in ("eq", "ne", "lt", "le", "ltu", "leu")
    },
}

GUARDS = {
    "memory": MEMORY, "values": VALUES, "frames": FRAMES, "ahead": AHEAD, "descriptors": DESCRIPTORS, "loops": LOOPS,
    "indices": INDICES, "jumps": JUMPS,
}  # fmt: skip

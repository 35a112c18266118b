"""What each pass makes of a small function: text in, text out."""

from __future__ import annotations

import pytest

from tests.fabric.csl.middle.test_meaning import PASSES
from tests.fabric.csl.middle.texts import MOVE, become

WORK = {
    "frames: locals lie in registers": (
        "frames",
        "v1 = const 5\nstore v1 [@c+1]\nv2 = load [@c+1]\nret",
        ["v3.c = const 0", "v1 = const 5", "v3.c = copy v1", "v2 = copy v3.c", "ret"],
    ),
    "frames: after the entry": (
        "frames",
        "entry [v1=r2,]\nstore v1=r2 [@c]\nv2 = load [@c]\nret",
        ["entry [v1=r2,]", "v3.c = const 0", "v3.c = copy v1=r2", "v2 = copy v3.c", "ret"],
    ),
    "frames: not what lies beyond the end": (
        "frames",
        "d1 = load [@c+1]\nret",
        ["d1 = load [@c+1]", "ret"],
    ),
    "flow: a known choice, blocks that follow each other": (
        "flow",
        "br 3, 3 [br16, eq, b2, b3]\nb2:\ntask [activate, 1]\njmp [b4]\nb3:\ntask [activate, 2]\njmp [b4]\nb4:\nret",
        ["task [activate, 1]", "ret"],
    ),
    "flow: one block both ways": (
        "flow",
        "v1 = rand16\nbr v1, 3 [br16, eq, b2, b2]\nb2:\nret",
        ["v1 = rand16", "ret"],
    ),
    "flow: the first block stays first": (
        "flow",
        "b1:\nv1 = rand16\nbr v1, 3 [br16, eq, b2, b3]\nb2:\ntask [activate, 1]\njmp [b1]\nb3:\nret",
        [
            "v1 = rand16", "br v1, 3 [br16, eq, b2, b3]", "b2:", "task [activate, 1]", "jmp [b1]", "b3:", "ret",
        ],
    ),
    "single: constants and copies": (
        "single",
        "v1 = const 5\nv2 = copy v1\nv3 = rand16\nv4 = copy v3\nv5 = add16 v4, v2\nstore v5 [@a]\nret",
        [
            "v1 = const 5", "v2 = const 5", "v3 = rand16", "v4 = copy v3", "v5 = add16 v3, 5", "store v5 [@a]", "ret",
        ],
    ),
    "single: a vector operation takes registers": (
        "single",
        f"v1 = const 5\n{MOVE}\nvector v1 [add16(dest:1, src1#1, 0)]\nret",
        ["v1 = const 5", MOVE, "vector v1 [add16(dest:1, src1#1, 0)]", "ret"],
    ),
    "single: so does a filter": (
        "single",
        "v1 = const 5\nflt_set v1 [1, 2]\nret",
        ["v1 = const 5", "flt_set v1 [1, 2]", "ret"],
    ),
    "local: common expressions, sums, loads": (
        "local",
        "v1 = rand16\nv2 = add16 v1, 3\nv3 = add16 v2, 5\nv4 = add16 v1, 3\nv5 = load [@a]\nv6 = load [@a]\nret",
        [
            "v1 = rand16", "v2 = add16 v1, 3", "v3 = add16 v1, 8", "v4 = copy v2", "v5 = load [@a]", "v6 = copy v5",
            "ret",
        ],
    ),
    "local: addresses": (
        "local",
        "v1 = rand16\nv2 = add16 v1, @a+2\nv3 = load v2 [1]\nv4 = const 65535\nv5 = load v4 [@a+3]\nret",
        [
            "v1 = rand16", "v2 = add16 v1, @a+2", "v3 = load v1 [@a+3]", "v4 = const 65535", "v5 = load [@a+2]", "ret",
        ],
    ),
    "local: what is stored already": (
        "local",
        "v1 = load [@a]\nstore v1 [@a]\nstore v1 [@a+1]\nret",
        ["v1 = load [@a]", "store v1 [@a+1]", "ret"],
    ),
    "local: products": (
        "local",
        "v1 = rand16\nv2 = mul16 v1, 8\nv3 = mul16 v1, 7\nv4 = mul16 v1, 11\nret",
        [
            "v1 = rand16", "v2 = sll16 v1, 3", "v5 = copy v2", "v3 = sub16 v2, v1", "v4 = mul16 v1, 11", "ret",
        ],
    ),
    "ahead: loads before the operation that they follow": (
        "ahead",
        "v1 = const 1\ndsr_load [dest#1, mem1d(base=@a, extents=(3,))]\nvector v1 [mov16(dest#1, 0)]\n"
        "v2 = load [@b]\nvector v2 [mov16(dest#1, 0)]\nret",
        [
            "v1 = const 1", "dsr_load [dest#1, mem1d(base=@a, extents=(3,))]", "v2 = load [@b]",
            "vector v1 [mov16(dest#1, 0)]", "vector v2 [mov16(dest#1, 0)]", "ret",
        ],
    ),
    "ahead: not before one that runs beside the rest": (
        "ahead",
        "v1 = const 1\nvector v1 [mov16(dest:1, 0, ending=later(priority=low))]\nv2 = load [@b]\n"
        "vector v2 [mov16(dest:1, 0)]\nret",
        [
            "v1 = const 1", "vector v1 [mov16(dest:1, 0, ending=later())]", "v2 = load [@b]",
            "vector v2 [mov16(dest:1, 0)]", "ret",
        ],
    ),
    "constants: once per block, of each size": (
        "constants",
        "v1 = const 3\nstore v1 [@a]\nv2 = const 3\nstore v2 [@a+1]\nd3 = const 3\nstore d3 [@b]\nret",
        ["v1 = const 3", "store v1 [@a]", "store v1 [@a+1]", "d2 = const 3", "store d2 [@b]", "ret"],
    ),
    "constants: not for comparisons": (
        "constants",
        "v1 = const 3\nstore v1 [@a]\nv2 = const 3\nv3 = rand16\nbr v3, v2 [br16, eq, b2, b2]\nb2:\nret",
        [
            "v1 = const 3", "store v1 [@a]", "v2 = const 3", "v3 = rand16", "br v3, v2 [br16, eq, b2, b2]", "b2:",
            "ret",
        ],
    ),
    "dead: what nobody reads, also where it is set anew": (
        "dead",
        "v1 = const 3\nv1 = rand16\nv2 = load [@a]\nv3 = rand16\nstore v1 [@a]\njmp [b2]\nb2:\nv1 = const 4\n"
        "store v1 [@a]\nv1 = const 5\njmp [b3]\nb3:\nv1 = const 6\nstore v1 [@a]\nret",
        [
            "v1 = rand16", "v2 = rand16", "store v1 [@a]", "jmp [b2]", "b2:", "v1 = const 4", "store v1 [@a]",
            "jmp [b3]", "b3:", "v1 = const 6", "store v1 [@a]", "ret",
        ],
    ),
    "copies: a result goes where it is copied to": (
        "copies",
        "v1 = rand16\nv2 = add16 v1, 3\nv3 = copy v2\nstore v3 [@a]\nret",
        ["v1 = rand16", "v2 = add16 v1, 3", "store v2 [@a]", "ret"],
    ),
    "induction: an index counts in twos": (
        "induction",
        "v1 = const 0\njmp [b2]\nb2: depth 1\nv2 = sll16 v1, 1\nstore v2 [@a]\nv1 = add16 v1, 1\n"
        "br v1, 4 [br16, ne, b2, b3]\nb3:\nret",
        [
            "v1 = const 0", "jmp [b2]", "b2: depth 1", "v2 = copy v1", "store v2 [@a]", "v1 = add16 v1, 2",
            "br v1, 8 [br16, ne, b2, b3]", "b3:", "ret",
        ],
    ),
    "hoist: what does not change": (
        "hoist",
        "v1 = rand16\njmp [b2]\nb2: depth 1\nv2 = add16 v1, 3\nv3 = load [@b]\nstore v2 [@a]\nstore v3 [@a+1]\n"
        "v4 = rand16\nbr v4, 4 [br16, ne, b2, b3]\nb3:\nret",
        [
            "v1 = rand16", "v2 = add16 v1, 3", "v3 = load [@b]", "jmp [b2]", "b2: depth 1", "store v2 [@a]",
            "store v3 [@a+1]", "v4 = rand16", "br v4, 4 [br16, ne, b2, b3]", "b3:", "ret",
        ],
    ),
    "hoist: no load that may not be done": (
        "hoist",
        "v1 = rand16\njmp [b2]\nb2: depth 1\nv4 = rand16\nbr v4, 4 [br16, ne, b4, b3]\nb4: depth 1\nd2 = load v1 [@b]\n"
        "store d2 [@a]\njmp [b2]\nb3:\nret",
        [
            "v1 = rand16", "jmp [b2]", "b2: depth 1", "v3 = rand16", "br v3, 4 [br16, ne, b4, b3]", "b4: depth 1",
            "d2 = load v1 [@b]", "store d2 [@a]", "jmp [b2]", "b3:", "ret",
        ],
    ),
    "keep: a sum lies in a register": (
        "keep",
        "v1 = rand16\njmp [b2]\nb2: depth 1\nd2 = load [@b]\nd3 = add32 d2, 1\nstore d3 [@b]\nv1 = add16 v1, 1\n"
        "br v1, 4 [br16, ne, b2, b3]\nb3:\nret",
        [
            "v1 = rand16", "d4.b = load [@b]", "jmp [b2]", "b2: depth 1", "d2 = copy d4.b", "d3 = add32 d2, 1",
            "d4.b = copy d3", "v1 = add16 v1, 1", "br v1, 4 [br16, ne, b2, b3]", "b3:", "store d4.b [@b]", "ret",
        ],
    ),
    "keep: what is only read is not stored": (
        "keep",
        "v1 = rand16\njmp [b2]\nb2: depth 1\nd2 = load [@b]\nv3 = low d2\nflt_set v3 [1, 2]\nv1 = add16 v1, 1\n"
        "br v1, 4 [br16, ne, b2, b3]\nb3:\nret",
        [
            "v1 = rand16", "jmp [b2]", "b2: depth 1", "d2 = load [@b]", "v3 = low d2", "flt_set v3 [1, 2]",
            "v1 = add16 v1, 1", "br v1, 4 [br16, ne, b2, b3]", "b3:", "ret",
        ],
    ),
    "placing: what is seldom stands last": (
        "placing",
        "v1 = rand16\nbr v1, 0 [br16, eq, b2, b3]\nb2:\ntask [activate, 1]\nret\nb3:\ntask [activate, 2]\nret",
        [
            "v1 = rand16", "br v1, 0 [br16, eq, b2, b3]", "b3:", "task [activate, 2]", "ret", "b2:",
            "task [activate, 1]", "ret",
        ],
    ),
    "placing: what others lead to stays": (
        "placing",
        "v1 = rand16\nbr v1, 0 [br16, eq, b2, b3]\nb3:\ntask [activate, 2]\nbr v1, 5 [br16, eq, b2, b4]\nb2:\n"
        "task [activate, 1]\nret\nb4:\ntask [activate, 3]\nret",
        [
            "v1 = rand16", "br v1, 0 [br16, eq, b2, b3]", "b3:", "task [activate, 2]", "br v1, 5 [br16, eq, b2, b4]",
            "b2:", "task [activate, 1]", "ret", "b4:", "task [activate, 3]", "ret",
        ],
    ),
    "legal: one constant, as the second source": (
        "legal",
        "v1 = rand16\nv2 = add16 3, v1\nv3 = sub16 3, v1\nv4 = sll16 3, v1\nd5 = sx32 7\nstore 9 [@a]\nv6 = low 65537\n"
        "br 0, v1 [br16, eq, b2, b2]\nb2:\nbr v1, 3 [br16, lt, b3, b3]\nb3:\nbr 3, 0 [br32, lt, b4, b4]\nb4:\nret",
        [
            "v1 = rand16", "v2 = add16 v1, 3", "v7 = const 3", "v3 = sub16 v7, v1", "v8 = const 3",
            "v4 = sll16 v8, v1", "v9 = const 7", "d5 = sx32 v9", "v10 = const 9", "store v10 [@a]", "d11 = const 65537",
            "v6 = low d11", "br v1, 0 [br16, eq, b2, b2]", "b2:", "v12 = const 3", "br v1, v12 [br16, lt, b3, b3]",
            "b3:", "d13 = const 3", "br d13, 0 [br32, lt, b4, b4]", "b4:", "ret",
        ],
    ),
    "descriptors: a stride has a sign": (
        "local",
        f"{MOVE}\ndsr_stride 65535 [src1#1]\ndsr_len 2 [src1#1]\nret",
        ["dsr_load [src1#1, mem1d(base=@a, extents=(2,), strides=(-1,))]", "ret"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_a_pass_does_its_work(name):
    run, before, after = WORK[name]
    assert become(PASSES[run], before, "task" if run == "placing" else "fn") == after

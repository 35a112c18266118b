"""Small problems in the contest's format, and random ones."""

from __future__ import annotations

from harness.place.kgraph import parse_problem

HEAD = """(*
test={name}
width={width}
height={height}
wdeltat={time}
wlength={wire}
wadapter={adapter}
memlimit={memory}
*)
"""
GRAPH = """
(* Node Definitions *)
input[0] n=[ 8 8 4 ] name='x' name='k0'
conv[1] W=8 H=8 R=3 S=3 C=4 K=6 T=1 U=1 name='k1'
dblock[ 2] f=8 h=8 w=8 name='k2'
cblock[3] f=8 h=8 w=8 name='k3'
output[4] n=[ 4 4 8 ] name='y' name='k4'

(* Connectivity *)
input[0]:_\t->\tconv[1]:x, shape:[8][8][4]
conv[1]:y    -> dblock[ 2]:x, shape:[8][8][8]
dblock[ 2]:y -> cblock[3]:x, shape:[8][8][8]
conv[1]:y -> cblock[3]:x, shape:[8][8][8]
cblock[3]:y -> output[4]:_, shape:[4][4][8]
"""


def head(name="small", width=60, height=50, time=1, wire=1, adapter=0, memory=24576):
    """Return the head of a problem."""
    return HEAD.format(**locals())


def text(**options):
    """Return a whole problem as text."""
    return head(**options) + GRAPH


def convolutions(sizes, wires, **options):
    """Return a problem of convolutions (H, W, C, K, R, T) with given connections."""
    lines = [
        f"conv[{index}] H={h} W={w} C={c} K={k} R={r} S={r} T={t} U={t} name='k{index}'"
        for index, (h, w, c, k, r, t) in enumerate(sizes)
    ]
    lines += [f"conv[{a}]:y -> conv[{b}]:x, shape:[1][1][1]" for a, b in wires]
    return parse_problem(head(**options) + "\n".join(lines) + "\n")


def network(layers, **options):
    """Return a problem like those of the contest: a chain of convolutions with a shortcut over each group of three."""
    sizes = []
    for index in range(layers):
        side, features = 112 >> (index * 3 // layers), 128 << (index * 3 // layers)
        sizes.append((side, side, features, features, 3 if index % 3 == 1 else 1, 1))
    wires = [(i, i + 1) for i in range(layers - 1)] + [(i, i + 3) for i in range(2, layers - 3, 3)]
    return convolutions(sizes, wires, **{"width": 633, "height": 633, **options})

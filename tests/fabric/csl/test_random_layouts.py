"""Random layouts: rectangles, colors, params per PE.  What arrives where is what a plain walk over routers says."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fabric.csl.running import device_of

WORDS = 3
"""Words that a source sends."""
STEPS = {"EAST": (1, 0), "WEST": (-1, 0), "SOUTH": (0, 1), "NORTH": (0, -1)}
BACK = {"EAST": "WEST", "WEST": "EAST", "SOUTH": "NORTH", "NORTH": "SOUTH"}

PE = f"""param width: u16;
param count: u16; // colors
param sends: u16; // a bit per color
param takes: u16;
param first: u16; // what is sent
var out = @zeros([4, {WORDS}]u16);
var y = @zeros([4, {WORDS}]u16);
task start() void {{
  inline for (@range(u16, count)) |c| {{
    const color = @get_color(c);
    if ((sends >> c) & 1 == 1) {{
      for (@range(u16, {WORDS})) |k| {{ out[c, k] = first + 100 * c + k; }}
      const from = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{WORDS}}} -> out[c, i] }});
      const there = @get_dsd(fabout_dsd, .{{ .extent = {WORDS}, .fabric_color = color,
                                            .output_queue = @get_output_queue(c) }});
      @mov16(there, from, .{{ .async = true }});
    }}
    if ((takes >> c) & 1 == 1) {{
      const to = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{WORDS}}} -> y[c, i] }});
      const here = @get_dsd(fabin_dsd, .{{ .extent = {WORDS}, .fabric_color = color,
                                          .input_queue = @get_input_queue(c) }});
      @mov16(to, here, .{{ .async = true }});
    }}
  }}
}}
comptime {{
  @bind_local_task(start, @get_local_task_id(8));
  @activate(@get_local_task_id(8));
}}
"""


@dataclass
class Cast:
    """A color that one corner of a rectangle sends along a side, and from there into the other direction.

    `along`, `across`: directions; `corner`: the source; `sizes`: PEs along and across; the rest says who takes.
    """

    color: int
    along: str
    across: str
    corner: tuple[int, int]
    sizes: tuple[int, int]
    by: int
    rest: int

    def offset(self, x, y):
        """Return how far a PE lies from the corner along and across."""
        dx, dy = x - self.corner[0], y - self.corner[1]
        far = {"EAST": dx, "WEST": -dx, "SOUTH": dy, "NORTH": -dy}
        return far[self.along], far[self.across]

    def text(self, direction):
        """Return in CSL how far a PE lies from the corner in a direction."""
        x, y = self.corner
        return {"EAST": f"(x - {x})", "WEST": f"({x} - x)", "SOUTH": f"(y - {y})", "NORTH": f"({y} - y)"}[direction]

    def covers(self, x, y):
        """Whether a PE lies in the rectangle."""
        a, b = self.offset(x, y)
        return 0 <= a < self.sizes[0] and 0 <= b < self.sizes[1]

    def takes(self, x, y):
        """Whether a PE delivers: leaves always, the source never, others by a rule."""
        a, b = self.offset(x, y)
        if not self.covers(x, y) or (a, b) == (0, 0):
            return False
        leaf = b == self.sizes[1] - 1 and (b > 0 or a == self.sizes[0] - 1)
        return leaf or (a * 2 + b) % self.by == self.rest

    def route(self, x, y):
        """Return (rx, tx) of a PE."""
        a, b = self.offset(x, y)
        rx = BACK[self.across] if b > 0 else BACK[self.along] if a > 0 else "RAMP"
        tx = [self.along] if b == 0 and a < self.sizes[0] - 1 else []
        tx += [self.across] if b < self.sizes[1] - 1 else []
        return rx, tx + ["RAMP"] * self.takes(x, y)

    def csl(self, one_by_one):
        """Return the statements that configure the color: one per PE, or loops with conditions."""
        cells = [(x, y) for y in range(9) for x in range(9) if self.covers(x, y)]
        if one_by_one:
            return "\n".join(self._one(x, y) for x, y in cells)
        a, b = self.text(self.along), self.text(self.across)
        long, deep = self.sizes
        leaf = f"({b} == {deep - 1} and ({b} > 0 or {a} == {long - 1}))"
        takes = f"(({a} > 0 or {b} > 0) and ({leaf} or ({a} * 2 + {b}) % {self.by} == {self.rest}))"
        rx = f"if ({b} > 0) {BACK[self.across]} else (if ({a} > 0) {BACK[self.along]} else RAMP)"
        on, down = f"({b} == 0 and {a} < {long - 1})", f"({b} < {deep - 1})"
        chosen = "void_of_nothing"
        for bits in range(1, 8):
            parts = [name for k, name in enumerate((self.along, self.across, "RAMP")) if bits >> k & 1]
            test = " and ".join(text if bits >> k & 1 else f"!{text}" for k, text in enumerate((on, down, takes)))
            chosen = f"if ({test}) .{{ {', '.join(parts)} }} else {chosen}"
        chosen = chosen.replace(" else void_of_nothing", "")
        xs, ys = sorted({x for x, _ in cells}), sorted({y for _, y in cells})
        config = f".{{ .routes = .{{ .rx = .{{ {rx} }}, .tx = {chosen} }} }}"
        return (
            f"for (@range(i16, {xs[0]}, {xs[-1] + 1}, 1)) |x| {{ for (@range(i16, {ys[0]}, {ys[-1] + 1}, 1)) |y| {{\n"
            f"  @set_color_config(x, y, @get_color({self.color}), {config});\n}} }}"
        )

    def _one(self, x, y):
        rx, tx = self.route(x, y)
        config = f".{{ .routes = .{{ .rx = .{{ {rx} }}, .tx = .{{ {', '.join(tx)} }} }} }}"
        return f"@set_color_config({x}, {y}, @get_color({self.color}), {config});"


def casts(seed):
    """Return width, height and the colors of a seed."""
    rng = random.Random(seed)
    width, height = rng.randint(2, 6), rng.randint(2, 6)
    found = []
    for color in range(rng.randint(1, 4)):
        along, across = rng.choice(("EAST", "WEST")), rng.choice(("SOUTH", "NORTH"))
        if rng.random() < 0.5:
            along, across = across, along
        corner = rng.randrange(width), rng.randrange(height)
        room = []
        for direction in (along, across):
            dx, dy = STEPS[direction]
            at, size = (corner[0], width) if dx else (corner[1], height)
            room.append(size - at if dx + dy > 0 else at + 1)
        sizes = rng.randint(1, room[0]), rng.randint(1, room[1])
        if sizes != (1, 1):
            by = rng.randint(1, 4)
            found.append(Cast(color, along, across, corner, sizes, by, rng.randrange(by)))
    return width, height, found, rng


def walk(cast, words):
    """Return what each PE gets of a color: from router to router, as the routes say."""
    found = {}
    stack = [(cast.corner, "RAMP")]
    while stack:
        (x, y), side = stack.pop()
        rx, tx = cast.route(x, y)
        assert side == rx
        for direction in tx:
            if direction == "RAMP":
                found[x, y] = words
            else:
                dx, dy = STEPS[direction]
                stack.append(((x + dx, y + dy), BACK[direction]))
    return found


@examples(30)
@given(seed=st.integers(0, 1 << 40))
def test_what_arrives_is_what_a_walk_over_the_routers_says(tmp_path_factory, seed):
    width, height, colors, rng = casts(seed)
    factor, more = rng.randint(1, 5), rng.randint(0, 50)
    sends = " | ".join(
        ["0", *(f"(if (x == {c.corner[0]} and y == {c.corner[1]}) {1 << c.color} else 0)" for c in colors)]
    )
    takes = [[sum(c.takes(x, y) << c.color for c in colors) for y in range(height)] for x in range(width)]
    flat = ", ".join(str(takes[x][y]) for x in range(width) for y in range(height))
    count = max([0, *(c.color + 1 for c in colors)])
    tiles = f"""for (@range(i16, {width})) |x| {{ for (@range(i16, {height})) |y| {{
  @set_tile_code(x, y, "pe.csl", .{{ .width = {width}, .count = {count}, .sends = {sends},
    .takes = taken[x * {height} + y], .first = first(x, y) }});
}} }}"""
    parts = [tiles, *(cast.csl(rng.random() < 0.4) for cast in colors)]
    rng.shuffle(parts)
    layout = f"""const taken = [{width * height}]u16{{ {flat} }};
fn first(x: i16, y: i16) u16 {{ return @as(u16, x * {factor} + y + {more}); }}
layout {{
@set_rectangle({width}, {height});
{"".join(part + chr(10) for part in parts)}}}
"""
    device = device_of(tmp_path_factory.mktemp("layout"), {"layout.csl": layout, "pe.csl": PE}, "layout.csl")
    device.settle()
    wanted = np.zeros((width, height, 4, WORDS), np.uint16)
    for cast in colors:
        x, y = cast.corner
        words = x * factor + y + more + 100 * cast.color + np.arange(WORDS)
        for (px, py), got in walk(cast, words).items():
            wanted[px, py, cast.color] = got
    for x in range(width):
        for y in range(height):
            if takes[x][y]:
                found = device.symbol(x, y, "y").reshape(4, WORDS)
                assert np.array_equal(found, wanted[x, y]), (seed, x, y)
            else:
                assert not wanted[x, y].any()

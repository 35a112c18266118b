"""A compiled program that was damaged or edited is refused by file, field and value; nothing dies of it."""

from __future__ import annotations

import faulthandler
import itertools
import json
import random
import zipfile

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, read_bundle, write_bundle
from fabric.csl.artefact.reading import arrays_of, digest_of
from fabric.csl.compile import compile_file
from fabric.host.fabric import Fabric
from wse_core import isa
from wse_core.errors import ConfigError, WseError

LAYOUT = """
layout {
  @set_rectangle(3, 2);
  for (@range(u16, 3)) |x| {
    for (@range(u16, 2)) |y| { @set_tile_code(x, y, "pe.csl", .{ .first = x == 0, .last = x == 2 }); }
  }
  @export_name("y", [*]f32, true);
}
"""
PE = """
param first: bool;
param last: bool;
const C: color = @get_color(3);
const T: color = @get_color(5);
export var y = @zeros([16]f32);
export var n: u16 = 300;
var total: f32 = 2.5;
const out = @get_dsd(fabout_dsd, .{ .extent = 16, .fabric_color = C, .output_queue = @get_output_queue(2) });
const into = @get_dsd(fabin_dsd, .{ .extent = 16, .fabric_color = C, .input_queue = @get_input_queue(2) });
const all = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{16} -> y[i] });
fn more(x: f32) f32 { return x * total + 1.0; }
task go() void {
  for (@range(i16, 16)) |k| { y[k] = more(@as(f32, k)); }
  if (first) { @fmovs(out, all, .{ .async = true, .activate = done }); }
  if (last) { @fadds(all, all, into, .{ .async = true, .activate = done }); }
}
task done() void { while (n < 310) { n += 1; } }
comptime {
  @bind_local_task(go, @get_local_task_id(9));
  @bind_local_task(done, @get_local_task_id(10));
  @activate(@get_local_task_id(9));
  if (first) { @set_local_color_config(C, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }); }
  if (!first and !last) { @set_local_color_config(C, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ EAST } } }); }
  if (last) { @set_local_color_config(C, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } }); }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A directory with a compiled program."""
    there = tmp_path_factory.mktemp("program")
    (there / "layout.csl").write_text(LAYOUT, encoding="utf-8")
    (there / "pe.csl").write_text(PE, encoding="utf-8")
    write_bundle(bundle_of(compile_file(there / "layout.csl")), there / "out")
    return there / "out"


def parts(program):
    host = json.loads((program / "host.json").read_text(encoding="utf-8"))
    return host, arrays_of(program / "image.npz", len(host["programs"]))


def written(there, host, arrays, digest=True):
    """Write a program; with `digest` as if a compiler had written it so."""
    there.mkdir(exist_ok=True)
    with (there / "image.npz").open("wb") as file:
        np.savez(file, **arrays)
    if digest:
        host = {**host, "digest": digest_of(host, arrays)}
    (there / "host.json").write_text(json.dumps(host), encoding="utf-8")
    return there


def refused(there, *texts):
    with pytest.raises(ConfigError) as error:
        read_bundle(there)
    message = str(error.value)
    assert str(there) in message
    for text in texts:
        assert text in message, message
    assert len(message.splitlines()) == 1
    return error.value


def place_of(code, *names):
    """Return where the first instruction of one of some names stands."""
    return next(at for at, op, *_ in isa.decode(code) if op.name in names)


def with_value(array, at, value):
    made = array.copy()
    made[at] = value
    return made


def with_field(array, at, field, value):
    made = array.copy()
    made[field][at] = value
    return made


def test_a_program_is_read_as_it_was_written(program):
    bundle = read_bundle(program)
    fabric = Fabric(bundle.spec())
    fabric.run()
    assert bundle.width == 3


CHANGES = {
    "an address beyond memory": ("p0.addresses", lambda a: with_value(a, 0, 1 << 28), ("addresses[0]", "268435456")),
    "an address below zero": ("p0.addresses", lambda a: with_value(a, 0, -(1 << 24)), ("addresses[0]", "-16777216")),
    "an address in the code": ("p0.addresses", lambda a: with_value(a, 0, 0), ("addresses[0] is 0",)),
    "an entry beyond the code": ("p0.entry", lambda a: with_value(a, 9, 1 << 20), ("entry[9]", "1048576")),
    "an entry in an extension word": ("p0.entry", lambda a: with_value(a, 9, int(a[9]) + 1), ("entry[9]",)),
    "an unknown program": ("index", lambda a: with_value(a, (0, 0), 30000), ("program_index[0, 0]", "30000")),
    "a program of no number": ("index", lambda a: with_value(a, (1, 2), -2), ("program_index[1, 2]", "-2")),
    "an operation that is none": ("p0.code", lambda a: with_value(a, 0, 0xFFFFFFFF), ("code", "no op code")),
    "a branch to nowhere": ("p0.code", None, ("code[", "where an instruction begins")),
    "a code that ends too early": ("p0.code", lambda a: with_value(a, -1, 0x01000000), ("extension word",)),
    "a route of six sides": ("route3", lambda a: with_field(a, (0, 0), "tx", [32, 0, 0, 0]), ("routes[3].tx", "32")),
    "a filter that is not there": ("route3", lambda a: with_field(a, (0, 0), "filter", 1), ("routes[3].filter",)),
    "a switch position of four": ("route3", lambda a: with_field(a, (0, 0), "pos", 4), ("routes[3].pos",)),
    "a pop mode of four": ("route3", lambda a: with_field(a, (0, 1), "pop", 4), ("routes[3].pop",)),
    "a descriptor of no kind": ("p0.descriptors", lambda a: with_field(a, 0, "kind", 9), ("descriptors.kind", "9")),
    "a descriptor of no queue": ("p0.descriptors", lambda a: with_field(a, 0, "queue", 16), ("descriptors.queue",)),
    "a task of a descriptor": ("p0.descriptors", lambda a: with_field(a, 0, "push_task", 77), ("push_task", "77")),
    "floats as code": ("p0.code", lambda a: a.view(np.float32), ("p0.code", "float32", "uint32")),
    "an index of one dimension": ("index", lambda a: a.reshape(-1), ("index", "(6,)")),
    "a route of another size": ("route3", lambda a: a[:, :2], ("route3", "(2, 2)")),
    "sizes that do not add up": ("p0.sizes", lambda a: with_value(a, 0, int(a[0]) + 1), ("p0.words",)),
    "a size below zero": ("p0.sizes", lambda a: with_value(a, 0, -1), ("p0.sizes[0]", "-1")),
    "thirty-one tasks": ("p0.entry", lambda a: a[:31], ("entry", "(31,)")),
    "a pickled object": ("p0.code", lambda a: np.array([{}], object), ("p0.code", "object")),
    "an array that is far too long": ("p0.words", lambda a: np.zeros(1 << 17, np.uint16), ("p0.words", "131072")),
}


@pytest.mark.parametrize("digest", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_array_is_named(program, tmp_path, change, digest):
    name, edit, texts = CHANGES[change]
    host, arrays = parts(program)
    if edit is None:
        at = place_of(arrays[name], "br16", "br32", "jmp", "call")
        edit = lambda a: with_value(a, at + 1, 99999)  # noqa: E731
    arrays = {**arrays, name: edit(arrays[name])}
    digest = digest and change != "a pickled object"
    error = refused(written(tmp_path / "out", host, arrays, digest), *texts)
    assert not digest or "digest" not in str(error)


@pytest.mark.parametrize("name", ["index", "p0.code", "p1.entry", "p0.words", "route3"])
def test_a_missing_array_is_named(program, tmp_path, name):
    host, arrays = parts(program)
    del arrays[name]
    refused(written(tmp_path / "out", host, arrays), "3" if name == "route3" else name)


@pytest.mark.parametrize("name", ["route24", "p9.code", "more", "p0.more", "../index"])
def test_an_array_that_does_not_belong_there_is_named(program, tmp_path, name):
    host, arrays = parts(program)
    refused(written(tmp_path / "out", host, {**arrays, name: np.zeros(4, np.int16)}), name)


def test_a_large_foreign_array_takes_no_memory(program, tmp_path):
    """It is refused by its header: this one would take 64 GiB."""
    there = tmp_path / "out"
    host, arrays = parts(program)
    written(there, host, arrays)
    with zipfile.ZipFile(there / "image.npz", "a") as archive, archive.open("route7.npy", "w") as file:
        head = {"descr": arrays["route3"].dtype.descr, "fortran_order": False, "shape": (65536, 65536)}
        np.lib.format.write_array_header_1_0(file, head)
    refused(there, "route7", "(65536, 65536)")


TEXTS = {
    "footprint": (lambda h: h["programs"][0].update(footprint=1 << 20), ("footprint", "1048576")),
    "code_words": (lambda h: h["programs"][0].update(code_words=2), ("code_words",)),
    "inq_color": (lambda h: h["programs"][0]["inq_color"].__setitem__(0, 24), ("inq_color[0]", "24")),
    "symbol": (lambda h: h["programs"][0]["symbols"][0].__setitem__(1, 65000), ("symbols[", "65000")),
    "dtype": (lambda h: h["programs"][0]["symbols"][0].__setitem__(3, "u64"), ("dtype", "u64")),
    "name": (lambda h: h["programs"][0].update(name=7), ("programs[0].name", "7")),
    "missing": (lambda h: h["programs"][0].pop("half"), ("programs[0].half is missing",)),
    "half": (lambda h: h["programs"][0].update(half="f8"), ("half", "f8")),
    "input": (lambda h: h["inputs"].append([0, 0, 1, 3]), ("inputs[0]", "PE (0, 0)")),
    "far input": (lambda h: h["inputs"].append([3, 0, 1, 3]), ("inputs[0].x", "3")),
    "color": (lambda h: h["outputs"].append([2, 0, 1, 9]), ("outputs[0].color", "9")),
    "arch": (lambda h: h["settings"].update(arch="wse9"), ("settings.arch", "wse9")),
    "host": (lambda h: h["host"].pop(), ("host",)),
    "place": (lambda h: h["host"][0]["places"].update(x=["pe.csl", 1]), ("places", "'x'")),
    "boolean": (lambda h: h["programs"][0].update(active=True), ("active", "True")),
    "fraction": (lambda h: h["programs"][0].update(high=0.5), ("high", "0.5")),
    "list": (lambda h: h.update(names={}), ("names", "a list")),
}


@pytest.mark.parametrize("what", TEXTS)
def test_a_changed_text_is_named(program, tmp_path, what):
    host, arrays = parts(program)
    edit, texts = TEXTS[what]
    edit(host)
    refused(written(tmp_path / "out", host, arrays), *texts)


@pytest.mark.parametrize("where", ["words", "code", "text"])
def test_a_flipped_bit_is_noticed(program, tmp_path, where):
    """Also where the program could run with it."""
    host, arrays = parts(program)
    if where == "words":
        arrays["p0.words"] = with_value(arrays["p0.words"], 0, int(arrays["p0.words"][0]) ^ 4)
    elif where == "code":
        at = place_of(arrays["p0.code"], "ldi")
        arrays["p0.code"] = with_value(arrays["p0.code"], at + 1, int(arrays["p0.code"][at + 1]) ^ 1)
    else:
        host["programs"][0]["name"] += "s"
    refused(written(tmp_path / "out", host, arrays, digest=False), "digest")


@pytest.mark.parametrize("bytes_", [b"", b"PK", b"{", b"\xff\xfe{}", b"[" * 100_000, b"null", b'{"format": 1}', b"NaN"])
@pytest.mark.parametrize("name", ["host.json", "image.npz"])
def test_files_that_are_none(program, tmp_path, name, bytes_):
    there = written(tmp_path / "out", *parts(program))
    (there / name).write_bytes(bytes_)
    refused(there)


def edited(rng, program, there):
    """Write a program with some random edits, in its arrays, its texts or the bytes of its files."""
    host, arrays = parts(program)
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.3:
            lists = (part for name in ("programs", "host") if isinstance(part := host.get(name), list))
            places = [host, host.get("settings"), *itertools.chain.from_iterable(lists)]
            place = rng.choice([place for place in places if isinstance(place, dict) and place])
            name = rng.choice(sorted(place))
            place[name] = rng.choice([None, -1, 1 << 40, 31, "u32", [], {}, 2.5, [[1, 2, 3, 4]], True])
        else:
            name = rng.choice(sorted(arrays))
            raw = bytearray(arrays[name].tobytes())
            for _ in range(rng.choice([1, 1, 4]) if raw else 0):
                raw[rng.randrange(len(raw))] = rng.choice([0, 1, 128, 255, rng.randrange(256)])
            arrays[name] = np.frombuffer(bytes(raw), arrays[name].dtype).reshape(arrays[name].shape)
    written(there, host, arrays, digest=rng.random() < 0.8)
    if rng.random() < 0.15:
        path = there / rng.choice(["host.json", "image.npz"])
        raw = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 10])):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        path.write_bytes(raw if rng.random() < 0.7 else raw[: rng.randrange(len(raw))])


@pytest.mark.parametrize("part", range(4))
def test_random_edits_are_refused_or_run(program, tmp_path, part):
    """What is accepted runs: to an end, to a fault with a message, or for a while.  A crash would end the tests."""
    faulthandler.enable()
    accepted = 0
    for seed in range(60 * part, 60 * part + 60):
        edited(random.Random(seed), program, tmp_path / "out")
        try:
            bundle = read_bundle(tmp_path / "out")
            fabric = Fabric(bundle.spec())
            accepted += 1
            fabric.run(max_cycles=2000)
        except WseError as error:
            assert type(error).__name__ != "InternalError", seed
            assert len(str(error)) < 4000
    assert 0 < accepted < 60

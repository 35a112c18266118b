"""``wse csl lsp`` as an editor speaks with it: a scripted session per feature, through a process of its own."""

from __future__ import annotations

import pytest

from tests.harness.editor.speaking import Client

pytest.importorskip("pygls")

LAYOUT = """const memcpy = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 1 });
const parts = @import_module("parts.csl");

layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .size = parts.size });
}
"""
PARTS = """// Numbers of an array.
const size: u16 = 4;
const other = 7;
"""
PE = """param size: u16;
const math = @import_module("<math>");
const parts = @import_module("parts.csl");
var x: [size]f32; // what is added up
const mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{size} -> x[i] });

// Twice a number.
fn twice(value: f32) f32 {
  const factor: f32 = 2.0;
  return value * factor;
}

task main() void {
  @fadds(mem, mem, twice(math.abs(x[0])));
  x[1] = twice(x[2]);
}

comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
}
"""


@pytest.fixture
def files(tmp_path):
    for name, text in (("layout.csl", LAYOUT), ("pe.csl", PE), ("parts.csl", PARTS)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def client(files):
    with Client(files) as found:
        yield found


def place(text, word, number=0, behind=0):
    """Return line and character of an occurrence of a word, or so many characters behind its beginning."""
    at = -1
    for _ in range(number + 1):
        at = text.index(word, at + 1)
    at += behind
    return text.count("\n", 0, at), at - (text.rfind("\n", 0, at) + 1)


def test_it_says_what_it_can(client):
    can = client.capabilities
    for name in ("hover", "definition", "documentFormatting", "documentSymbol"):
        assert can[f"{name}Provider"]
    assert can["completionProvider"]["triggerCharacters"] == ["@", "."]


def test_messages_follow_the_text(client):
    client.open("pe.csl")
    assert client.messages("pe.csl") == []
    wrong = [
        (PE.replace("x[2]", "nothing"), "nothing", "nothing"),
        (PE.replace("twice(x[2])", "twice(true)"), "f32", "true"),
        (PE.replace("twice(x[2]);", "twice(x[2])"), "';' is missing", ")"),
        (PE.replace("twice(x[2])", "twice()"), "argument", "twice()"),
        (PE.replace("-> x[i]", "-> y[i]"), "y", "y"),
        (PE.replace("@fadds(", "@faddz("), "@faddz", "@faddz"),
        (PE.replace("x[2]", "x[9]"), "9", "9"),
        (PE.replace('"parts.csl"', '"path.csl"'), "there is no file", "path.csl"),
    ]
    for text, said, word in wrong:
        client.change("pe.csl", text)
        found = client.messages("pe.csl")
        assert any(said in item["message"] and item["severity"] == 1 for item in found), (said, found)
        lines = [text.splitlines()[item["range"]["start"]["line"]] for item in found if said in item["message"]]
        assert any(word in line for line in lines), (word, lines)
    client.change("pe.csl", PE)
    assert client.messages("pe.csl") == []


def test_a_mistake_in_one_file_is_told_where_it_stands(client):
    client.open("pe.csl")
    client.open("parts.csl")
    client.change("parts.csl", PARTS.replace("size: u16", "size: u99x"))
    assert [item["severity"] for item in client.messages("parts.csl")] == [1]
    client.change("parts.csl", PARTS.replace("= 4", "= 0"))
    assert client.messages("parts.csl") == []
    assert client.messages("pe.csl")  # arrays of no elements
    client.change("parts.csl", PARTS)
    assert client.messages("pe.csl") == client.messages("layout.csl") == []


HOVERS = [
    ("pe.csl", PE, ("@get_dsd", 0, 3), "a descriptor of memory or fabric"),
    ("pe.csl", PE, ("@fadds", 0, 1), "a + b"),
    ("pe.csl", PE, ("twice(x", 0, 1), "Twice a number."),
    ("pe.csl", PE, ("twice(x", 0, 1), "fn twice(value: f32) f32"),
    ("pe.csl", PE, ("value * factor", 0, 0), "argument"),
    ("pe.csl", PE, ("factor;", 0, 2), "const factor: f32 = 2.0"),
    ("pe.csl", PE, ("x[2]", 0, 0), "what is added up"),
    ("pe.csl", PE, ("abs(", 0, 1), "<math>"),
    ("pe.csl", PE, ("f32; //", 0, 1), "a type"),
    ("layout.csl", LAYOUT, ("size });", 0, 1), "Numbers of an array."),
    ("pe.csl", PE, ("@fadds", 0, 1), "fadds"),
    ("pe.csl", PE, ("twice(x", 0, 1), "cycle"),
]


def test_hover_says_what_a_word_is_and_what_a_line_costs(client):
    for name in ("pe.csl", "layout.csl"):
        client.open(name)
    for name, text, (word, number, behind), said in HOVERS:
        found = client.at("hover", name, place(text, word, number, behind))
        assert found is not None, word
        assert said in found["contents"]["value"], (word, found)
    made = client.at("hover", "pe.csl", place(PE, "x[1]", 0, 0))["contents"]["value"]
    assert "of line 15" in made
    assert "st32" in made
    assert client.at("hover", "pe.csl", (5, 0)) is None


DEFINITIONS = [
    ("pe.csl", PE, ("twice(x", 0, 1), "pe.csl", PE, "twice(value"),
    ("pe.csl", PE, ("value * factor", 0, 0), "pe.csl", PE, "value: f32"),
    ("pe.csl", PE, ("factor;", 0, 0), "pe.csl", PE, "factor: f32"),
    ("pe.csl", PE, ("x[i]", 0, 0), "pe.csl", PE, "x: [size]"),
    ("pe.csl", PE, ("i] });", 0, 0), "pe.csl", PE, "i|{size}"),
    ("pe.csl", PE, ("size]f32", 0, 2), "pe.csl", PE, "size: u16"),
    ("pe.csl", PE, ("mem, mem", 0, 5), "pe.csl", PE, "mem = "),
    ("pe.csl", PE, ("main, @", 0, 0), "pe.csl", PE, "main() void"),
    ("layout.csl", LAYOUT, ("size });", 0, 0), "parts.csl", PARTS, "size: u16"),
    ("layout.csl", LAYOUT, ("parts.size", 0, 0), "layout.csl", LAYOUT, "parts = "),
    ("layout.csl", LAYOUT, ('"pe.csl"', 0, 3), "pe.csl", PE, "param"),
    ("pe.csl", PE, ('"parts.csl"', 0, 3), "parts.csl", PARTS, "// Numbers"),
]


def test_declarations_are_found(client):
    for name in ("pe.csl", "layout.csl"):
        client.open(name)
    for name, text, (word, number, behind), file, other, wanted in DEFINITIONS:
        found = client.at("definition", name, place(text, word, number, behind))
        assert found is not None, word
        assert found["uri"] == client.uri(file)
        start = found["range"]["start"]
        assert (start["line"], start["character"]) == place(other, wanted), word
    inside = client.at("definition", "pe.csl", place(PE, "abs(", 0, 1))
    assert inside["uri"].endswith("library/math.csl")
    assert client.at("definition", "pe.csl", place(PE, "@get_dsd", 0, 2)) is None


COMPLETIONS = [
    ("  @", {"get_dsd", "fadds", "activate"}, {"twice"}),
    ("  @get_", {"get_dsd", "get_color", "get_local_task_id"}, set()),
    ("  parts.", {"size", "other"}, {"twice", "const"}),
    ("  math.a", {"abs", "sqrt"}, {"x"}),
    ("  tw", {"twice", "x", "mem", "main", "while", "f32", "math"}, {"factor", "value"}),
    ("  const d = @get_dsd(fabin_dsd, .{ .", {"extent", "input_queue"}, {"tensor_access", "twice"}),
    ("  const d = @get_dsd(mem1d_dsd, .{ .", {"tensor_access", "stride"}, {"input_queue"}),
    ("  @fadds(mem, mem, x[0], .{ .", {"async", "activate", "unblock"}, {"twice"}),
    ("  const deep: f32 = 1.0; var y = de", {"deep"}, {"factor"}),
    ("  for (@range(u16, 3)) |turn| { x[tu", {"turn", "x"}, {"factor"}),
]


def test_completion_knows_what_can_stand_here(client):
    client.open("pe.csl")
    line = PE.splitlines().index("task main() void {") + 1
    for typed, there, absent in COMPLETIONS:
        lines = PE.splitlines()
        lines.insert(line, typed)
        client.change("pe.csl", "\n".join(lines) + "\n")
        found = client.at("completion", "pe.csl", (line, len(typed)))
        names = {item["insertText"] for item in found}
        assert there <= names, (typed, there - names)
        assert not absent & names, typed


UGLY = [
    (" return value * factor ;", "  return value * factor;"),
    ("const factor: f32 = 2.0", "const   factor:  f32=2.0"),
    ("x[i]", "x[ i ]"),
    ("task main() void {", "task  main( ) void  {"),
    ("fn twice(value", "fn  twice( value"),
    ("value * factor", "value  *   factor"),
    (", @", ",@"),
    ("param size", "param    size"),
    ("(mem, mem,", "(mem , mem ,"),
    ("\n\n", "\n\n\n\n"),
]


def test_every_spelling_is_formatted_to_one(client):
    """One edit gives the text of which spaces were changed; the comments stay where they are."""
    client.open("pe.csl")
    where = {"textDocument": {"uri": client.uri("pe.csl")}, "options": {"tabSize": 2, "insertSpaces": True}}
    for one, other in UGLY:
        good, bad = (other, one) if one not in PE else (one, other)
        assert good in PE, good
        client.change("pe.csl", PE.replace(good, bad))
        (edit,) = client.ask("textDocument/formatting", where)
        assert edit["newText"] == PE, bad
    client.change("pe.csl", PE)


def test_formatting_and_symbols(client):
    client.open("pe.csl")
    where = {"textDocument": {"uri": client.uri("pe.csl")}, "options": {"tabSize": 2, "insertSpaces": True}}
    assert client.ask("textDocument/formatting", where) == []
    client.change(
        "pe.csl", PE.replace("  return value * factor;", " return value * factor ;").replace(" = 2.0", "=2.0")
    )
    (edit,) = client.ask("textDocument/formatting", where)
    assert edit["newText"] == PE
    client.change("pe.csl", PE.replace("{", "{{", 1))
    assert client.ask("textDocument/formatting", where) == []
    client.change("pe.csl", PE)
    found = client.ask("textDocument/documentSymbol", {"textDocument": {"uri": client.uri("pe.csl")}})
    assert [each["name"] for each in found] == ["size", "math", "parts", "x", "mem", "twice", "main"]


def test_a_text_of_which_half_is_typed_is_no_end(client):
    client.open("pe.csl")
    for stop in range(0, len(PE), 37):
        client.change("pe.csl", PE[:stop])
        client.at("completion", "pe.csl", place(PE[:stop] + "\n", "\n", PE[:stop].count("\n")))
        client.at("hover", "pe.csl", (0, 0))
    client.change("pe.csl", PE)
    assert client.messages("pe.csl") == []


def test_places_count_as_the_protocol_does(client, files):
    """Characters beyond 16 bits count as two."""
    text = PE.replace("// Twice a number.", "// \U0001d7da\U0001d7da of x").replace("what is", "\U0001d7da")
    (files / "pe.csl").write_text(text)
    client.open("pe.csl")
    line = next(k for k, each in enumerate(text.splitlines()) if "twice(x[2])" in each)
    found = client.at("definition", "pe.csl", (line, text.splitlines()[line].index("twice") + 1))
    assert found["range"]["start"]["character"] == 3
    client.change("pe.csl", text.replace("// \U0001d7da\U0001d7da of x", "const \U0001d7da = 1;"))
    assert client.messages("pe.csl")[0]["range"]["start"]["character"] == 6

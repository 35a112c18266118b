"""Where the files of `@import_module` and `@set_tile_code` are found, and what is said where they are not."""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.sources import compile_texts, layout_of

PE = 'param n: i16;\nconst one = @import_module("{}");\ncomptime {{ @comptime_assert(one.value == {}); }}\n'


def compile_pe(directory, name, wanted, files, **options):
    """Compile a layout in `top.csl` whose program, `code/pe.csl`, imports a file; return the file's value."""
    layout = layout_of('@set_tile_code(0, 0, "code/pe.csl", .{ .n = 1 });', size="1, 1")
    made = compile_texts(directory, {"top.csl": layout, "code/pe.csl": PE.format(name, wanted), **files}, **options)
    (one,) = [module.globals["one"] for module in made.programs[0].unit.ready if "one" in module.globals]
    return one.value.data.globals["value"].value.data


def test_beside_the_importer(tmp_path):
    assert compile_pe(tmp_path, "part.csl", 3, {"code/part.csl": "const value = 3;"}) == 3


def test_another_file_would_be_noticed(tmp_path):
    """The program itself asserts which file it got; with another value in the file it does not compile."""
    with pytest.raises(CslError, match="assert"):
        compile_pe(tmp_path, "part.csl", 3, {"code/part.csl": "const value = 4;"})


def test_from_the_directory_of_the_top_file(tmp_path):
    """As the compilers of SDK 1.0 to 1.3 did, also several libraries deep."""
    deep = {
        "lib/a/one.csl": 'const two = @import_module("lib/b/two.csl"); const value = two.value + 1;',
        "lib/b/two.csl": 'const near = @import_module("near.csl"); const value = near.value + 1;',
        "lib/b/near.csl": "const value = 5;",
    }
    assert compile_pe(tmp_path, "lib/a/one.csl", 7, deep) == 7


def test_beside_comes_first(tmp_path):
    both = {"code/part.csl": "const value = 3;", "part.csl": "const value = 4;"}
    assert compile_pe(tmp_path, "part.csl", 3, both) == 3
    assert compile_pe(tmp_path, "../part.csl", 4, both) == 4


def test_import_paths_come_last(tmp_path):
    elsewhere = {"elsewhere/sub/part.csl": "const value = 8;"}
    path = (str(tmp_path / "elsewhere"),)
    assert compile_pe(tmp_path, "sub/part.csl", 8, elsewhere, import_paths=path) == 8
    nearer = {**elsewhere, "sub/part.csl": "const value = 9;"}
    assert compile_pe(tmp_path, "sub/part.csl", 9, nearer, import_paths=path) == 9


def test_the_code_of_a_tile_is_found_in_the_same_way(tmp_path):
    """Also where a module of a library sets it, whose directory is another one."""
    files = {
        "top.csl": 'const lib = @import_module("lib/tiles.csl");\n' + layout_of("lib.set();", size="1, 1"),
        "lib/tiles.csl": 'fn set() void { @set_tile_code(0, 0, "pe.csl"); }\n',
        "pe.csl": "comptime { @comptime_assert(true); }\n",
    }
    assert compile_texts(tmp_path, files).programs


def test_every_place_that_was_tried_is_named(tmp_path):
    with pytest.raises(CslError) as caught:
        compile_pe(tmp_path, "part.csl", 3, {"other.csl": ""}, import_paths=("/somewhere/else",))
    message = caught.value.diagnostics[0].message
    assert "no file 'part.csl' beside" in message
    assert "code/pe.csl" in message
    assert "the directory of the top file" in message
    assert "/somewhere/else (--import-path)" in message


def test_a_place_is_named_once(tmp_path):
    with pytest.raises(CslError, match=r"no file 'part.csl' beside [^,]*top.csl$"):
        compile_texts(tmp_path, {"top.csl": 'const p = @import_module("part.csl");\ncomptime { _ = p; }\n'})

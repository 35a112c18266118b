"""``wse csl format``: one layout of a text, which says the same, keeps comments, and stays as it is the second time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.comptime.session import LIBRARY
from fabric.csl.diagnostics import CslError, Source
from fabric.csl.syntax.parser import parse
from fabric.csl.syntax.style import TOKEN, formatted
from harness.cli.main import main
from tests.conftest import ROOT

FILES = sorted([*LIBRARY.rglob("*.csl"), *(ROOT / "tests" / "fabric" / "csl" / "programs").rglob("*.csl")])
MARKS = {",", ";", "{", "}", "(", ")", "+", "="}
UGLY = """


fn f( a :i16,
b: i16 )void{
if(a==1){ x+=1 ;} else{
      y[ 1 ]= .  { .a=1,
 .b = 2 };  // kept
 }


 while(x<3) : (x+=1){
}
 const z = a
 + b
   + c;
 g(1,
 .{ .first=1,
    .second = &h },
 2);
      // a remark
}
"""
WANTED = """fn f(a :i16,
  b: i16)void{
  if (a == 1) { x += 1; } else {
    y[1] = .{ .a = 1,
      .b = 2 };  // kept
  }

  while (x < 3) : (x += 1) {
  }
  const z = a
    + b
    + c;
  g(1,
    .{ .first = 1,
      .second = &h },
    2);
  // a remark
}
"""


def of(text):
    return formatted(Source("a.csl", text))


def comments(text):
    return [line.partition("//")[2].strip() for line in text.splitlines() if "//" in line]


def test_one_text_as_it_should_be():
    assert of(UGLY) == WANTED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_our_own_sources_have_that_layout(path):
    text = path.read_text(encoding="utf-8")
    assert of(text) == text


@given(st.sampled_from(FILES), st.randoms(use_true_random=False))
def test_blanks_of_any_kind_end_in_the_same_text(path, random):
    """Lines begin anywhere; the text comes back."""
    text = path.read_text(encoding="utf-8")
    torn = "".join(
        random.choice(("", " ", "\t", "      ")) + line.strip() + random.choice(("", "  ", "\t")) + "\n"
        for line in text.splitlines()
    )
    assert of(torn) == text


@given(st.sampled_from(FILES), st.randoms(use_true_random=False))
def test_other_line_breaks_keep_the_meaning_and_the_comments(path, random):
    text = path.read_text(encoding="utf-8")
    torn = "".join(
        match[0] + (random.choice(("", "\n", "\n\n  ")) if match[0] in MARKS else "") for match in TOKEN.finditer(text)
    )
    before = parse(Source("a.csl", torn))
    after = of(torn)
    assert parse(Source("a.csl", after)) == before
    assert comments(after) == comments(torn)
    assert of(after) == after
    assert all(line == line.rstrip() for line in after.splitlines())


def test_what_is_no_csl_stays_as_it_is(tmp_path, capsys):
    with pytest.raises(CslError):
        of("const = 1;\n")
    bad, good = tmp_path / "bad.csl", tmp_path / "good.csl"
    bad.write_text("fn f( void {\n")
    good.write_text("var  x :u16=1;\n")
    assert main(["csl", "format", str(tmp_path)]) == 1
    out = capsys.readouterr()
    assert "bad.csl:1" in out.err
    assert out.out == f"{good} changed\n"
    assert (bad.read_text(), good.read_text()) == ("fn f( void {\n", "var x :u16 = 1;\n")


def test_check_and_diff_write_nothing(tmp_path, capsys):
    path = tmp_path / "a.csl"
    path.write_text("var  x: u16=1;\n")
    assert main(["csl", "format", "--check", str(path)]) == 1
    assert capsys.readouterr().out == f"{path} would change\n"
    assert main(["csl", "format", "--diff", str(path)]) == 0
    assert "+var x: u16 = 1;" in capsys.readouterr().out.splitlines()
    assert main(["csl", "format", "--check", "--json", str(path)]) == 1
    assert json.loads(capsys.readouterr().out) == {"changed": [str(path)], "faulty": []}
    assert path.read_text() == "var  x: u16=1;\n"
    assert main(["csl", "format", str(path)]) == main(["csl", "format", "--check", str(path)]) == 0
    assert path.read_text() == "var x: u16 = 1;\n"


def test_standard_input(monkeypatch, capsys):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("var  x: u16=1;"))
    assert main(["csl", "format", "-"]) == 0
    assert capsys.readouterr().out == "var x: u16 = 1;\n"


def test_a_file_that_is_not_there_is_said(tmp_path, capsys):
    assert main(["csl", "format", str(tmp_path / "no.csl")]) == 2
    assert "cannot read the CSL file" in capsys.readouterr().err
    assert main(["csl", "format", str(tmp_path)]) == 2
    assert "there is no CSL file" in capsys.readouterr().err

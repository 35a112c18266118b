"""`wse generate`, options in pairs: each changes what is answered, is refused in one line, or is said to do nothing."""

from __future__ import annotations

import json
from itertools import combinations

import h5py
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.cli.main import build_parser, main
from tests.examples import few
from tests.harness.inference.saved_models import LETTERS, saved

DECODER = Decoder(8, 2, 2, 1, 4, 6, 17, 40, 1e-5)
OPTIONS = {
    "--mesh": "3x2", "--tokens": "3", "--cache": "round", "--prefill": "token", "--chunk": "2", "--draft": "MODEL",
    "--ahead": "3", "--draft-mesh": "2x1", "--decode-mesh": "2x1", "--regions": "2", "--requests": "2", "--batch": "2",
    "--dtype": "cb16", "--temperature": "9", "--top-k": "3", "--seed": "5", "--logits": "l.npz", "--verify": "off",
    "--estimate": None, "--out": "o.h5", "--trace": "events", "--random-layers": "1", "--chat": None, "--system": "x",
    "--layers-at-a-time": "1", "--cache-file": "k.npz", "--prefix": "p.npz", "--preset": "wse3",
    "--explain": None, "--messages": "m.json", "--cache-dtype": "int8",
}  # fmt: skip
"""A value of each option that is not its default."""

APART = ("--prompt", "--prompt-ids", "--json", "--help", "--set", "--progress", "--no-progress", "--debug", "--threads",
         "--backend", "--trace-window", "--trace-region", "--trace-kinds", "--trace-cycles",
         "--trace-colors")  # fmt: skip
"""Options that are there in each call, that all commands have, or that say more of what --trace records."""

WAYS = {("--prefill", other) for other in ("--regions", "--layers-at-a-time", "--requests", "--batch", "--prefix")}
"""Pairs of which the second one reads prompts token by token by itself, as the first one asks."""
ROUND = {("--cache", "--draft")}
"""And of which it takes that cache by itself."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return a function that answers with some options, once: (status, what was printed, warnings, files)."""
    room = tmp_path_factory.mktemp("options")
    saved(room / "model", DECODER, LETTERS)
    (room / "m.json").write_text('[{"role": "user", "content": "x"}]')
    values = {"MODEL": room / "model", **{name: room / name for name in ("l.npz", "o.h5", "k.npz", "m.json")}}
    values["p.npz"] = room / "p.npz"
    words = ["generate", room / "model", "--mesh", "2x2", "--tokens", "1", "--prompt-ids", "3,1"]
    assert main([str(word) for word in (*words, "--cache-file", values["p.npz"])]) == 0
    known = {}

    def answer(capsys, *options):
        if options in known:
            return known[options]
        words = ["generate", room / "model", "--json"]
        words += ["--mesh", "2x2"] * (not {"--mesh", "--explain"} & set(options))
        words += ["--tokens", "2"] * (not {"--tokens", "--explain"} & set(options))
        words += ["--prompt-ids", "3,1,4"] * (not {"--explain", "--messages"} & set(options))
        for option in options:
            value = OPTIONS[option]
            words += [option] if value is None else [option, values.get(value, value)]
        for name in ("l.npz", "o.h5", "k.npz"):
            (room / name).unlink(missing_ok=True)
        status = main([str(word) for word in words])
        printed = capsys.readouterr()
        found = json.loads(printed.out) if status == 0 else {}
        found.pop("host_seconds", None), found.pop("step_seconds", None)
        files = [name for name in ("l.npz", "o.h5", "k.npz") if (room / name).exists()]
        if "o.h5" in files:
            with h5py.File(room / "o.h5") as file:
                files.append("events" in json.dumps(sorted(file)))
        known[options] = status, json.dumps(found), printed.err, files
        return known[options]

    return answer


def test_all_options_are_here():
    """An option that is new gets a value, and so all its pairs."""
    sub = next(action for action in build_parser(("generate",))._actions if action.choices)
    actions = sub.choices["generate"]._actions
    there = {option for action in actions for option in action.option_strings if option.startswith("--")}
    assert there - set(APART) == set(OPTIONS)


PAIRS = sorted(combinations(OPTIONS, 2), key=lambda pair: "".join(pair)[::-1])
"""Mixed, so that the first ones are of all kinds."""


@pytest.mark.parametrize("pair", few(PAIRS, 12), ids=" ".join)
def test_a_pair(answers, capsys, pair):
    """Either changes what the other one alone gives; or one line of error names one, or a warning names it."""
    status, printed, err, files = answers(capsys, *pair)
    lines = err.splitlines()
    if status:
        assert status == 2
        errors = [line for line in lines if line.startswith("wse: error")]
        assert len(errors) == 1
        assert len(lines) <= 2
        return
    for here, other in (pair, pair[::-1]):
        alone = answers(capsys, other)
        if alone[0] or here in err or {(here, other), (other, here)} & (WAYS | ROUND):
            continue  # the other one needs this one; or it is said; or it asks for what is there
        assert (printed, files) != (alone[1], alone[3]), f"{here} changes nothing beside {other}"

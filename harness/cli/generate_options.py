"""Options of ``wse generate`` that mean nothing without others are refused, or a run says that they do nothing."""

from __future__ import annotations

import argparse

from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["AHEAD", "check_options", "with_defaults"]

NEEDS = {"ahead": "draft", "draft_mesh": "draft"}
"""Each of these options says something of what another option asks for, and needs that one."""

OF_A_RUN = ("out", "logits", "trace", "cache_file")
"""These options are about what a run leaves, and an estimate runs nothing."""

AHEAD = 4
"""Tokens that a step takes of an answer that is guessed, if --ahead does not say how many."""


def _flag(name: str) -> str:
    """Return an option as it is written."""
    return "--" + name.replace("_", "-")


def _given(args: argparse.Namespace, name: str) -> bool:
    """Whether an option is there and says something else than the default."""
    return bool(getattr(args, name) != args.parser.get_default(name))


def check_options(args: argparse.Namespace) -> list[str]:
    """Return what a run has to say of options that do nothing beside the others.

    Raises
    ------
    ConfigError
        An option that says something of what is not asked for; one line with its name.
    """
    for name, other in NEEDS.items():
        if _given(args, name) and not _given(args, other):
            raise ConfigError("there is no draft", where=_flag(name), hint=f"{_flag(other)} MODEL")
    if args.estimate:
        for name in OF_A_RUN:
            if _given(args, name):
                raise ConfigError("says something about a run, and an estimate runs nothing", where=_flag(name))
    if args.trace_window is not None or args.trace not in ("off", "counters"):
        for name in ("cache_file", "prefix"):
            if _given(args, name):
                what = "events and windows are those of one run, and the answer may go on in another"
                raise UnsupportedError(what, where=_flag(name), hint="leave it out, or --trace counters")
    found = []
    drawing = [name for name in ("temperature", "top_k", "seed") if _given(args, name)]
    if (args.random_layers is not None or args.verify == "sample") and "seed" in drawing:
        drawing.remove("seed")  # the weights, or the steps that are compared, are drawn by it
    if args.estimate and drawing:
        found.append(f"{', '.join(map(_flag, drawing))}: an estimate draws nothing")
    elif drawing and args.temperature == 0 and str(args.requests).lstrip("-").isdigit():
        found.append(f"{', '.join(map(_flag, drawing))}: without --temperature the likeliest token is taken")
    if args.estimate and _given(args, "verify"):
        found.append("--verify: an estimate compares nothing")
    return found


def with_defaults(args: argparse.Namespace) -> None:
    """Set what options that were not given mean beside the others.

    A draft takes guesses back, which a cache whose entries move cannot; nor can it take the pieces of a prompt that
    layers at a time read as a whole.
    """
    if args.cache is None:
        pieces = args.chunk is not None and args.layers_at_a_time is not None
        args.cache = "shift" if args.draft is None and not pieces else "round"

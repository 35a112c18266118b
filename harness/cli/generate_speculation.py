"""``wse generate --draft`` says: an answer that a smaller model guesses ahead, its cycles, and who was right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli.generate_answer import exactness, kept_in, reused, reused_rows, verified
from harness.cli.shared import CLOCKS

if TYPE_CHECKING:
    from harness.inference.asking import AnswerRequest
    from harness.inference.speculation import Speculation
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = ["estimated", "estimated_rows", "fill", "result_of", "rows"]


def _asked(request: AnswerRequest) -> dict[str, Any]:
    """Return what was asked."""
    assert request.draft is not None
    return {
        "model": request.model.name,
        "draft": request.draft.name,
        "mesh": "{}x{}".format(*request.mesh),
        "draft_mesh": "{}x{}".format(*(request.draft_mesh or request.mesh)),
        "cache": request.policy,
        "ahead": request.ahead,
    }


def estimated(request: AnswerRequest) -> dict[str, Any]:
    """Return what a full round takes behind the longest text, by the prices of the programs; nothing is run."""
    from harness.inference.estimate import WITHIN, estimate_speculation

    found = estimate_speculation(request)
    return _asked(request) | {
        "estimated_cycles": {"check": found.check, "guess": found.guess, "round": found.round, "alone": found.alone},
        "tokens_of_a_round_to_win": found.round / found.alone,
        "within": {"steps": WITHIN["tokens"]},
        "memory_per_pe": found.memory,
    }


def estimated_rows(facts: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return an estimate for people."""
    cycles, memory = facts["estimated_cycles"], facts["memory_per_pe"]
    return [
        ("check", f"{cycles['check']:,} cycles of {facts['ahead']} tokens, on {facts['mesh']} PEs"),
        ("guess", f"{cycles['guess']:,} cycles of {facts['draft']}, on {facts['draft_mesh']} PEs below"),
        ("round", f"{cycles['round']:,} cycles of {facts['ahead'] - 1} guesses and their check"),
        ("without a draft", f"{cycles['alone']:,} cycles of a token"),
        ("worth it", f"if a round gives more than {facts['tokens_of_a_round_to_win']:.2f} tokens"),
        ("memory of a PE", f"{memory['model']:,} and {memory['draft']:,} of {2 * machine['mem.words']:,} bytes"),
        ("how sure", f"steps within {facts['within']['steps']:.0%} of a run in tests; nothing was run"),
    ]


def fill(writer: RunWriter, found: Speculation, counters: bool) -> None:
    """Put an answer into a run file, and the counters of the larger model's PEs if they are wanted."""
    for name, (values, unit) in found.counters.items() if counters else ():
        writer.add_counter(name, values, unit)
    writer.add_result("cycles", max(found.prompt_cycles.values()) + sum(found.checks) + sum(found.guesses))
    writer.add_result("check_cycles", np.array(found.checks), "cycles", "of each step of the larger model")
    writer.add_result("guess_cycles", np.array(found.guesses, np.int64), "cycles", "of each step of the draft")
    writer.add_result("accepted", np.array([found.accepted, found.guessed]), "1", "guesses that were right, and all")
    writer.add_result("tokens", np.array(found.tokens), "1", "tokens of the answer")
    writer.add_result("wavelet_hops", found.hops)
    writer.add_result("host_seconds", found.host_seconds)
    if found.bit_exact is not None:
        writer.add_result("bit_exact", found.bit_exact)
        writer.add_result("max_abs_error", found.max_abs_error)


def result_of(request: AnswerRequest, found: Speculation) -> dict[str, Any]:
    """Return what is printed as JSON."""
    machine, tokens = request.machine, len(found.tokens)
    checks, guesses = sum(found.checks), sum(found.guesses)
    return _asked(request) | {
        "dtype": request.dtype,
        "cache_dtype": request.cache_dtype or request.dtype,
        "prompt": list(request.prompt),
        "prompt_read_by": "both models, in pieces",
        "reused": reused(found.reused, found.reused_cycles),
        "tokens": found.tokens,
        "text": None,
        "cycles": {
            "prefill": max(found.prompt_cycles.values()),
            "prompts": found.prompt_cycles,
            "checks": found.checks,
            "guesses": found.guesses,
            "answer": checks + guesses,
            "alone": found.alone,
        },
        "guessed": found.guessed,
        "accepted": found.accepted,
        "acceptance": found.acceptance,
        "expected_cycles": found.expected,
        "cycles_per_token": (checks + guesses) / tokens,
        "tokens_per_second": {
            f"{machine[key]} GHz": tokens * machine[key] * 1e9 / (checks + guesses) for key in CLOCKS
        },
        "wavelet_hops": found.hops,
        "verify": verified(request),
        "steps": found.steps,
        "steps_compared": found.steps_compared,
        "bit_exact": found.bit_exact,
        "max_abs_error": found.max_abs_error,
        "error_bound": found.error_bound,
        "error_share": found.error_share,
        "memory_per_pe": {name: sum(parts.values()) for name, parts in found.memory.items()},
        "memory_parts": found.memory,
        "host_seconds": found.host_seconds,
    }


def rows(result: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return what is printed for people."""
    cycles, memory = result["cycles"], result["memory_per_pe"]
    exact = exactness(result)
    mean, alone = result["cycles_per_token"], cycles["alone"]
    speed = ", ".join(f"{value:,.0f} at {clock}" for clock, value in result["tokens_per_second"].items())
    found = [
        ("mesh", f"{result['mesh']} PEs, {result['draft_mesh']} of the draft below, {kept_in(result)}"),
        ("prompt", f"{len(result['prompt'])} tokens, {cycles['prefill']:,} cycles (by {result['prompt_read_by']})"),
        *reused_rows(result),
        (
            "guesses",
            f"{result['accepted']} of {result['guessed']} accepted ({result['acceptance']:.0%}); "
            f"{len(cycles['guesses'])} steps of {result['draft']}, {sum(cycles['guesses']):,} cycles",
        ),
        ("checks", f"{len(cycles['checks'])} steps, {sum(cycles['checks']):,} cycles"),
        ("cycles per token", f"{mean:,.0f}; the last one without a draft {alone:,} ({mean / alone:.2f} times)"),
        ("tokens per second", speed),
        ("memory of a PE", f"{memory['model']:,} and {memory['draft']:,} of {2 * machine['mem.words']:,} bytes"),
        ("bits as numpy's", f"{exact}, against a decoder without a draft"),
    ]
    if result["max_abs_error"] is not None:
        bound = "" if result["error_bound"] is None else f" (bound {result['error_bound']:.3g})"
        found.append(("largest error", f"{result['max_abs_error']:.3g} of a logit, against float64{bound}"))
    return [*found, ("host seconds", f"{result['host_seconds']:.1f}")]

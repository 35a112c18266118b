"""``wse generate --batch`` says: requests that share the steps of one mesh, their cycles and what each waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli.generate_answer import exactness, kept_in, reused, reused_rows, verified
from harness.cli.shared import CLOCKS

if TYPE_CHECKING:
    from harness.inference.asking import AnswerRequest
    from harness.inference.serving import BatchAnswers
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = ["estimated", "estimated_rows", "fill", "result_of", "rows"]


def estimated(request: AnswerRequest) -> dict[str, Any]:
    """Return what all requests will take if no answer ends early, by the prices of the program; nothing is run."""
    from harness.inference.estimate import WITHIN, estimate_service

    found, machine = estimate_service(request), request.machine
    total, tokens = sum(found.steps), sum(request.count_of(k) for k in range(len(request.prompts)))
    return {
        "model": request.model.name,
        "mesh": "{}x{}".format(*request.mesh),
        "batch": request.batch,
        "requests": len(request.prompts),
        "prompt_read_by": "decode, token by token",
        "reused": None if request.prefix is None else reused(request.prefix.count, request.prefix.cycles),
        "estimated_cycles": {"all": total, "steps": found.steps, "alone": found.alone},
        "lanes_taken": found.taken,
        "within": {"steps": WITHIN["tokens"]},
        "seconds": {f"{machine[key]} GHz": total / (machine[key] * 1e9) for key in CLOCKS},
        "tokens_per_second": {f"{machine[key]} GHz": tokens * machine[key] * 1e9 / total for key in CLOCKS},
        "memory_per_pe": sum(found.memory.values()),
        "memory_parts": found.memory,
    }


def estimated_rows(facts: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return an estimate for people."""
    cycles = facts["estimated_cycles"]
    steps, alone = cycles["steps"], cycles["alone"]
    mean = sum(steps) / len(steps)
    return [
        ("requests", f"{facts['requests']}, up to {facts['batch']} in a step; prompts are read token by token"),
        *reused_rows(facts),
        ("steps", f"{len(steps):,}, {facts['lanes_taken']:.0%} of their lanes taken"),
        ("cycles per step", f"{mean:,.0f} ({min(steps):,} to {max(steps):,})"),
        ("one request alone", f"{alone:,} cycles of its last token: a step takes {max(steps) / alone:.2f} times that"),
        ("all", f"{cycles['all']:,} cycles: " + ", ".join(f"{s:.3g} s at {c}" for c, s in facts["seconds"].items())),
        ("tokens per second", ", ".join(f"{v:,.0f} at {c}" for c, v in facts["tokens_per_second"].items())),
        ("memory of a PE", f"{facts['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes"),
        ("how sure", f"steps within {facts['within']['steps']:.0%} of a run in tests; nothing was run"),
    ]


def fill(writer: RunWriter, service: BatchAnswers, counters: bool) -> None:
    """Put answers into a run file, and the counters of the PEs if they are wanted."""
    for name, (values, unit) in service.counters.items() if counters else ():
        writer.add_counter(name, values, unit)
    writer.add_result("cycles", service.cycles)
    what = "of each step, from the entering of its tokens to the leaving of the last of the next ones"
    writer.add_result("step_cycles", np.array(service.step_cycles), "cycles", what)
    writer.add_result("lanes_taken", np.array(service.taken), "1", "lanes that had a request, of each step")
    writer.add_result("tokens", np.array(service.requests[0].tokens), "1", "tokens of the first answer")
    writer.add_result("wavelet_hops", service.hops)
    writer.add_result("host_seconds", service.host_seconds)
    if service.bit_exact is not None:
        writer.add_result("bit_exact", service.bit_exact)
        writer.add_result("max_abs_error", service.max_abs_error)


def result_of(request: AnswerRequest, service: BatchAnswers) -> dict[str, Any]:
    """Return what is printed as JSON."""
    machine, batch = request.machine, request.batch or 1
    tokens = sum(map(len, service.tokens))
    return {
        "model": request.model.name,
        "mesh": "{}x{}".format(*request.mesh),
        "cache": request.policy,
        "dtype": request.dtype,
        "cache_dtype": request.cache_dtype or request.dtype,
        "batch": batch,
        "prompt": list(request.prompt),
        "prompt_read_by": "decode, token by token",
        "reused": reused(service.reused, service.reused_cycles),
        "tokens": service.tokens[0],
        "answers": service.tokens,
        "text": None,
        "requests": [
            {
                "prompt": list(prompt),
                "tokens": each.tokens,
                "lane": each.lane,
                "first_step": each.first_step,
                "steps": each.steps,
                "cycles": {"first_token": each.first_token, "all": each.end},
            }
            for prompt, each in zip(request.prompts, service.requests, strict=True)
        ],
        "cycles": {"all": service.cycles, "steps": service.step_cycles},
        "expected_cycles": service.expected,
        "lanes_taken": sum(service.taken) / (batch * len(service.taken)),
        "tokens_per_second": {f"{machine[key]} GHz": tokens * machine[key] * 1e9 / service.cycles for key in CLOCKS},
        "wavelet_hops": service.hops,
        "verify": verified(request),
        "steps": service.steps,
        "steps_compared": service.steps_compared,
        "bit_exact": service.bit_exact,
        "max_abs_error": service.max_abs_error,
        "error_bound": service.error_bound,
        "error_share": service.error_share,
        "memory_per_pe": sum(service.memory.values()),
        "memory_parts": service.memory,
        "host_seconds": service.host_seconds,
    }


def rows(result: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return what is printed for people."""
    steps, requests = result["cycles"]["steps"], result["requests"]
    exact = exactness(result)
    waits = [each["cycles"]["first_token"] for each in requests]
    speed = ", ".join(f"{value:,.0f} at {clock}" for clock, value in result["tokens_per_second"].items())
    found = [
        ("mesh", f"{result['mesh']} PEs, {kept_in(result)}, {result['dtype']}"),
        ("requests", f"{len(requests)}, up to {result['batch']} in a step"),
        *reused_rows(result),
        ("steps", f"{len(steps):,}, {result['lanes_taken']:.0%} of their lanes taken"),
        ("cycles per step", f"{sum(steps) / len(steps):,.0f} ({min(steps):,} to {max(steps):,})"),
        ("first token", f"{min(waits):,} to {max(waits):,} cycles after the first step began"),
        ("all answers", f"{result['cycles']['all']:,} cycles; by closed form {result['expected_cycles']:,} of steps"),
        ("tokens per second", f"{speed}, all answers, prompts included"),
        ("memory of a PE", f"{result['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes"),
        ("bits as numpy's", f"{exact}, each request against a decoder that has it alone"),
    ]
    if result["max_abs_error"] is not None:
        bound = "" if result["error_bound"] is None else f" (bound {result['error_bound']:.3g})"
        found.append(("largest error", f"{result['max_abs_error']:.3g} of a logit, against float64{bound}"))
    return [*found, ("host seconds", f"{result['host_seconds']:.1f}")]

"""``wse generate --regions`` says: a decoder on several regions of the wafer, its cycles and its bubbles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli.generate_answer import kept_in
from harness.cli.shared import CLOCKS

if TYPE_CHECKING:
    from harness.inference.asking import AnswerRequest
    from harness.inference.regions import RegionAnswers
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = ["estimated", "estimated_rows", "fill", "result_of", "rows"]


def estimated(request: AnswerRequest) -> dict[str, Any]:
    """Return a round of the last position by closed form; nothing is run."""
    from fabric.networks.inference.pipeline import RegionPipeline
    from fabric.networks.inference.pipeline_cycles import PipelineCycles
    from harness.inference.admission import admitted

    built, _ = admitted(request)
    assert isinstance(built, RegionPipeline)
    form = PipelineCycles(built)
    found = form.round(request.tokens - 1)
    return {
        "regions": len(built.stages),
        "layers": [stage.place.decoder.layers for stage in built.stages],
        "requests": len(request.prompts),
        "prompt_tokens": len(request.prompt),
        "estimated_cycles": {
            "prefill": form.prompt(len(request.prompt)),
            "token": found.latency,
            "round": found.cycles,
            "busy": found.busy,
        },
        "bubbles": found.share,
    }


def result_of(request: AnswerRequest, flow: RegionAnswers) -> dict[str, Any]:
    """Return what is printed as JSON."""
    machine = request.machine
    tokens = sum(len(each) for each in flow.token_cycles)
    rate = {f"{machine[key]} GHz": tokens * machine[key] * 1e9 / max(1, flow.answer_cycles) for key in CLOCKS}
    cycles = {"prompt": flow.prompt_cycles, "answer": flow.answer_cycles}
    return {
        "model": request.model.name,
        "mesh": "{}x{}".format(*request.mesh),
        "cache": request.policy,
        "dtype": request.dtype,
        "cache_dtype": request.cache_dtype or request.dtype,
        "prompt": list(request.prompt),
        "prompt_read_by": "decode, token by token",
        "requests": len(flow.tokens),
        "tokens": flow.tokens[0],
        "answers": flow.tokens,
        "text": None,
        "cycles": {
            "prefill": flow.prompt_cycles,
            "transition": 0,
            "tokens": flow.token_cycles[0],
            "all_answers": flow.answer_cycles,
        },
        "regions": [
            {
                "layers": [region.first, region.first + region.layers - 1],
                "cycles": {phase: getattr(region, phase) for phase in cycles},
                "bubbles": {phase: cycles[phase] - getattr(region, phase) for phase in cycles},
                "memory_per_pe": sum(region.memory.values()),
                "memory_parts": region.memory,
            }
            for region in flow.regions
        ],
        "bubbles": {phase: flow.bubbles(phase) for phase in cycles},
        "expected": {
            "token": flow.expected.latency,
            "round": flow.expected.cycles,
            "busy": flow.expected.busy,
            "bubbles": flow.expected.share,
        },
        "tokens_per_second": rate,
        "wavelet_hops": flow.hops,
        "bit_exact": flow.bit_exact,
        "max_abs_error": flow.max_abs_error,
        "error_bound": flow.error_bound,
        "error_share": flow.error_share,
        "memory_per_pe": max(sum(region.memory.values()) for region in flow.regions),
        "host_seconds": flow.host_seconds,
    }


def estimated_rows(found: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return an estimate for people."""
    cycles = found["estimated_cycles"]
    layers = ", ".join(map(str, found["layers"]))
    return [
        ("regions", f"{found['regions']}, with {layers} layers; {found['requests']} requests"),
        ("prompt", f"{found['prompt_tokens']} tokens, one behind the other, {cycles['prefill']:,} cycles"),
        ("last token", f"{cycles['token']:,} cycles through all regions"),
        (
            "last round",
            f"{cycles['round']:,} cycles, of which they work " + ", ".join(f"{n:,}" for n in cycles["busy"]),
        ),
        ("bubbles", f"{found['bubbles']:.0%} of all regions' cycles"),
        ("how sure", "closed forms, within 5% of a run in tests; nothing was run"),
    ]


def rows(result: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return the result for people."""
    cycles, bubbles, expected = result["cycles"], result["bubbles"], result["expected"]
    tokens, count = cycles["tokens"], result["requests"]
    exact = {True: "yes", False: "NO", None: "not checked"}[result["bit_exact"]]
    found: list[tuple[str, str]] = [
        ("mesh", f"{len(result['regions'])} regions of {result['mesh']} PEs, {kept_in(result)}"),
        ("requests", f"{count}, their tokens in turns" if count > 1 else "1: regions work one after the other"),
        (
            "prompt",
            f"{len(result['prompt'])} tokens each, {cycles['prefill']:,} cycles, bubbles {bubbles['prompt']:.0%}",
        ),
    ]
    if tokens:
        mean = sum(tokens) / len(tokens)
        found.append(("cycles per token", f"{mean:,.0f} ({min(tokens):,} to {max(tokens):,}) of one answer"))
        found.append(("bubbles", f"{bubbles['answer']:.0%} of all regions' cycles while answers come"))
        rate = ", ".join(f"{value:,.0f} at {clock}" for clock, value in result["tokens_per_second"].items())
        found.append(("tokens per second", f"{rate}, all answers"))
    for k, region in enumerate(result["regions"]):
        first, last = (layer + 1 for layer in region["layers"])
        worked, waited = region["cycles"], region["bubbles"]
        text = f"layers {first} to {last}, {region['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes of a PE; "
        text += f"worked {worked['prompt']:,} + {worked['answer']:,} cycles, "
        found.append((f"region {k + 1}", text + f"waited {waited['prompt']:,} + {waited['answer']:,}"))
    found += [
        (
            "closed form",
            f"{expected['token']:,} cycles of a token, {expected['round']:,} of a round, "
            f"bubbles {expected['bubbles']:.0%}",
        ),
        ("bits as numpy's", exact),
    ]
    if result["max_abs_error"] is not None:
        bound = "" if result["error_bound"] is None else f" (bound {result['error_bound']:.3g})"
        found.append(("largest error", f"{result['max_abs_error']:.3g} of a logit, against float64{bound}"))
    return [*found, ("host seconds", f"{result['host_seconds']:.1f}")]


def fill(writer: RunWriter, flow: RegionAnswers, counters: bool) -> None:
    """Put answers into a run file, and the counters of the PEs if they are wanted."""
    for name, (values, unit) in flow.counters.items() if counters else ():
        writer.add_counter(name, values, unit)
    writer.add_result("cycles", flow.prompt_cycles + flow.answer_cycles)
    writer.add_result("region_cycles", np.array([[r.prompt, r.answer] for r in flow.regions]), "cycles", "of work")
    writer.add_result("tokens", np.array(flow.tokens[0]), "1", "tokens of the first answer")
    writer.add_result("wavelet_hops", flow.hops)
    writer.add_result("host_seconds", flow.host_seconds)
    if flow.bit_exact is not None:
        writer.add_result("bit_exact", flow.bit_exact)

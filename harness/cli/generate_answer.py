"""What ``wse generate`` says of one answer: estimated, and measured; `generate_regions` says the same of regions."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli.shared import CLOCKS

if TYPE_CHECKING:
    from fabric.networks.inference.placement import DecoderPlacement
    from harness.inference.asking import AnswerRequest
    from harness.inference.generate import Answer
    from harness.inference.reloads import Reload
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = [
    "estimated",
    "estimated_rows",
    "exactness",
    "fill",
    "kept_in",
    "result_of",
    "reused",
    "reused_rows",
    "rows",
    "verified",
]


def read_by(at_once: bool, pieces: int) -> str:
    """Return by what a prompt is read."""
    if pieces:
        return f"decode, in {pieces} piece{'s' * (pieces > 1)}"
    return "prefill, at once" if at_once else "decode, token by token"


def verified(request: AnswerRequest) -> str:
    """Return what of an answer is compared, as the option says it."""
    return "off" if not request.verify else "full" if request.sample is None else "sample"


def exactness(result: dict[str, Any]) -> str:
    """Return whether bits are numpy's, and of how many steps."""
    found = {True: "yes", False: "NO", None: "not checked"}[result["bit_exact"]]
    sampled = result["verify"] == "sample"
    return f"{found}, {result['steps_compared']:,} of {result['steps']:,} steps" if sampled else found


def kept_in(result: dict[str, Any]) -> str:
    """Return what cache an answer has."""
    return f"{result['cache']} cache{' of int8' if result['cache_dtype'] == 'int8' else ''}"


def reused(tokens: int, cycles: int) -> dict[str, int] | None:
    """Return how many tokens of a prompt another answer has read, and what that took; None if there are none."""
    return {"tokens": tokens, "cycles": cycles} if tokens else None


def reused_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is said of tokens that need not be read."""
    found = facts["reused"]
    if found is None:
        return []
    return [
        ("reused", f"{found['tokens']} of the prompt's tokens, which took another answer {found['cycles']:,} cycles")
    ]


def estimated(request: AnswerRequest) -> dict[str, Any]:
    """Return what an answer will take, by the prices of its programs; nothing is run."""
    from harness.inference.estimate import BY_EXPERTS, MOVED, WITHIN, estimate

    found, machine = estimate(request), request.machine
    within = WITHIN | ({"transition": MOVED} if request.last_mesh != request.mesh else {})
    if request.decoder.experts and found.at_once and not found.pieces:
        within |= {"prefill": BY_EXPERTS}
    total = found.prefill + found.transition + found.first_token + sum(found.tokens)
    loads = None if found.reload is None else reload_facts(machine, found.reload)
    loading = 0 if loads is None else loads["seconds"]
    return {
        "model": request.model.name,
        "mesh": "{}x{}".format(*request.mesh),
        "decode_mesh": "{}x{}".format(*request.last_mesh),
        "prompt_tokens": len(request.prompt),
        "prompt_read_by": read_by(found.at_once, found.pieces),
        "reused": None if request.prefix is None else reused(request.prefix.count, request.prefix.cycles),
        "estimated_cycles": {
            "prefill": found.prefill,
            "transition": found.transition,
            "first_token": found.first_token,
            "tokens": found.tokens,
        },
        "reload": loads,
        "within": within,
        "seconds": {f"{machine[key]} GHz": total / (machine[key] * 1e9) + loading for key in CLOCKS},
        "memory_per_pe": sum(found.memory.values()),
        "memory_parts": found.memory,
    }


def estimated_rows(facts: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return an estimate for people."""
    cycles, within = facts["estimated_cycles"], facts["within"]
    steps, first = cycles["tokens"], cycles["first_token"]
    moves = " and 1% of the prompt" if facts["decode_mesh"] != facts["mesh"] else ""
    bounds = f"prompt within {within['prefill']:.0%} of a run in tests, steps within {within['tokens']:.0%}"
    bounds += f", the transition within {within['transition']:.0%}{moves} or 8 cycles"
    reader = facts["prompt_read_by"]
    rows = [("prompt", f"{facts['prompt_tokens']} tokens, {cycles['prefill']:,} cycles (by {reader})")]
    rows += reused_rows(facts)
    if "piece" in reader and first:
        rows.append(("first token", f"{first:,} cycles more"))
    elif "at once" in reader:
        rows.append(("transition", f"{cycles['transition']:,} cycles; first token {first:,} more"))
    if steps:
        rows.append(("cycles per token", f"{sum(steps) / len(steps):,.0f} ({min(steps):,} to {max(steps):,})"))
    total = cycles["prefill"] + cycles["transition"] + first + sum(steps)
    return [
        *rows,
        *reload_rows(facts),
        (
            "all",
            f"{total:,} cycles: "
            + ", ".join(f"{s:.3g} s at {c}" for c, s in facts["seconds"].items())
            + (", loading included" if facts["reload"] is not None else ""),
        ),
        ("memory of a PE", f"{facts['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes"),
        ("how sure", f"{bounds}; nothing was run"),
    ]


def fill(writer: RunWriter, answer: Answer, counters: bool) -> None:
    """Put an answer into a run file, and the counters of the PEs if they are wanted."""
    for name, (values, unit) in answer.counters.items() if counters else ():
        writer.add_counter(name, values, unit)
    cycles = [*answer.prompt_cycles, *answer.token_cycles]
    writer.add_result("cycles", sum(cycles) + answer.transition + answer.first_cycles)
    writer.add_result("step_cycles", np.array(cycles), "cycles", "of each step, hand-over to hand-over, prompt first")
    if answer.at_once:
        what = "keys and values" if answer.moved_bytes else "the last token's hidden features"
        writer.add_result("transition_cycles", answer.transition, "cycles", f"of {what}")
        writer.add_result("first_token_cycles", answer.first_cycles, "cycles", "until the first token has left")
    if answer.reload is not None:
        words = np.array(answer.reload.passes)
        writer.add_result(
            "reload_words", words, "words", "of 16 bits, loaded for the prompt and for each further token"
        )
    writer.add_result("tokens", np.array(answer.tokens), "1", "tokens of the answer")
    writer.add_result("wavelet_hops", answer.hops)
    writer.add_result("host_seconds", answer.host_seconds)
    if answer.bit_exact is not None:
        writer.add_result("bit_exact", answer.bit_exact)
    if answer.max_abs_error is not None:
        writer.add_result("max_abs_error", answer.max_abs_error)


def result_of(request: AnswerRequest, answer: Answer) -> dict[str, Any]:
    """Return what is printed as JSON."""
    from fabric.networks.inference.placement import DecoderPlacement

    decoder, mesh, machine = request.decoder, request.last_mesh, request.machine
    steps = answer.token_cycles or ([answer.expected_cycles] if answer.at_once else answer.prompt_cycles[-1:])
    mean = sum(steps) / len(steps)
    loads = None if answer.reload is None else reload_facts(machine, answer.reload)
    rates = {}
    for key in CLOCKS:
        seconds = mean / (machine[key] * 1e9) + (0 if loads is None else loads["seconds_per_token"])
        rates[f"{machine[key]} GHz"] = 1 / seconds
    useful = decoder.layers * decoder.product_parameters + decoder.vocabulary * decoder.hidden
    place = DecoderPlacement(decoder, *mesh, 1, request.dtype)
    lanes = place.shapes["head"].lanes(machine)
    return {
        "model": request.model.name,
        "mesh": "{}x{}".format(*request.mesh),
        "decode_mesh": "{}x{}".format(*mesh),
        "cache": request.policy,
        "dtype": request.dtype,
        "cache_dtype": request.cache_dtype or request.dtype,
        "prompt": list(request.prompt),
        "prompt_read_by": read_by(answer.at_once, answer.pieces),
        "reused": reused(answer.reused, answer.reused_cycles),
        "tokens": answer.tokens,
        "text": None,
        "cycles": {
            "prefill": sum(answer.prompt_cycles),
            "transition": answer.transition,
            "first_token": answer.first_cycles,
            "tokens": answer.token_cycles,
        },
        "moved_bytes": answer.moved_bytes,
        "program_load": None if answer.load is None else {"words": answer.load.words, "cycles": answer.load.cycles},
        "expected_cycles": answer.expected_cycles,
        "layer_cycles": answer.layer_cycles,
        "reload": loads,
        "tokens_per_second": rates,
        "utilisation": useful / (mesh[0] * mesh[1] * lanes * mean),
        "wavelet_hops": answer.hops,
        "resumed": answer.resumed,
        "verify": verified(request),
        "steps": answer.steps,
        "steps_compared": answer.steps_compared,
        "bit_exact": answer.bit_exact,
        "max_abs_error": answer.max_abs_error,
        "error_bound": answer.error_bound,
        "error_share": answer.error_share,
        "logits_read": _logits_read(request, place),
        "memory_per_pe": sum(answer.memory.values()),
        "memory_parts": answer.memory,
        "host_seconds": answer.host_seconds,
        "step_seconds": answer.step_seconds,
    }


def reload_facts(machine: Machine, reload: Reload) -> dict[str, Any]:
    """Return what loading layers takes, over a link of so many bytes per second, beside the cycles of the PEs."""
    from fabric.networks.inference.reloading import ReloadLink

    link = ReloadLink(machine)
    first, *others = reload.cycles(link)
    each = reload.passes[1:] or reload.passes
    return {
        "layers_at_a_time": reload.each,
        "groups": reload.groups,
        "parts_of_output_matrix": reload.parts,
        "words": reload.words,
        "bytes_per_second": machine["stream.rate"],
        "prefill_cycles": first,
        "token_cycles": others,
        "seconds": link.seconds(sum(reload.passes)),
        "seconds_per_token": link.seconds(sum(each)) / len(each),
    }


def reload_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is said of layers that are loaded some at a time; nothing if they are not."""
    found = facts["reload"]
    if found is None:
        return []
    groups, parts, words = found["groups"], found["parts_of_output_matrix"], sum(found["words"].values())
    each = found["layers_at_a_time"]
    one = f"{groups} groups of {each} layer{'s' * (each > 1)}" if groups > 1 else "all layers"
    head = f"the output matrix in {parts} parts" if parts > 1 else "the output matrix"
    loaded = ", ".join(f"{count:,} of {name}" for name, count in found["words"].items() if count)
    passes = [found["prefill_cycles"], *found["token_cycles"]]
    rate = f"{found['bytes_per_second'] / 1e9:,.0f} GB/s"
    return [
        ("layers at a time", f"{one}, then {head}"),
        ("loaded", f"{words:,} words: {loaded}"),
        ("reload", f"{sum(passes):,} cycles at {rate}, for the prompt {passes[0]:,}, in no other count of cycles"),
    ]


def _logits_read(request: AnswerRequest, place: DecoderPlacement) -> dict[str, int] | None:
    """Return what the host reads to draw a token; None if the wafer finds the likeliest.

    The host takes the logits from the memory of the PEs of row 0: that is in no count of cycles.  Over the north edge,
    one wavelet per column and cycle, it would take so many cycles at least.
    """
    if request.sampling.temperature == 0:
        return None
    return {"bytes_per_token": 4 * place.decoder.vocabulary, "cycles_per_token": place.vocabulary}


def rows(result: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return what is printed for people."""
    cycles = result["cycles"]
    tokens = cycles["tokens"]
    parts = result["layer_cycles"]
    part = max(parts, key=lambda name: parts[name])
    speed = ", ".join(f"{value:,.0f} at {clock}" for clock, value in result["tokens_per_second"].items())
    exact = exactness(result)
    found = [
        ("mesh", f"{result['mesh']} PEs, {kept_in(result)}, {result['dtype']}"),
        ("prompt", f"{len(result['prompt'])} tokens, {cycles['prefill']:,} cycles (by {result['prompt_read_by']})"),
    ]
    if result["decode_mesh"] != result["mesh"]:
        found.insert(1, ("decode mesh", f"{result['decode_mesh']} PEs beside it"))
    if cycles["transition"]:
        moved = f" for {result['moved_bytes']:,} bytes of keys and values" if result["moved_bytes"] else ""
        text = f"{cycles['transition']:,} cycles{moved}; first token {cycles['first_token']:,} more"
        found.append(("transition", text))
    elif cycles["first_token"]:
        found.append(("first token", f"{cycles['first_token']:,} cycles more"))
    found += reused_rows(result)
    if result["program_load"] is not None:
        load = result["program_load"]
        words = f"{load['words']:,} words of code, {load['cycles']:,} cycles at least, in no other number"
        found.append(("program load", words))
    if tokens:
        found.append(("cycles per token", f"{sum(tokens) / len(tokens):,.0f} ({min(tokens):,} to {max(tokens):,})"))
    found += reload_rows(result)
    found += [
        ("tokens per second", speed + (", loading included" if result["reload"] is not None else "")),
        ("longest part", f"{part}, {100 * parts[part] / sum(parts.values()):.0f} % of a layer (closed form)"),
        ("utilisation", f"{100 * result['utilisation']:.3g} % of the multiply-adds of all PEs"),
        ("memory of a PE", f"{result['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes"),
        ("bits as numpy's", exact),
    ]
    if result["max_abs_error"] is not None:
        bound = "" if result["error_bound"] is None else f" (bound {result['error_bound']:.3g})"
        found.append(("largest error", f"{result['max_abs_error']:.3g} of a logit, against float64{bound}"))
    if result["logits_read"] is not None:
        read = result["logits_read"]
        text = f"by the host, {read['bytes_per_token']:,} bytes a token: {read['cycles_per_token']:,} cycles at least"
        found.append(("logits read", f"{text}, in no other number"))
    if result["resumed"]:
        found.append(("gone on", f"behind {result['resumed']:,} tokens of prompt and answer, from the file"))
    each = f", {median(result['step_seconds']):.1f} a step" if result["step_seconds"] else ""
    return [*found, ("host seconds", f"{result['host_seconds']:.1f}{each}")]

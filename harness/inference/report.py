"""``wse plan MODEL --inference`` says: time of a request by both programs at both clocks, memory, what limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fabric.networks.inference.decoder import Decoder
from harness.inference.capacity import DecoderMemory, admit, admit_batch, columns_of, places_of, smallest_mesh
from harness.inference.fleet import user_rates
from harness.inference.phase import LayerCycles
from harness.inference.requests import PROGRAMS, clocks, extras, growing, transition
from harness.inference.running import running
from harness.kit.console import table
from wse_core.errors import ConfigError, ProgramError, UnsupportedError
from wse_core.params import Machine

__all__ = ["described", "planned"]

Mesh = tuple[int, int]


def _largest(phase: LayerCycles) -> str:
    """Return what takes most of a layer."""
    kinds = {"sum": phase.sums, "product": phase.products, "on a PE": phase.local}
    found = [(value, f"{name} ({kind})") for kind, parts in kinds.items() for name, value in parts.items()]
    value, name = max(found)
    return f"{name}: {value / phase.layer:.0%} of a layer"


def _program(
    machine: Machine, name: str, decoder: Decoder, meshes: tuple[Mesh, Mesh], prompt: int, tokens: int
) -> dict[str, Any]:
    """Return phases and rates of one program."""
    first, mesh = meshes
    phases = PROGRAMS[name]
    before = phases.prefill(machine, decoder, *first, prompt)
    last = phases.decode(machine, decoder, *mesh, prompt + tokens)
    steps = growing(machine, name, decoder, mesh, prompt, tokens)
    moved = transition(machine, decoder, min(first))
    whole = before.cycles + moved + steps
    lanes = machine["lanes.fmach"]
    useful = decoder.layers * decoder.product_parameters
    return {
        "prefill": before.as_dict() | {"limit": _largest(before)},
        "transition_cycles": round(moved),
        "decode": last.as_dict() | {"limit": _largest(last)},
        "decode_cycles": round(steps),
        "request_cycles": round(whole),
        "utilisation": {
            "prefill": useful * prompt / (before.cycles * first[0] * first[1] * lanes),
            "decode": useful / (last.cycles * mesh[0] * mesh[1] * lanes),
        },
        "rates": {
            f"{clock:g} GHz": {
                "prefill_tokens_per_s": prompt / before.seconds(clock),
                "decode_tokens_per_s": 1 / last.seconds(clock),
                "request_tokens_per_s": tokens * clock * 1e9 / whole,
                "time_to_first_token_s": (before.cycles + moved) / (clock * 1e9),
            }
            for clock in clocks(machine)
        },
    }


def _tried(
    machine: Machine, name: str, decoder: Decoder, meshes: tuple[Mesh, Mesh], prompt: int, tokens: int
) -> dict[str, Any]:
    """Return phases and rates of one program, or why it is impossible, as without the compiler of program A's code."""
    try:
        return _program(machine, name, decoder, meshes, prompt, tokens)
    except (ProgramError, UnsupportedError) as error:
        return {"impossible": str(error)}
    except ConfigError as error:
        if error.fields.get("module") != "lark":
            raise
        return {"impossible": str(error)}


def _check_lengths(name: str, decoder: Decoder, prompt: int, tokens: int, reused: int) -> None:
    """Refuse a request that is longer than the context, or of which nothing is left to read."""
    if prompt + tokens > decoder.context:
        raise ConfigError(
            f"{prompt:,} tokens in and {tokens:,} out; the model's context holds {decoder.context:,}", where=name
        )
    if reused >= prompt:
        what = f"{reused:,} tokens are there of {prompt:,} in; at least the last one is read"
        raise ConfigError(what, where="--reused", hint=f"at most {prompt - 1:,}")


def planned(
    machine: Machine,
    name: str,
    decoder: Decoder,
    mesh: Mesh,
    prefill_mesh: Mesh,
    prompt: int,
    tokens: int,
    wafers: int = 1,
    batch: int | None = None,
    reused: int = 0,
    int8: bool = False,
) -> dict[str, Any]:
    """Return the facts of an inference.

    Parameters
    ----------
    mesh, prefill_mesh : (width, height)
        PEs of a region of decode, and of prefill.
    prompt, tokens : int
        In and out.
    wafers : int
        On which regions of decode lie.
    batch : int or None
        Requests whose tokens a step takes together.
    reused : int
        First tokens of the prompt whose keys and values are there, since another request began with them.
    int8 : bool
        Whether keys and values have 8 bits; of the two programs, which have 16, nothing changes.

    Raises
    ------
    ConfigError
        The request is longer than the model's context, or nothing of the prompt is left to read.
    PlanError
        The mesh is larger than the wafer, or not even one layer fits.
    """
    _check_lengths(name, decoder, prompt, tokens, reused)
    memory = admit(machine, decoder, *mesh, prompt + tokens, int8)
    admit(machine, decoder, *prefill_mesh, 1, int8)
    reading = _reading(machine, decoder, memory, prefill_mesh, prompt, tokens)
    fit, regions = memory.layers_that_fit(prompt + tokens), memory.regions(prompt + tokens)
    places = places_of(machine, *mesh)
    resident = _resident(machine, decoder, mesh, prompt + tokens, int8)
    programs = {each: _tried(machine, each, decoder, (prefill_mesh, mesh), prompt, tokens) for each in PROGRAMS}
    try:
        served: dict[str, Any] = user_rates(machine, name, decoder, mesh, prompt + tokens, wafers)
    except (ProgramError, UnsupportedError) as error:
        served = {"impossible": str(error)}
    more: dict[str, Any] = {}
    if reused:
        more["reused"] = _behind(machine, decoder, mesh, prompt, tokens, reused, programs)
    if batch is not None:
        more["batch"] = _together(memory, prompt + tokens, batch, resident)
    return {
        "model": name,
        "preset": machine.preset,
        "parameters": decoder.parameters,
        "bytes": decoder.bytes(),
        "mesh": list(mesh),
        "prefill_mesh": list(prefill_mesh),
        "prompt_length": prompt,
        "tokens": tokens,
        "cache_dtype": "int8" if int8 else "f16",
        "memory_per_pe": {"bytes": memory.total, "parts": memory.parts(fit, prompt + tokens)},
        "regions": {
            "layers_each": fit,
            "needed": regions,
            "beside_each_other_on_the_wafer": places,
            "fit": regions <= places * wafers,
            "used_by_one_request": 1 / regions,
        },
        "prefill_memory": reading,
        "cache_tokens": memory.tokens(-(-decoder.layers // regions)),
        "programs": programs,
        "resident": resident,
        "one_user": served,
        "beside_the_layers": extras(machine, decoder, *mesh, regions).as_dict(),
        **more,
    }


def _behind(
    machine: Machine, decoder: Decoder, mesh: Mesh, prompt: int, tokens: int, reused: int, programs: dict[str, Any]
) -> dict[str, Any]:
    """Return what a request takes that goes on behind tokens which are there: the others are read one by one."""
    found: dict[str, Any] = {"tokens": reused, "share_of_prompt": reused / prompt, "programs": {}}
    for name, whole in programs.items():
        if "impossible" in whole:
            continue
        read, steps = growing(machine, name, decoder, mesh, reused, prompt - reused), whole["decode_cycles"]
        found["programs"][name] = {
            "read_cycles": round(read),
            "read_cycles_without": round(whole["prefill"]["cycles"] + whole["transition_cycles"]),
            "rates": {
                f"{clock:g} GHz": {
                    "request_tokens_per_s": tokens * clock * 1e9 / (read + steps),
                    "time_to_first_token_s": read / (clock * 1e9),
                }
                for clock in clocks(machine)
            },
        }
    return found


def _said_of_reused(found: dict[str, Any], prompt: int) -> list[str]:
    """Return the lines about tokens of a prompt that are there."""
    share = f"{found['tokens']:,} of {prompt:,} tokens in ({found['share_of_prompt']:.0%})"
    lines = [f"\nwith {share} there from another request, and the others read one by one"]
    for name, each in found["programs"].items():
        firsts = ", ".join(f"{r['time_to_first_token_s']:.3g} s at {clock}" for clock, r in each["rates"].items())
        cycles = f"{each['read_cycles']:,} cycles to read instead of {each['read_cycles_without']:,}"
        lines.append(f"  program {name}: {cycles}; first token after {firsts}")
    return lines


def _resident(machine: Machine, decoder: Decoder, mesh: Mesh, tokens: int, int8: bool) -> dict[str, Any]:
    """Return the cycles of the decoder that runs here, of a layer and of what stands beside the layers."""
    try:
        runs = running(machine, decoder, *mesh, tokens, int8=int8)
    except ProgramError as error:  # an output matrix of which a PE cannot even count the words
        return {"impossible": str(error)}
    return {"layer": runs.layer, "beside": runs.beside}


def _together(single: DecoderMemory, tokens: int, batch: int, alone: dict[str, Any]) -> dict[str, Any]:
    """Return what a step takes that has a token of each of so many requests, with as many in all caches.

    `single`: the memory of one request.
    """
    machine, decoder, memory = single.machine, single.decoder, replace(single, batch=batch)
    admit_batch(memory, tokens)
    fit = memory.layers_that_fit(tokens)
    found: dict[str, Any] = {
        "requests": batch,
        "bytes": sum(memory.parts(fit, tokens).values()),
        "parts": memory.parts(fit, tokens),
        "layers_each": fit,
        "regions": memory.regions(tokens),
    }
    try:
        runs = running(machine, decoder, memory.width, memory.height, tokens, batch, memory.int8)
    except ProgramError as error:
        return found | {"impossible": str(error)}
    whole = runs.cycles + runs.beside
    found |= {"layer": runs.layer, "beside": runs.beside}
    found["tokens_per_s"] = {f"{clock:g} GHz": batch * clock * 1e9 / whole for clock in clocks(machine)}
    if "layer" in alone:
        found["times_alone"] = whole / (alone["layer"] * decoder.layers + alone["beside"])
    return found


def _said_of_batch(found: dict[str, Any], total: int) -> list[str]:
    """Return the lines about a batch."""
    head = f"a batch of {found['requests']}"
    parts = ", ".join(f"{name} {size:,}" for name, size in list(found["parts"].items())[:3])
    memory = (
        f"{head} takes {found['bytes']:,} of {total:,} bytes ({parts}): {found['regions']} regions with up to "
        f"{found['layers_each']} layers"
    )
    if "impossible" in found:
        return [memory, f"{head} is not priced: {found['impossible']}"]
    rates = ", ".join(f"{rate:,.0f} at {clock}" for clock, rate in found["tokens_per_s"].items())
    times = f", {found['times_alone']:.2f} times what one request alone takes" if "times_alone" in found else ""
    return [
        memory,
        f"{head} would take {found['layer']:,} cycles of a layer in its last step, {found['beside']:,} beside the "
        f"layers{times}: {rates} tokens/s of all",
    ]


def _reading(
    machine: Machine, decoder: Decoder, memory: DecoderMemory, mesh: Mesh, prompt: int, tokens: int
) -> dict[str, Any]:
    """Return what PEs need while a prompt is read at once, and whether that mesh and the one of decode have room.

    Parameters
    ----------
    memory : DecoderMemory
        Of the mesh that decodes; on the same mesh both programs share the PEs, and regions have as many layers as the
        narrower of them lets in.
    """
    reads = DecoderMemory(machine, decoder, *mesh, reads=True, int8=memory.int8)
    fit, needed = reads.layers_that_fit(prompt), reads.needed(1, prompt)
    both = prompt + tokens
    found: dict[str, Any] = {"layer_bytes": needed, "bytes": reads.total, "layers_each": fit, "fit": bool(fit)}
    if not fit:
        return found | {
            "largest": max(reads.parts(1, prompt).items(), key=lambda part: part[1]),
            "short_of": needed - reads.total,
            "smallest_square": smallest_mesh(machine, decoder, prompt, reads=True, int8=memory.int8),
        }
    wide, other = columns_of(reads, prompt), columns_of(memory, both)
    if mesh == (memory.width, memory.height):
        wide, other = max(wide, other), 0
    return found | {
        "regions": reads.regions(prompt),
        "columns": [wide, other],
        "columns_of_the_wafer": machine["fabric.width"],
        "side_by_side": wide + other <= machine["fabric.width"],
        "widest_beside_decode": max(0, machine["fabric.width"] - other),
    }


def _said_of_reading(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines about the memory of prefill."""
    found, mesh = facts["prefill_memory"], "{} x {}".format(*facts["prefill_mesh"])
    if not found["fit"]:
        side, (name, most) = found["smallest_square"], found["largest"]
        wanted = f"{side} x {side} PEs carry one" if side else "no mesh of this wafer carries one"
        what = (
            f"{facts['prompt_length']:,} tokens at once do not fit: one layer takes {found['layer_bytes']:,} bytes, "
            f"{found['short_of']:,} more than a PE has, {most:,} of them {name}; {wanted}"
        )
        return [("memory of prefill", what)]
    rows = [
        (
            "memory of prefill",
            f"one layer takes {found['layer_bytes']:,} of {found['bytes']:,} bytes; "
            f"{found['regions']} of {mesh} with up to {found['layers_each']} layers",
        )
    ]
    own, other = found["columns"]
    have = found["columns_of_the_wafer"]
    if not found["side_by_side"]:
        beside = f"{own:,} + {other:,} columns" if other else f"{own:,} columns"
        rows.append(
            (
                "both phases",
                f"{beside} are {own + other - have:,} more than the wafer's {have:,}: they do not fit at the same "
                f"time; beside decode {found['widest_beside_decode']:,} columns are free",
            )
        )
    else:
        rows.append(("both phases", f"{own + other:,} of {have:,} columns of the wafer: they fit"))
    if other and not found["side_by_side"]:
        cycles, decode = facts["programs"]["B"]["transition_cycles"], "{} x {}".format(*facts["mesh"])
        rows.append(
            (
                "re-placement",
                f"weights and cache go from {mesh} to {decode} over the wafer in {cycles:,} cycles at least; rates of "
                "the whole request count them",
            )
        )
    return rows


def _said_of_wafers(served: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the line about wafers, if there are or should be several."""
    if served.get("needed", 1) == served.get("wafers", 1) == 1:
        return []
    way = f"; a token is {served['crossings_per_token_s'] * 1e6:.3g} us between them" if served["needed"] > 1 else ""
    return [("wafers", f"{served['needed']} of {served['wafers']} hold the regions{way}")]


def _said_of_user(served: dict[str, Any]) -> list[str]:
    """Return what one user gets, beside the public rate if there is one."""
    rates = ", ".join(f"{rate:,.0f} at {clock}" for clock, rate in served["user_tokens_per_s"].items())
    lines = [f"one user gets, by program B with all that stands beside its layers: {rates} tokens/s"]
    if "public" in served:
        off = ", ".join(f"{error:+.0%} at {clock}" for clock, error in served["public"]["error"].items())
        lines.append(f"public rate of a user on WSE-3: {served['public']['user_tokens_per_s']:,.0f} tokens/s: {off}")
    return lines


def _phase(label: str, facts: dict[str, Any]) -> tuple[str, str]:
    """Return a phase as a line: cycles of a layer, by kind."""
    kinds = {kind: sum(facts[kind].values()) for kind in ("sums", "products", "local")}
    shares = ", ".join(f"{kind} {value:,.0f}" for kind, value in kinds.items())
    return f"{label}, cycles of a layer", f"{facts['layer']:,.0f} ({shares}); most: {facts['limit']}"


def _of_bytes(facts: dict[str, Any]) -> str:
    """Return what is said of keys and values of 8 bits."""
    if facts["cache_dtype"] != "int8":
        return ""
    return " of int8, as the decoder that runs here has them; programs A and B and what one user gets are of 16 bits"


def described(facts: dict[str, Any]) -> str:
    """Return the facts as text for a terminal."""
    memory, regions = facts["memory_per_pe"], facts["regions"]
    width, height = facts["mesh"]
    served = facts["one_user"]
    fits = "decode fits" if regions["fit"] else "they do not fit: times are those of layers on virtual regions"
    rows = [
        (
            "memory of a PE",
            f"{sum(memory['parts'].values()):,} of {memory['bytes']:,} bytes: "
            + ", ".join(f"{name} {size:,}" for name, size in list(memory["parts"].items())[:5]),
        ),
        (
            "regions",
            f"{regions['needed']} of {width} x {height} with up to {regions['layers_each']} layers; "
            f"{regions['beside_each_other_on_the_wafer']} lie side by side on the wafer: {fits}",
        ),
        *_said_of_wafers(served),
        *_said_of_reading(facts),
        ("one request uses", f"{regions['used_by_one_request']:.0%} of its regions at a time"),
        ("cache", f"{facts['cache_tokens']:,} tokens{_of_bytes(facts)}"),
    ]
    first = "x".join(map(str, facts["prefill_mesh"]))
    lines = [
        f"{facts['model']}: {facts['parameters']:,} parameters, {facts['bytes'] / 1e9:.2f} GB; "
        f"{facts['prompt_length']:,} tokens in on {first}, {facts['tokens']:,} out on {width}x{height}",
        table(rows, "  "),
    ]
    titles = {"A": "program A, the authors' as it is", "B": "program B, a correct model"}
    for name, found in facts["programs"].items():
        if "impossible" in found:
            lines.append(f"\n{titles[name]}\n  impossible: {found['impossible']}")
            continue
        rows = [_phase("prefill", found["prefill"]), _phase("last step of decode", found["decode"])]
        used = found["utilisation"]
        rows.append(("useful multiply-adds", f"{used['prefill']:.1%} of prefill, {used['decode']:.1%} of decode"))
        for clock, rates in found["rates"].items():
            rows.append(
                (
                    f"at {clock}",
                    f"{rates['prefill_tokens_per_s']:,.0f} tokens/s in, first token after "
                    f"{rates['time_to_first_token_s']:.3g} s, {rates['decode_tokens_per_s']:,.0f} tokens/s out, "
                    f"{rates['request_tokens_per_s']:,.1f} of the whole request",
                )
            )
        lines.append(f"\n{titles[name]}\n{table(rows, '  ')}")
    if "reused" in facts:
        lines += _said_of_reused(facts["reused"], facts["prompt_length"])
    beside = facts["beside_the_layers"]
    lines.append(f"\nbeside the layers, per token: {beside['cycles']:,} cycles (output matrix, arg max, hand-overs)")
    if "impossible" not in served:
        lines += _said_of_user(served)
    runs = facts["resident"]
    if "impossible" in runs:
        lines.append(f"the decoder that runs here is not priced: {runs['impossible']}")
    else:
        lines.append(
            f"the decoder that runs here would take {runs['layer']:,} cycles of a layer in its last step, "
            f"{runs['beside']:,} beside the layers"
        )
    if "batch" in facts:
        lines += _said_of_batch(facts["batch"], memory["bytes"])
    lines.append("Composed of closed forms; `wse figure waferllm-parts` holds them against simulations.")
    return "\n".join(lines)

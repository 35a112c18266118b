"""``wse generate MODEL``: let a language model answer, every number computed by PE programs."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli import generate_regions
from harness.cli.shared import add_machine_options
from harness.cli.tracing import add_options as add_trace_options
from harness.cli.tracing import recorder
from harness.config.machine import of_words
from harness.kit.console import make_progress, print_json, printable, table
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabric.networks.inference.placement import Placement
    from harness.inference.generate import Answer
    from harness.models.hub import LanguageModel
    from harness.models.random_model import RandomModel
    from harness.models.tokens import Tokenizer
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = ["add_parser", "main"]

CLOCKS = ("clock.ghz", "plan.core_ghz")
"""Numbers of the machine at which tokens per second are given: the vendor's scripts, and the published rate."""


def add_parser(sub: Any, common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser: argparse.ArgumentParser = sub.add_parser(
        "generate",
        parents=[common],
        help="let a language model answer on the wafer",
        description="Let a language model answer a prompt. One program of the PEs reads the prompt at once, another "
        "one, on the same weights and cache, decodes: a token goes in, the next one comes out.",
    )
    parser.add_argument("model", metavar="MODEL", help="a shipped model, or a directory in the layout of the hub")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="text to go on with")
    prompt.add_argument("--prompt-ids", metavar="1,2,3", help="the same as tokens")
    parser.add_argument(
        "--random-layers",
        type=int,
        metavar="L",
        help="MODEL is a published one: so many of its layers at their true sizes, with random weights and 512 tokens",
    )
    parser.add_argument("--mesh", metavar="WxH", default="8x8", help="PEs along x and y (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=16, metavar="N", help="tokens to generate (default: %(default)s)")
    parser.add_argument(
        "--cache",
        choices=("shift", "concat", "round"),
        default="shift",
        help="who holds keys and values: rows that keep balance by passing the oldest on (default), the bottom row "
        "alone, or the rows in turn",
    )
    parser.add_argument(
        "--prefill",
        choices=("auto", "mesh", "token"),
        default="auto",
        help="read the prompt at once by a program of its own (mesh), token by token by the decoding program (token), "
        "or at once if that fits into the memory of the PEs (default)",
    )
    parser.add_argument(
        "--decode-mesh",
        metavar="WxH",
        help="decode on another mesh, beside that of --mesh, which reads the prompt; keys and values move there",
    )
    parser.add_argument(
        "--regions",
        type=int,
        metavar="N",
        help="spread the layers over N meshes beside each other; a token goes from one to the next on the wafer",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=1,
        metavar="B",
        help="answer B times at once, tokens of all in turns, so that regions need not wait (request k draws with seed "
        "SEED + k; default: %(default)s)",
    )
    parser.add_argument("--dtype", choices=("f16", "cb16"), default="f16", help="16-bit format (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token (default)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="draw among the K likeliest (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the drawing (default: %(default)s)")
    parser.add_argument("--logits", metavar="FILE.npz", help="write the logits of each generated token")
    parser.add_argument(
        "--verify",
        choices=("full", "off"),
        default="full",
        help="compare every step with numpy in the order of the PEs, bit by bit (default), or nothing",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="run nothing: say by closed forms how many cycles prompt, transition and tokens will take",
    )
    parser.add_argument("--out", metavar="FILE.h5", help="write results and counters to a run file")
    add_trace_options(parser)
    add_machine_options(parser)
    return parser


def _mesh(text: str, option: str = "--mesh") -> tuple[int, int]:
    """Return PEs along x and y."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and 0 < int(part) < 10**6 for part in parts):
        raise ConfigError(f"{text!r} is no mesh", where=option, hint="WxH, for example 16x16")
    return int(parts[0]), int(parts[1])


def _decode_mesh(args: argparse.Namespace, in_regions: bool) -> tuple[int, int] | None:
    """Return PEs along x and y of another mesh that decodes, or refuse what does not go with one."""
    if args.decode_mesh is None:
        return None
    if in_regions:
        raise ConfigError("not with --decode-mesh", where="--regions", hint="one of the two")
    if args.prefill == "token":
        raise ConfigError("then nothing is read on the first mesh", where="--prefill token", hint="leave it out")
    return _mesh(args.decode_mesh, "--decode-mesh")


def _tokens(args: argparse.Namespace, tokenizer: Tokenizer | None, begin: int | None) -> list[int]:
    """Return the prompt as tokens."""
    if args.prompt_ids is not None:
        try:
            return [int(word) for word in args.prompt_ids.replace(",", " ").split()]
        except ValueError:
            raise ConfigError(
                f"{args.prompt_ids!r} is no list of tokens", where="--prompt-ids", hint="--prompt-ids 1,2,3"
            ) from None
    assert tokenizer is not None
    found = tokenizer.encode(args.prompt)
    return found if begin is None or found[:1] == [begin] else [begin, *found]


def _tokenizer(args: argparse.Namespace, model: LanguageModel | RandomModel) -> Tokenizer | None:
    """Return the model's tokenizer; None if tokens were given and there is no way to make text of them."""
    if args.prompt is not None:
        return model.tokenizer()
    with contextlib.suppress(ConfigError):
        return model.tokenizer()
    return None


def main(args: argparse.Namespace) -> int:
    """Generate; return 1 if a step differs from the oracle."""
    from harness.inference.asking import Sampling
    from harness.inference.generate import generate
    from harness.inference.regions import Flow
    from harness.inference.regions import generate_regions as generate_in_regions
    from harness.models.hub import find_model
    from harness.models.random_model import random_model
    from harness.models.tokens import Unfolding

    mesh = _mesh(args.mesh)
    machine = of_words(args.preset, args.overrides)
    sampling = Sampling(args.temperature, args.top_k, args.seed)
    model: LanguageModel | RandomModel
    if args.random_layers is None:
        model = find_model(args.model)
    else:
        model = random_model(args.model, args.random_layers, args.seed)
    tokenizer = _tokenizer(args, model)
    prompt = _tokens(args, tokenizer, model.configuration.begin)
    in_regions = args.regions is not None or args.requests != 1
    decode_mesh = _decode_mesh(args, in_regions)
    if in_regions:
        args.regions = 1 if args.regions is None else args.regions
        generate_regions.refused(args)
    if args.estimate:
        answers = None if tokenizer is None else tokenizer.size
        return _estimate(args, machine, model, prompt, (mesh, decode_mesh), answers)
    if args.logits:
        _writable(args.logits)
    text = Unfolding(tokenizer) if tokenizer is not None else None

    def hear(number: int, token: int) -> None:
        sys.stdout.write(printable(text.push(token)) if text else f"{'' if number == 1 else ' '}{token}")
        sys.stdout.flush()

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(_run_file(args, machine)) if args.out else None
        recording = stack.enter_context(recorder(args, args.out, writer.meta if writer else None, successive=True))
        progress = stack.enter_context(make_progress(args.progress))
        heard, verify = None if args.json else hear, args.verify == "full"
        answers = None if tokenizer is None else tokenizer.size
        answer: Answer | Flow
        if in_regions:
            answer = generate_in_regions(
                machine, model, [prompt] * args.requests, args.tokens, mesh, args.regions, args.cache, args.dtype,
                sampling, verify, heard, progress, answers,
            )  # fmt: skip
        else:
            answer = generate(
                machine, model, prompt, args.tokens, mesh, args.cache, args.dtype, sampling, verify, heard, progress,
                answers, args.prefill, decode_mesh,
            )  # fmt: skip
        if writer is not None:
            counters = args.trace != "off" and recording.windows is None
            if isinstance(answer, Flow):
                generate_regions.fill(writer, answer, counters)
            else:
                _fill(writer, answer, counters)
            recording.finish(writer)
            writer.close()
    if isinstance(answer, Flow):
        logits, every = answer.logits[0], answer.tokens
        result = generate_regions.result_of(args, machine, answer, CLOCKS, prompt, model.name)
        rows = generate_regions.rows(result, machine)
    else:
        logits, every = answer.logits, [answer.tokens]
        result = _result(args, machine, model, prompt, decode_mesh or mesh, answer)
        rows = _rows(result, machine)
    if args.logits:
        _write_logits(args.logits, logits, every[0])
    result["text"] = tokenizer.decode(every[0]) if tokenizer is not None else None
    if args.json:
        print_json(result)
    else:
        print(printable(text.rest()) if text else "")
        for tokens in every[1:]:
            print(printable(tokenizer.decode(tokens)) if tokenizer else " ".join(map(str, tokens)))
        print(table(rows, indent="    "))
    return 1 if answer.bit_exact is False else 0


def _estimate(
    args: argparse.Namespace,
    machine: Machine,
    model: LanguageModel | RandomModel,
    prompt: list[int],
    meshes: tuple[tuple[int, int], tuple[int, int] | None],
    answers: int | None,
) -> int:
    """Say what the answer will take."""
    from harness.inference.estimate import WITHIN, estimate

    for option, value in {"--out": args.out, "--logits": args.logits}.items():
        if value:
            raise ConfigError("says something about a run, and an estimate runs nothing", where=option)
    if args.regions is not None:
        facts = generate_regions.estimated(args, machine, model, prompt, meshes[0], answers)
        print_json(facts) if args.json else print(table(generate_regions.estimated_rows(facts)))
        return 0
    found = estimate(
        machine, model, prompt, args.tokens, meshes[0], args.cache, args.dtype, answers, args.prefill, meshes[1]
    )  # fmt: skip
    steps = found.tokens
    total = found.prefill + found.transition + found.first_token + sum(steps)
    result: dict[str, Any] = {
        "model": model.name,
        "mesh": args.mesh,
        "decode_mesh": args.decode_mesh or args.mesh,
        "prompt_tokens": len(prompt),
        "prompt_read_by": "prefill, at once" if found.at_once else "decode, token by token",
        "estimated_cycles": {
            "prefill": found.prefill,
            "transition": found.transition,
            "first_token": found.first_token,
            "tokens": steps,
        },
        "within": WITHIN,
        "seconds": {f"{machine[key]} GHz": total / (machine[key] * 1e9) for key in CLOCKS},
        "memory_per_pe": sum(found.memory.values()),
        "memory_parts": found.memory,
    }
    if args.json:
        print_json(result)
        return 0
    beside = " (the transition and 1% of the prompt)" if meshes[1] else ""
    rows = [("prompt", f"{len(prompt)} tokens, {found.prefill:,} cycles (by {result['prompt_read_by']})")]
    if found.at_once:
        rows.append(("transition", f"{found.transition:,} cycles; first token {found.first_token:,} more"))
    if steps:
        rows.append(("cycles per token", f"{sum(steps) / len(steps):,.0f} ({min(steps):,} to {max(steps):,})"))
    rows += [
        ("all", f"{total:,} cycles: " + ", ".join(f"{s:.3g} s at {c}" for c, s in result["seconds"].items())),
        ("memory of a PE", f"{result['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes"),
        ("how sure", f"closed forms, within {WITHIN:.0%} of a run in tests{beside}; nothing was run"),
    ]
    print(table(rows))
    return 0


def _run_file(args: argparse.Namespace, machine: Machine) -> RunWriter:
    """Return the writer of a run file; opened before the run, it fails before time is spent."""
    from traces.provenance import provenance
    from traces.run_format import RunMeta
    from traces.writer import RunWriter

    names = ("model", "mesh", "tokens", "cache", "prefill", "dtype")
    asked = {name: getattr(args, name) for name in names}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**asked, "set": args.overrides}.items())
    meta = RunMeta(
        job=f"generate {args.model}",
        machine=dict(machine),
        preset=machine.preset,
        config_toml=text,
        seed=args.seed,
        **provenance(),
    )
    return RunWriter(args.out, meta)


def _fill(writer: RunWriter, answer: Answer, counters: bool) -> None:
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
    writer.add_result("tokens", np.array(answer.tokens), "1", "tokens of the answer")
    writer.add_result("wavelet_hops", answer.hops)
    writer.add_result("host_seconds", answer.host_seconds)
    if answer.bit_exact is not None:
        writer.add_result("bit_exact", answer.bit_exact)
        writer.add_result("max_abs_error", answer.max_abs_error)


def _result(
    args: argparse.Namespace,
    machine: Machine,
    model: LanguageModel | RandomModel,
    prompt: list[int],
    mesh: tuple[int, int],
    answer: Answer,
) -> dict[str, Any]:
    """Return what is printed as JSON."""
    from fabric.networks.inference.placement import Placement

    decoder, pes = model.configuration.decoder, mesh[0] * mesh[1]
    steps = answer.token_cycles or ([answer.expected_cycles] if answer.at_once else answer.prompt_cycles[-1:])
    mean = sum(steps) / len(steps)
    useful = decoder.layers * decoder.product_parameters + decoder.vocabulary * decoder.hidden
    place = Placement(decoder, *mesh, 1, args.dtype)
    lanes = place.shapes["head"].lanes(machine)
    return {
        "model": model.name,
        "mesh": args.mesh.lower(),
        "decode_mesh": f"{mesh[0]}x{mesh[1]}",
        "cache": args.cache,
        "dtype": args.dtype,
        "prompt": prompt,
        "prompt_read_by": "prefill, at once" if answer.at_once else "decode, token by token",
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
        "tokens_per_second": {f"{machine[key]} GHz": machine[key] * 1e9 / mean for key in CLOCKS},
        "utilisation": useful / (pes * lanes * mean),
        "wavelet_hops": answer.hops,
        "bit_exact": answer.bit_exact,
        "max_abs_error": answer.max_abs_error,
        "error_bound": answer.error_bound,
        "error_share": answer.error_share,
        "logits_read": _logits_read(args, place),
        "memory_per_pe": sum(answer.memory.values()),
        "memory_parts": answer.memory,
        "host_seconds": answer.host_seconds,
    }


def _logits_read(args: argparse.Namespace, place: Placement) -> dict[str, int] | None:
    """Return what the host reads to draw a token; None if the wafer finds the likeliest.

    The host takes the logits from the memory of the PEs of row 0: that is in no count of cycles.  Over the north edge,
    one wavelet per column and cycle, it would take so many cycles at least.
    """
    if args.temperature == 0:
        return None
    return {"bytes_per_token": 4 * place.decoder.vocabulary, "cycles_per_token": place.vocabulary}


def _rows(result: dict[str, Any], machine: Machine) -> list[tuple[str, str]]:
    """Return what is printed for people."""
    cycles = result["cycles"]
    tokens = cycles["tokens"]
    parts = result["layer_cycles"]
    part = max(parts, key=lambda name: parts[name])
    speed = ", ".join(f"{value:,.0f} at {clock}" for clock, value in result["tokens_per_second"].items())
    exact = {True: "yes", False: "NO", None: "not checked"}[result["bit_exact"]]
    rows = [
        ("mesh", f"{result['mesh']} PEs, {result['cache']} cache, {result['dtype']}"),
        ("prompt", f"{len(result['prompt'])} tokens, {cycles['prefill']:,} cycles (by {result['prompt_read_by']})"),
    ]
    if result["decode_mesh"] != result["mesh"]:
        rows.insert(1, ("decode mesh", f"{result['decode_mesh']} PEs beside it"))
    if cycles["transition"]:
        moved = f" for {result['moved_bytes']:,} bytes of keys and values" if result["moved_bytes"] else ""
        text = f"{cycles['transition']:,} cycles{moved}; first token {cycles['first_token']:,} more"
        rows.append(("transition", text))
    if result["program_load"] is not None:
        load = result["program_load"]
        words = f"{load['words']:,} words of code, {load['cycles']:,} cycles at least, in no other number"
        rows.append(("program load", words))
    if tokens:
        rows.append(("cycles per token", f"{sum(tokens) / len(tokens):,.0f} ({min(tokens):,} to {max(tokens):,})"))
    rows += [
        ("tokens per second", speed),
        ("longest part", f"{part}, {100 * parts[part] / sum(parts.values()):.0f} % of a layer (closed form)"),
        ("utilisation", f"{100 * result['utilisation']:.3g} % of the multiply-adds of all PEs"),
        ("memory of a PE", f"{result['memory_per_pe']:,} of {2 * machine['mem.words']:,} bytes"),
        ("bits as numpy's", exact),
    ]
    if result["max_abs_error"] is not None:
        bound = "" if result["error_bound"] is None else f" (bound {result['error_bound']:.3g})"
        rows.append(("largest error", f"{result['max_abs_error']:.3g} of a logit, against float64{bound}"))
    if result["logits_read"] is not None:
        read = result["logits_read"]
        text = f"by the host, {read['bytes_per_token']:,} bytes a token: {read['cycles_per_token']:,} cycles at least"
        rows.append(("logits read", f"{text}, in no other number"))
    return [*rows, ("host seconds", f"{result['host_seconds']:.1f}")]


def _writable(path: str) -> None:
    """Refuse a file whose directory does not exist, before time is spent."""
    if not Path(path).resolve().parent.is_dir():
        raise ConfigError("its directory does not exist", where=path)


def _write_logits(path: str, logits: list[NDArray[np.float32]], tokens: list[int]) -> None:
    """Write the logits of the generated tokens, all or nothing."""
    target = Path(path)
    staging = target.with_name(f".{target.name}.part")
    try:
        with staging.open("wb") as stream:
            np.savez(stream, logits=np.array(logits), tokens=np.array(tokens))
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)

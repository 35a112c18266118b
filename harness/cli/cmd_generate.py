"""The command ``wse generate MODEL`` lets a language model answer, every number computed by PE programs."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli import generate_answer, generate_batch, generate_regions, generate_speculation
from harness.cli.completion import complete_paths
from harness.cli.generate_options import AHEAD, check_options, with_defaults
from harness.cli.generate_requests import requests_of
from harness.cli.shared import add_machine_options, mesh_of, text_of, token_ids_of
from harness.cli.tracing import add_options as add_trace_options
from harness.cli.tracing import recorder
from harness.config.machine import of_words
from harness.kit.console import make_progress, print_json, printable, table
from harness.kit.endings import Terminated
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from harness.inference.asking import AnswerRequest
    from harness.inference.generate import Answer
    from harness.inference.regions import RegionAnswers
    from harness.inference.serving import BatchAnswers
    from harness.inference.speculation import Speculation
    from harness.models.hub import LanguageModel
    from harness.models.random_model import RandomModel
    from harness.models.tokens import Tokenizer
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = ["add_parser", "main"]


def add_parser(sub: Any, common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser: argparse.ArgumentParser = sub.add_parser(
        "generate",
        parents=[common],
        help="let a language model answer on the wafer",
        description="Let a language model answer a prompt. One program of the PEs reads the prompt at once, another "
        "one, on the same weights and cache, decodes: a token goes in, the next one comes out.",
    )
    model = parser.add_argument(
        "model", metavar="MODEL", help="a shipped model, a directory in the layout of the hub, or a GGUF file"
    )
    complete_paths(model, _models)
    _add_prompt(parser)
    parser.add_argument(
        "--random-layers",
        type=_layers,
        metavar="L|all",
        help="MODEL is a published one: so many of its layers at their true sizes, with random weights and 512 tokens; "
        "all: the whole model, with all of its tokens",
    )
    parser.add_argument("--mesh", metavar="WxH", default="8x8", help="PEs along x and y (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=16, metavar="N", help="tokens to generate (default: %(default)s)")
    parser.add_argument(
        "--cache",
        choices=("shift", "concat", "round"),
        help="who holds keys and values: rows that keep balance by passing the oldest on (default), the bottom row "
        "alone, or the rows in turn (default with --draft)",
    )
    _add_ways(parser)
    parser.add_argument("--dtype", choices=("f16", "cb16"), default="f16", help="16-bit format (default: %(default)s)")
    parser.add_argument(
        "--cache-dtype",
        choices=("f16", "cb16", "int8"),
        help="keep keys and values so: int8 takes about half the memory, and more cycles (default: as --dtype)",
    )
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token (default)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="draw among the K likeliest (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the drawing (default: %(default)s)")
    parser.add_argument("--logits", metavar="FILE.npz", help="write the logits of each generated token")
    parser.add_argument(
        "--verify",
        choices=("full", "sample", "off"),
        help="compare with numpy in the order of the PEs, bit by bit: every step; the first and one of four of the "
        "others, drawn by --seed; or nothing (default: full, of models with more than 100 million parameters a sample)",
    )
    parser.add_argument(
        "--cache-file",
        metavar="FILE.npz",
        help="keep the answer, and what the PEs have of it, in a file after every step; an interrupted one goes on "
        "from there",
    )
    parser.add_argument(
        "--prefix",
        metavar="FILE.npz",
        help="the prompt begins with prompt and answer of this --cache-file, which need not be read again",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="run nothing: say by closed forms how many cycles prompt, transition and tokens will take",
    )
    parser.add_argument("--out", metavar="FILE.h5", help="write results and counters to a run file")
    add_trace_options(parser)
    add_machine_options(parser)
    parser.set_defaults(parser=parser, template=None)
    return parser


def _add_ways(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how prompts are read, and on how many meshes, and how many tokens a step takes."""
    parser.add_argument(
        "--prefill",
        choices=("auto", "mesh", "token"),
        default="auto",
        help="read the prompt at once by a program of its own (mesh), token by token by the decoding program (token), "
        "or at once if that fits into the memory of the PEs and takes fewer cycles (default)",
    )
    parser.add_argument(
        "--chunk",
        type=int,
        metavar="K",
        help="read the prompt in pieces of K tokens, each in one step over the cache: memory does not grow with the "
        "prompt but for the cache",
    )
    parser.add_argument(
        "--draft", metavar="MODEL", help="a smaller model of the same tokens, on a mesh below, guesses the answer"
    )
    parser.add_argument(
        "--ahead", type=int, metavar="K", help=f"with --draft: check K - 1 guesses in a step (default: {AHEAD})"
    )
    parser.add_argument("--draft-mesh", metavar="WxH", help="PEs of the draft (default: as many as --mesh)")
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
        "--layers-at-a-time",
        type=int,
        nargs="?",
        const=0,
        metavar="L",
        help="let the mesh have L layers at a time (default: as many as fit), which are loaded one group after the "
        "other for each token: a model may be larger than the memory of the mesh and of the host",
    )
    parser.add_argument(
        "--requests",
        default="1",
        metavar="B|FILE",
        help="answer B times (request k draws with seed SEED + k; default: %(default)s), or the requests of a file, a "
        'line of JSON for each: {"prompt": "text"} or {"prompt_ids": [1, 2]}, perhaps with tokens, temperature, top_k, '
        "seed; with --batch several requests share a step, else they take turns, so that regions need not wait",
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="B",
        help="let a step take B tokens, each of another request with a cache of its own; who is done makes room for "
        "the next one",
    )


def _layers(text: str) -> int | str:
    """Return a number of layers, or the word for all of them."""
    if text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("a number of layers, or all") from None


def _add_prompt(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is answered."""
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="text to go on with")
    prompt.add_argument("--prompt-ids", metavar="1,2,3", help="the same as tokens")
    prompt.add_argument(
        "--messages",
        metavar="FILE.json",
        help="messages to answer, a list of {role, content}, by the model's chat template",
    )
    prompt.add_argument(
        "--explain",
        action="store_true",
        help="run nothing: say of every key of the model's files what is done with it, and why",
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="TEXT is the message of a user, which the model's own chat template makes a prompt of",
    )
    parser.add_argument("--system", metavar="TEXT", help="the message of the system before it, for --chat")


def _tokenizer(model: LanguageModel | RandomModel) -> Tokenizer | None:
    """Return the tokenizer of a model that was given tokens; None if there is no way to make text of them."""
    if not model.has_tokenizer:
        return None
    try:
        return model.tokenizer()
    except (ConfigError, UnsupportedError) as error:
        _warn(f"the answer has no text: {error}")
        return None


def _warn(text: str) -> None:
    """Say something that the user should know before the run."""
    print(f"wse: warning: {printable(text)}", file=sys.stderr)


def _chat(args: argparse.Namespace, model: LanguageModel | RandomModel) -> tuple[Tokenizer, list[int]]:
    """Return the tokenizer of a model and the tokens of messages by its chat template; say what it says of it."""
    from harness.models.chat import messages_of, read_messages

    template, tokenizer = model.chat_template(), model.tokenizer()
    system = None if args.system is None else text_of(args.system, "--system")
    messages = (
        messages_of(text_of(args.prompt, "--prompt"), system) if args.messages is None else read_messages(args.messages)
    )
    text, said = template.prompt(messages)
    args.template = template.source
    for warning in (*said, *tokenizer.unended(template.special, model.configuration.stops)):
        _warn(warning)
    return tokenizer, tokenizer.encode(text, bare=True)


def _check_chat(args: argparse.Namespace) -> None:
    """Refuse options about messages that have nothing to say."""
    if args.chat and args.prompt_ids is not None:
        raise ConfigError("tokens are read as they stand", where="--chat", hint="--prompt instead of --prompt-ids")
    if args.chat and args.prompt is None and args.messages is None:
        raise ConfigError("there is no message", where="--chat", hint="--prompt TEXT")
    if args.system is not None and args.messages is not None:
        raise ConfigError("the file has all messages", where="--system", hint="a first one of the role system in it")
    if args.system is not None and not args.chat:
        raise ConfigError("belongs to a message", where="--system", hint="--chat, so that --prompt is one")


def _request(args: argparse.Namespace) -> tuple[AnswerRequest, Tokenizer | None]:
    """Return what is asked for, and the tokenizer of the model if it has one."""
    from harness.inference.asking import AnswerRequest, Sampling
    from harness.inference.comparing import SAMPLED_FROM
    from harness.inference.resuming import read_prefix
    from harness.models.hub import find_model
    from harness.models.random_model import random_model, sized_model

    _check_chat(args)
    mesh = mesh_of(args.mesh, "--mesh")
    machine = of_words(args.preset, args.overrides)
    sampling = Sampling(args.temperature, args.top_k, args.seed)
    model: LanguageModel | RandomModel
    if args.random_layers is None and args.estimate:
        model = sized_model(args.model) or find_model(args.model)
    elif args.random_layers is None:
        model = find_model(args.model)
    else:
        model = random_model(args.model, args.random_layers, args.seed)
    tokenizer: Tokenizer | None
    prompt: list[int] | None = None
    if args.chat or args.messages is not None:
        tokenizer, prompt = _chat(args, model)
    elif args.prompt is not None:
        tokenizer = model.tokenizer()
        prompt = tokenizer.encode(text_of(args.prompt, "--prompt"))
    else:
        tokenizer = _tokenizer(model)
    if args.prompt_ids is not None:
        prompt = token_ids_of(args.prompt_ids, "--prompt-ids")
    asked = requests_of(args, prompt, tokenizer, machine)
    several, at_a_time = len(asked.prompts) != 1, args.layers_at_a_time is not None
    others = args.regions, args.batch, args.chunk, args.draft, at_a_time
    request = AnswerRequest(
        machine=machine,
        model=model,
        prompts=asked.prompts,
        count=args.tokens,
        counts=asked.counts,
        samplings=asked.samplings,
        mesh=mesh,
        policy=args.cache,
        dtype=args.dtype,
        cache_dtype=args.cache_dtype,
        sampling=asked.samplings[0] if asked.samplings else sampling,
        verify=args.verify != "off",
        file=None if args.cache_file is None else Path(args.cache_file),
        prefix=None if args.prefix is None else read_prefix(Path(args.prefix)),
        sample=args.seed if args.verify == "sample" else None,
        answers=None if tokenizer is None else tokenizer.size,
        prefill=args.prefill,
        decode_mesh=None if args.decode_mesh is None else mesh_of(args.decode_mesh, "--decode-mesh"),
        regions=1 if several and not any(others) else args.regions,
        at_a_time=args.layers_at_a_time,
        batch=args.batch,
        chunk=args.chunk,
        draft=None if args.draft is None else find_model(args.draft),
        ahead=AHEAD if args.ahead is None else args.ahead,
        draft_mesh=None if args.draft_mesh is None else mesh_of(args.draft_mesh, "--draft-mesh"),
    )
    if args.verify is None and request.may_sample and request.decoder.parameters >= SAMPLED_FROM:
        request = replace(request, sample=args.seed)
    return request, tokenizer


def _models(args: argparse.Namespace) -> list[str]:
    """Return the names of models that need no file: shipped ones, and published ones for random layers."""
    from harness.models.hub import shipped_models
    from harness.models.presets import PRESETS

    return [*shipped_models(), *(PRESETS if args.random_layers else ())]


def main(args: argparse.Namespace) -> int:
    """Generate; return 1 if a step differs from the oracle."""
    if args.explain:
        from harness.cli.generate_explain import explain

        return explain(args)
    from harness.inference.generate import answer
    from harness.models.tokens import Unfolding, answer_text

    idle = check_options(args)
    with_defaults(args)
    request, tokenizer = _request(args)
    for warning in idle:
        _warn(warning)
    said: Any = generate_answer if request.regions is None else generate_regions
    if request.batch is not None:
        said = generate_batch
    if request.draft is not None:
        said = generate_speculation
    if args.estimate:
        return _estimate(args, request, said)
    for file in filter(None, (args.logits, args.cache_file)):
        _writable(file)
    for warning in (*request.model.configuration.warnings, *(tokenizer.warnings if tokenizer is not None else ())):
        _warn(warning)
    text = Unfolding(tokenizer, request.prompt) if tokenizer is not None else None

    def hear(number: int, token: int) -> None:
        sys.stdout.write(printable(text.push(token)) if text else f"{'' if number == 1 else ' '}{token}")
        sys.stdout.flush()

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(_run_file(args, request.machine)) if args.out else None
        recording = stack.enter_context(recorder(args, args.out, writer.meta if writer else None, successive=True))
        progress = stack.enter_context(make_progress(args.progress))
        with _kept(request.file):
            found = answer(request, None if args.json else hear, progress)
        if writer is not None:
            said.fill(writer, found, args.trace != "off" and recording.windows is None)
            recording.finish(writer)
            writer.close()
    if args.logits:
        _write_logits(args.logits, found)
    result = said.result_of(request, found)
    texts = [
        answer_text(tokenizer, prompt, tokens) if tokenizer is not None else " ".join(map(str, tokens))
        for prompt, tokens in zip(request.prompts, result.get("answers", [result["tokens"]]), strict=True)
    ]
    result["text"] = texts[0] if tokenizer is not None else None
    result["chat_template"] = args.template
    result["rounding"] = lost = _rounding(request, found)
    if args.json:
        print_json(result)
    else:
        print(printable(text.rest()) if text else "")
        for each in texts[1:]:
            print(printable(each))
        rows = said.rows(result, request.machine)
        if lost is not None:
            form = (
                "{inexact:,} of {values:,} values are no numbers of {dtype}: {relative:.2g} off at most, {flushed:,} 0"
            )
            rows.insert(-1, ("weights rounded", form.format(dtype=request.dtype, **lost)))
        print(table(rows, indent="    "))
    return 1 if found.bit_exact is False else 0


def _rounding(
    request: AnswerRequest, found: Answer | RegionAnswers | BatchAnswers | Speculation
) -> dict[str, Any] | None:
    """Return what rounding the weights to 16 bits lost; None if nothing."""
    if not any(loss.inexact for loss in found.losses):
        return None
    looked = sum(loss.values for loss in found.losses)
    return {
        "values": request.model.configuration.decoder.parameters if request.at_a_time is None else looked,
        "inexact": sum(loss.inexact for loss in found.losses),
        "flushed": sum(loss.flushed for loss in found.losses),
        "relative": max(loss.relative for loss in found.losses),
    }


@contextlib.contextmanager
def _kept(file: Path | None) -> Iterator[None]:
    """Say, where an answer is interrupted, that its file has what is there, and how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if file is not None and file.exists():
            _warn(f"{file} has the answer so far; the same command goes on from there")
        raise


def _estimate(args: argparse.Namespace, request: AnswerRequest, said: Any) -> int:
    """Say what the answer will take."""
    facts = said.estimated(request) | {
        "cache": request.policy,
        "dtype": request.dtype,
        "cache_dtype": request.cache_dtype or request.dtype,
    }
    print_json(facts) if args.json else print(table(said.estimated_rows(facts, request.machine)))
    return 0


def _run_file(args: argparse.Namespace, machine: Machine) -> RunWriter:
    """Return the writer of a run file; opened before the run, it fails before time is spent."""
    from traces.provenance import provenance
    from traces.run_format import RunMeta
    from traces.writer import RunWriter

    names = (
        "model", "random_layers", "mesh", "decode_mesh", "regions", "layers_at_a_time", "requests", "batch", "chunk",
        "draft", "ahead", "draft_mesh", "tokens", "cache", "cache_dtype", "prefill", "dtype", "prompt", "prompt_ids",
        "messages", "system", "temperature", "top_k", "seed", "verify", "cache_file", "prefix",
    )  # fmt: skip
    asked = {name: value for name in names if (value := getattr(args, name)) is not None}
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


def _writable(path: str) -> None:
    """Refuse a file whose directory does not exist, before time is spent."""
    if not Path(path).resolve().parent.is_dir():
        raise ConfigError("its directory does not exist", where=path)


def _write_logits(path: str, found: Answer | RegionAnswers | BatchAnswers | Speculation) -> None:
    """Write the logits of the generated tokens, all or nothing.

    Of several answers the first has no number behind its names.
    """
    from harness.inference.regions import RegionAnswers
    from harness.inference.serving import BatchAnswers

    several = isinstance(found, RegionAnswers | BatchAnswers)
    pairs: list[tuple[Any, Any]] = list(zip(found.logits, found.tokens, strict=True)) if several else []
    arrays: dict[str, Any] = {}
    for number, (logits, tokens) in enumerate(pairs or [(found.logits, found.tokens)]):
        end = f"_{number}" if number else ""
        arrays |= {f"logits{end}": np.array(logits, np.float32), f"tokens{end}": np.array(tokens)}
    target = Path(path)
    staging = target.with_name(f".{target.name}.part")
    try:
        with staging.open("wb") as stream:
            np.savez(stream, **arrays)
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)

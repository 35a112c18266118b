"""An answer that was interrupted goes on from its file as if nothing had happened; no other answer does."""

from __future__ import annotations

import errno
import json
import random
import signal
from dataclasses import replace

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder, LayerKind
from harness.cli import generate_batch
from harness.cli.main import main
from harness.inference import resuming
from harness.inference.asking import AnswerRequest, Sampling
from harness.inference.estimate import estimate, estimate_service
from harness.inference.generate import answer
from harness.inference.resuming import read_prefix
from harness.kit.console import Progress
from harness.models.configuration import Configuration
from harness.models.random_model import RandomModel
from tests.examples import few
from tests.harness.inference.saved_models import saved
from tests.killed import Victims
from wse_core.errors import ConfigError, TraceError, UnsupportedError
from wse_core.formats import Arithmetic
from wse_core.params import machine

PLAIN = Decoder(8, 2, 2, 1, 4, 6, 17, 40, 1e-5)
LOCAL = Decoder(6, 2, 2, 1, 2, 5, 5, 64, 1e-5, score_cap=2.0, local_base=9.0,
                different=(LayerKind(), LayerKind(window=3, local=True)))  # fmt: skip
NORMED = Decoder(4, 1, 2, 1, 4, 3, 5, 64, 1e-5, head_norms=True, activation="gelu")
SAMPLING = Sampling(temperature=2.0, top_k=4, seed=5)


MODELS = {
    name: RandomModel(name, Configuration(d), 1) for name, d in (("plain", PLAIN), ("local", LOCAL), ("normed", NORMED))
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return the directory of a small random model."""
    path = tmp_path_factory.mktemp("models") / "plain"
    return saved(path, PLAIN)


def asked(model, **more):
    """Return a request of some steps."""
    options = {"mesh": (2, 2), "prefill": "token", "prompts": [[3, 1, 4]], "count": 5, "sampling": SAMPLING}
    return AnswerRequest(machine=machine(), model=MODELS[model], **(options | more))


class Ending(Progress):
    """Interrupts at the end of a step, before it is kept."""

    def __init__(self, after):
        self.left = after

    def update(self, done, total=None, **_):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def facts(found):
    """Return all that can be seen of an answer, but for what it took the host."""
    counters = {name: (values.tolist(), unit) for name, (values, unit) in found.counters.items()}
    apart = "host_seconds", "step_seconds", "resumed", "logits", "max_abs_error"
    others = {name: value for name, value in vars(found).items() if name not in apart}
    others["error"] = found.max_abs_error and pytest.approx(found.max_abs_error, rel=1e-6)  # of plain numpy, in float64
    return others | {"counters": counters, "logits": [each.tobytes() for each in found.logits]}


WAYS = (
    ("plain", {}),
    ("plain", {"prefill": "mesh", "policy": "round", "count": 6}),
    ("plain", {"prefill": "auto", "chunk": 2, "prompts": [[3, 1, 4, 1, 5]]}),
    ("local", {"prefill": "token", "prompts": [[3, 1, 4, 1, 2]], "dtype": "cb16"}),
    ("local", {"prefill": "mesh", "count": 7, "mesh": (1, 3)}),
    ("normed", {"policy": "concat", "mesh": (3, 1), "verify": False}),
    ("plain", {"sample": 2, "sampling": Sampling(), "count": 8}),
)


@pytest.mark.parametrize(("model", "way"), few(WAYS, 3))
def test_it_goes_on_as_if_nothing_had_happened(tmp_path, model, way):
    """Interrupted at random steps: tokens, logits, cycles, counters and what was compared are those of a whole."""
    chance, request = random.Random(str(way)), asked(model, **way)
    whole = answer(request)
    kept = replace(request, file=tmp_path / "a.npz")
    ends = 0
    while ends < 2:
        try:
            answer(kept, progress=Ending(chance.randint(1, 3)))
            break
        except KeyboardInterrupt:
            ends += 1
    heard = []
    found = answer(kept, lambda number, token: heard.append((number, token)))
    assert ends
    assert found.resumed >= 1
    assert heard == list(enumerate(whole.tokens, 1))
    assert facts(found) == facts(whole)
    again = answer(kept)  # nothing is left to do
    assert facts(again) == facts(whole)


CHANGED = {
    "--prompt": {"prompts": [[3, 1, 5]]}, "--tokens": {"count": 4}, "--mesh": {"mesh": (2, 1)},
    "--cache": {"policy": "round"}, "--dtype": {"dtype": "cb16"}, "--prefill": {"prefill": "token"},
    "--chunk": {"chunk": 2}, "--temperature": {"sampling": Sampling(3.0, 4, 5)},
    "--top-k": {"sampling": Sampling(2.0, 3, 5)}, "--seed": {"sampling": Sampling(2.0, 4, 6)},
    "--verify": {"verify": False}, "number of tokens": {"answers": 16},
    "machine.ramp": {"machine": machine("wse3")},
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return the file of a whole answer."""
    path = tmp_path_factory.mktemp("files") / "a.npz"
    answer(asked("plain", prefill="auto", file=path))
    return path


def test_each_option_is_refused_by_name(file):
    before = file.read_bytes()
    for option, more in CHANGED.items():
        with pytest.raises(ConfigError) as caught:
            answer(replace(asked("plain", prefill="auto", file=file), **more))
        assert "--cache-file" in str(caught.value)
        assert option == "machine.ramp" or option in str(caught.value)
        assert option != "machine.ramp" or "--set machine." in str(caught.value)
    assert file.read_bytes() == before


def test_another_model_is_refused(file):
    """Also one of the same sizes with other weights."""
    for model in (MODELS["normed"], replace(MODELS["plain"], seed=2)):
        with pytest.raises(ConfigError, match="MODEL"):
            answer(replace(asked("plain", prefill="auto", file=file), model=model))


MORE = (
    ("plain", {"mesh": (2, 2)}),
    ("plain", {"prefill": "mesh", "policy": "round"}),
    ("normed", {"policy": "concat", "mesh": (3, 1)}),
    ("plain", {"prefill": "auto", "chunk": 2, "prompts": [[3, 1, 4, 1, 5]]}),
    ("local", {"sample": 1, "sampling": Sampling(), "prompts": [[3, 1, 4, 1, 2]]}),
)


@pytest.mark.parametrize(("model", "way"), few(MORE, 2))
def test_an_answer_goes_on_to_more_tokens(tmp_path, model, way):
    """Rows get room for more tokens: tokens, logits and steps are those of an answer that long."""
    request = asked(model, **(way | {"count": 12}))
    whole, kept = answer(request), replace(request, file=tmp_path / "a.npz")
    first = answer(replace(kept, count=3))
    found = answer(kept)
    assert found.resumed == len(request.prompt) + 2
    assert found.tokens == whole.tokens
    assert found.tokens[:3] == first.tokens
    assert np.array_equal(found.logits, whole.logits)
    assert (found.bit_exact, found.steps, found.steps_compared) == (
        whole.bit_exact, whole.steps, whole.steps_compared
    )  # fmt: skip
    assert found.prompt_cycles[: len(first.prompt_cycles)] == first.prompt_cycles
    assert found.token_cycles[-1] == whole.token_cycles[-1]
    with pytest.raises(ConfigError, match="another --tokens: 12 there, 3 now"):
        answer(replace(kept, count=3))


def test_a_window_that_no_longer_holds_the_text_is_refused(tmp_path):
    decoder = replace(PLAIN, different=(LayerKind(), LayerKind(window=6)))
    model = RandomModel("window", Configuration(decoder), 1)
    request = replace(asked("plain"), model=model, file=tmp_path / "a.npz", count=3)
    answer(request)
    with pytest.raises(ConfigError, match="--tokens.*window of attention"):
        answer(replace(request, count=9))
    with pytest.raises(ConfigError, match="--prefix.*window of attention"):
        behind(request.file, replace(request, file=None), [4, 4, 4, 4])


def behind(path, request, rest, **more):
    """Return a request whose prompt begins with all that a file has."""
    prefix = read_prefix(path)
    return replace(request, prompts=[[*prefix.tokens, *rest]], prefix=prefix, **more)


PREFIXES = (
    ("plain", {}),
    ("normed", {"policy": "concat", "mesh": (3, 1)}),
    ("local", {"mesh": (1, 3), "dtype": "cb16"}),
    ("plain", {"prefill": "auto", "chunk": 2, "policy": "round"}),
)


@pytest.mark.parametrize(("model", "way"), few(PREFIXES, 2))
def test_a_prompt_goes_on_behind_what_was_read(tmp_path, model, way):
    """Bits, tokens and cycles are those of a prompt that is read token by token; what was read is said, not counted."""
    options = {"sampling": Sampling(), "count": 2, "prompts": [[3, 1, 4]]} | way
    first = answer(asked(model, **options, file=tmp_path / "a.npz"))
    plain = asked(model, **(options | {"prefill": "token", "chunk": None, "count": 9}))
    request = behind(tmp_path / "a.npz", plain, [2, 0, 4, 1, 2, 0])
    found, whole = answer(request), answer(replace(request, prefix=None))
    assert found.reused == 4
    assert found.tokens == whole.tokens
    assert np.array_equal(found.logits, whole.logits)
    assert found.bit_exact
    assert (found.steps_compared, found.steps) == (14, 14)
    assert found.prompt_cycles == whole.prompt_cycles[4:]
    assert found.token_cycles == whole.token_cycles
    assert found.reused_cycles == sum(first.prompt_cycles) + sum(first.token_cycles) + first.first_cycles
    form = estimate(request)
    assert form.prefill == pytest.approx(sum(found.prompt_cycles), rel=0.02)
    assert len(form.tokens) == len(found.token_cycles)


@pytest.mark.parametrize(
    ("model", "way", "other"),
    [
        ("plain", {"policy": "round"}, {"prefill": "token"}),
        ("local", {"policy": "concat", "mesh": (1, 3), "dtype": "cb16"}, {"prefill": "auto", "chunk": 3}),
        ("plain", {"policy": "round", "mesh": (3, 1), "cache_dtype": "int8"}, {"prefill": "auto", "chunk": 2}),
    ],
)
def test_a_prompt_goes_on_in_pieces(tmp_path, model, way, other):
    """Behind what was read token by token or in pieces; tokens and logits are those of a prompt read in pieces."""
    options = {"sampling": Sampling(), "count": 2, "prompts": [[3, 1, 4, 2]]} | way
    answer(asked(model, **(options | other), file=tmp_path / "a.npz"))
    plain = asked(model, **(options | {"prefill": "auto", "chunk": 3, "count": 5}))
    request = behind(tmp_path / "a.npz", plain, [2, 0, 4, 1, 2, 0], file=tmp_path / "b.npz")
    answer(replace(request, count=2))
    found, whole = answer(request), answer(replace(request, prefix=None, file=None))
    assert (found.reused, found.resumed, found.pieces) == (5, 12, 2)
    assert found.tokens == whole.tokens
    assert np.array_equal(found.logits, whole.logits)
    assert found.bit_exact
    assert found.steps_compared == found.steps == len(request.prompt) - 5 + 4
    assert found.token_cycles[-1] == whole.token_cycles[-1]
    form = estimate(request)
    assert form.prefill == pytest.approx(sum(found.prompt_cycles), rel=0.03)


def test_requests_of_a_batch_begin_alike(tmp_path):
    """Lanes take what was read at once, as long as the texts begin alike; bits are those of each request alone."""
    request = asked("normed", prefill="mesh", sampling=Sampling(), count=2, file=tmp_path / "a.npz")
    answer(request)
    prefix = read_prefix(request.file)
    prompts = [[*prefix.tokens, *rest] for rest in ([2, 0], [4], [1, 3, 3])]
    plain = replace(request, file=None, prefill="auto", prefix=prefix, count=3, prompts=prompts[:1])
    several = replace(plain, batch=2, prompts=prompts)
    found = answer(several)
    assert found.bit_exact
    assert (found.reused, found.reused_cycles) == (4, prefix.cycles)
    assert [each.steps for each in found.requests] == [4, 3, 5]
    for prompt, tokens, logits in zip(prompts, found.tokens, found.logits, strict=True):
        alone = answer(replace(plain, prompts=[prompt], verify=False))
        assert tokens == alone.tokens
        assert np.array_equal(logits, alone.logits)
    said = generate_batch.result_of(several, found)
    assert said["reused"] == {"tokens": 4, "cycles": prefix.cycles}
    assert f"{prefix.cycles:,} cycles" in dict(generate_batch.rows(said, several.machine))["reused"]
    form = estimate_service(several)
    assert len(form.steps) == len(found.step_cycles)
    assert sum(form.steps) == pytest.approx(sum(found.step_cycles), rel=0.01) == found.expected
    assert form.taken == pytest.approx(sum(found.taken) / (2 * len(found.taken)))
    with pytest.raises(ConfigError, match="the prompt of request 2 has 4 tokens, and 4 of the 4"):
        replace(several, prompts=[prompts[0], list(prefix.tokens)])
    with pytest.raises(UnsupportedError, match="--prefix: .*at once lies on all rows"):
        replace(several, policy="concat")


def test_a_conversation_goes_on_and_on(tmp_path):
    """Behind a prompt that was read at once: each turn reads what is new, and is kept in a file of its own."""
    request = asked("normed", prefill="mesh", sampling=Sampling(), count=3, file=tmp_path / "0.npz")
    answer(request)
    plain, cycles = replace(request, prefill="auto"), 0
    for turn in range(2):
        following = behind(request.file, plain, [4, turn], file=tmp_path / f"{turn + 1}.npz")
        with pytest.raises(KeyboardInterrupt):
            answer(following, progress=Ending(2))
        found = answer(following)
        assert found.resumed == found.reused + 2
        assert facts(found) == facts(answer(replace(following, file=None)))
        assert found.bit_exact
        assert len(found.prompt_cycles) == 2
        assert found.reused_cycles > cycles
        request, cycles = following, found.reused_cycles
    with pytest.raises(ConfigError, match="another --prefix"):
        answer(replace(request, prefix=read_prefix(tmp_path / "0.npz")))


def test_a_prefix_of_another_kind_is_refused(file, tmp_path):
    """The message names the option, or says how many tokens are the same."""
    request = asked("plain", prefill="auto", count=2)
    for option, more in CHANGED.items():
        if option not in ("--mesh", "--cache", "--dtype", "machine.ramp"):
            continue
        with pytest.raises(ConfigError) as caught:
            answer(behind(file, request, [1], **more))
        assert "--prefix" in str(caught.value)
        assert option == "machine.ramp" or option in str(caught.value)
    with pytest.raises(ConfigError, match="--prefix.*MODEL"):
        answer(replace(behind(file, request, [1]), model=replace(MODELS["plain"], seed=2)))
    with pytest.raises(ConfigError, match="the prompt has 7 tokens, and 7 of the 7"):
        behind(file, request, [])
    with pytest.raises(ConfigError, match="the prompt has 3 tokens, and 2 of the 7"):
        replace(request, prompts=[[3, 1, 5]], prefix=read_prefix(file))
    for more, name in (({"regions": 1}, "--prefix"), ({"decode_mesh": (1, 1)}, "--prefix"),
                       ({"chunk": 2, "policy": "shift"}, "entries of this cache have moved"),
                       ({"prefill": "mesh"}, "--prefill mesh")):  # fmt: skip
        with pytest.raises(UnsupportedError, match=name):
            behind(file, request, [1], **more)
    with pytest.raises(ConfigError, match="no such file.*--cache-file"):
        read_prefix(tmp_path / "none.npz")


def test_damaged_files_are_refused(file, tmp_path):
    """Cut anywhere, a byte changed anywhere, or no such file at all: one message, and the file stays."""
    chance, good, path = random.Random(1), file.read_bytes(), tmp_path / "b.npz"
    request = asked("plain", prefill="auto", file=path)
    weights, _ = request.model.rounded(Arithmetic.of(request.machine, "f16"))
    found = resuming.AnswerFile(path, request, weights)
    for k in range(40):
        at = chance.randrange(len(good))
        path.write_bytes(good[:at] if k % 2 else good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :])
        try:
            kept = found.read()
        except ConfigError as error:
            assert "b.npz" in str(error)
        else:  # a byte that says nothing: a date, say
            assert kept.position == 7
    path.write_text("text")
    with pytest.raises(ConfigError, match="damaged"):
        found.read()
    with pytest.raises(ConfigError, match="cannot be read"):
        resuming.AnswerFile(tmp_path, request, weights).read()


def test_a_full_disk_keeps_the_last_step(tmp_path, monkeypatch):
    request = asked("plain", verify=False)
    whole, kept = answer(request), replace(request, file=tmp_path / "a.npz")
    right, count = np.savez, 0

    def full(stream, **arrays):
        nonlocal count
        count += 1
        if count == 4:
            stream.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        right(stream, **arrays)

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(TraceError, match="No space left"):
        answer(kept)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    found = answer(kept)
    assert found.resumed == 3
    assert facts(found) == facts(whole)


def test_other_ways_have_no_file(tmp_path):
    for more in ({"regions": 1}, {"batch": 2}, {"decode_mesh": (1, 1)}):
        with pytest.raises(UnsupportedError, match="--cache-file"):
            asked("plain", **({"prefill": "auto", "file": tmp_path / "a.npz"} | more))


KILLED = """
from harness.cli import main as cli
from harness.inference import resuming
from tests.killed import Countdown

write = resuming.AnswerFile.write

def case(moment, *words):
    state = {}

    def counted(*args):
        write(*args)
        if "counter" not in state:
            state["counter"] = Countdown()
        elif state["counter"].calls == float("inf"):  # the calls of one step are known now
            state["counter"].calls = state["counter"].count * moment

    resuming.AnswerFile.write = counted
    cli.main(["generate", *words])
"""


def test_killed_at_any_moment(directory, tmp_path, capsys, child_env):
    """A process that is killed within a step, or while it writes, leaves the last whole step; the rest follows."""
    words = [str(directory), "--prompt-ids", "3,1", "--tokens", "12", "--mesh", "2x2", "--prefill", "token",
             "--temperature", "2", "--verify", "off", "--json"]  # fmt: skip
    assert main(["generate", *words]) == 0
    whole = json.loads(capsys.readouterr().out)
    words += ["--cache-file", "a.npz"]
    chance = random.Random(3)
    with Victims(KILLED, tmp_path, child_env) as victims:
        for _ in range(3):
            status, _ = victims.run(chance.uniform(1.0, 3.0), *words)
            assert status == -signal.SIGKILL
    words[-1] = str(tmp_path / "a.npz")
    assert main(["generate", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("resumed") >= 3
    for name in ("resumed", "host_seconds", "step_seconds"):
        found.pop(name, None), whole.pop(name, None)
    assert found == whole
    assert not list(tmp_path.glob(".*"))


def test_interrupted_it_says_how_to_go_on(directory, tmp_path, capsys, monkeypatch):
    words = ["generate", str(directory), "--prompt-ids", "3,1", "--tokens", "4", "--mesh", "2x2"]
    words += ["--verify", "off", "--cache-file", str(tmp_path / "a.npz")]
    right, count = resuming.AnswerFile.write, 0

    def ending(*args):
        nonlocal count
        right(*args)
        count += 1
        if count == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(resuming.AnswerFile, "write", ending)
    assert main(words) == 130
    assert "a.npz has the answer so far; the same command goes on" in capsys.readouterr().err
    assert main(words) == 0
    assert "gone on" in capsys.readouterr().out
    assert main([*words, "--trace-window", "100", "--out", str(tmp_path / "o.h5")]) == 2
    assert "--cache-file" in capsys.readouterr().err

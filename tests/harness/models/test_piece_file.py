"""``tokenizer.model`` gives the tokens of sentencepiece itself, and of the ``tokenizer.json`` made of it."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.main import main
from harness.models.configuration import Configuration
from harness.models.hub import load_model, save_model
from harness.models.piece_file import table_of_pieces
from harness.models.tokens import load_tokenizer
from tests.fabric.networks.inference.small_models import random_weights
from tests.harness.inference.test_explain import DECODER
from wse_core.errors import ConfigError, UnsupportedError

library = pytest.importorskip("sentencepiece")
pytest.importorskip("tokenizers")
model_pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")

WORDS = re.split(
    r"\s",
    """the exception object is raised when a name is not found in the module and the handler of the exception has
an object with the name the values of a list are sorted by the key function that is given to the list a list of names
in the module is an object 12 345 67 8 (x) [y] {z}: a, b; c. d! e? naming named names""",
)
FORM = {"model_type": "bpe", "vocab_size": 360, "byte_fallback": True, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False, "minloglevel": 5}  # fmt: skip


def trained(**keys):
    """Return the bytes of a small tokenizer of sentencepiece's own making."""
    lines = [" ".join(WORDS[(7 * line + k * k) % len(WORDS)] for k in range(12)) for line in range(200)]
    made = io.BytesIO()
    library.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **FORM | keys)
    return made.getvalue()


@pytest.fixture(scope="module")
def whole():
    return trained(user_defined_symbols=["<own>"], control_symbols=["<|end|>"])


@pytest.fixture(scope="module")
def both(whole, tmp_path_factory):
    """Return our tokenizer and sentencepiece's."""
    directory = tmp_path_factory.mktemp("pieces")
    (directory / "tokenizer.model").write_bytes(whole)
    return load_tokenizer(directory / "tokenizer.json"), library.SentencePieceProcessor(model_proto=whole)


TEXT = st.lists(st.sampled_from([*WORDS, *"aeiou xyz€é\n", " ", "  ", "<own>", "\U0001f600"]), max_size=12)


@given(parts=TEXT, glue=st.sampled_from([" ", ""]))
def test_tokens_are_sentencepieces(both, parts, glue):
    ours, theirs = both
    text = glue.join(parts).replace("<own>", "" if not theirs else "<own>")
    if "<own>" in text:  # sentencepiece puts no space behind such a token
        head, _, tail = text.partition("<own>")
        text = head + tail.replace("<own>", "")
    assert ours.encode(text, bare=True) == theirs.encode(text)
    assert ours.encode(text) == [theirs.bos_id(), *theirs.encode(text)]
    assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))


def test_tokens_that_are_cut_out_first(both):
    ours, theirs = both
    own, end = theirs.piece_to_id("<own>"), theirs.piece_to_id("<|end|>")
    ids = ours.encode("a<own><|end|>b</s>", bare=True)
    assert [token for token in ids if token in (own, end, theirs.eos_id())] == [own, end, theirs.eos_id()]
    assert ours.decode([own, end]) == "<own>"  # control tokens are no text
    assert ours.size == theirs.vocab_size()


def test_what_stands_beside_the_pieces(whole, tmp_path):
    """Tokens before and behind a text, tokens that are added, and a tokenizer.json that goes before all of it."""
    (tmp_path / "tokenizer.model").write_bytes(whole)

    def tokenizer(**keys):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(keys))
        return load_tokenizer(tmp_path / "tokenizer.json")

    inner = library.SentencePieceProcessor(model_proto=whole)
    plain = inner.encode("a list")
    assert tokenizer(add_bos_token=False).encode("a list") == plain
    assert tokenizer().warnings == ("tokenizer_config.json: no add_bos_token: '<s>' stands before a text",)
    assert tokenizer(add_bos_token=True).warnings == ()
    assert tokenizer(add_eos_token=True).encode("a list") == [1, *plain, 2]
    assert tokenizer(bos_token="<|end|>").encode("a list") == [inner.piece_to_id("<|end|>"), *plain]
    count = inner.vocab_size()
    added = {
        str(count): {"content": "<|user|>", "special": True},
        str(count + 1): {"content": "twice", "special": False},
    }
    found = tokenizer(added_tokens_decoder=added, add_bos_token=False)
    assert found.encode("a list<|user|>twice") == [*plain, count, count + 1]
    assert found.decode([count, count + 1]) == "twice"
    assert found.size == count + 2
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<x>": count}))
    assert tokenizer(add_bos_token=False).encode("<x>") == [count]
    for keys, what in (
        ({"bos_token": "<none>"}, "<none>"),
        ({"added_tokens_decoder": {str(count + 5): {"content": "z"}}}, f"added token {count + 5}"),
        ({"added_tokens_decoder": {"1": {"content": "z"}}}, "token 1 is '<s>' in tokenizer.model, and 'z' beside it"),
        ({"added_tokens_decoder": {"x": {"content": "z"}}}, "added token x is"),
        ({"add_bos_token": 3}, "neither true nor false"),
        ({"add_prefix_space": False}, "puts a space before a text"),
    ):
        with pytest.raises((ConfigError, UnsupportedError), match=what.replace("(", r"\(")):
            tokenizer(**keys)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "added_tokens.json").unlink()
    (tmp_path / "tokenizer.json").write_text(json.dumps(table_of_pieces(tmp_path / "tokenizer.model", {})))
    assert load_tokenizer(tmp_path / "tokenizer.json").encode("a list") == [1, *plain]


def test_no_space_before_a_text(tmp_path):
    raw = trained(add_dummy_prefix=False)
    (tmp_path / "tokenizer.model").write_bytes(raw)
    inner, ours = library.SentencePieceProcessor(model_proto=raw), load_tokenizer(tmp_path / "tokenizer.json")
    for text in ("a list", " a  list", "names"):
        assert ours.encode(text, bare=True) == inner.encode(text)
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"model_type": "unigram", "hard_vocab_limit": False}, "pieces of type unigram"),
        ({"model_type": "char", "hard_vocab_limit": False}, "pieces of type char"),
        ({"remove_extra_whitespaces": True}, "white space that is taken out"),
        ({"normalization_rule_name": "nmt_nfkc"}, "changed by the table nmt_nfkc"),
        ({"treat_whitespace_as_suffix": True}, "no mark before a word"),
    ],
)
def test_other_kinds_are_refused(tmp_path, keys, what):
    (tmp_path / "tokenizer.model").write_bytes(trained(**keys))
    with pytest.raises(UnsupportedError, match=what):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_damaged_files_are_one_message(whole, tmp_path):
    path = tmp_path / "tokenizer.model"
    long = model_pb2.ModelProto.FromString(whole)
    long.pieces.add(piece="a" * 257, score=-1.0)
    twice = model_pb2.ModelProto.FromString(whole)
    twice.pieces.add(piece="<s>", score=-1.0)
    for raw, what in (
        (b"", "no pieces"),
        (b"IQ== 0\nIg== 1\n", "no file of sentencepiece"),
        (b"\xff" * 99, "no file of sentencepiece"),
        (whole[: len(whole) // 2], "no file of sentencepiece"),
        (long.SerializeToString(), "257 characters; at most 256"),
        (twice.SerializeToString(), "two tokens have the text '<s>'"),
    ):
        path.write_bytes(raw)
        with pytest.raises(ConfigError, match=what) as caught:
            load_tokenizer(tmp_path / "tokenizer.json")
        assert len(str(caught.value).splitlines()) == 1


def test_a_model_without_a_tokenizer_json(whole, tmp_path, capsys):
    from dataclasses import replace

    import numpy as np

    inner = library.SentencePieceProcessor(model_proto=whole)
    decoder = replace(DECODER, vocabulary=inner.vocab_size())
    weights = {name: values.astype(np.float32) for name, values in random_weights(decoder).items()}
    save_model(tmp_path / "m", Configuration(decoder), weights)
    (tmp_path / "m" / "tokenizer.model").write_bytes(whole)
    config = {"bos_token": "<s>", "add_bos_token": True, "legacy": False, "chat_template": "{{ messages[0].content }}"}
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_model(tmp_path / "m").has_tokenizer
    words = ["--prompt", "the list", "--tokens", "1", "--mesh", "4x4", "--verify", "off", "--json"]
    assert main(["generate", str(tmp_path / "m"), *words]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["prompt"] == [1, *inner.encode("the list")]
    assert err == ""
    assert main(["generate", str(tmp_path / "m"), "--explain", "--json"]) == 0
    rows = {(row["file"], row["key"]): row for row in json.loads(capsys.readouterr().out)["keys"]}
    assert rows["tokenizer.model", ""]["does"] == "used"
    assert rows["tokenizer_config.json", "add_bos_token"]["does"] == "used"
    (tmp_path / "m" / "tokenizer.model").write_bytes(whole[:99])
    assert main(["generate", str(tmp_path / "m"), "--explain"]) == 2
    assert "REFUSED: no file of sentencepiece" in capsys.readouterr().out


def test_tokens_are_those_of_the_hubs_library(whole, tmp_path):
    """Where transformers is installed: a LLaMA's tokens of the same file, without special ones in the text."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.model").write_bytes(whole)
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    for text in ("the exception", "a  list\n€ naming", "12 345 (x)"):
        assert theirs(text)["input_ids"] == ours.encode(text)

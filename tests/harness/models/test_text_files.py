"""What a prompt is and where it ends, by all files that have a say in it; the hub's library as judge where it is."""

from __future__ import annotations

import json

import pytest

from harness.models.tokens import Characters, Unfolding, answer_text, character_file, load_tokenizer
from wse_core.errors import ConfigError, UnsupportedError

SPECIALS = ("<unk>", "<s>", "</s>")
TEXTS = ("ab", "Hello world.", " Hello  world", "", "a<s>b", "dog €")


def pieces():
    """Return a ``tokenizer.json`` of pieces with a mark for the space, as sentencepiece has them, and bytes."""
    library = pytest.importorskip("tokenizers")
    vocabulary, merges = {text: number for number, text in enumerate(SPECIALS)}, []
    for text in (*(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyzH."):
        vocabulary[text] = len(vocabulary)
    for word in ("Hello", "world", "dog"):
        now = "▁"
        for character in word:
            merges.append((now, character))
            now += character
            vocabulary.setdefault(now, len(vocabulary))
    inner = library.Tokenizer(
        library.models.BPE(
            vocabulary, list(dict.fromkeys(merges)), unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    normalizers, decoders = library.normalizers, library.decoders
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    inner.add_special_tokens([library.AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    inner.post_processor = library.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return json.loads(inner.to_str())


def byte_level():
    """Return a ``tokenizer.json`` whose tokens are bytes and two special ones, with nothing before or behind a text."""
    library = pytest.importorskip("tokenizers")
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    inner = library.Tokenizer(library.models.BPE({c: n for n, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    inner.add_special_tokens([library.AddedToken(text, special=True) for text in ("<s>", "</s>")])
    return json.loads(inner.to_str())


@pytest.fixture
def made(tmp_path):
    """Return a function that writes the files and loads the tokenizer."""

    def load(table, config=None):
        (tmp_path / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")
        beside = tmp_path / "tokenizer_config.json"
        beside.unlink(missing_ok=True)
        if config is not None:
            beside.write_text(json.dumps(config), encoding="utf-8")
        return load_tokenizer(tmp_path / "tokenizer.json")

    return load


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, ()),
        ({}, ()),
        ({"bos_token": "<s>"}, ()),
        ({"add_bos_token": True, "bos_token": {"content": "<s>", "lstrip": False}}, ()),
        ({"add_bos_token": None, "add_eos_token": False, "eos_token": None}, ()),
        ({"add_bos_token": False, "bos_token": "<s>"}, ("add_bos_token",)),
        ({"add_eos_token": True, "eos_token": "</s>"}, ("add_eos_token",)),
        ({"add_bos_token": False, "add_eos_token": True}, ("add_bos_token, add_eos_token",)),
    ],
)
def test_what_stands_before_and_behind_a_text(made, config, said):
    """tokenizer.json says it; where tokenizer_config.json, which older libraries obey, is at odds, a run says so."""
    table = pieces()
    vocabulary = table["model"]["vocab"]
    found = made(table, config)
    assert found.encode("a") == [1, vocabulary["▁"], vocabulary["a"]]
    assert found.warnings == tuple(
        f"tokenizer_config.json: {names}: not obeyed here (wse generate MODEL --explain)" for names in said
    )
    assert made(byte_level(), {"add_bos_token": False}).warnings == ()
    assert made(byte_level(), {"add_bos_token": False}).encode("a") == [64]
    assert len(made(byte_level(), {"add_bos_token": True}).warnings) == 1


def test_what_a_file_was_saved_with_is_no_part_of_a_prompt(made):
    """Truncation and padding are about batches: the library switches them off for one text, and so it is here."""
    table = pieces()
    plain = made(table).encode("Hello world. dog")
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 30}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "<unk>"}  # fmt: skip
    assert made(table | {"truncation": truncation, "padding": padding}).encode("Hello world. dog") == plain
    assert len(plain) > 3
    characters = json.loads(character_file("abc")) | {"truncation": truncation}
    found = made(characters)
    assert isinstance(found, Characters)
    assert found.encode("abcab") == [0, 1, 2, 0, 1]


def test_ids_with_holes(made):
    """The vocabulary ends behind its largest id, not behind as many as there are texts."""
    table = byte_level()
    table["model"]["vocab"]["ab"], table["model"]["merges"] = 300, [["a", "b"]]
    for token in table["added_tokens"]:
        token["id"] += 1  # as many as there are texts now
    found = made(table)
    assert found.size == 301
    assert found.decode([64, 300, 257, 65]) == "aabb"
    table["added_tokens"][1]["id"] = 305  # the library numbers them by itself
    with pytest.raises(ConfigError, match=r"added token '</s>' has number 305 there; the library gives it 258"):
        made(table)


def test_the_space_of_the_first_word(made):
    """The text of an answer is what it adds to the prompt's, with its space; token by token and at once."""
    found = made(pieces())
    prompt, answer = found.encode("Hello"), found.encode("world. dog")[1:]
    assert found.decode(answer) == "world. dog"  # alone the first space is taken for the tokenizer's own
    assert answer_text(found, prompt, answer) == " world. dog"
    unfolding = Unfolding(found, prompt)
    assert "".join(map(unfolding.push, answer)) + unfolding.rest() == " world. dog"
    assert answer_text(found, [], answer) == "world. dog"


def test_a_character_whose_first_byte_is_the_prompts(made):
    """What the prompt could not finish is the answer's."""
    found = made(byte_level())
    ids = found.encode("a€b")
    assert answer_text(found, ids[:2], ids[2:]) == "€b"
    unfolding = Unfolding(found, ids[:2])
    assert [unfolding.push(token) for token in ids[2:]] == ["", "€", "b"]


def test_special_tokens_in_a_prompt(made):
    found = made(byte_level(), {"split_special_tokens": True})
    assert len(found.encode("<s>")) == 3
    assert made(byte_level()).encode("<s>") == [256]


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"add_prefix_space": False}, "add_prefix_space False: tokenizer.json puts a space"),
        ({"add_prefix_space": "x"}, "add_prefix_space 'x'"),
        ({"bos_token": "<begin>"}, "tokenizer.json has no token '<begin>'"),
        ({"pad_token": {"content": "<pad>"}}, "tokenizer.json has no token '<pad>'"),
        ({"additional_special_tokens": ["<s>", "<new>"]}, "has no token '<new>'"),
        ({"added_tokens_decoder": {"1": {"content": "<s>"}, "900": {"content": "<new>"}}}, "has no token '<new>'"),
        ({"add_bos_token": 1}, "neither true nor false"),
        ({"split_special_tokens": "yes"}, "neither true nor false"),
        ({"use_default_system_prompt": True}, "no other text"),
    ],
)
def test_what_would_make_other_tokens_is_refused(made, config, what):
    with pytest.raises(UnsupportedError, match=what) as caught:
        made(pieces(), config)
    assert "tokenizer_config.json" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_dropout_is_refused_and_unknown_keys_are_said(made):
    table = pieces()
    table["model"]["dropout"] = 0.1
    with pytest.raises(UnsupportedError, match="with dropout a text has other tokens each time"):
        made(table)
    (said,) = made(pieces(), {"colour": 1, "chat_template": "x", "legacy": True}).warnings
    assert said.startswith("tokenizer_config.json: colour: unknown here")


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("\ufeff" + character_file("abc"), encoding="utf-8")
    assert load_tokenizer(path).encode("ab") == [0, 1]
    path.write_text("\ufeff" + json.dumps(byte_level()), encoding="utf-8")
    assert load_tokenizer(path).encode("a") == [64]
    path.write_bytes(b'{"a":\n\xff}')
    with pytest.raises(ConfigError, match="line 2 is not UTF-8 text"):
        load_tokenizer(path)
    path.write_text('{"model": 1, "model": 2}')
    with pytest.raises(ConfigError, match="key model stands twice"):
        load_tokenizer(path)


CONFIGS = (
    None,
    {"add_bos_token": False, "bos_token": "<s>"},
    {"add_bos_token": True, "bos_token": "<s>"},
    {"add_bos_token": True, "bos_token": None},
    {"add_eos_token": True, "eos_token": "</s>"},
    {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": {"content": "</s>"}},
    {"split_special_tokens": True},
    {"clean_up_tokenization_spaces": True, "model_max_length": 3},
)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", [pieces, byte_level])
def test_the_library_itself(made, tmp_path, kind, config):
    """The tokens of the library, where it is installed, for the general class of tokenizers."""
    transformers = pytest.importorskip("transformers")
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    if config is not None:
        for name in ("bos", "eos"):
            content = config.get(f"{name}_token")
            config = config | ({f"{name}_token": content["content"]} if isinstance(content, dict) else {})
    own = made(kind() | {"truncation": truncation}, config)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for text in TEXTS:
        assert own.encode(text) == theirs(text)["input_ids"], text
        assert own.decode(own.encode(text)) == theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)

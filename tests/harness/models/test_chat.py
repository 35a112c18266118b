"""Messages become the prompt that the hub's library makes of them; templates that misbehave are refused in time."""

from __future__ import annotations

import json
import resource

import pytest

from harness.cli.main import main
from harness.models import chat
from harness.models.chat import ChatTemplate, find_template, messages_of, read_messages
from harness.models.configuration import Configuration
from harness.models.hub import load_model, save_model
from harness.models.tokens import load_tokenizer
from tests.fabric.networks.inference.small_models import random_weights
from tests.harness.inference.test_explain import DECODER
from wse_core.errors import ConfigError, UnsupportedError

pytest.importorskip("jinja2")

SPECIAL = (
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin|>",
    "<|eot|>",
    "<turn>",
    "</turn>",
    "[INST]",
    "[/INST]",
)

CHATML = """{%- for message in messages %}
    {%- if loop.first and message['role'] != 'system' %}
        {{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- 'none' }}{%- endif %}
{%- endif %}
"""
LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "[system]" + date_string + system_message + eos_token }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '[' + message['role'] + ']\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- else %}
        {{- message.tool_calls | tojson(indent=2) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]\\n\\n' }}
{%- endif %}
"""
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
    "{% endif %}{{ '<turn>' + role + '\n' + message['content'] | trim + '</turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<turn>model\n'}}{% endif %}"
)
MISTRAL = """{%- set ns = namespace(index=0, system='') %}
{%- for message in messages %}
    {%- if message["role"] == "system" %}
        {%- set ns.system = message["content"] %}
        {%- continue %}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
    {%- if ns.index > 5 %}{% break %}{% endif %}
    {%- if message["role"] == "user" %}
        {%- if ns.index == 1 %}{{- bos_token }}{% endif %}
        {{- "[INST]" + (ns.system + "\\n\\n" if ns.system else "") + message["content"] + "[/INST]" }}
        {%- set ns.system = '' %}
    {%- else %}
{% generation %}{{- message["content"] + eos_token }}{% endgeneration %}
    {%- endif %}
{%- endfor %}
"""
BLOCKS = """{% for message in messages %}
    {% if message.role == 'user' %}
  {{ message.content }}
    {% endif %}
{# nothing #}
{% macro twice(x) %}
{{ x }}{{ x }}
{% endmacro %}
{{ twice(message.role) }}{{ dict(a=1, b=message.content) | tojson }}
{% endfor %}
{{ "%s|%05d" | format("x", 42) }} {{ [3, 1, 2] | sort | join(",") }} {{ pad_token }}.
"""

TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "mistral": MISTRAL, "blocks": BLOCKS}
USER = [{"role": "user", "content": " Hello <b>'world' €\n"}]
LONG = [*USER, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why <s>? <|im_end|> no"}]
SYSTEM = [{"role": "system", "content": "You are terse."}, *LONG]
CONFIG = {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "pad_token": None}


def byte_level(ids=SPECIAL):
    """Return a ``tokenizer.json`` of bytes that puts <s> before a text, and has special tokens."""
    library = pytest.importorskip("tokenizers")
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    inner = library.Tokenizer(library.models.BPE({c: n for n, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    inner.add_special_tokens([library.AddedToken(text, special=True) for text in ids])
    inner.post_processor = library.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    return inner.to_str()


@pytest.fixture
def files(tmp_path):
    """Return a function that writes the files of a tokenizer with a chat template and returns their directory."""

    def write(template, name=None, **keys):
        (tmp_path / "tokenizer.json").write_text(byte_level(), encoding="utf-8")
        table = CONFIG | keys | ({} if name or template is None else {"chat_template": template})
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(table), encoding="utf-8")
        if name:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(template, encoding="utf-8")
        return tmp_path

    return write


EXPECTED = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello <b>'world' €<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama3": "<s>[system]26 Jul 2024</s>[user]\n\nHello <b>'world' €<|eot|>[assistant]\n\n",
    "gemma": "<s><turn>user\nHello <b>'world' €</turn>\n<turn>model\n",
    "mistral": "<s>[INST] Hello <b>'world' €\n[/INST]",
    "blocks": '   Hello <b>\'world\' €\n\nuseruser\n{"a": 1, "b": " Hello <b>\'world\' €\\n"}\nx|00042 1,2,3 .',
}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_texts_of_the_kinds_that_models_have(files, kind):
    """Blocks leave no line, special tokens come by name, and nothing is escaped."""
    template = find_template(files(TEMPLATES[kind]))
    text, said = template.prompt(USER)
    assert text == EXPECTED[kind]
    assert (said, template.source) == ([], "tokenizer_config.json")


@pytest.mark.parametrize("messages", [USER, LONG, SYSTEM], ids=["user", "long", "system"])
@pytest.mark.parametrize("kind", TEMPLATES)
def test_tokens_are_those_of_the_library(files, kind, messages):
    """Text and tokens equal `apply_chat_template` of the hub's library; it raises where we refuse."""
    library = pytest.importorskip("transformers")
    directory = files(TEMPLATES[kind], tokenizer_class="PreTrainedTokenizerFast")
    theirs = library.AutoTokenizer.from_pretrained(directory)
    template, ours = find_template(directory), load_tokenizer(directory / "tokenizer.json")
    try:
        text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        assert kind == "gemma"
        with pytest.raises(ConfigError, match="refuses these messages") as caught:
            template.prompt(messages)
        assert str(error) in str(caught.value)
        return
    ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert template.prompt(messages)[0] == text
    assert ours.encode(text, bare=True) == ids
    assert ids.count(256) == text.count("<s>")


def test_special_tokens_in_the_text_are_the_models_and_none_is_added(files):
    """No second <s> comes before the template's own; the plain prompt has one."""
    directory = files(GEMMA)
    tokenizer = load_tokenizer(directory / "tokenizer.json")
    text, _ = find_template(directory).prompt(USER)
    ids = tokenizer.encode(text, bare=True)
    assert ids[:2] == [256, 256 + SPECIAL.index("<turn>")]
    assert ids.count(256) == 1
    assert tokenizer.encode(text)[:3] == [256, *ids[:2]]
    assert tokenizer.decode(tokenizer.encode("a€", bare=True)) == "a€"


def test_where_a_template_comes_from(files):
    """A file of its own goes before the key; of a list the default is taken; a list without it has none."""
    several = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "d"}]
    found = find_template(files(None, chat_template=several))
    assert (found.text, found.source) == ("d", "tokenizer_config.json, default of 2")
    with pytest.raises(UnsupportedError, match=r"called default \(there are: tool_use\)"):
        find_template(files(None, chat_template=several[:1]))
    for wrong, what in (([1], "not of templates with names"), (3, "a chat_template that is 3"), (None, "no chat")):
        with pytest.raises(ConfigError, match=what):
            find_template(files(None, chat_template=wrong))
    directory = files("own", "chat_templates/tools.jinja", chat_template="key")
    with pytest.raises(UnsupportedError, match="chat_templates without a"):
        find_template(directory)
    directory = files("own\n", "chat_template.jinja", chat_template="key")
    found = find_template(directory)
    assert (found.text, found.source) == ("own\n", "chat_template.jinja")
    assert found.prompt(USER)[0] == "own"
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_template(directory)


def test_names_of_special_tokens(files):
    """They come from tokenizer_config.json, or from the older file beside it; those that nobody names are said."""
    directory = files("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ sep_token }}|{{ bos_token is defined }}")
    template = find_template(directory)
    assert template.prompt(USER) == (
        "<s>|</s>|||True",
        ["tokenizer_config.json: no sep_token in tokenizer_config.json: empty in the prompt"],
    )
    more = {"sep_token": "<turn>", "eos_token": {"content": "<|eot|>"}}
    (directory / "special_tokens_map.json").write_text(json.dumps(more))
    assert find_template(directory).prompt(USER) == ("<s>|<|eot|>||<turn>|True", [])
    directory = files("{{ eos_token }}", added_tokens_decoder={})
    assert find_template(directory).prompt(USER) == ("</s>", [])


def used_by_children():
    """Return the seconds of a processor that ended processes of this one have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


HOSTILE = {
    "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}"
    "{% endfor %}": "not rendered with 1 seconds",
    "{{ 'a' * 10 ** 8 }}": "more than 4,194,304 characters",
    "{{ 'a' * 10 ** 10 }}": "more memory",
    "{% for i in range(99999) %}{{ messages[0].content * 100 }}{% endfor %}": "more than 4,194,304 characters",
    "{% for i in range(10 ** 9) %}{% endfor %}": "Range too big",
    "{{ 9 ** (9 ** 9) }}": "not rendered with 1 seconds",
    "{{ ''.__class__.__mro__ }}": "what no template may have: access to attribute '__class__'",
    "{{ messages.append(1) }}": "what no template may have: access to attribute 'append'",
    "{{ cycler.__init__.__globals__ }}": "what no template may have",
    "{{ namespace(__class__=1) }}": "no hidden names",
    "{% set n = namespace() %}{% set n._x = 1 %}": "no hidden names",
    "{% include 'file' %}": "no loader",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "calls itself without end",
    "{{ nobody.name }}": "'nobody' is undefined",
    "{{ 1 / 0 }}": "ZeroDivisionError",
    "a\n{% if %}": "line 2: Expected an expression",
    "{{ raise_exception('Only \x1b[31m user\nand') }}": "refuses these messages: Only \\x1b[31m user and",
    "{{ (" + "(" * 4000: "chat template",
    "x" * (1 << 20) + "y": "of 1,048,577 characters",
}


@pytest.mark.parametrize("text", HOSTILE, ids=[f"{number}" for number in range(len(HOSTILE))])
def test_hostile_templates_are_one_line_in_bounded_time(monkeypatch, text):
    """In bounded time of a processor: by a clock a busy host takes as long as it likes.

    Where another limit is to be met first, a busy host must not meet that of time.
    """
    monkeypatch.setattr(chat, "WALL", 1000)
    monkeypatch.setattr(chat, "SECONDS", 1 if "seconds" in HOSTILE[text] else 60)
    started = used_by_children()
    with pytest.raises(ConfigError) as caught:
        ChatTemplate(text, "tokenizer_config.json", "m").prompt(USER)
    said = str(caught.value)
    assert HOSTILE[text] in said
    assert said.startswith("m: chat template (tokenizer_config.json): ")
    assert len(said.splitlines()) == 1
    assert len(said) < 300
    assert used_by_children() - started < max(8, chat.SECONDS)


def test_one_that_sleeps_is_ended_by_the_clock(monkeypatch):
    monkeypatch.setattr(chat, "WALL", 0.001)
    with pytest.raises(ConfigError, match=r"not rendered in 0\.001 seconds"):
        ChatTemplate("{{ 1 }}", "a", "m").prompt(USER)


def test_messages_of_a_file(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(json.dumps([{"role": "user", "content": "a", "name": None, "x": [1]}]))
    assert read_messages(path) == [{"role": "user", "content": "a", "x": [1]}]
    path.write_text(json.dumps({"messages": SYSTEM}))
    assert read_messages(path) == SYSTEM
    for wrong, what in (([], "no list"), ({}, "no list"), ("x", "no list"), ([1], "message 1 has no role"),
                        ([*USER, {"content": "a"}], "message 2 has no role"), ([{"role": ""}], "has no role"),
                        ([{"role": "user", "content": 3}], "content of message 1 is 3")):  # fmt: skip
        path.write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match=what):
            read_messages(path)
    path.write_text("[")
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_messages(path)
    assert messages_of("a", None) == [{"role": "user", "content": "a"}]
    assert [message["role"] for message in messages_of("a", "b")] == ["system", "user"]


@pytest.fixture
def model(tmp_path):
    """Return the directory of a model whose tokens are bytes, with a chat template of its own."""
    from dataclasses import replace

    import numpy as np

    decoder = replace(DECODER, vocabulary=256 + len(SPECIAL), context=96)
    weights = {name: values.astype(np.float32) for name, values in random_weights(decoder).items()}
    stop = 256 + SPECIAL.index("<|im_end|>")
    save_model(tmp_path / "m", Configuration(decoder, stops=(stop,)), weights, byte_level())
    config = CONFIG | {"chat_template": CHATML, "eos_token": "<|im_end|>"}
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path / "m"


RUN = ("--tokens", "3", "--mesh", "4x4", "--verify", "off", "--json")


def answered(capsys, *words):
    """Return the result of a run and what it says beside it."""
    assert main(["generate", *map(str, words), *RUN]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_a_chat_on_the_wafer(model, capsys, tmp_path):
    """The prompt is the template's, by options and by a file alike; the same tokens by number give the same answer."""
    found, err = answered(capsys, model, "--chat", "--prompt", "Hi")
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = load_model(model).tokenizer()
    assert found["prompt"] == tokenizer.encode(text, bare=True)
    assert tokenizer.inner.decode(found["prompt"], False) == text
    assert (found["chat_template"], err) == ("tokenizer_config.json", "")
    plain, _ = answered(capsys, model, "--prompt-ids", ",".join(map(str, found["prompt"])))
    assert (plain["tokens"], plain["chat_template"]) == (found["tokens"], None)
    system, _ = answered(capsys, model, "--chat", "--prompt", "Hi", "--system", "Say no")
    (tmp_path / "c.json").write_text(json.dumps(messages_of("Hi", "Say no")))
    messages, _ = answered(capsys, model, "--messages", tmp_path / "c.json")
    assert system["prompt"] == messages["prompt"] != found["prompt"]


def test_a_run_says_if_messages_do_not_end_answers(model, capsys):
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [257]}))
    _, err = answered(capsys, model, "--chat", "--prompt", "Hi")
    assert err == (
        "wse: warning: eos_token '<|im_end|>' of tokenizer_config.json ends no answer: the model's files name other "
        "tokens\n"
    )
    assert answered(capsys, model, "--prompt", "Hi")[1] == ""


def test_what_is_refused(model, capsys, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(USER))
    for words, what in (
        (["--chat", "--prompt-ids", "1"], "--chat: tokens are read as they stand"),
        (["--prompt", "a", "--system", "b"], "--system: belongs to a message"),
        (["--messages", str(tmp_path / "c.json"), "--system", "b"], "--system: the file has all messages"),
        (["--messages", str(tmp_path / "none.json")], "none.json: no such file"),
        (["--explain", "--chat"], "--chat: says something about a run"),
    ):
        assert main(["generate", str(model), *words]) == 2
        err = capsys.readouterr().err
        assert what in err
        assert len(err.splitlines()) == 1
    assert main(["generate", "pydoc", "--chat", "--prompt", "a"]) == 2
    assert "no chat template in it. Try: --prompt without --chat" in capsys.readouterr().err
    assert main(["generate", "LLaMA3-8B", "--random-layers", "1", "--chat", "--prompt", "a"]) == 2
    assert "has no tokenizer" in capsys.readouterr().err


def test_explain_says_where_the_template_comes_from(model, capsys):
    def rows():
        assert main(["generate", str(model), "--explain", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["keys"]
        return {(row["file"], row["key"]): (row["does"], row["why"]) for row in found}

    key = "tokenizer_config.json", "chat_template"
    assert rows()[key] == ("used", "the chat template of --chat")
    (model / "chat_template.jinja").write_text("x")
    assert rows()[key] == ("ignored", "the chat template is that of chat_template.jinja")
    assert rows()["chat_template.jinja", ""] == ("used", "the chat template of --chat")
    (model / "chat_template.jinja").unlink()
    table = json.loads((model / "tokenizer_config.json").read_text())
    for name, does in (("default", "used"), ("tools", "ignored")):
        table["chat_template"] = [{"name": name, "template": "x"}]
        (model / "tokenizer_config.json").write_text(json.dumps(table))
        assert rows()[key][0] == does

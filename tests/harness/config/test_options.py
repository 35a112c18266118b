"""Job files and command-line values: what is accepted, and what each mistake is told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config.assignments import parse_assignments
from harness.config.options import field_of, from_table, option
from harness.jobs.job_file import load_job, parse_job
from wse_core.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    """A nested table."""

    depth: int = option(2, doc="depth", low=1, high=8, unit="wavelets")


@dataclass(frozen=True)
class Options:
    """Options of an imagined job."""

    p: int = option(8, doc="side", low=1, high=996)
    ridge: float = option(0.5, doc="strength", low=0.0)
    dtype: str = option("f16", doc="format", choices=("f16", "cb16"))
    check: bool = option(True, doc="compare")
    tiles: tuple[int, ...] = option((1, 2), doc="tiles", low=1)
    limit: int | None = option(None, doc="limit", low=1)
    inner: Inner = dataclasses.field(default_factory=Inner, metadata={"doc": "nested"})

    def __post_init__(self):
        if self.p == 13:
            raise ConfigError("p cannot be 13")


@dataclass(frozen=True)
class Needy:
    """A schema with a key that must be given."""

    n: int = option(doc="number of things")


def find_options(job):
    if job != "example":
        raise ConfigError(f"unknown job {job!r}")
    return Options


def job(text):
    return parse_job(text, "a.toml", find_options)


def test_defaults():
    config = job('job = "example"')
    assert config.options == Options()
    assert (config.seed, config.cycle_limit, config.machine) == (0, 10**9, {})
    assert config.source == "a.toml"


def test_every_key():
    text = """
        job = "example"
        seed = 7
        cycle_limit = 1_000
        [machine]
        preset = "wse3"
        router.hop = 3
        [options]
        p = 4
        ridge = 2
        dtype = "cb16"
        check = false
        tiles = [3, 4, 5]
        limit = 9
        inner.depth = 6
    """
    config = job(text)
    assert config.options == Options(4, 2.0, "cb16", False, (3, 4, 5), 9, Inner(6))
    assert (config.seed, config.cycle_limit) == (7, 1000)
    assert config.text == text
    machine = config.build_machine()
    assert (machine.preset, machine["router.hop"]) == ("wse3", 3)


def test_a_whole_number_may_stand_for_a_decimal_one():
    ridge = job('job = "example"\noptions.ridge = 2').options.ridge
    assert type(ridge) is float
    assert ridge == 2.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("a.toml", "required key is missing: job")),
        ("seed = 1", ("required key is missing: job",)),
        ('job = "other"', ("a.toml: job", "unknown job 'other'")),
        ("job = 3", ("a.toml: job", "expected a text", "a whole number: 3")),
        ('job = "example"\nsede = 1', ("a.toml: sede", "unknown key", "did you mean seed?")),
        ('job = "example"\nseed = -1', ("a.toml: seed", "too small", "least is 0")),
        ('job = "example"\nseed = true', ("expected a whole number", "true or false")),
        ('job = "example"\ncycle_limit = 0', ("0 cycles is too small",)),
        ('job = "example"\nmachine = 3', ("a.toml: machine", "expected a table")),
        ('job = "example"\n[machine]\npreset = "wse9"', ("a.toml: machine", "wse9")),
        ('job = "example"\n[machine]\nrouter.hopp = 2', ("a.toml: machine", "router.hopp", "router.hop")),
        ('job = "example"\n[machine]\nrouter.hop = 0', ("a.toml: machine", "router.hop")),
        ('job = "example"\n[options]\nq = 1', ("a.toml: options.q", "unknown key", "known are p")),
        ('job = "example"\n[options]\np = 0', ("a.toml: options.p", "0 is too small")),
        ('job = "example"\n[options]\np = 997', ("997 is too large; the most is 996",)),
        ('job = "example"\n[options]\np = 1.0', ("expected a whole number", "a number: 1.0")),
        ('job = "example"\n[options]\np = 13', ("a.toml: options", "p cannot be 13")),
        ('job = "example"\n[options]\nridge = nan', ("nan is not a usable number",)),
        ('job = "example"\n[options]\nridge = inf', ("inf is not a usable number",)),
        ('job = "example"\n[options]\ndtype = "f61"', ("'f61' is not a possible value", "did you mean f16?")),
        ('job = "example"\n[options]\ncheck = 1', ("expected true or false",)),
        ('job = "example"\n[options]\ntiles = 3', ("expected a list",)),
        ('job = "example"\n[options]\ntiles = [1, 0]', ("options.tiles[1]", "too small")),
        ('job = "example"\n[options]\ntiles = [1, "x"]', ("options.tiles[1]", "expected a whole number")),
        ('job = "example"\n[options]\ninner = 3', ("options.inner", "expected a table")),
        ('job = "example"\n[options]\ninner.depht = 3', ("options.inner.depht", "did you mean depth?")),
        ('job = "example"\n[options]\ninner.depth = 9', ("options.inner.depth", "9 wavelets is too large")),
        ('job = "example"\njob = "example"', ("a.toml", "not valid TOML", "line 2")),
        ('job = "example"\np = ', ("not valid TOML", "line 2")),
        ("job = 'exa", ("not valid TOML", "line 1")),
        (f"seed = {'1' * 5000}", ("a.toml", "not valid TOML")),
        (f"seed = {'[' * 5000}", ("a.toml", "not valid TOML")),
    ],
)
def test_each_mistake_names_its_place(text, words):
    with pytest.raises(ConfigError) as caught:
        job(text)
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert len(message.splitlines()) == 1


def test_a_required_key_says_what_it_means():
    with pytest.raises(ConfigError, match=r"missing: n\. Try: number of things"):
        from_table(Needy, {}, "a.toml")


def test_schema_defaults_obey_their_own_limits():
    assert from_table(Options, {key: getattr(Options(), key) for key in ("p", "ridge", "dtype", "tiles")}) == Options()


def test_missing_file_suggests_a_neighbour(tmp_path):
    (tmp_path / "digits.toml").write_text('job = "example"')
    with pytest.raises(ConfigError, match=r"did you mean .*digits\.toml"):
        load_job(tmp_path / "digit.toml", find_options)
    with pytest.raises(ConfigError, match="no such file"):
        load_job(tmp_path / "nowhere" / "x.toml", find_options)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    """Editors of Windows put one before a text; a second one is a character like others, and no key begins with it."""
    path = tmp_path / "a.toml"
    path.write_text('\ufeffjob = "example"', encoding="utf-8")
    marked = load_job(path, find_options)
    path.write_text('job = "example"', encoding="utf-8")
    assert load_job(path, find_options) == marked
    path.write_text('\ufeff\ufeffjob = "example"', encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_job(path, find_options)


def test_directory_binary_and_oversized_file(tmp_path):
    with pytest.raises(ConfigError, match="is a directory"):
        load_job(tmp_path, find_options)
    binary = tmp_path / "b.toml"
    binary.write_bytes(b'job = "example"\n\xff\xfe')
    with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
        load_job(binary, find_options)
    binary.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match=r"longer than 1,048,576 bytes"):
        load_job(binary, find_options)


@given(st.text(max_size=60))
def test_any_text_is_either_a_job_or_a_config_error(text):
    try:
        config = job(text)
    except ConfigError as error:
        assert "a.toml" in str(error)
    else:
        assert config.job == "example"


@given(st.dictionaries(st.sampled_from(["p", "ridge", "dtype", "tiles", "inner", "x"]), st.none() | st.integers()))
def test_any_table_is_either_options_or_a_config_error(table):
    try:
        found = from_table(Options, table, "a.toml")
    except ConfigError as error:
        assert "a.toml" in str(error)
    else:
        assert 1 <= found.p <= 996


def test_assignments():
    assert parse_assignments(["a=1", "b=x=y", "c="], "here") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize(("words", "message"), [("a", "sets nothing"), ("=1", "sets nothing"), ("a=1 a=2", "twice")])
def test_bad_assignments(words, message):
    with pytest.raises(ConfigError, match=message):
        parse_assignments(words.split(), "here")


def test_one_option_may_be_checked_by_itself():
    assert field_of(Options, "p").check(4, "--p") == 4
    with pytest.raises(ConfigError, match=r"--p: 997 is too large; the most is 996"):
        field_of(Options, "p").check(997, "--p")

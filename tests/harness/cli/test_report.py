"""``wse report``: a page that stands alone, and says what the run file says."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from html.parser import HTMLParser

import pytest

from fabric.networks.inference.decoder import Decoder
from harness.cli import main as cli
from harness.report import facts as facts_of
from harness.report import page, player
from tests.harness.inference.saved_models import saved
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.params import machine


class Reader(HTMLParser):
    """Collects tags and text, and complains about tags that do not match."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.sources += [value for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    words = [
        (["n=40", "--backend", "reference", "--trace", "full"], "a.h5"),
        (["n=80", "--set", "router.hop=2"], "b.h5"),
    ]
    for extra, name in words:
        assert cli.main(["kernel", "chain_reduce", "pes=4", *extra, "--out", str(folder / name), "--json"]) == 0
    return folder


def test_a_page_stands_alone(wse, runs, tmp_path):
    done = wse("report", runs / "a.h5", "--out", "a.html")
    assert done.returncode == 0, done.stderr
    reader = read(tmp_path / "a.html")
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in reader.sources)
    assert (tmp_path / "a.html").read_text().count("<svg role='img'") >= 4
    text = " ".join(reader.text)
    assert "result verified: yes" in text
    assert "wse kernel chain_reduce pes=4 n=40 dtype=f32" in text
    assert "router.hop" in text
    assert "waiting for wavelets" in text
    for part in ("Configuration", "Modelled numbers", "Busiest PEs and links", "Run it again"):
        assert part in text
    assert "hops_per_second" in text  # speed of the host
    assert "bit-exact against the reference order: yes" in text
    assert 'kernel = "chain_reduce"' in text


def test_a_page_of_a_product_in_windows(tmp_path):
    """Multiply-adds give a point under the roofs, windows a picture over time."""
    pages = []
    for extra in ([], ["--trace-window", "50"]):
        words = ["kernel", "gemm", "p=2", "m=8", "k=8", "n=8", *extra, "--out", str(tmp_path / "g.h5"), "--json"]
        assert cli.main(words) == 0
        with Trace.open(tmp_path / "g.h5") as trace:
            pages.append(page.page(trace))
            point = facts_of.summary(trace)["roofline"]
            limits = facts_of.roofs(trace.meta.machine)
            macs = sum(int(trace.files[0].counter(name).values.sum()) for name in ("macs",))
    assert macs == 8**3
    assert 0 < point["macs_per_pe_cycle"] < 4
    assert limits == {1: "fp32", 2: "fp16 with fp32 sums", 4: "fp16"}
    assert all("Roofline" in page for page in pages)
    assert pages[1].count("<svg role='img'") == pages[0].count("<svg role='img'") + 1


def test_roofs_are_the_lanes_of_the_machine():
    assert facts_of.roofs(machine("wse3")) == {1: "fp32", 4: "fp16 with fp32 sums", 8: "fp16"}
    same = machine("wse2", {"lanes.fmachs": 1})
    assert facts_of.roofs(same) == {1: "fp32, or fp16 with fp32 sums", 4: "fp16"}
    assert facts_of.roofs({}) == {}


def test_shares_of_cycles_add_up(runs):
    with Trace.open(runs / "a.h5") as trace:
        facts = facts_of.summary(trace)
    assert sum(facts["uses"].values()) == pytest.approx(1)
    assert facts["pes"] == [4, 1]
    assert facts["busiest_links"][0]["wavelets"] == 40
    assert facts["results"]["kernel"] == "chain_reduce"


def test_the_command_runs_the_job_again(runs, capsys):
    with Trace.open(runs / "b.h5") as trace:
        facts = facts_of.summary(trace)
    words = facts["command"].split()[1:]
    assert "router.hop=2" in words
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["cycles"] == facts["cycles"]


def test_two_runs_are_compared(wse, runs, tmp_path):
    done = wse("report", runs / "a.h5", runs / "b.h5", "--out", "c.html", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["runs"]
    reader = read(tmp_path / "c.html")
    text = " ".join(reader.text)
    change = 100 * (found[1]["cycles"] / found[0]["cycles"] - 1)
    assert f"{change:+.2f} %" in text
    rows = re.findall(r"router\.hop</td><td>1</td><td>2", (tmp_path / "c.html").read_text())
    assert len(rows) == 1


def test_a_file_that_is_none(wse, tmp_path):
    (tmp_path / "x.h5").write_text("no")
    done = wse("report", "x.h5")
    assert done.returncode == 2
    assert "not an HDF5 file" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.h5"]


def test_five_numbers_come_first_and_agree(runs):
    """Cycles of the job, of the run and of the account differ, and the page says why; none of the host is there."""
    with Trace.open(runs / "a.h5") as trace:
        text, facts = page.page(trace), facts_of.summary(trace)
        clock, whole = trace.clock, trace.files[0].result("run_cycles")
    first = text[: text.index("<nav")]
    assert first.count("<div><b") == 5
    for number in (facts["cycles"], whole, facts["accounted"]):
        assert f"{number:,}" in first
    assert facts["cycles"] < whole < facts["accounted"] == clock
    assert "host" not in first
    assert text.index("hops_per_second") > text.index("The host that simulated</h2>")
    assert first.index("right") < first.index("<p>")


def test_a_page_fits_every_screen(runs):
    with Trace.open(runs / "a.h5") as trace:
        text = page.page(trace)
    assert "name='viewport'" in text
    assert "prefers-color-scheme: dark" in text
    assert "pre { white-space: pre-wrap" in text
    assert text.count("<table>") == text.count("<div class='wide' tabindex='0'><table>") > 3  # scrolls, also by keys
    alts = re.findall(r"<svg role='img' aria-label='([^']*)'", text)
    assert len(alts) == text.count("<svg ") >= 4
    assert all(len(words) > 20 for words in alts)
    assert len(set(alts)) == len(alts)


def test_a_comparison_begins_with_what_was_changed(runs, tmp_path):
    with Trace.open(runs / "a.h5") as one, Trace.open(runs / "b.h5") as other:
        text = page.compare(one, other)
    headings = ("What was changed", "Numbers", "Where the cycles went", "The host that simulated")
    parts = [text.index(f"{words}</h2>") for words in headings]
    assert parts == sorted(parts)
    changed = text[parts[0] : parts[1]]
    assert "<td>n</td><td>40</td><td>80</td>" in changed
    assert "router.hop</td><td>1</td><td>2" in changed
    assert "<svg" in text[parts[2] : parts[3]]
    numbers = text[parts[1] : parts[2]]
    assert "class='n bad'" in numbers[: numbers.index("</tr>", numbers.index("<td>cycles</td>"))]  # more cycles
    assert "host_seconds" not in numbers
    shutil.copy(runs / "a.h5", tmp_path / "copy.h5")
    with Trace.open(runs / "a.h5") as one, Trace.open(tmp_path / "copy.h5") as other:
        assert "the same configuration, command, modelled numbers and version" in page.compare(one, other)


def test_more_than_two_runs_are_compared(wse, runs, tmp_path):
    done = wse("kernel", "vector", "n=5", "--out", "v.h5")
    assert done.returncode == 0, done.stderr
    done = wse("report", runs / "a.h5", runs / "b.h5", "v.h5", "--out", "c.html")
    assert done.returncode == 0, done.stderr
    text = " ".join(read(tmp_path / "c.html").text)
    assert "change,  " not in text
    assert text.count("change, ") >= 6
    assert "What one lacks" in text


def test_a_page_replaces_no_run(wse, runs, tmp_path):
    shutil.copy(runs / "a.h5", tmp_path / "a.h5")
    before = (tmp_path / "a.h5").read_bytes()
    for words in (["a.h5"], [runs / "b.h5", "a.h5"]):
        done = wse("report", *words, "--out", "a.h5")
        assert done.returncode == 2
        assert "is a run, which the page would replace" in done.stderr
    assert (tmp_path / "a.h5").read_bytes() == before


def test_numbers_of_a_report_as_csv(wse, runs, tmp_path):
    done = wse("report", runs / "a.h5", "--static", "--out", "a.html", "--csv", "d/numbers", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    names = {path.stem for path in (tmp_path / "d" / "numbers").iterdir()}
    tables = {"results", "uses", "busiest_pes", "busiest_links", "modelled_numbers"}
    assert tables | {"stalls", "busy", "moved", "utilisation", "timeline"} <= names
    assert len(said["csv"]) == len(names)
    (facts,) = said["runs"]
    rows = {}
    for name in tables:
        with open(tmp_path / "d" / "numbers" / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows[name] = list(csv.DictReader(file))
    results = {row["key"]: row["value"] for row in rows["results"]}
    assert float(results["cycles"]) == facts["cycles"]
    assert {row["use"]: float(row["share_of_pe_cycles"]) for row in rows["uses"]} == facts["uses"]
    assert [{key: int(value) for key, value in row.items()} for row in rows["busiest_pes"]] == facts["busiest_pes"]
    done = wse("report", runs / "a.h5", runs / "b.h5", "--csv", "e")
    assert (done.returncode, "--csv: only of one run" in done.stderr) == (2, True)
    done = wse("report", runs / "a.h5", "--csv", "a.html")
    assert (done.returncode, "is no directory" in done.stderr) == (2, True)


def test_curves_of_training_as_csv(tmp_path):
    assert cli.main(["train", "digits", "--iterations", "2", "--out", str(tmp_path / "t"), "--json"]) == 0
    run = str(tmp_path / "t" / "run.h5")
    words = ["report", run, "--static", "--out", str(tmp_path / "t.html"), "--csv", str(tmp_path / "csv")]
    assert cli.main([*words, "--json"]) == 0
    with open(tmp_path / "csv" / "curves.csv", newline="", encoding="utf-8") as file:
        found = [float(row["loss"]) for row in csv.DictReader(file)]
    with open(tmp_path / "csv" / "phases.csv", newline="", encoding="utf-8") as file:
        phases = [(row["track"], row["phase"], int(row["begin"]), int(row["end"])) for row in csv.DictReader(file)]
    with Trace.open(run) as trace:
        assert found == trace.files[0].result("curve_loss").tolist()
        assert phases == [(mark.track, mark.label, mark.begin, mark.end) for mark in trace.marks]


def test_a_kernel_that_did_not_end_has_its_command(tmp_path):
    with RunWriter(tmp_path / "run.h5", RunMeta(job="kernel gemm", config_toml="[params]\np = 2\n")):
        pass
    with Trace.open(tmp_path / "run.h5") as trace:
        assert facts_of.summary(trace)["command"] == "wse kernel gemm p=2"


def test_an_answer_has_the_command_that_gives_it_again(tmp_path):
    model = str(saved(tmp_path / "model", Decoder(8, 2, 2, 1, 4, 6, 17, 40, 1e-5), "- abcdefghijklmno"))
    words = ["generate", model, "--prompt=-d f", "--mesh", "2x2", "--tokens", "1", "--verify", "off"]
    assert cli.main([*words, "--set", "router.hop=2", "--out", str(tmp_path / "a.h5"), "--json"]) == 0
    with Trace.open(tmp_path / "a.h5") as trace:
        command = shlex.split(facts_of.summary(trace)["command"])
    assert command[:3] == ["wse", *words[:2]]
    assert cli.main([*command[1:], "--out", str(tmp_path / "b.h5"), "--json"]) == 0
    with Trace.open(tmp_path / "a.h5") as one, Trace.open(tmp_path / "b.h5") as other:
        assert "the same configuration, command, modelled numbers and version" in page.compare(one, other)


def test_a_recorded_program_has_no_command(tmp_path):
    """It was no command that ran it."""
    with RunWriter(tmp_path / "run.h5", RunMeta(job="mine", preset="wse2")) as writer:
        writer.add_result("cycles", 7)
    with Trace.open(tmp_path / "run.h5") as trace:
        text = page.page(trace)
        assert facts_of.summary(trace)["command"] == ""
    assert "Run it again" not in text
    assert "wse run mine" not in text


def played(text):
    """Return the page inside of a report that plays the run back."""
    (data,) = re.findall(r"<script type='application/json'>(.*?)</script>", text, re.DOTALL)
    return json.loads(data)


def test_a_report_plays_its_run_back_and_stays_small(runs, tmp_path, capsys):
    """The page of the run is inside, the one that `wse view --page` writes; nothing is loaded."""
    assert cli.main(["report", str(runs / "a.h5"), "--out", str(tmp_path / "a.html"), "--json"]) == 0
    assert cli.main(["view", str(runs / "a.h5"), "--page", str(tmp_path / "p.html"), "--json"]) == 0
    assert capsys.readouterr().out
    text = (tmp_path / "a.html").read_text()
    assert len(text) < 500_000
    assert played(text) == (tmp_path / "p.html").read_text()
    outside = re.sub(r"<script type=.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"(?:src|href)=['\"](?!data:|#)", outside) == []
    read(tmp_path / "a.html")
    assert cli.main(["report", str(runs / "a.h5"), "--static", "--out", str(tmp_path / "s.html"), "--json"]) == 0
    assert "<script" not in (tmp_path / "s.html").read_text()


def test_a_page_too_large_for_a_report_is_named(runs, monkeypatch):
    for name in ("MOST_EVENTS", "MOST_BYTES"):
        with monkeypatch.context() as patch, Trace.open(runs / "a.h5") as trace:
            patch.setattr(player, name, 10)
            text = page.page(trace, interactive=True)
        assert "<script" not in text
        assert "wse view a.h5 --page FILE.html" in text
    with Trace.open(runs / "b.h5") as trace:  # neither events nor windows
        assert "Play it back" not in page.page(trace, interactive=True)


def test_only_changed_numbers_are_shown_at_once(runs):
    pages = []
    for name in ("a.h5", "b.h5"):
        with Trace.open(runs / name) as trace:
            text, count = page.page(trace), len(trace.meta.machine)
        pages.append(text[text.index("Modelled numbers</h2>") :])
    assert f"None of {count} numbers are not that of wse2" in pages[0]
    assert f"1 of {count} numbers is not that of wse2" in pages[1]
    at_once, folded = pages[1].split("<details>")
    assert re.findall("<td>([a-z]+[.][a-z_.]+)</td>", at_once) == ["router.hop"]
    assert "<td>router.hop</td><td>2</td><td>1</td>" in at_once
    assert folded.count("<tr>") == count + 1


def test_links_of_a_page_lead_to_its_parts(runs):
    with Trace.open(runs / "a.h5") as one, Trace.open(runs / "b.h5") as other:
        for text in (page.page(one, interactive=True), page.compare(one, other)):
            links, names = re.findall(r"<a href='#([^']+)'", text), re.findall(r"<h2 id='([^']+)'", text)
            assert links == names
            assert len(set(names)) == len(names) == text.count("<h2 ") >= 5
            assert "<h2>" not in text


def test_pictures_of_a_page_follow_the_dark_scheme(runs):
    """Paper and ink have other colours there: no colour of text or axes is left that was made for white paper."""
    with Trace.open(runs / "a.h5") as trace:
        text = page.page(trace)
    drawings = re.findall("<svg .*?</svg>", text, re.DOTALL)
    for drawing in drawings:
        (style,) = re.findall(r"@media \(prefers-color-scheme: dark\) (.*?)</style>", drawing)
        changed = set(re.findall('(?:fill|stroke): (#[0-9a-f]{6})"', style))
        ink = set(re.findall(r"<g style=\"fill: (#[0-9a-f]{6})", drawing))  # of texts
        assert len(ink) >= 2
        assert ink - changed <= {"#f7f7f7"}  # numbers in dark cells
        assert "fill: #ffffff" in drawing
        assert "#ffffff" in changed


def test_a_meaning_is_said_once(tmp_path):
    """Results that mean the same stand below each other, and the sentence stands at the first."""
    with RunWriter(tmp_path / "run.h5", RunMeta(job="mine", preset="wse2")) as writer:
        for phase in ("forward", "loss", "backward"):
            writer.add_result(f"stages_{phase}", 7)
    with Trace.open(tmp_path / "run.h5") as trace:
        text = page.page(trace)
    assert text.count("of all iterations of training, in a phase of") == 1
    assert all(f"<td>stages_{phase}</td>" in text for phase in ("forward", "loss", "backward"))

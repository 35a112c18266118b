"""A run in parts: each part is the page of its cycles, and reads no more of the file than that."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import cases
from tests.examples import examples
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from tests.traces.page_data import data_of, hostile, recorded, windowed
from tests.traces.samples import chain
from traces import reader, writer
from traces.page import parts as parts_module
from traces.page.columns import columns
from traces.page.counted import counted
from traces.page.parts import RunParts
from traces.page.server import RunServer
from traces.reader import RunFile
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.errors import TraceError
from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter


@pytest.fixture
def small_chunks(monkeypatch):
    """Let files have chunks of four events, so that small runs have many parts."""
    for module in (reader, writer, parts_module):
        monkeypatch.setattr(module, "CHUNK", 4)


def assert_as_alone(parts, **selection):
    """Assert that each part is the page of its cycles, but for colours of tasks, which are those of the whole run."""
    assert parts.edges == sorted(set(parts.edges))
    colours = {}
    for number in range(len(parts)):
        found = parts.columns(number)
        cycles = parts.edges[number], parts.edges[number + 1]
        try:
            alone = columns(parts.trace, cycles, **selection)
        except TraceError as error:
            assert "no events in this selection" in str(error)
            assert sum(found.rows.values()) == 0
            continue
        assert found.rows == alone.rows
        for name, table in alone.tables.items():
            for key, values in table.items():
                np.testing.assert_array_equal(found.tables[name][key], values, err_msg=f"{number} {name} {key}")
        about = found.facts.pop("parts")
        assert (about["at"], about["edges"], len(about["events"])) == (number, parts.edges, len(parts))
        for task, (name, colour) in zip(alone.facts["tasks"], found.facts["tasks"], strict=True):
            assert (task[0], colours.setdefault(name, colour)) == (name, colour)
        assert {**found.facts, "tasks": 0} == {**alone.facts, "tasks": 0}


@pytest.mark.parametrize("draw", [random_spec, random_traffic])
@examples(12)
@given(data=st.data(), most=st.sampled_from([1, 8, 40]))
def test_parts_are_the_pages_of_their_cycles(draw, tmp_path_factory, data, most):
    path = tmp_path_factory.mktemp("run") / "run.h5"
    with pytest.MonkeyPatch.context() as patch:
        for module in (reader, writer, parts_module):
            patch.setattr(module, "CHUNK", 4)
        recorded(data.draw(cases(draw)), path)
        with Trace.open(path) as trace:
            if not trace.committed:
                return
            region = data.draw(st.sampled_from([None, (0, 0, 1, 1)]))
            colors = data.draw(st.sampled_from([None, (0, 1)]))
            parts = RunParts(trace, most, region=region, colors=colors)
            assert_as_alone(parts, region=region, colors=colors)


def test_what_is_at_work_across_parts_is_in_each_of_them(tmp_path, small_chunks):
    events = np.zeros(40, EVENT_DTYPE)
    events["kind"] = KINDS.index("activate")
    events["cycle"] = np.arange(40) * 5
    for row, kind in ((1, "task_start"), (30, "task_end"), (2, "op_start"), (33, "op_end"), (34, "task_start")):
        events["kind"][row] = KINDS.index(kind)
    events["kind"][20], events["data"][20], events["aux"][20] = KINDS.index("wait"), 61, 1
    with RunWriter(tmp_path / "run.h5", RunMeta()) as run:
        run.add_counter("busy", np.ones((1, 1, 1), np.uint64), "cycles")
        run.add_events(events, 200, TraceFilter(), {})
    with Trace.open(tmp_path / "run.h5") as trace:
        parts = RunParts(trace, 4)
        assert parts.edges == [*range(0, 200, 20), 200]
        assert_as_alone(parts)
        tasks = [parts.columns(k).tables["tasks"]["begin"].tolist() for k in range(10)]
        assert tasks == [[5]] * 8 + [[170]] * 2
        assert [len(parts.columns(k).tables["waits"]["begin"]) for k in range(10)] == [0, 1, 1, 1, 1, 0, 0, 0, 0, 0]


def test_a_part_reads_only_its_own_events(tmp_path, monkeypatch, small_chunks):
    chain(tmp_path / "run.h5", pes=8, n=60)
    with Trace.open(tmp_path / "run.h5") as trace:
        parts = RunParts(trace, 100)
        assert len(parts) > 10
        read = []
        plain = RunFile.read_events
        monkeypatch.setattr(
            RunFile,
            "read_events",
            lambda self, start, stop, *rest: read.append((start, stop)) or plain(self, start, stop, *rest),
        )
        parts.columns(7)
    assert len(read) == 5  # three tables of what lasts, wavelets and the rest
    assert all(stop - start <= 100 + 2 * 4 for start, stop in read)


def test_windows_of_counters_have_parts_too(tmp_path, monkeypatch):
    with windowed(tmp_path / "run.h5") as trace:
        whole = counted(trace)
        parts = RunParts(trace, 20)  # of nine PEs: two windows
        assert len(parts) > 2
        read = []
        plain = RunFile.counter
        monkeypatch.setattr(RunFile, "counter", lambda *args: read.append(plain(*args)) or read[-1])
        found = [parts.columns(k) for k in range(len(parts))]
    assert all(len(counter.values) <= 2 for counter in read)
    for key in whole.tables["windows"]:
        joined = np.concatenate([part.tables["windows"][key] for part in found])
        np.testing.assert_array_equal(joined, whole.tables["windows"][key])
    assert found[1].facts["first"] == parts.edges[1] == found[0].facts["stop"]


def test_a_run_without_events_and_windows_is_refused(tmp_path):
    with RunWriter(tmp_path / "run.h5", RunMeta()) as run:
        run.add_counter("busy", np.ones((1, 1, 1), np.uint64), "cycles")
    with Trace.open(tmp_path / "run.h5") as trace, pytest.raises(TraceError, match="neither events nor counters"):
        RunParts(trace)


def test_kinds_are_refused_before_a_run_without_events_is_served(tmp_path):
    with windowed(tmp_path / "run.h5") as trace, pytest.raises(TraceError, match="no kinds to choose"):
        RunParts(trace, kinds=["take"])


@contextmanager
def served(path, most=100):
    """Serve a run while the block runs."""
    with Trace.open(path) as trace, RunServer(RunParts(trace, most)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


def get(address, **headers):
    """Return (status, headers, text) of an address."""
    asked = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=300) as answer:
            return answer.status, answer.headers, answer.read().decode("utf-8")
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.headers, answer.read().decode("utf-8")


def test_the_server_sends_each_part_and_begins_with_the_first(tmp_path, small_chunks):
    chain(tmp_path / "run.h5", pes=4, n=40)
    with served(tmp_path / "run.h5") as server:
        pages = [get(f"{server.address}{k}") for k in range(len(server.parts))]
        assert len(pages) > 3
        assert [status for status, _, _ in pages] == [200] * len(pages)
        assert [data_of(text)["facts"]["parts"]["at"] for _, _, text in pages] == list(range(len(pages)))
        assert get(server.address)[2] == pages[0][2]
        assert get(f"{server.address}1?x=1")[2] == pages[1][2]
        assert pages[0][1]["Content-Security-Policy"].startswith("default-src 'none'")
        assert pages[0][1]["Referrer-Policy"] == "no-referrer"


def test_the_server_answers_nobody_without_its_token_or_by_another_name(tmp_path, small_chunks):
    chain(tmp_path / "run.h5", pes=4, n=40)
    with served(tmp_path / "run.h5") as server:
        root = server.address.removesuffix(f"{server.token}/")
        assert server.server_address[0] == "127.0.0.1"
        for wrong in ("", "0", f"{server.token[:-1]}/0", f"x{server.token}/0", "../etc/passwd", "%2e%2e/", "\u00e9/0"):
            status, _, text = get(root + urllib.parse.quote(wrong))
            assert status == 404
            assert "chain" not in text
            assert server.token not in text
        for wrong in ("99999", "-1", "1/2", "one", "1" * 400, "\u0661"):
            assert get(server.address + urllib.parse.quote(wrong))[0] == 404
        assert get(f"{server.address}0", Host=f"evil.example:{server.server_port}")[0] == 421
        assert get(f"{server.address}0", Host="127.0.0.1:1")[0] == 421
        assert get(f"{server.address}0", Host=f"localhost:{server.server_port}")[0] == 200
        with pytest.raises(urllib.error.HTTPError, match="501") as refused:
            urllib.request.urlopen(f"{server.address}0", data=b"x", timeout=300)
        refused.value.close()


@pytest.mark.parametrize(
    ("host", "port", "status"), [("127.0.0.1", 80, 302), ("localhost:80", 80, 302), ("a", 80, 421)]
)
def test_browsers_leave_out_the_port_of_http(tmp_path, small_chunks, host, port, status):
    chain(tmp_path / "run.h5", pes=4, n=6)
    with served(tmp_path / "run.h5") as server:
        address, path = server.server_address, f"/{server.token}/"
        server.server_port = port
        with contextlib.closing(http.client.HTTPConnection(*address, timeout=20)) as connection:
            connection.request("GET", path, headers={"Host": host})
            assert connection.getresponse().status == status


def test_a_browser_that_leaves_is_no_error(tmp_path, capsys, monkeypatch, small_chunks):
    chain(tmp_path / "run.h5", pes=4, n=6)
    gone = threading.Event()
    plain = RunServer.shutdown_request
    monkeypatch.setattr(RunServer, "shutdown_request", lambda *args: (plain(*args), gone.set()))
    with served(tmp_path / "run.h5") as server:
        with socket.create_connection(server.server_address) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
        assert gone.wait(20)
    assert not capsys.readouterr().err


def test_names_of_a_run_mean_nothing_to_a_browser(tmp_path):
    bad = hostile(tmp_path / "run.h5")
    with served(tmp_path / "run.h5") as server:
        text = get(f"{server.address}0")[2]
    assert "alert(1)</script>" not in text
    assert bad[:9] not in text.replace("</script>\n", "")


def test_two_servers_have_different_tokens(tmp_path, small_chunks):
    chain(tmp_path / "run.h5", pes=4, n=6)
    with served(tmp_path / "run.h5") as one, served(tmp_path / "run.h5") as other:
        assert one.token != other.token
        assert len(one.token) >= 20
        assert json.loads(json.dumps(one.parts.edges)) == other.parts.edges

"""`wse doctor`: facts, problems, clash of import names, list of modelled numbers."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import json
import os

import pytest

import wse_core
from harness.cli import doctor
from harness.cli.cmd_doctor import describe, describe_assumptions
from harness.kit.modules import OWN_PACKAGES
from tests.float_mode import float_mode
from traces import provenance
from wse_core import params


def test_json_is_one_object_with_all_parts(wse_process):
    done = wse_process("doctor", "--json")
    facts = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert {"versions", "build", "host", "numerics", "imports", "in_the_way", "problems"} == set(facts)
    assert facts["versions"]["wse-sim"] == wse_core.__version__
    assert facts["host"]["usable_threads"] >= 1
    assert facts["host"]["memory"]["available_bytes"] > 0
    assert facts["numerics"]["round_to_nearest"] is True
    assert facts["numerics"]["subnormals"] is True
    assert done.returncode == (1 if facts["problems"] else 0)
    assert done.stderr == ""


def test_text_names_build_mode_and_threads(wse):
    done = wse("doctor")
    assert "usable of" in done.stdout
    mode = provenance.build_info()["mode"]
    assert f"mode               {mode or 'nothing built'}" in done.stdout


def test_assumptions_list_every_number_with_source_and_confidence(wse):
    facts = json.loads(wse("doctor", "--assumptions", "--json").stdout)
    assert [row["name"] for row in facts["assumptions"]] == list(params.PARAMETERS)
    for row in facts["assumptions"]:
        assert row["confidence"] in ("published", "inferred", "assumed")
        assert row["source"]
        assert row["doc"]
        assert {"wse2", "wse3"} <= set(row["values"])
    text = wse("doctor", "--assumptions").stdout
    assert all(f"    {name} = " in text for name in params.PARAMETERS)


def test_description_of_assumptions():
    row = {"name": "a.b", "unit": "cycles", "source": "paper", "confidence": "inferred", "doc": "meaning"}
    lines = describe_assumptions(
        [row | {"values": {"wse2": (1, 2), "wse3": (3, 4)}}, row | {"name": "c", "values": {"wse2": 5, "wse3": 5}}]
    ).splitlines()
    assert lines[1] == "    a.b = 1,2 (wse3: 3,4) cycles [inferred]"
    assert lines[2] == "        meaning; source: paper"
    assert lines[3] == "    c = 5 cycles [inferred]"
    assert lines[-1] == "2 numbers: 2 inferred"


def found_at(places):
    """Return a stand-in for importlib.util.find_spec."""

    def find_spec(name):
        if name not in places:
            return None
        return importlib.machinery.ModuleSpec(name, None, origin=str(places[name]), is_package=False)

    return find_spec


def test_another_distribution_with_our_import_name(tmp_path):
    names = ("fabric", "traces")
    places = {name: tmp_path / name / "__init__.py" for name in names}
    found = doctor.import_names(
        names, tmp_path, found_at(places), {"fabric": ["Fabric", "wse_sim"], "traces": ["wse-sim"]}
    )
    assert found["fabric"]["others"] == ["Fabric"]
    assert found["fabric"]["ours"] is True
    assert found["traces"]["others"] == []


def test_an_import_name_that_leads_elsewhere(tmp_path):
    places = {"fabric": tmp_path / "site" / "fabric" / "__init__.py"}
    found = doctor.import_names(("fabric", "swarm"), tmp_path / "ours", found_at(places), {})
    assert found["fabric"]["ours"] is False
    assert found["swarm"] == {"origin": None, "ours": False, "others": []}


def test_a_real_clash_is_reported(wse_process, tmp_path):
    fake = tmp_path / "site"
    (fake / "Fabric-3.2.dist-info").mkdir(parents=True)
    (fake / "Fabric-3.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: Fabric\nVersion: 3.2\n")
    (fake / "Fabric-3.2.dist-info" / "top_level.txt").write_text("fabric\n")
    (fake / "fabric").mkdir()
    (fake / "fabric" / "__init__.py").write_text("")
    path = os.pathsep.join([str(fake), str(provenance.ROOT)])
    done = wse_process("doctor", "--json", env={"PYTHONPATH": path})
    facts = json.loads(done.stdout)
    assert done.returncode == 1
    assert facts["imports"]["fabric"]["others"] == ["Fabric"]
    assert facts["imports"]["fabric"]["ours"] is False
    assert any("also provided by Fabric" in text for text in facts["problems"])
    assert any(str(fake) in text for text in facts["problems"])


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("fabric.py", ["fabric.py"]),
        ("fabric/__init__.py", ["fabric"]),
        ("traces/anything.py", ["traces"]),  # a directory without __init__ is a package too, if nothing else is there
        ("wse.py", ["wse.py"]),
        ("traces/run.h5", []),
        ("first.py", []),
    ],
)
def test_what_lies_in_the_working_directory_under_our_names(wse_process, tmp_path, file, named):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    assert doctor.in_the_way(place=tmp_path) == named
    if file in ("fabric.py", "first.py"):
        done = wse_process("doctor", "--json")
        told = [text for text in json.loads(done.stdout)["problems"] if "in this directory" in text]
        assert [text.split()[0] for text in told] == named


def test_our_own_directory_is_not_in_the_way():
    assert doctor.in_the_way(place=provenance.ROOT) == []


def healthy():
    """Return facts of an installation without a problem."""
    return {
        "versions": {"python": "3.11.7", "wse-sim": "0.1.0", "numpy": "2", "h5py": "3", "matplotlib": "3"},
        "build": {"mode": "release", "compiled": ["wse_core.a"], "missing": [], "stale": []},
        "host": doctor.host_facts(),
        "numerics": {"subnormals": True, "round_to_nearest": True, "backend": "portable C"},
        "imports": {name: {"origin": name, "ours": True, "others": []} for name in OWN_PACKAGES},
        "in_the_way": [],
    }


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("build", {"mode": None, "compiled": []}, "nothing is compiled"),
        ("build", {"mode": None}, "the build mode is unknown"),
        ("build", {"missing": ["fabric.mesh"]}, "not compiled: fabric.mesh"),
        ("build", {"stale": ["fabric.mesh"]}, "changed since it was compiled: fabric.mesh"),
        ("versions", {"h5py": None}, "h5py is not installed"),
        ("numerics", {"subnormals": False}, "flushes subnormal numbers"),
        ("in_the_way", ["traces.py"], "traces.py in this directory"),
        ("numerics", {"round_to_nearest": False}, "does not round to nearest"),
        ("imports", {"fabric": {"origin": None, "ours": False, "others": []}}, "fabric cannot be found"),
    ],
)
def test_each_problem_is_told(part, change, words):
    facts = healthy()
    assert doctor._problems(facts) == []
    facts[part] = facts[part] | change if isinstance(change, dict) else change
    facts["problems"] = doctor._problems(facts)
    assert len(facts["problems"]) == 1
    assert words in facts["problems"][0]
    assert words in " ".join(describe(facts).split())


def test_missing_and_stale_modules(tmp_path):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    package = tmp_path / "fabric"
    package.mkdir()
    for name, source_time, module_time in (("fresh", 100, 200), ("old", 300, 200), ("absent", 100, None)):
        (package / f"{name}.pyx").touch()
        os.utime(package / f"{name}.pyx", (source_time, source_time))
        if module_time:
            (package / f"{name}{suffix}").touch()
            os.utime(package / f"{name}{suffix}", (module_time, module_time))
    found = doctor.build_facts(tmp_path)
    assert (found["compiled"], found["missing"], found["stale"]) == (
        ["fabric.fresh", "fabric.old"],
        ["fabric.absent"],
        ["fabric.old"],
    )


def test_memory_respects_the_limit_of_a_container(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:  1000 kB\n")
    (tmp_path / "memory.max").write_text("600000\n")
    (tmp_path / "memory.current").write_text("100000\n")
    found = doctor.memory_facts(tmp_path, tmp_path)
    assert found == {"total_bytes": 2048000, "available_bytes": 500000, "limit_bytes": 600000}
    (tmp_path / "memory.max").write_text("max\n")
    assert doctor.memory_facts(tmp_path, tmp_path)["available_bytes"] == 1024000
    assert doctor.memory_facts(tmp_path / "none", tmp_path / "none")["total_bytes"] is None


def test_commit_from_loose_and_packed_refs(tmp_path):
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert provenance.commit(tmp_path) is None
    (git / "packed-refs").write_text(f"# pack-refs\n{'a' * 40} refs/heads/main\n")
    assert provenance.commit(tmp_path) == "a" * 40
    (git / "refs" / "heads" / "main").write_text("b" * 40 + "\n")
    assert provenance.commit(tmp_path) == "b" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert provenance.commit(tmp_path) == "c" * 40
    assert provenance.commit(tmp_path / "nowhere") is None


def test_commit_of_a_linked_worktree(tmp_path):
    git = tmp_path / "main" / ".git"
    (git / "worktrees" / "w").mkdir(parents=True)
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "side").write_text("d" * 40)
    (git / "worktrees" / "w" / "HEAD").write_text("ref: refs/heads/side")
    (git / "worktrees" / "w" / "commondir").write_text("../..")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text(f"gitdir: {git / 'worktrees' / 'w'}\n")
    assert provenance.commit(tmp_path / "w") == "d" * 40


def test_provenance_fits_the_run_file():
    from traces.run_format import RunMeta

    meta = RunMeta(**provenance.provenance())
    assert meta.package_version == wse_core.__version__
    assert meta.started.endswith("+00:00")


def test_modules_that_flush_when_they_are_loaded_are_reported(monkeypatch):
    """What a build with -Ofast does: its start-up code switches the float mode of whoever loads the module."""
    load = importlib.import_module
    assert doctor.numeric_facts()["subnormals"] is True
    with contextlib.ExitStack() as stack:

        def loading(name, *more):
            if name == "fabric.engine.engine":
                stack.enter_context(float_mode("flush to zero"))
            return load(name, *more)

        monkeypatch.setattr(doctor.importlib, "import_module", loading)
        facts = doctor.numeric_facts()
    assert facts["subnormals"] is False
    assert facts["round_to_nearest"] is True


def test_modules_of_two_builds_do_not_end_the_doctor(monkeypatch):
    """Half of a tree was built anew: importing a module finds functions with other signatures."""

    def load(name):
        raise TypeError("C function wse_core.ce.ce_settle has wrong signature")

    monkeypatch.setattr(doctor.importlib, "import_module", load)
    facts = doctor.numeric_facts()
    assert facts["round_to_nearest"] is True
    assert facts["backend"] is None

"""What Dockerfile and .devcontainer name exists: the image's Python, packages of the distribution, targets of make.

No image is built here; that needs a registry of images and a daemon.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import pytest

from tests.conftest import ROOT
from tools.release.wheels import VERSIONS

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
DEVCONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
NEEDED = {"gcc", "git", "libc6-dev", "make"}
"""Packages of Debian that building and testing takes beyond an image of Python."""


def instructions():
    """Return the instructions of the Dockerfile as (word, rest), continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


def packages():
    """Return the packages that the image installs."""
    (run,) = (rest for word, rest in instructions() if word == "RUN" and "apt-get install" in rest)
    words = shlex.split(run.split("apt-get install")[1].split("&&")[0])
    return {word for word in words if not word.startswith("-")}


def targets():
    """Return the targets that the Makefile has."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_the_image_begins_with_a_python_that_is_supported():
    name, _, tag = instructions()[0][1].split()[0].partition(":")
    assert (name, tag.partition("-")[2]) == ("python", "slim")
    assert tag.partition("-")[0] in VERSIONS
    stages = [rest.split() for word, rest in instructions() if word == "FROM"]
    assert [stage[0] for stage in stages[1:]] == [stages[0][2]]  # the second goes on from the first


def test_it_installs_what_building_takes():
    assert packages() == NEEDED


@pytest.mark.skipif(shutil.which("apt-cache") is None, reason="the lists of Debian's packages are read by apt-cache")
def test_these_packages_are_the_distributions():
    done = subprocess.run(["apt-cache", "show", *sorted(NEEDED)], capture_output=True, text=True, check=False)
    known = set(re.findall(r"^Package: (\S+)$", done.stdout, re.MULTILINE))
    if not known:
        pytest.skip("apt-cache has no lists here: apt-get update has not been run")
    assert known >= NEEDED


def test_commands_are_targets_of_make():
    named = re.findall(r"\bmake ([a-z]+)", DOCKERFILE) + re.findall(r'"make", "([a-z]+)"', DOCKERFILE)
    named += re.findall(r"\bmake ([a-z]+)", DEVCONTAINER["postCreateCommand"])
    assert {"run", "test", "build"} <= set(named) <= targets()
    assert instructions()[-1] == ("CMD", '["make", "run"]')


def test_the_editors_container_is_a_stage_of_the_same_image():
    build, folder = DEVCONTAINER["build"], ROOT / ".devcontainer"
    assert (folder / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (folder / build["context"]).resolve() == ROOT
    assert re.search(rf"^FROM \S+ AS {build['target']}$", DOCKERFILE, re.MULTILINE)


def test_nothing_that_was_built_here_is_copied():
    """Modules and environments of another interpreter would be found where the image's own are made."""
    ignored = set((ROOT / ".dockerignore").read_text(encoding="utf-8").split())
    assert {".venv", "build", "**/*.so", ".git"} <= ignored

"""Nothing is loaded that a command does not need: the smallest kernel is over soon after numpy has been imported."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from fabric.kernels.kit.kernel import DECLARED
from fabric.kernels.registry import KERNELS, MODULES
from tests.cpu import least
from tests.examples import some
from wse_core import _build_info

SMALLEST = ["kernel", "vector"]
# An import without threads: those of BLAS, which have nothing to do, take as much CPU as the host lets them spin.
IMPORTS = ["-c", "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy, h5py"]

of_a_release = pytest.mark.skipif(_build_info.MODE != "release", reason="checks of the other builds take time too")


@of_a_release
def test_the_smallest_kernel_takes_at_most_twice_the_cpu_of_importing_numpy_and_h5py():
    imports, kernel = least(IMPORTS, ["-m", "harness", *SMALLEST], 2.0)
    assert kernel <= 2.0 * imports


def loaded_by(*words):
    """Return the modules that a command leaves loaded."""
    code = f"import sys; from harness.cli.main import main; main({list(words)}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def test_a_kernel_loads_its_own_modules_only():
    found = loaded_by(*SMALLEST)
    assert "fabric.kernels.basic.vector" in found
    assert [name for name in found if name.startswith(("traces.", "harness.plan", "fabric.kernels.matmul"))] == []
    assert {"h5py", "matplotlib", "sklearn", "scipy", "numpy.ma", "html", "email"}.isdisjoint(found)
    assert [name for name in found if name.startswith("harness.cli.cmd_")] == ["harness.cli.cmd_kernel"]


def test_training_of_a_table_loads_no_reader_of_files(tmp_path):
    found = loaded_by("train", "digits", "--iterations", "1", "--out", str(tmp_path / "run"))
    assert [name for name in found if name.startswith("harness.train.onnx_")] == []


def test_a_version_loads_no_command():
    assert [name for name in loaded_by("--version") if name.startswith("harness.cli.cmd_")] == []


@pytest.mark.parametrize("name", KERNELS)
def test_the_table_of_kernels_is_what_their_modules_declare(name):
    (module,) = [module for module, names in MODULES.items() if name in names]
    assert KERNELS[name].function.__module__ == f"fabric.kernels.{module}"
    assert sorted(n for n, k in DECLARED.items() if k.function.__module__.endswith(f".{module}")) == sorted(
        MODULES[module]
    )


@of_a_release
@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_training_of_one_step_takes_at_most_eight_times_the_cpu_of_importing_numpy_and_h5py(tmp_path):
    step = ["-m", "harness", "train", "digits", "--iterations", "1", "--overwrite", "--out", str(tmp_path / "run")]
    imports, training = least(IMPORTS, step, 8.0)
    assert training <= 8.0 * imports
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"log.jsonl", "loss.csv", "run.h5"}


SHARE = """
import sys, time
from fabric.host.fabric import Fabric
from harness.cli.main import main

run, spent = Fabric.run, []


def timed(self, *args, **more):
    begun = time.process_time()
    try:
        return run(self, *args, **more)
    finally:
        spent.append(time.process_time() - begun)


Fabric.run = timed
status = main(sys.argv[1:])
print(time.process_time() / sum(spent), file=sys.stderr)
sys.exit(status)
"""


@of_a_release
@pytest.mark.parametrize(
    "words",
    [
        ["gemm", "p=16", "m=960", "k=960", "n=960"],
        ["ws_forward", "inputs=512", "outputs=512", "tokens=2048", "width=16", "height=16"],
        ["allreduce", "form=xy", "width=512", "height=512", "n=64"],
    ][: some(3, 2)],
)
def test_a_command_of_some_seconds_takes_at_most_twice_the_cpu_of_its_simulation(words):
    """Jobs above ten seconds keep more distance; these are the shortest for which a test has the time.

    The least of up to five runs: memory that the host has yet to give counts outside the simulation more than in it.
    """
    ratios = []
    while len(ratios) < 5 and min(ratios, default=9.0) > 2.0:
        done = subprocess.run(
            [sys.executable, "-c", SHARE, "kernel", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        ratios.append(float(done.stderr.split()[-1]))
    assert min(ratios) <= 2.0, ratios

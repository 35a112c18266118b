"""What a shell is told when somebody presses tab."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples import some


def complete(line, tmp_path, child_env):
    """Return the words that a line may go on with, as argcomplete's shell function asks for them."""
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "0",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_COMP_WORDBREAKS": " ",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    code = "import sys; sys.argv[0] = 'wse'; from harness.cli.main import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", code], env=child_env | asked, cwd=tmp_path, check=True)
    return [word.strip() for word in answer.read_text(encoding="utf-8").split("\n")]


@pytest.mark.parametrize(
    ("line", "wanted", "unwanted"),
    [
        ("wse k", {"kernel", "kernels"}, {"run"}),
        ("wse kernel ge", {"gemm", "gemm_t", "gemv", "gemv_chain"}, {"spmv"}),
        ("wse kernel vector op=fm", {"op=fmuls", "op=fmach"}, {"op=faddh"}),
        ("wse kernel vector --trace ", {"off", "full"}, {"n="}),
        ("wse sweep --pro", {"--processes", "--progress"}, {"--scheduler"}),
        ("wse figure ge", {"gemm-scaling", "gemv-scaling"}, {"throughput"}),
        ("wse plan gp", {"gpt-3"}, {"bert"}),
        ("wse export --format ", {"perfetto", "vcd"}, set()),
        ("wse kernels ge", {"gemm", "gemv"}, {"spmv"}),
        ("wse kernel vector n", {"n="}, {"op=fmuls"}),
        ("wse kernel vector --tr", {"--trace", "--trace-window"}, {"--json"}),
        ("wse train dig", {"digits", "digits-cnn"}, {"chars"}),
        ("wse train --set swarm", {"swarm="}, set()),
        ("wse train --set train.ev", {"train.evaluate="}, {"train.epochs="}),
        ("wse kernel ping --set machine.rou", {"machine.router.hop="}, {"machine.ramp.in="}),
        ("wse kernel ping --set rou", {"router.hop="}, set()),
        ("wse kernel ping --preset ", {"wse2", "wse3"}, set()),
        ("wse plan --set machine.plan", {"machine.plan.cores="}, set()),
        ("wse plan --figures ", {"all"}, set()),
        ("wse view run.h5 --figure ti", {"timeline"}, {"links"}),
        ("wse view run.h5 --figure heat,ti", {"heat,timeline"}, {"timeline"}),
        ("wse generate ", {"pydoc"}, {"LLaMA3-8B"}),
        ("wse generate --random-layers 1 LLaMA3", {"LLaMA3-8B"}, {"pydoc"}),
        ("wse swe", {"sweep"}, {"run"}),
    ][: some(25, 20)],
)
def test_words_that_may_follow(tmp_path, child_env, line, wanted, unwanted):
    found = set(complete(line, tmp_path, child_env))
    assert wanted <= found
    assert not unwanted & found


def test_without_the_library_the_shell_is_told_what_to_install(tmp_path, child_env):
    code = "import sys; sys.modules['argcomplete'] = None; from harness.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child_env | {"_ARGCOMPLETE": "1", "COMP_LINE": "wse k"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'wse-sim[complete]'" in done.stderr

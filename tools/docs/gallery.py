"""The pictures of docs/figures are drawn anew: every figure of `wse view` for a few runs.

    python -m tools.docs.gallery [DIR]

Kernels are run by ``wse kernel`` and drawn by ``wse view``, as anybody would; of training, the first iteration of the
example ``digits`` is recorded on one of its wafers.  Pictures are reduced to 64 colours so that they stay small.
Animations are drawn in the size in which a page shows them, so that their type can be read; the tables beside pictures
are not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fabric.host.engines import around
from fabric.host.recording import Recorder
from harness.cli import main as cli
from harness.train import phases
from harness.train.config import load_train
from harness.train.trainer import Trainer
from traces import movie
from traces.marks import collecting
from traces.provenance import provenance
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.events import TraceFilter

__all__ = ["MOST_BYTES", "RUNS", "main"]

MOST_BYTES = {".png": 60_000, ".gif": 160_000}
"""A picture and an animation have at most so many bytes."""
PIXELS = 640
"""An animation has this width, or this height if that is more."""
COLOURS = 32
"""All frames of an animation together have so many colours."""
STILL = "heat,links,stalls,windows,timeline,utilisation"


def kernel(*words: str) -> Callable[[Path], None]:
    """Return what runs a kernel and writes its run file."""
    return lambda path: _wse("kernel", *words, "--trace", "full", "--out", path, "--json")


def training(path: Path) -> None:
    """Train for one iteration; record its first wafer, and the phases of the whole system."""
    config = load_train("digits")
    meta = RunMeta(
        job="training iteration",
        machine=dict(config.build_machine()),
        config_toml=config.text,
        preset="wse2",
        seed=config.seed,
        **provenance(),
    )
    with collecting() as marks:
        recorder = Recorder(path, meta, TraceFilter(), 500, marks)
        with around("compiled", recorder.watch):
            trainer = Trainer(config)
            system = trainer.compile()
        step = trainer.step()
        phases.place(recorder, system.sent, system.ports[0].origin)
        with RunWriter(path, meta) as writer:
            writer.add_result("cycles", step.cycles, "cycles")
            recorder.finish(writer)
        if recorder.log is not None:
            recorder.log.remove()
    system.close()


RUNS = {
    "chain": (kernel("chain_reduce", "pes=16", "n=96", "--trace-window", "16"), "60:90"),
    "meshgemm": (
        kernel("gemm", "algorithm=meshgemm", "p=6", "m=48", "k=48", "n=48", "--trace-window", "100"),
        "430:448",
    ),
    "training": (training, "3300:3324"),
}
"""Each name has what makes the run file, and cycles of the animation."""


def draw(name: str, folder: Path) -> Iterator[Path]:
    """Make a run and draw its figures into `folder`; yield the paths of pictures."""
    make, cycles = RUNS[name]
    run = folder / f"{name}.h5"
    make(run)
    _wse("view", run, "--figure", STILL, "--out", folder, "--json")
    yield from sorted(folder.glob(f"{name}-*.png"))
    first, stop = map(int, cycles.split(":"))
    with Trace.open(run) as trace:
        yield movie.animate(folder / f"{name}-animation.gif", trace, (first, stop), per_second=5, pixels=PIXELS)


def shrink(path: Path) -> None:
    """Reduce a picture or an animation."""
    from PIL import Image, ImageSequence

    with Image.open(path) as image:
        if path.suffix == ".png":
            image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
            return
        plain = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
        pause = image.info["duration"]
    every = Image.new("RGB", (plain[0].width, plain[0].height * len(plain)))
    for k, frame in enumerate(plain):
        every.paste(frame, (0, k * frame.height))
    palette = every.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)  # rare colours are what moves
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in plain]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=pause, loop=0, disposal=1, optimize=False)


def _wse(*words: str | Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        status = cli.main([str(word) for word in words])
    if status:
        sys.exit(f"wse {' '.join(map(str, words))}: failed")


def main(argv: Sequence[str] | None = None) -> int:
    """Draw everything; return 1 if a picture is too large to be kept."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.gallery", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", nargs="?", default="docs/figures", metavar="DIR", help="default %(default)s")
    parser.add_argument("--run", choices=list(RUNS), action="append", help="only this run; may be repeated")
    args = parser.parse_args(argv)
    out, large = Path(args.out), False
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.run or RUNS:
            for path in draw(name, Path(folder)):
                shrink(path)
                data = path.read_bytes()
                print(f"{out / path.name}: {len(data) / 1e3:.0f} kB")
                large |= len(data) > MOST_BYTES[path.suffix]
                (out / path.name).write_bytes(data)
    return int(large)


if __name__ == "__main__":
    sys.exit(main())

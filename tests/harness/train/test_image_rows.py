"""Images over several rows of PEs in ``wse train``: wafers against numpy, what is said, projections, refusals."""

from __future__ import annotations

import re

import pytest

from harness.train.config import parse_train
from harness.train.project import project
from harness.train.trainer import Trainer
from tests.harness.train.as_numpy import trained_as_in_numpy
from wse_core.errors import ConfigError, UnsupportedError

pytestmark = pytest.mark.usefixtures("folder")

TEXT = """
wafers = 2
[network]
image = [1, 8, 8]
nodes = [
    {name = "conv1", op = "convolution", outputs = 4, kernel = 3, padding = 1},
    {name = "norm1", op = "groupnorm", groups = 2},
    {name = "relu1", op = "relu"},
    {name = "conv2", op = "convolution", outputs = 4, kernel = 3},
    {name = "norm2", op = "batchnorm"},
    {name = "relu2", op = "relu"},
    {name = "pool", op = "maxpool", kernel = 2},
    {name = "logits", op = "linear", outputs = 10},
]
[data]
source = "digits"
batch = 8
[mesh]
width = 2
height = 4
image_rows = 2
[train]
iterations = 3
optimizer = {name = "adam", lr = 0.02}
loss_scale = {initial = 256.0}
"""


def run(words, backend=None):
    """Train to the end; return (trainer, steps)."""
    trainer = Trainer(parse_train(TEXT, "a.toml", words), backend)
    return trainer, [trainer.step() for _ in range(trainer.iterations)]


@pytest.mark.parametrize(
    "words",
    [
        ("wafers=1", "mesh.width=1"),
        ("train.dtype=cb16", "csconfig.use_cbfloat16=true", "memx.dense_rows=steps"),
        ("mesh.image_rows=4", "train.accumulate=2", "sparsity.density=0.6"),
    ],
    ids=str,
)
def test_images_on_rows_train_as_in_numpy(words):
    """Losses, weights, statistics and what a test says, bit for bit."""
    trained_as_in_numpy(run, words)


def test_it_is_said_where_images_lie_whole_and_why():
    (warning,) = parse_train(TEXT, "a.toml", ()).warnings
    assert warning == (
        "pool.maxpool takes whole images, in each of the 2 rows of PEs of one: its windows do not divide strips of 3 "
        "rows of pixels"
    )
    assert not parse_train(TEXT, "a.toml", ("mesh.image_rows=1",)).warnings


def test_a_projection_knows_rows_of_images():
    """A batch of two on eight rows of PEs: the layer-level model is less than a hundredth off."""
    found = project(parse_train(TEXT, "a.toml", ("wafers=1", "data.batch=4")), [1])
    (row,) = (row for row in found["rows"] if row["kind"] == "fixed share")
    assert abs(row["error"]) < 0.01


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (["data.batch=6"], ConfigError, "a batch of 6 does not divide over 2 wafers of 2 times 2 rows of PEs"),
        (["mesh.image_rows=3"], UnsupportedError, "conv1.convolution: 8 rows of pixels do not divide into 3 strips"),
    ],
)
def test_batches_and_images_that_do_not_divide_are_refused(words, kind, says):
    with pytest.raises(kind, match=re.escape(says)):
        parse_train(TEXT, "a.toml", words)

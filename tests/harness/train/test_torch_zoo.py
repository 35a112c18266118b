"""Modules of many kinds, as PyTorch exports them, train as there or are refused by the names of their nodes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import wse
from harness.train.torch_module import COUNTER
from harness.train.trainer import Trainer
from tests.harness.train.torch_zoo import MASKED, REFUSED, TOKENS, TRAINED, made
from wse_core.errors import ConfigError, UnsupportedError

LOSSES, WEIGHTS = 5e-4, 1e-3
"""Losses of five steps, and weights after them, differ by less in f16 from those of PyTorch."""
OVER_BATCHES = 3e-3
"""Where batches are normalised, whose roundings are divided by small deviations."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def logits(module, example):
    """Return what a module gives, which may be a loss, or none, besides."""
    result = module(*example)
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_modules_that_torch_exports_train_as_there(folder, name):
    """Five steps of plain descent: losses, weights, and names of weights."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    takes, loss, module = TRAINED[name]
    module, example = made(torch, takes, module)
    given, x = logits(module, example), example[0]
    planes = given.ndim == 4 and not loss  # a class for each pixel
    classes, shape = (given.shape[1], given[:, 0].shape) if planes else (given.shape[-1], given.shape[:-1])
    labels = torch.randn_like(given) if loss else torch.randint(0, classes, shape)
    exported, optimizer, losses = copy.deepcopy(module), torch.optim.SGD(module.parameters(), lr=0.05), []
    for _ in range(5):
        optimizer.zero_grad()
        result = logits(module, example)
        if loss:
            losses.append(torch.nn.functional.mse_loss(result, labels))
        else:
            rows = result.movedim(1, -1) if planes else result
            losses.append(torch.nn.functional.cross_entropy(rows.flatten(0, -2), labels.flatten()))
        losses[-1].backward()
        optimizer.step()
    np.savez("t.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    train = {"iterations": 5, "optimizer": {"name": "sgd", "lr": 0.05}, "loss_scale": {"initial": 1024.0}}
    train |= {"loss": loss} if loss else {}
    tokens = {"class": 5, "mean": 4, "arranged": 5, "unfolded": 4, "rows with a class": 9}.get(
        name.removeprefix("vision "), 1
    )  # of an image
    counts = takes in (TOKENS, MASKED) and not name.startswith("along")  # tokens, not samples
    mesh, batch = {"width": 2, "height": 2}, x.numel() if counts else len(x) * tokens
    data = {"source": str(folder / "t.npz"), "batch": batch} | ({"labels": "pixel"} if planes else {})
    data |= {"labels": "token"} if loss and takes == TOKENS else {}
    machine = Trainer(wse.train.from_torch(exported, example, folder / "m.onnx", data=data, mesh=mesh, train=train))
    found = [machine.step().loss for _ in range(5)]
    assert np.allclose(found, [loss.item() for loss in losses], atol=LOSSES)
    wanted, got = module.state_dict(), machine.state_dict()
    assert set(wanted) - set(got) == {one for one in wanted if one.endswith(COUNTER)}
    assert set(got) <= set(wanted)
    near = OVER_BATCHES if any(one.endswith(COUNTER) for one in wanted) else WEIGHTS
    assert all(np.allclose(got[one], wanted[one].numpy(), atol=near) for one in got)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_other_modules_are_refused_by_name(folder, name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    takes, module, what = REFUSED[name]
    module, x = made(torch, takes, module)
    given = {"data": {"batch": len(x[0])}, "mesh": {"width": 2, "height": 2}, "train": {"iterations": 1}}
    with pytest.raises((ConfigError, UnsupportedError), match=what):
        wse.train.from_torch(module, x, folder / "m.onnx", **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("kept", "the mask is not another number where one token stands"),
        ("inside", "the mask is not another number where one token stands"),
        ("half", "other numbers than 0 and 1"),
        ("kinds", "3 tensors: ids, mask, kinds"),
        ("told", "its gradient is another one in PyTorch|a loss of"),
        ("list", "tensors of PyTorch are examples"),
    ],
)
def test_masks_that_tokens_do_not_tell_are_named(folder, how, what):
    """One that hides tokens which stand elsewhere too, or several; other numbers; a third input; the wrong token."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    takes, _, module = TRAINED["masked padding"]
    module, (ids, mask) = made(torch, takes, module)
    example = {"ids": ids, "mask": mask}
    if how == "kept":
        example["ids"] = torch.where(ids == 0, 3 + torch.arange(8), ids)
    elif how == "inside":
        mask[0, 0] = 1 - mask[0, 0]
    elif how == "half":
        example["mask"] = mask * 0.5
    elif how == "kinds":
        example["kinds"] = torch.zeros_like(ids)
    elif how == "list":
        example = [1, 2]
    assert (ids == 0).any()
    network = {"network": {"masked": [3, 0]}} if how == "told" else {}
    given = {"data": {"batch": ids.numel()}, "mesh": {"width": 2, "height": 2}, "train": {"iterations": 1}}
    with pytest.raises((ConfigError, UnsupportedError), match=what):
        wse.train.from_torch(module, example, folder / "m.onnx", **given, **network)

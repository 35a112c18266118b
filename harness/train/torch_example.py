"""A module of PyTorch is called with samples, and perhaps with a mask that says which of their tokens are padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from harness.kit.modules import need
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["TorchExample"]


class TorchExample(NamedTuple):
    """A `TorchExample` is what a module is called with.

    Attributes
    ----------
    args : tuple of torch.Tensor
    named : dict of str to torch.Tensor
    """

    args: tuple[Any, ...]
    named: dict[str, Any]

    @classmethod
    def of(cls, example: Any) -> Self:
        """Return an example from a tensor, several of them, or several by the names of arguments."""
        if isinstance(example, Mapping):
            found = cls((), dict(example))
        else:
            found = cls(tuple(example) if isinstance(example, list | tuple) else (example,), {})
        tensors = (*found.args, *found.named.values())
        if not tensors or not all(hasattr(one, "detach") for one in tensors):
            hint = "samples, or these and a mask of their padding, or both by their names"
            raise ConfigError("tensors of PyTorch are examples", where="example", hint=hint)
        if len(tensors) > 2:
            what = f"{len(tensors)} tensors{': ' * bool(found.named)}{', '.join(found.named)}"
            hint = "samples, and a mask of their padding; token_type_ids of single sentences are zeros without"
            raise UnsupportedError(what, where="example", feature="onnx", hint=hint)
        if len({len(one) for one in tensors}) > 1:
            raise ConfigError("tensors of different numbers of samples", where="example")
        if len(tensors[0]) < 2:
            what = "one sample does not say that there may be more"
            raise ConfigError(what, where="example", hint="two or more samples")
        return found

    @property
    def samples(self) -> Any:
        """The samples are the first tensor, or that of the ``input_ids``."""
        return self.named.get("input_ids", next(iter((*self.args, *self.named.values()))))

    @property
    def mask(self) -> Any:
        """The mask is the other tensor; None if there is none."""
        return next((one for one in (*self.args, *self.named.values()) if one is not self.samples), None)

    def open(self) -> Any:
        """Return what says to PyTorch that the number of samples is left open."""
        samples = need("torch", "a PyTorch module").export.Dim("samples")
        return {name: {0: samples} for name in self.named} if self.named else ({0: samples},) * len(self.args)

    def called(self, module: Any, wide: bool = False) -> Any:
        """Return the logits that a module gives; samples in f64 if `wide`."""

        def given(one: Any) -> Any:
            return one.detach().double() if wide and one.is_floating_point() else one.detach()

        result = module(*map(given, self.args), **{name: given(one) for name, one in self.named.items()})
        if isinstance(result, Mapping) and "logits" in result:
            return result["logits"]
        several = [one for one in result if one is not None] if isinstance(result, list | tuple) else [result]
        if len(several) != 1 or not hasattr(several[0], "detach"):
            what = f"the module gives {len(several)} results" if len(several) != 1 else "the module gives no tensor"
            raise ConfigError(what, where="module", hint="logits alone, or a mapping with logits")
        return several[0]

    def masked(self, module: Any) -> tuple[int, ...]:
        """Return the token that fills sequences, and what the mask is there; empty if that is not known."""
        torch, mask, samples = need("torch", "a PyTorch module"), self.mask, self.samples
        if mask is None or mask.shape != samples.shape or samples.is_floating_point():
            return ()
        flags = mask.long()
        if not torch.all((flags == mask) & ((flags == 0) | (flags == 1))):
            raise UnsupportedError(
                "the second tensor has other numbers than 0 and 1, and a mask of padding has these",
                where="example",
                feature="onnx",
            )
        for there in (0, 1):
            tokens = samples[flags == there].unique()
            if len(tokens) == 1 and not (samples[flags != there] == tokens).any() and (flags != there).any():
                return int(tokens[0]), there
        token = getattr(getattr(module, "config", None), "pad_token_id", None)
        if (flags == 1).all() and token is not None and not (samples == token).any():
            return int(token), 0
        raise UnsupportedError(
            "the mask is not another number where one token stands, and there alone",
            where="example",
            feature="onnx",
            hint="an example in which one token, which stands nowhere else, fills sequences",
        )

"""Late imports have a useful message if something is missing.

The command line must work before anything is compiled, so that it can tell what is missing.  Whatever needs the engine
asks for it here, by name, at the moment of use.
"""

from __future__ import annotations

import importlib
from typing import Any

from wse_core.errors import ConfigError

__all__ = ["OWN_PACKAGES", "need"]

OWN_PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces", "wse")
"""This distribution provides these import names."""

EXTRAS = {
    "lark": ("lark", "csl"),
    "sklearn": ("scikit-learn", "demo"),
    "argcomplete": ("argcomplete", "complete"),
    "rich": ("rich", "nice"),
    "gmpy2": ("gmpy2", "test"),
    "safetensors": ("safetensors", "train"),
    "tokenizers": ("tokenizers", "models"),
    "jinja2": ("jinja2", "models"),
    "gguf": ("gguf", "gguf"),
    "sentencepiece": ("sentencepiece", "models"),
    "google": ("protobuf", "models"),
    "onnx": ("onnx", "onnx"),
    "onnxscript": ("onnxscript", "torch"),
    "torch": ("torch", "torch"),
    "lsprotocol": ("pygls", "editor"),
    "pygls": ("pygls", "editor"),
    "scipy": ("scipy", "place"),
    "ortools": ("ortools", "solver"),
    "distributed": ("distributed", "cluster"),
    "mpi4py": ("mpi4py", "mpi"),
}


def need(name: str, purpose: str) -> Any:
    """Import a module, or explain what is missing.

    Parameters
    ----------
    name : str
        Dotted name.
    purpose : str
        Who needs it, as the subject of the message: "the command `wse kernels`".

    Returns
    -------
    module

    Raises
    ------
    ConfigError
        If the module, or something that it imports, is not there or does not load.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        top = missing.partition(".")[0]
        if top in OWN_PACKAGES:
            raise ConfigError(
                f"{purpose} needs the module {missing}, which is not there",
                cause="the modules are not compiled yet, or another package has the same import name",
                hint="make build, then wse doctor",
                module=missing,
            ) from error
        package, extra = EXTRAS.get(top, (top, None))
        raise ConfigError(
            f"{purpose} needs {package}, which is not installed",
            hint=f"pip install 'wse-sim[{extra}]'" if extra else f"pip install {package}",
            module=missing,
        ) from error
    except ImportError as error:
        raise ConfigError(
            f"{purpose} needs the module {name}, which does not load ({' '.join(str(error).split())})",
            cause="it was compiled for another interpreter, from other sources or in another build mode",
            hint="make clean, then make build",
            module=name,
        ) from error

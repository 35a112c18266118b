"""These modules are imported by host scripts and found only while a script runs under ``cs_python``."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from wse_core.errors import ConfigError

__all__ = ["Finder", "absent", "provided"]

NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "cerebras.sdk.runtime.sdkruntimepybind": {
        "harness.sdk.runtime": (
            "SdkRuntime",
            "MemcpyDataType",
            "MemcpyOrder",
            "SdkTarget",
            "SimfabConfig",
            "get_platform",
            "get_simulator",
            "Task",
        ),
        "harness.sdk.sdk_layout": ("SdkLayout", "FP16TYPE"),
        "harness.sdk.regions": (
            "Color",
            "Edge",
            "Route",
            "RoutingPosition",
            "CodeRegion",
            "SdkCompileArtifacts",
            "get_edge_routing",
        ),
    },
    "cerebras.sdk.sdk_utils": {"harness.sdk.utils": ("calculate_cycles", "input_array_to_u32", "memcpy_view")},
    "cerebras.sdk.runtime.runtime_utils": {  # before 1.1
        "harness.sdk.utils": ("input_array_to_u32", "memcpy_view"),
        "harness.sdk.debug": ("debug_util",),
        "harness.sdk.portmaps": (
            "convert_input_tensor",
            "format_output_tensor",
            "output_array_from_u32",
            "prepare_output_tensor",
        ),
    },
    "cerebras.elf.cs_elf_runner": {"harness.sdk.elf_runner": ("CSELFRunner",)},  # before 0.9
    "cerebras.elf.cs_elf_runner.lib.csl_utils": {"harness.sdk.elf_runner": ("read_trace",)},
    "cerebras.elf.cself": {"harness.sdk.elf_runner": ("ELFLoader", "ELFMemory")},
    "cerebras.sdk.debug.debug_util": {"harness.sdk.debug": ("debug_util",)},
    "cerebras.geometry.geometry": {"harness.sdk.geometry": ("IntRectangle", "IntVector")},
    "cerebras.sdk.client": {"harness.sdk.client": ("SdkCompiler", "SdkLauncher", "SdkRuntime", "sdk_utils")},
    "cerebras.sdk.client.debug_util": {"harness.sdk.debug": ("debug_util",)},
    "cerebras.appliance.pb.sdk.sdk_common_pb2": {"harness.sdk.runtime": ("MemcpyDataType", "MemcpyOrder")},
    "cerebras_appliance.sdk": {"harness.sdk.client": ("SdkCompiler", "SdkRuntime")},  # before 1.2
    "cerebras_appliance.pb.sdk.sdk_common_pb2": {"harness.sdk.runtime": ("MemcpyDataType", "MemcpyOrder")},
}
"""Each module has these names, made in these modules."""
MISSING: dict[str, dict[str, str]] = {
    "cerebras.sdk.runtime.sdkruntimepybind": {"get_system": "there is no machine but the modelled one"}
}
"""Per module what the vendor's has and this one has not, with the reason."""
OLDER = ("cerebras.elf",)
"""These packages of host interfaces came before `SdkRuntime`; they name colors and port maps instead of symbols."""
PACKAGES = {name.rsplit(".", k)[0] for name in NAMES for k in range(1, name.count(".") + 1)}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `NAMES` and the packages around them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in NAMES or fullname in PACKAGES:
            return importlib.util.spec_from_loader(fullname, self, is_package=fullname in PACKAGES)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        for source, names in NAMES.get(module.__name__, {}).items():
            made = importlib.import_module(source)
            for name in names:
                setattr(module, name, getattr(made, name))
        module.__dict__["__getattr__"] = partial(_missing, module.__name__)


def _missing(module: str, name: str) -> Any:
    """Refuse a name that a module does not have: by its reason if it is one of the vendor's."""
    reason = MISSING.get(module, {}).get(name)
    if reason is not None:
        raise ConfigError(f"{reason}; this script needs {name}", hint="a layout block in CSL, and cslc")
    raise AttributeError(f"module '{module}' has no attribute '{name}'")


def absent(name: str) -> str:
    """Return what is said of a module of the vendor's that is not here."""
    if name.startswith(OLDER):
        return f"the host interface {name}, of SDK 0.x, is not supported; SdkRuntime copies, launches and streams"
    return f"there is no module {name} here; there are {', '.join(sorted(NAMES))}"


@contextmanager
def provided() -> Iterator[None]:
    """Let the modules be found inside of a block, and nowhere else."""
    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name in NAMES or name in PACKAGES]:
            del sys.modules[name]

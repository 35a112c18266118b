"""The module `cerebras.sdk.client` is what scripts for a machine elsewhere use, here on this one.

`SdkCompiler` compiles as `cslc` does; the name of the result that it returns is the path of the output directory.
`SdkRuntime` is that of every other script.  `SdkLauncher` runs commands in a copy of the program's directory, with
`cslc` and `cs_python` on the path.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from harness.sdk import compiler, utils
from harness.sdk.runtime import SdkRuntime
from harness.sdk.scripts import environment
from wse_core.errors import ConfigError

__all__ = ["SdkCompiler", "SdkLauncher", "SdkRuntime", "sdk_utils"]

sdk_utils = utils
NOTE = "client.json"
"""This file in an output directory says where the program's sources lie."""


class SdkCompiler:
    """Compiles programs; what a real one asks of its host (`resource_cpu` and the like) means nothing here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, app_path: str, csl_main: str, options: str, out_path: str = ".", *_: Any, **__: Any) -> str:
        """Compile a layout file of a directory.

        Parameters
        ----------
        app_path : str
            The directory.
        csl_main : str
            The layout file in it.
        options : str
            What would stand behind `cslc` on a command line.
        out_path : str
            Where the output directory goes; ``-o`` among the options names it.

        Returns
        -------
        str
            The path of the output directory, which `SdkRuntime` takes.
        """
        words = shlex.split(options)
        args, _others = compiler.parser().parse_known_intermixed_args([*words, str(Path(app_path, csl_main))])
        goal = Path(out_path, args.output).resolve()
        goal.parent.mkdir(parents=True, exist_ok=True)
        if compiler.main([*words, str(Path(app_path, csl_main)), "-o", str(goal)]):
            raise ConfigError("the program was not compiled", where=str(Path(app_path, csl_main)))
        sources = {"sources": str(Path(app_path).resolve())}
        (goal / NOTE).write_text(json.dumps(sources), encoding="utf-8")
        return str(goal)


class SdkLauncher:
    """An `SdkLauncher` runs commands beside a compiled program.

    Parameters
    ----------
    artifact_path : str
        What `SdkCompiler.compile` returned.
    """

    def __init__(self, artifact_path: str, *_: Any, **__: Any) -> None:
        self._artifact = Path(artifact_path)
        try:
            self._sources = Path(json.loads((self._artifact / NOTE).read_text(encoding="utf-8"))["sources"])
        except (OSError, ValueError, KeyError) as error:
            hint = "SdkCompiler().compile(...) returns one"
            raise ConfigError(f"this is no result of SdkCompiler: {error}", where=artifact_path, hint=hint) from None
        self._place: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(prefix="csl-launcher-")
        base = Path(self._place.name)
        shutil.copytree(self._sources, base / "work", ignore=shutil.ignore_patterns(".git", self._artifact.name))
        shutil.copytree(self._artifact, base / "work" / self._artifact.name)
        (base / "bin").mkdir()
        self._variables = environment(base / "bin")
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            self._place.cleanup()
        self._place = None

    @property
    def _directory(self) -> Path:
        if self._place is None:
            raise ConfigError("the launcher is not open", hint="with SdkLauncher(path) as launcher: ...")
        return Path(self._place.name, "work")

    def stage(self, path: str) -> None:
        """Copy a file or directory to where commands run."""
        source, goal = Path(path), self._directory / Path(path).name
        if source.is_dir():
            shutil.copytree(source, goal, dirs_exist_ok=True)
        elif source.is_file():
            shutil.copy2(source, goal)
        else:
            raise ConfigError("there is no such file or directory", where=path)

    def run(self, *commands: str) -> str:
        """Run commands of a shell one after the other; return what they print.

        Raises
        ------
        ConfigError
            If one of them fails.
        """
        printed = ""
        for command in commands:
            words = command.replace("%CMADDR%", "''")  # the address of a machine: there is none
            done = subprocess.run(
                ["bash", "-c", words], cwd=self._directory, env={**self._variables, "PWD": os.fspath(self._directory)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            printed += done.stdout
            if done.returncode:
                said = " ".join(done.stdout.strip().splitlines()[-1:])
                raise ConfigError(f"the command ended with status {done.returncode}", where=command, cause=said or None)
        return printed

    def download_artifact(self, path: str, goal: str) -> None:
        """Copy a file from where commands run."""
        source = self._directory / path
        if not source.exists():
            raise ConfigError("no command made this file", where=path)
        Path(goal).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, goal, dirs_exist_ok=True)
        else:
            shutil.copy2(source, goal)

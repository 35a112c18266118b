"""Can this machine build the project?  Run by the Makefile with the system's Python, before anything is installed.

Uses the standard library only and no syntax newer than Python 3.6, so that an old interpreter gets a sentence instead
of a syntax error.  Prints one line per problem and exits with 1 if there is any.

``--build-requires`` prints the build requirements of pyproject.toml instead, one per line, ``--requires EXTRA ...``
what extras of it ask for; ``dependencies`` among them stands for what the project itself needs.
"""

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from typing import Any, Callable, List, Optional, Sequence, Tuple

OLDEST = (3, 11)


def problems(
    version: Optional[Tuple[int, ...]] = None,
    find_module: Callable[[str], Any] = importlib.util.find_spec,
    which: Callable[[str], Optional[str]] = shutil.which,
    include_dir: Optional[str] = None,
    in_venv: Optional[bool] = None,
) -> List[str]:
    """Return what keeps this machine from building, as a list of sentences.

    Parameters
    ----------
    version : tuple of int, optional
        Version of the interpreter; that of the running one if not given.
    find_module, which : callable
        Look up a module and a program; tests replace them.
    include_dir : str, optional
        Directory that should hold Python.h.
    in_venv : bool, optional
        Whether the interpreter already lives in a virtual environment, which then need not be created.

    Returns
    -------
    list of str
        Empty if nothing is missing.
    """
    version = tuple(sys.version_info[:3]) if version is None else version
    in_venv = sys.prefix != sys.base_prefix if in_venv is None else in_venv
    include_dir = sysconfig.get_path("include", "posix_prefix") if include_dir is None else include_dir
    name = "{}.{}".format(*version[:2])
    found = []
    if version[:2] < OLDEST:
        found.append(
            "Python {} is too old: version {}.{} or newer is needed; name another one with make PYTHON=...".format(
                name, *OLDEST
            )
        )
    if not in_venv:
        missing = [module for module in ("venv", "ensurepip") if find_module(module) is None]
        if missing:
            found.append(
                "Python's {} is missing, so no virtual environment can be made; Debian and Ubuntu: install "
                "python{}-venv".format(" and ".join(missing), name)
            )
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if which(compiler) is None:
        found.append("no C compiler: {} was not found; install gcc, or name another one with CC=...".format(compiler))
    if not os.path.exists(os.path.join(include_dir, "Python.h")):
        found.append(
            "Python.h is missing in {}; Debian and Ubuntu: install python{}-dev, Fedora: python3-devel".format(
                include_dir, name
            )
        )
    return found


def build_requires(path: str = "pyproject.toml") -> List[str]:
    """Return the build requirements that `path` declares, as a list of str."""
    import tomllib

    with open(path, "rb") as stream:
        return tomllib.load(stream)["build-system"]["requires"]


def extra_requires(extra: str, path: str = "pyproject.toml") -> List[str]:
    """Return what an extra of the project in `path` asks for, or the project itself, as a list of str."""
    import tomllib

    with open(path, "rb") as stream:
        project = tomllib.load(stream)["project"]
    return project["dependencies"] if extra == "dependencies" else project["optional-dependencies"][extra]


def main(args: Optional[Sequence[str]] = None) -> int:
    """Print the problems, or requirements, and return the exit status."""
    args = sys.argv[1:] if args is None else args
    if args == ["--build-requires"]:
        print("\n".join(build_requires()))
        return 0
    if len(args) > 1 and args[0] == "--requires":
        print("\n".join(line for extra in args[1:] for line in extra_requires(extra)))
        return 0
    found = problems()
    for problem in found:
        sys.stderr.write("make: {}\n".format(problem))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

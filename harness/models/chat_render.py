"""A chat template is rendered in a process of its own, which may take so much time and memory and no more.

Templates are programs in Jinja2 that come with a model's files.  They see messages and names of special tokens and
nothing of Python: the environment is a sandbox in which what is given cannot be changed.  Its functions, filters and
white space are those of the hub's library (transformers 5), so that a text is the same to the letter.

The file runs as a script (`main`): a job as JSON comes in, a text or an error goes out.  It imports nothing of this
project, so that a rendering begins at once.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any

__all__ = ["OLDEST", "main"]

OLDEST = (3, 1, 6)
"""Versions of Jinja2 before this one have known ways out of the sandbox."""


def _environment() -> Any:
    """Return the sandbox, with what templates may call."""
    import jinja2
    from jinja2 import ext, nodes, sandbox, utils

    class Generation(ext.Extension):
        """A block that marks an answer in training; here it is what stands in it."""

        tags = {"generation"}  # noqa: RUF012 - the base class has it like this

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

        def _text(self, caller: Any) -> str:
            return str(caller())

    class Namespace(utils.Namespace):
        """A `Namespace` has no hidden names."""

        def __init__(*args: Any, **names: Any) -> None:  # a name may be self
            own, rest = args[0], args[1:]
            found = dict(*rest, **names)
            for name in found:
                Namespace._check(name)
            utils.Namespace.__init__(own, found)

        def __setitem__(self, name: str, value: Any) -> None:
            Namespace._check(name)
            super().__setitem__(name, value)

        @staticmethod
        def _check(name: Any) -> None:
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace has no hidden names, and {name!r} is one")

    class Dict:
        """Makes tables, and is no class, so that nothing can be reached through it."""

        def __call__(self, *args: Any, **names: Any) -> dict[Any, Any]:
            return dict(*args, **names)

        def fromkeys(self, *args: Any) -> dict[Any, Any]:
            return dict.fromkeys(*args)

    def raise_exception(message: Any) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    def tojson(
        x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
        "dict": Dict(),
        "namespace": Namespace,
    }
    return made


def _rendered(job: dict[str, Any]) -> dict[str, Any]:
    """Return the text of a job, and the names that its template asks for; or what went wrong."""
    import jinja2
    import jinja2.meta

    if tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit()) < OLDEST:
        return {"old": jinja2.__version__}
    try:
        environment = _environment()
        asks = sorted(jinja2.meta.find_undeclared_variables(environment.parse(job["template"])))
        parts, length = [], 0
        for part in environment.from_string(job["template"]).generate(**job["given"]):
            length += len(part)
            if length > job["most"]:
                return {"error": "it makes a text of more than {:,} characters".format(job["most"])}
            parts.append(part)
        return {"text": "".join(parts), "asks": asks}
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"line {error.lineno}: {error.message}"}
    except jinja2.exceptions.SecurityError as error:
        return {"error": f"it reaches for what no template may have: {error}"}
    except jinja2.UndefinedError as error:
        return {"error": str(error)}
    except jinja2.TemplateError as error:
        return {"raised": str(error)}
    except MemoryError:
        return {"error": "it wants more memory than a template may have"}
    except RecursionError:
        return {"error": "it calls itself without end"}
    except Exception as error:  # whatever a program of somebody else may raise
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Read a job from the standard input, render it within its limits, and write what came of it as JSON."""
    job = json.load(sys.stdin)
    for kind, most in ((resource.RLIMIT_CPU, job["seconds"]), (resource.RLIMIT_AS, job["bytes"])):
        resource.setrlimit(kind, (most, most))
    found = _rendered(job)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

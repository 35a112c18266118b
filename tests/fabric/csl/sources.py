"""Small CSL sources for tests, and what compiles them."""

from __future__ import annotations

from pathlib import Path

from fabric.csl.check import Compilation, check_file
from fabric.csl.comptime.session import Options

__all__ = ["compile_texts", "evaluate", "layout_of", "running"]


def running(body: str, *declarations: str) -> str:
    """Return a program whose task 8 does `body`."""
    start = "comptime { @bind_local_task(job, @get_local_task_id(8)); }"
    return "\n".join([*declarations, "task job() void {", body, "}", start, ""])


def layout_of(body: str, *declarations: str, size: str = "2, 1") -> str:
    """Return a layout file with the statements `body` after the rectangle is set."""
    return "\n".join([*declarations, "layout {", f"@set_rectangle({size});", body, "}", ""])


def compile_texts(directory: Path, files: dict[str, str], top: str = "top.csl", **options) -> Compilation:
    """Write files and check one of them."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return check_file(directory / top, Options(**options))


def evaluate(directory: Path, expression: str, *declarations: str) -> tuple[str, object]:
    """Return type and Python value of an expression that is evaluated at compile time."""
    text = "\n".join([*declarations, f"const answer = {expression};", "const kept = @type_of(answer);", ""])
    text += "export const keep: u16 = 0;\ncomptime { _ = answer; }\n"
    made = compile_texts(directory, {"top.csl": text})
    (module,) = [module for module in made.programs[0].unit.ready if not module.name]
    value = module.globals["answer"].value
    return str(value.type), value.data

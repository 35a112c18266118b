"""Runs what `tests.fabric.csl.random_programs` says in C: gcc compiles many programs in one go, and prints memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fabric.csl.random_programs import Program
from tests.fabric.csl.random_values import RECORD

__all__ = ["MOST", "outcomes"]

MOST = 4000
"""Statements that a program may do."""
HEAD = f"""
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define S(n, x) ((int64_t)((uint64_t)(x) << (64 - n)) >> (64 - n))
#define U(n, x) ((int64_t)((uint64_t)(x) << (64 - n) >> (64 - n)))
#define COUNT do {{ if (++done > {MOST}) longjmp(stop, 1); }} while (0)
static jmp_buf stop;
static long done;
static void show(const char *name, const void *values, int bytes, int count) {{
  printf(" %s", name);
  for (int k = 0; k < count; k++) {{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)values + k * bytes, bytes);
    printf(":%llx", (unsigned long long)bits);
  }}
}}
"""
BYTES = {"f32": 4, "f16": 2}


def _function(number: int, program: Program) -> str:
    """Return a program as a function of C with functions inside of it."""
    made = program.globals
    shown = [
        f'show("{name}", {"&" if made.counts[name] == 1 else ""}{name}, {BYTES.get(kind, 8)}, {made.counts[name]});'
        for name, kind in made.kinds.items()
    ]
    shown += [
        f'show("{which}_record.{part}", &{which}_record.{part}, {BYTES.get(kind, 8)}, 1);'
        for which in ("s", "t")
        for part, kind in RECORD.items()
    ]
    return "\n".join([f"static void program_{number}(void) {{", program.c, *shown, "}"])


def outcomes(programs: list[Program], directory: Path) -> list[dict[str, list[int]] | None]:
    """Return per program what it leaves: bits of each global by name; None if it does too much."""
    texts = [HEAD, *(_function(k, program) for k, program in enumerate(programs)), "int main(void) {"]
    for k in range(len(programs)):
        texts.append(f'done = 0; if (!setjmp(stop)) program_{k}(); else printf(" -"); printf("\\n");')
    source, built = directory / "programs.c", directory / "programs"
    source.write_text("\n".join([*texts, "return 0; }", ""]), encoding="utf-8")
    # Nothing is optimised, whole numbers wrap, and each operation on floats rounds once.
    flags = ["-std=gnu11", "-O0", "-w", "-fwrapv", "-ffp-contract=off", "-fexcess-precision=standard"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(built), "-lm"], check=True)
    lines = subprocess.run([str(built)], check=True, capture_output=True, text=True).stdout.splitlines()
    found: list[dict[str, list[int]] | None] = []
    for line in lines:
        if line.endswith(" -"):
            found.append(None)
            continue
        parts = [word.split(":") for word in line.split()]
        found.append({name: [int(bits, 16) for bits in values] for name, *values in parts})
    return found

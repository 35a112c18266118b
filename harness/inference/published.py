"""Cells of the paper's tables 2 to 8 stand here as printed.

Source: C. He et al., WaferLLM (OSDI 2025).  Rates are tokens per second; sides are those of square meshes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "A100_WATTS",
    "CAPACITY",
    "DECODE",
    "GEMM",
    "GEMV",
    "INFERENCE",
    "MISPRINTS",
    "MODELS",
    "PREFILL",
    "REQUESTS",
    "SYSTEM_WATTS",
    "Settings",
]

MODELS = ("LLaMA3-8B", "LLaMA2-13B", "CodeLLaMA-34B", "QWen2-72B")
SYSTEMS = ("WaferLLM", "T10", "Ladder")


@dataclass(frozen=True)
class Settings:
    """A `Settings` is a request of table 2 with the meshes that answer it.

    Attributes
    ----------
    prompt, tokens : int
        In and out.
    """

    prompt: int
    tokens: int


REQUEST_SIDES = {"LLaMA3-8B": (660, 360), "LLaMA2-13B": (750, 375)}
"""Prefill and decode of WaferLLM have meshes of these sides; T10 and Ladder decode on the mesh of prefill (their cells
agree with table 4 there).
"""

REQUEST_COLUMNS = (Settings(2048, 128), Settings(4096, 128), Settings(2048, 2048), Settings(4096, 4096))

REQUESTS: dict[tuple[str, str], tuple[float, ...]] = {
    ("LLaMA3-8B", "WaferLLM"): (764.4, 604.38, 2370.33, 2480.4),
    ("LLaMA3-8B", "T10"): (4.6, 4.5, 58.3, 94.6),
    ("LLaMA3-8B", "Ladder"): (1.18, 1.05, 7.4, 8.72),
    ("LLaMA2-13B", "WaferLLM"): (473.9, 413.98, 1690.28, 1848.0),
    ("LLaMA2-13B", "T10"): (2.6, 2.51, 35.0, 58.27),
    ("LLaMA2-13B", "Ladder"): (0.7, 0.69, 4.93, 6.14),
}
"""Table 2 has these rates of models and systems [tokens/s], by `REQUEST_COLUMNS`."""

PREFILL_SIDES = (480, 600, 720)
PREFILL: dict[tuple[str, str], tuple[float, ...]] = {
    ("LLaMA3-8B", "WaferLLM"): (20320.6, 25037.22, 27686.45),
    ("LLaMA3-8B", "T10"): (175.01, 156.62, 132.82),
    ("LLaMA3-8B", "Ladder"): (61.82, 42.31, 31.32),
    ("LLaMA2-13B", "WaferLLM"): (13685.10, 16854.21, 17498.28),
    ("LLaMA2-13B", "T10"): (121.02, 100.53, 81.28),
    ("LLaMA2-13B", "Ladder"): (47.25, 33.14, 24.23),
    ("CodeLLaMA-34B", "WaferLLM"): (5471.43, 7540.13, 8526.0),
    ("CodeLLaMA-34B", "T10"): (49.06, 46.77, 41.23),
    ("CodeLLaMA-34B", "Ladder"): (30.01, 23.14, 17.67),
    ("QWen2-72B", "WaferLLM"): (2785.19, 3775.53, 4421.58),
    ("QWen2-72B", "T10"): (24.89, 23.48, 21.50),
    ("QWen2-72B", "Ladder"): (16.77, 12.80, 10.12),
}
"""Table 3 has these rates of prompts of 4,096 tokens [tokens/s], by `PREFILL_SIDES`."""

DECODE_SIDES = (420, 540, 660)
DECODE: dict[tuple[str, str], tuple[float, ...]] = {
    ("LLaMA3-8B", "WaferLLM"): (2699.94, 2501.54, 2243.25),
    ("LLaMA3-8B", "T10"): (418.27, 339.43, 265.12),
    ("LLaMA3-8B", "Ladder"): (14.6, 13.09, 11.42),
    ("LLaMA2-13B", "WaferLLM"): (2039.22, 1899.4, 1739.78),
    ("LLaMA2-13B", "T10"): (341.83, 270.79, 233.72),
    ("LLaMA2-13B", "Ladder"): (11.01, 9.93, 9.07),
    ("CodeLLaMA-34B", "WaferLLM"): (1450.77, 1407.68, 1359.18),
    ("CodeLLaMA-34B", "T10"): (278.24, 222.41, 222.41),
    ("CodeLLaMA-34B", "Ladder"): (6.07, 6.15, 5.77),
    ("QWen2-72B", "WaferLLM"): (839.71, 824.3, 787.08),
    ("QWen2-72B", "T10"): (168.5, 132.97, 114.56),
    ("QWen2-72B", "Ladder"): (3.23, 3.29, 3.38),
}
"""Table 4 has these rates of decoding [tokens/s], by `DECODE_SIDES`."""

MISPRINTS = {("decode", "CodeLLaMA-34B", "T10", 660): "repeats the cell of 540; probably a misprint"}

CAPACITY = {
    # model: (side, regions, layers on the fullest PE, reserved bytes that give the printed shift cell,
    #         printed concat, printed shift)
    "LLaMA3-8B": (360, 6, 32 / 6, 5499, 382, 137_548),
    "LLaMA2-13B": (375, 5, 40 / 5, 4375, 16, 6_168),
}
"""Table 5 has these capacities of caches [tokens], each with the inputs that give it.  Neither layers per PE nor
reserved bytes are printed: they are inputs of these cells, and shown.
"""

GEMV = {16_384: (1.2e-6, 0.336e-3, 10.37), 32_768: (2.03e-6, 1.231e-3, 22.46)}
"""Table 6 has seconds of MeshGEMV, seconds of the A100 and the energy ratio, by the side of the matrix."""

GEMM = {16_384: (4.8e-3, 34.4e-3, 0.265), 32_768: (34e-3, 282.1e-3, 0.307)}
"""Table 7 has seconds of MeshGEMM, seconds of the A100 and the energy ratio, by the side of the matrices."""

KERNEL_SIDE = 720
"""Meshes of tables 6 and 7 have so many PEs a side."""

INFERENCE = {"LLaMA3-8B": (2480.4, 78.36, 1.41), "LLaMA2-13B": (1848.0, 47.86, 1.71)}
"""Table 8 has tokens per second of WaferLLM and of the A100 for 4,096 in and out, and the energy ratio."""

A100_WATTS = 400.0
"""An A100 takes so many watts at most (SXM, thermal design power); its energy here is this times its time.

Source: NVIDIA A100.
"""

SYSTEM_WATTS = 23_000.0
"""A CS-2, with pumps, fans and power conversion, takes so many watts at most.

Source: CS-2.
"""

SERVED = {"LLaMA3.1-8B": 1800.0, "LLaMA3.1-70B": 450.0, "LLaMA3.1-405B": 969.0}
"""One user of the vendor's service on WSE-3 gets so many output tokens per second.

Source: Public rates of answering.
"""

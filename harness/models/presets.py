"""Published models are known by name: their sizes, never their weights.

Sources: He et al., WaferLLM (OSDI 2025), section 7, and Public rates of answering; sizes from the configuration files
that their makers publish.
"""

from __future__ import annotations

from math import log
from typing import Any

from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.rope import Scaling
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["PRESETS", "find_preset"]

LONG = Scaling("llama3", 8.0)
"""LLaMA 3.1 has these positions, for contexts of 131,072 tokens."""

PHI4 = Scaling("longrope", 1.0, original=4096, amplitude=(1 + log(32) / log(4096)) ** 0.5, pairs=(1.0,) * 48)
"""Phi-4-mini has these positions in texts that its first context holds."""

NO_POSITIONS = tuple(LayerKind(turns=(layer + 1) % 4 != 0) for layer in range(36))
"""A SmolLM3 has these layers: each fourth one turns nothing."""

WINDOWS = (LayerKind(window=4096),) * 32
"""The first Mistral has these layers."""


def each_second(count: int) -> tuple[LayerKind, ...]:
    """Return the layers of a Gemma of the second generation: the first of each two has a window."""
    return tuple(LayerKind(window=None if layer % 2 else 4096) for layer in range(count))


GEMMA2: dict[str, Any] = {"tied": True, "activation": "gelu", "norms": "both", "score_cap": 50.0, "logit_cap": 30.0}
"""Gemmas of the second generation have this in common."""

PLAIN: dict[str, Any] = {"centred": True, "norm_bias": True, "gated": False, "qkv_bias": True, "o_bias": True,
                         "ffn_bias": True}  # fmt: skip
"""Models older than LLaMA have this in common: LayerNorm, no gate, biases everywhere."""
GPT2: dict[str, Any] = PLAIN | {"activation": "gelu", "learned": True}
"""All sizes of GPT-2 have this in common."""
NOWHERE = LayerKind(turns=False)
"""A layer that does not know positions."""

LOCAL = tuple(LayerKind() if (layer + 1) % 6 == 0 else LayerKind(window=512, local=True) for layer in range(26))
"""The smallest Gemma of the third generation has these layers: five with a window before each one without."""

PRESETS = {
    "LLaMA3-8B": Decoder(4096, 32, 32, 8, 128, 14336, 128256, 8192, 1e-5, 5e5),
    "LLaMA2-13B": Decoder(5120, 40, 40, 40, 128, 13824, 32000, 4096, 1e-5, 1e4),
    "CodeLLaMA-34B": Decoder(8192, 48, 64, 8, 128, 22016, 32000, 16384, 1e-5, 1e6),
    "QWen2-72B": Decoder(8192, 80, 64, 8, 128, 29568, 152064, 131072, 1e-5, 1e6, qkv_bias=True),
    "Qwen3-0.6B": Decoder(1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e-6, 1e6, tied=True, head_norms=True),
    "Qwen3-8B": Decoder(4096, 36, 32, 8, 128, 12288, 151936, 40960, 1e-6, 1e6, head_norms=True),
    "Gemma-2B": Decoder(2048, 18, 8, 1, 256, 16384, 256000, 8192, 1e-6, 1e4, tied=True, activation="gelu"),
    "SmolLM3-3B": Decoder(2048, 36, 16, 4, 128, 11008, 128256, 65536, 1e-6, 5e6, tied=True, different=NO_POSITIONS),
    "OLMo2-1B": Decoder(2048, 16, 16, 16, 128, 8192, 100352, 4096, 1e-6, 5e5, norms="behind", projection_norms=True),
    "OLMo2-7B": Decoder(4096, 32, 32, 32, 128, 11008, 100352, 4096, 1e-6, 5e5, norms="behind", projection_norms=True),
    "Phi3-mini-4k": Decoder(3072, 32, 32, 32, 96, 8192, 32064, 4096, 1e-5, 1e4),
    "Phi4-mini": Decoder(3072, 32, 24, 8, 128, 8192, 200064, 4096, 1e-5, 1e4, tied=True, rotary=96, scaling=PHI4),
    "Mistral-7B-v0.1": Decoder(4096, 32, 32, 8, 128, 14336, 32000, 32768, 1e-5, 1e4, different=WINDOWS),
    "Gemma2-2B": Decoder(2304, 26, 8, 4, 256, 9216, 256000, 8192, 1e-6, 1e4, different=each_second(26), **GEMMA2),
    "Gemma2-9B": Decoder(3584, 42, 16, 8, 256, 14336, 256000, 8192, 1e-6, 1e4, different=each_second(42), **GEMMA2),
    "Gemma3-1B": Decoder(1152, 26, 4, 1, 256, 6912, 262144, 32768, 1e-6, 1e6, tied=True, activation="gelu",
                         norms="both", head_norms=True, local_base=1e4, different=LOCAL),
    "GPT2": Decoder(768, 12, 12, 12, 64, 3072, 50257, 1024, 1e-5, tied=True, different=(NOWHERE,) * 12, **GPT2),
    "GPT2-XL": Decoder(1600, 48, 25, 25, 64, 6400, 50257, 1024, 1e-5, tied=True, different=(NOWHERE,) * 48, **GPT2),
    "Pythia-1B": Decoder(2048, 16, 8, 8, 256, 8192, 50304, 2048, 1e-5, rotary=64, norms="beside", activation="gelu_erf",
                         **PLAIN),
    "Pythia-6.9B": Decoder(4096, 32, 32, 32, 128, 16384, 50432, 2048, 1e-5, rotary=32, norms="beside",
                           activation="gelu_erf", **PLAIN),
    "Phi2": Decoder(2560, 32, 32, 32, 80, 10240, 51200, 2048, 1e-5, rotary=32, norms="shared", activation="gelu",
                    head_bias=True, **PLAIN),
    "Mixtral-8x7B": Decoder(4096, 32, 32, 8, 128, 14336, 32000, 32768, 1e-5, 1e6, experts=8, chosen=2,
                            renormalised=True),
    "Qwen3-30B-A3B": Decoder(2048, 48, 32, 4, 128, 768, 151936, 40960, 1e-6, 1e6, head_norms=True, experts=128,
                             chosen=8, renormalised=True),
    "OLMoE-1B-7B": Decoder(2048, 16, 16, 16, 128, 1024, 50304, 4096, 1e-5, 1e4, projection_norms=True, experts=64,
                           chosen=8),
    "LLaMA3.1-8B": Decoder(4096, 32, 32, 8, 128, 14336, 128256, 131072, 1e-5, 5e5, scaling=LONG),
    "LLaMA3.1-70B": Decoder(8192, 80, 64, 8, 128, 28672, 128256, 131072, 1e-5, 5e5, scaling=LONG),
    "LLaMA3.1-405B": Decoder(16384, 126, 128, 8, 128, 53248, 128256, 131072, 1e-5, 5e5, scaling=LONG),
}  # fmt: skip
"""Models have the names of the papers and of the public rates."""


def find_preset(name: str) -> tuple[str, Decoder]:
    """Return name and sizes of a preset, whatever the case of its letters.

    Raises
    ------
    ConfigError
        There is none of that name.
    """
    for known, decoder in PRESETS.items():
        if known.lower() == name.lower():
            return known, decoder
    raise ConfigError(f"unknown model {name!r}", hint=suggestion(name, PRESETS) or ", ".join(PRESETS))

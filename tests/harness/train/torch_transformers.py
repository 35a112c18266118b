"""Transformers as people write them with PyTorch, and those of the library transformers, small: for tests."""

from __future__ import annotations

import math

__all__ = ["transformer"]


def transformer(torch, name):
    """Return a module of 20 tokens, sequences of 8 and 16 features."""
    made = {
        "gpt": lambda: gpt(torch),
        "gpt tied": lambda: gpt(torch, tied=True),
        "gpt by hand": lambda: gpt(torch, joined=False, by_hand=True),
        "bert": lambda: bert(torch),
        "llama": lambda: llama(torch),
        "llama shared": lambda: llama(torch, shared=2),
        "neox": lambda: neox(torch),
        "rows": lambda: rows(torch),
    }
    if name.startswith("masked "):
        return library(torch, name.removeprefix("masked "), whole=True)
    return made[name]() if name in made else library(torch, name.removeprefix("library "))


def attention(torch, d, heads, joined, by_hand, tokens):
    """Return causal attention; queries, keys and values `joined` in a product, scores masked `by_hand`."""
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(d, 3 * d) if joined else nn.ModuleList(nn.Linear(d, d) for _ in range(3))
            self.out = nn.Linear(d, d)
            self.register_buffer("mask", torch.tril(torch.ones(tokens, tokens)).bool(), persistent=False)

        def forward(self, x):
            n, s, _ = x.shape
            parts = self.qkv(x).split(d, dim=2) if joined else [one(x) for one in self.qkv]
            q, k, v = (part.view(n, s, heads, d // heads).transpose(1, 2) for part in parts)
            if by_hand:
                scores = (q @ k.transpose(-2, -1)) / math.sqrt(d // heads)
                y = scores.masked_fill(~self.mask[:s, :s], float("-inf")).softmax(-1) @ v
            else:
                y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).contiguous().view(n, s, d))

    return Attention()


def gpt(torch, joined=True, by_hand=False, tied=False):
    """Return a decoder with learned places; if `tied`, its table gives the logits too."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(16), nn.LayerNorm(16)
            self.mix = attention(torch, 16, 4, joined, by_hand, 8)
            self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(approximate="tanh"), nn.Linear(64, 16))

        def forward(self, x):
            x = x + self.mix(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
            self.blocks, self.ln = nn.ModuleList([Block(), Block()]), nn.LayerNorm(16)
            self.head = nn.Linear(16, 20, bias=False)
            if tied:
                nn.init.normal_(self.tokens.weight, std=0.2)
                self.head.weight = self.tokens.weight

        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return Gpt()


def bert(torch):
    """Return an encoder of PyTorch's own layers, of which the first token tells the class."""
    nn = torch.nn

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(20, 16), nn.Parameter(torch.randn(1, 8, 16) / 10)
            layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, activation="gelu", batch_first=True)
            self.ln, self.encoder, self.classes = nn.LayerNorm(16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 5)
            self.kinds = nn.Embedding(2, 16)

        def forward(self, ids):
            x = self.tokens(ids) + self.places + self.kinds(torch.zeros_like(ids))
            return self.classes(self.encoder(self.ln(x))[:, 0])

    return Bert()


def turned(torch, x, cos, sin):
    """Return x with its pairs turned."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def angles(torch, size):
    """Return cosines and sines of 8 places."""
    rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    every = torch.outer(torch.arange(8.0), rates)
    both = torch.cat([every, every], -1)
    return both.cos(), both.sin()


def llama(torch, shared=4):
    """Return a decoder with turned places, gates and normalisations without mean, one of them written out.

    Four heads of queries share `shared` of keys and values.
    """
    nn = torch.nn

    class Rms(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(16) + 0.5)

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.norm1, self.norm2 = nn.Embedding(20, 16), Rms(), nn.RMSNorm(16, eps=1e-5)
            self.q, self.o = (nn.Linear(16, 16, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(16, 4 * shared, bias=False) for _ in range(2))
            self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)
            self.norm, self.head = Rms(), nn.Linear(16, 20, bias=False)
            cos, sin = angles(torch, 4)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)

        def forward(self, ids):
            x = self.tokens(ids)
            n, s, d = x.shape
            y = self.norm1(x)
            q, k, v = (one(y).view(n, s, -1, 4).transpose(1, 2) for one in (self.q, self.k, self.v))
            q, k = (turned(torch, one, self.cos, self.sin) for one in (q, k))
            k, v = (one.repeat_interleave(4 // shared, dim=1) if shared < 4 else one for one in (k, v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(n, s, d))
            y = self.norm2(x)
            return self.head(self.norm(x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))))

    return Llama()


def neox(torch):
    """Return a decoder whose queries, keys and values lie head by head, with sums of both branches at once."""
    nn = torch.nn

    class Neox(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.ln1, self.ln2 = nn.Embedding(20, 16), nn.LayerNorm(16), nn.LayerNorm(16)
            self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 20)
            self.both, self.down = nn.Linear(16, 48, bias=False), nn.Linear(24, 16, bias=False)
            cos, sin = angles(torch, 4)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)

        def forward(self, ids):
            x = self.tokens(ids)
            n, s, d = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(n, s, 4, 12).transpose(1, 2).chunk(3, -1)
            q, k = (turned(torch, one, self.cos, self.sin) for one in (q, k))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            gate, up = self.both(self.ln2(x)).chunk(2, -1)
            y = self.out(y.transpose(1, 2).reshape(n, s, d)) + self.down(nn.functional.silu(gate) * up)
            return self.head(x + y)

    return Neox()


def rows(torch):
    """Return an encoder of images row by row."""
    nn = torch.nn

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.places = nn.Linear(8, 16), nn.Parameter(torch.randn(8, 16) / 10)
            self.ln, self.qkv, self.out, self.head = (
                nn.LayerNorm(16),
                nn.Linear(16, 48),
                nn.Linear(16, 16),
                nn.Linear(16, 10),
            )

        def forward(self, x):
            x = self.embed(x) + self.places
            n, s, d = x.shape
            q, k, v = self.qkv(self.ln(x)).reshape(n, s, 3, 4, 4).permute(2, 0, 3, 1, 4)
            y = ((q / 2) @ k.transpose(-2, -1)).softmax(-1) @ v
            return self.head((x + self.out(y.transpose(1, 2).reshape(n, s, d)))[:, 0])

    return Rows()


SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 8,
}
STILL = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
LIBRARY = {
    "gpt2": (
        "GPT2",
        "LMHeadModel",
        {"vocab_size": 20, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 4}
        | {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    ),
    "llama": ("Llama", "ForCausalLM", SIZES | {"rms_norm_eps": 1e-6}),
    "llama shared": ("Llama", "ForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2", "ForCausalLM", SIZES | {"num_key_value_heads": 4}),
    "phi": ("Phi", "ForCausalLM", SIZES | {"partial_rotary_factor": 1.0}),
    "phi in part": ("Phi", "ForCausalLM", SIZES | {"partial_rotary_factor": 0.5}),
    "stablelm": ("StableLm", "ForCausalLM", SIZES | {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "llama slow": ("Llama", "ForCausalLM", SIZES | {"rope_theta": 500000.0}),
    "mistral": ("Mistral", "ForCausalLM", SIZES | {"num_key_value_heads": 2, "sliding_window": None}),
    "neox": ("GPTNeoX", "ForCausalLM", SIZES | {"rotary_pct": 1.0, "hidden_dropout": 0, "attention_dropout": 0}),
    "opt": (
        "OPT",
        "ForCausalLM",
        {"vocab_size": 20, "hidden_size": 16, "word_embed_proj_dim": 16, "num_hidden_layers": 2, "ffn_dim": 24}
        | {"num_attention_heads": 4, "max_position_embeddings": 8, "dropout": 0, "attention_dropout": 0}
        | {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2},
    ),
    "roberta": (
        "Roberta",
        "ForMaskedLM",
        SIZES | STILL | {"vocab_size": 21, "pad_token_id": 20, "max_position_embeddings": 30},
    ),
    "bert": ("Bert", "ForTokenClassification", SIZES | STILL | {"layer_norm_eps": 1e-12, "hidden_act": "gelu_new"}),
    "classes": ("Bert", "ForSequenceClassification", SIZES | STILL | {"layer_norm_eps": 1e-12}),
    "masked": ("Bert", "ForMaskedLM", SIZES | STILL),
    "electra": ("Electra", "ForSequenceClassification", SIZES | STILL | {"embedding_size": 16}),
    "albert": (
        "Albert",
        "ForSequenceClassification",
        SIZES | STILL | {"embedding_size": 16, "classifier_dropout_prob": 0},
    ),
    "distilbert": (
        "DistilBert",
        "ForSequenceClassification",
        {"vocab_size": 20, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 8}
        | {"dropout": 0, "attention_dropout": 0, "seq_classif_dropout": 0},
    ),
}
"""Models of the library: name of the configuration, ending of the model's, sizes; no dropout."""


def library(torch, name, whole=False):
    """Return a model of the library transformers, of random weights; the `whole` one gives more than logits."""
    import pytest

    made = pytest.importorskip("transformers")
    kind, ending, given = LIBRARY[name]
    if whole:
        more = {"use_cache": False} if ending in ("ForCausalLM", "LMHeadModel") else {}
        return getattr(made, kind + ending)(getattr(made, f"{kind}Config")(**given, **more))

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = getattr(made, kind + ending)(getattr(made, f"{kind}Config")(**given))

        def forward(self, ids):
            more = {"use_cache": False} if ending in ("ForCausalLM", "LMHeadModel") else {}
            return self.model(ids, **more).logits

    return Logits()

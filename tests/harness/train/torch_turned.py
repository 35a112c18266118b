"""Small modules of PyTorch that work along tokens, and forms of blocks that people write: rows of `torch_zoo`."""

from __future__ import annotations

from tests.harness.train.torch_sequences import IMAGE, TOKENS

__all__ = ["TURNED"]


def _text_cnn(nn, torch, how):
    """Convolutions over the words of a sentence, and the largest number of each."""

    class TextCnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 5)
            one = (lambda k: nn.Conv1d(8, 4, k)) if how == "rows" else (lambda k: nn.Conv2d(1, 4, (k, 8)))
            self.convs = nn.ModuleList(map(one, (2, 3)))

        def forward(self, x):
            x = self.embed(x)
            x = x.transpose(1, 2) if how == "rows" else x.unsqueeze(1)
            found = [torch.relu(one(x)) for one in self.convs]
            found = found if how == "rows" else [one.squeeze(3) for one in found]
            return self.fc(torch.cat([nn.functional.max_pool1d(one, one.shape[2]).squeeze(2) for one in found], 1))

    return TextCnn()


def _mixer(nn, torch, how):
    """Blocks that mix the tokens of a sequence, or patches of an image, and then features of each."""

    class Block(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.n, self.m = nn.LayerNorm(16), nn.LayerNorm(16)
            self.tokens = nn.Sequential(nn.Linear(count, 6), nn.GELU(), nn.Linear(6, count))
            self.features = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

        def forward(self, x):
            x = x + self.tokens(self.n(x).transpose(1, 2)).transpose(1, 2)
            return x + self.features(self.m(x))

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Embedding(20, 16) if how == "tokens" else nn.Conv2d(1, 16, 4, 4)
            self.block, self.head = Block(8 if how == "tokens" else 4), nn.Linear(16, 5)

        def forward(self, x):
            x = self.first(x) if how == "tokens" else self.first(x).flatten(2).transpose(1, 2)
            return self.head(self.block(x).mean(1))

    return Mixer()


def _flattened(nn, torch):
    """The features of all tokens, with learned places, are those of a sample: a language model of fixed windows."""

    class Flattened(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(20, 4), nn.Parameter(torch.randn(8, 4) / 9)
            self.mlp = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 5))

        def forward(self, x):
            return self.mlp((self.embed(x) + self.place).view(len(x), -1))

    return Flattened()


def _gated(nn, torch):
    """A half of the features is convolved across the tokens and gates the other: gMLP."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.inner, self.norm = nn.Embedding(20, 8), nn.Linear(8, 16), nn.LayerNorm(8)
            self.across, self.out, self.head = nn.Conv1d(8, 8, 1), nn.Linear(8, 8), nn.Linear(8, 5)

        def forward(self, x):
            x = self.embed(x)
            a, b = nn.functional.gelu(self.inner(x)).chunk(2, -1)
            return self.head((x + self.out(a * self.across(self.norm(b)))).mean(1))

    return Gated()


def _letters(nn, torch):
    """Convolutions that see what came before, with a result for each token."""

    class Letters(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.out = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 5)
            self.a, self.b = nn.Conv1d(8, 8, 3), nn.Conv1d(8, 8, 3, dilation=2)

        def forward(self, x):
            x = self.embed(x).transpose(1, 2)
            x = x + torch.relu(self.a(nn.functional.pad(x, (2, 0))))
            x = x + torch.relu(self.b(nn.functional.pad(x, (4, 0))))
            return self.out(self.norm(x.transpose(1, 2)))

    return Letters()


def _decoder(nn, torch, how):
    """Encoders and decoders of PyTorch with masks that are made inside; tokens first, or keys of another tensor."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place, self.head = nn.Embedding(20, 16), nn.Embedding(8, 16), nn.Linear(16, 5)
            form = {"batch_first": how == "keys", "dropout": 0.0}
            more = {} if how == "keys" else {"enable_nested_tensor": False}
            kind = nn.TransformerDecoderLayer if how == "keys" else nn.TransformerEncoderLayer
            self.layers = (nn.TransformerDecoder if how == "keys" else nn.TransformerEncoder)(
                kind(16, 2, 24, **form), 1, **more
            )

        def forward(self, ids):
            mask = nn.Transformer.generate_square_subsequent_mask(8)
            if how == "keys":
                x = self.embed(ids) + self.place(torch.arange(8)) * 16**-0.5
                return self.head(self.layers(x, x, tgt_mask=mask, memory_mask=mask, tgt_is_causal=True))
            x = self.embed(ids.t()) * 4 + self.place(torch.arange(8))[:, None]
            return self.head(self.layers(x, mask)).transpose(0, 1)

    return Decoder()


def _one_more(nn, torch):
    """Normalisations whose factors are one and a parameter (Gemma), and shifts that are zeros and stay."""

    class OneMore(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.a, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 5)
            self.weight, self.gamma = nn.Parameter(torch.randn(16) / 9), nn.Parameter(torch.ones(16))
            self.register_buffer("beta", torch.zeros(16))

        def forward(self, ids):
            x = self.embed(ids)
            unit = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
            x = x + torch.tanh(self.a((unit * (1.0 + self.weight.float())).type_as(x)))
            return self.head(nn.functional.layer_norm(x, (16,), self.gamma, self.beta))

    return OneMore()


def _pooled(nn):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(20, 16), nn.Linear(16, 5)

        def forward(self, ids):
            x = self.embed(ids)
            return self.fc(nn.functional.avg_pool2d(x, (x.shape[1], 1)).squeeze(1))

    return Pooled()


TURNED = {
    **{
        f"along text {how}": (TOKENS, "", lambda torch, how=how: _text_cnn(torch.nn, torch, how))
        for how in ("rows", "plane")
    },
    "along mixer": (TOKENS, "", lambda torch: _mixer(torch.nn, torch, "tokens")),
    "mixer of patches": (IMAGE, "", lambda torch: _mixer(torch.nn, torch, "patches")),
    "along flat": (TOKENS, "", lambda torch: _flattened(torch.nn, torch)),
    "along gated": (TOKENS, "", lambda torch: _gated(torch.nn, torch)),
    "along letters": (TOKENS, "", lambda torch: _letters(torch.nn, torch)),
    **{
        f"decoder {how}": (TOKENS, "", lambda torch, how=how: _decoder(torch.nn, torch, how))
        for how in ("keys", "first")
    },
    "one more": (TOKENS, "", lambda torch: _one_more(torch.nn, torch)),
    "pooled": (TOKENS, "", lambda torch: _pooled(torch.nn)),
}
"""By name, as `torch_zoo.TRAINED`; those along tokens count sequences, not tokens, in a batch."""

"""Small modules of PyTorch of sequences, and modules that are called several times: rows of `torch_zoo`."""

from __future__ import annotations

__all__ = ["FEATURES", "IMAGE", "MASKED", "ROWS", "SEQUENCES", "SOUND", "TOKENS"]

FEATURES, IMAGE, TOKENS, SOUND, MASKED = "features", "image", "tokens", "sound", "tokens with padding"
ROWS = "rows"


def _masked(nn, torch, how):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(20, 16, padding_idx=0), nn.Parameter(torch.randn(1, 8, 16) / 9)
            layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, ids, mask):
            return self.head(self.layers(self.tokens(ids) + self.places, src_key_padding_mask=mask == 0)[:, 0])

    class Turned(nn.Module):
        """Heads of turned queries share keys; what came before is seen, and no padding, of the last token's class."""

        def __init__(self):
            super().__init__()
            self.tokens, self.qkv, self.head = nn.Embedding(20, 16), nn.Linear(16, 32), nn.Linear(16, 5)
            every = torch.outer(torch.arange(8.0), 10_000.0 ** (-torch.arange(0, 4, 2) / 4)).repeat(1, 2)
            self.register_buffer("cos", every.cos(), persistent=False)
            self.register_buffer("sin", every.sin(), persistent=False)

        def turn(self, x):
            a, b = x.chunk(2, -1)
            return x * self.cos + torch.cat([-b, a], -1) * self.sin

        def forward(self, ids, mask):
            x, count = self.tokens(ids), ids.shape[1]
            q, k, v = (one.view(*ids.shape, -1, 4).transpose(1, 2) for one in self.qkv(x).split([16, 8, 8], -1))
            k, v = (one.repeat_interleave(2, dim=1) for one in (self.turn(k), v))
            lets = torch.tril(torch.ones(count, count, dtype=torch.bool)) & mask.bool()[:, None, None, :]
            y = nn.functional.scaled_dot_product_attention(self.turn(q), k, v, attn_mask=lets)
            return self.head(x + y.transpose(1, 2).flatten(2))[:, -1]

    return Encoder() if how == "padding" else Turned()


def _repeated(nn, torch, how):
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.step, self.norm = nn.Linear(6, 16), nn.Linear(16, 16), nn.LayerNorm(16)
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            x = self.first(x)
            for _ in range(3):
                x = self.norm(x + torch.tanh(self.step(x)))
            return self.head(x)

    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.head = nn.Sequential(nn.Linear(3, 8), nn.ReLU()), nn.Linear(16, 5)

        def forward(self, x):
            return self.head(torch.cat([self.one(x[:, :3]), self.one(x[:, 3:])], 1))

    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.again = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.head = nn.Linear(64, 5)

        def forward(self, x):
            x = torch.relu(self.first(x))
            return self.head(nn.functional.max_pool2d(torch.relu(self.again(x + self.again(x))), 2).flatten(1))

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(20, 16), nn.Linear(16, 5)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)

        def forward(self, ids):
            return self.head(self.layer(self.layer(self.tokens(ids))))

    return {"steps": Steps, "twins": Twins, "images": Images, "layers": Layers}[how]()


def _kept(nn, torch, how):
    """Return an encoder and the mean over tokens that are no padding, as the library of sentences takes it."""

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.norm, self.head = nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 5)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)

        def forward(self, ids, mask):
            x = self.norm(self.layer(self.tokens(ids), src_key_padding_mask=mask == 0))
            if how == "filled":
                x = x.masked_fill(mask[:, :, None] == 0, 0.0)
                return self.head(x.sum(1) / mask.sum(1, keepdim=True))
            there = mask.unsqueeze(-1).expand(x.size()).float()
            return self.head(torch.sum(x * there, 1) / torch.clamp(there.sum(1), min=1e-9))

    return Kept()


def _pairs(nn, torch, how):
    """Return a decoder whose neighbouring features are turned, as real numbers or complex ones."""

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.out, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 5)
            self.q, self.k, self.v = nn.Linear(16, 16, bias=False), nn.Linear(16, 8), nn.Linear(16, 8)
            self.register_buffer("angles", torch.outer(torch.arange(8.0), 100.0 ** -torch.arange(0, 1, 0.25)))

        def turn(self, x):
            apart = x.reshape(*x.shape[:-1], -1, 2)
            if how == "complex":
                turned = torch.polar(torch.ones(8, 1, 4), self.angles[:, None])
                return torch.view_as_real(torch.view_as_complex(apart) * turned).flatten(3)
            (a, b), cos, sin = apart.unbind(-1), self.angles.cos()[:, None], self.angles.sin()[:, None]
            return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(3)

        def forward(self, ids):
            x = self.tokens(ids)
            q, k, v = (one(x).view(*ids.shape, -1, 8) for one in (self.q, self.k, self.v))
            q, k, v = (
                one.transpose(1, 2)
                for one in (self.turn(q), self.turn(k).expand(-1, -1, 2, -1), v.expand(-1, -1, 2, -1))
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.head(x + self.out(y.transpose(1, 2).flatten(2)))

    return Pairs()


def _letters(nn, torch, how):
    """Return attention in letters whose heads share keys: one for all, or one for neighbours."""

    class Letters(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16, bias=False)
            self.q, self.kv = nn.Linear(16, 16, bias=False), nn.Linear(16, 8 if how == "one" else 16, bias=False)
            self.out, self.head = nn.Linear(16, 16, bias=False), nn.Linear(16, 5)

        def forward(self, ids):
            x = self.norm(self.tokens(ids))
            n, s = ids.shape
            k, v = self.kv(x).chunk(2, -1)
            hidden = torch.ones(s, s, dtype=torch.bool).triu(1)
            if how == "one":
                q = self.q(x).view(n, s, 4, 4).permute(0, 2, 1, 3) * 0.5
                scores = torch.einsum("b h i d, b j d -> b h i j", q, k).masked_fill(hidden, -torch.finfo(q.dtype).max)
                y = torch.einsum("b h i j, b j d -> b h i d", scores.softmax(-1), v).permute(0, 2, 1, 3)
            else:
                q = self.q(x).view(n, s, 2, 2, 4).permute(0, 2, 3, 1, 4) * 0.5
                k, v = (one.view(n, s, 2, 4).transpose(1, 2) for one in (k, v))
                scores = torch.einsum("bghid,bgjd->bghij", q, k).masked_fill(hidden, float("-inf"))
                y = torch.einsum("bghij,bgjd->bghid", scores.softmax(-1), v).permute(0, 3, 1, 2, 4)
            return self.head(x + self.out(y.reshape(n, s, 16)))

    return Letters()


def _arranged(nn, torch, how):
    """Return a vision transformer whose patches are arranged, or unfolded, and multiplied."""

    class Arranged(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.norm, self.head = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 5)
            self.token, self.place = nn.Parameter(torch.randn(1, 1, 16) / 9), nn.Parameter(torch.randn(1, 5, 16) / 9)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)

        def forward(self, x):
            parts = x.reshape(len(x), 1, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(len(x), 4, 16)
            x = torch.cat([self.token.expand(len(x), -1, -1), self.cut(parts)], 1) + self.place
            return self.head(self.norm(self.block(x))[:, 0])

    class Unfolded(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts, self.cut, self.norm = nn.Unfold(4, stride=4), nn.Linear(16, 16), nn.LayerNorm(16)
            self.place, self.head = nn.Parameter(torch.randn(4, 16) / 9), nn.Linear(16, 5)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)

        def forward(self, x):
            x = self.cut(self.parts(x).transpose(1, 2)) + self.place
            return self.head(self.norm(self.block(x)).mean(1))

    return Arranged() if how == "arranged" else Unfolded()


def _rows(nn, torch):
    """Return an encoder of rows of numbers, before which a token stands that has the class."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head, self.token = nn.Linear(6, 16), nn.Linear(16, 5), nn.Parameter(torch.randn(1, 1, 16))
            self.place = nn.Parameter(torch.randn(1, 9, 16) / 9)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True)

        def forward(self, x):
            x = torch.cat([self.token.repeat(len(x), 1, 1), self.first(x)], 1) + self.place
            return self.head(self.block(x)[:, 0])

    return Rows()


def _unflattened(nn, torch, how):
    """Return a generator of images from features, or a network that sees its samples as images."""
    if how == "generator":
        up = nn.Unflatten(1, (4, 2, 2)), nn.ConvTranspose2d(4, 2, 2, 2), nn.Tanh(), nn.Flatten()
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), *up, nn.Linear(32, 5))

    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.head = nn.Conv2d(1, 4, 2), nn.Linear(8, 5)

        def forward(self, x):
            return self.head(torch.relu(self.cut(x.view(-1, 1, 2, 3))).flatten(1))

    return Seen()


def _scalar(nn, torch):
    """Return a module that gives a number for each token, behind normalisations without factors, and a loss or none."""

    class Scalar(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.up, self.head = nn.Embedding(20, 16), nn.Linear(16, 32), nn.Linear(32, 1)
            self.norm = nn.RMSNorm(16, 1e-5, elementwise_affine=False)

        def forward(self, ids, targets=None):
            y = self.head(torch.tanh(self.up(self.norm(self.tokens(ids)))))
            return y, None if targets is None else nn.functional.mse_loss(y, targets)

    return Scalar()


def _by_hand(nn, torch):
    """Tokens see a window, by cosines; rows normalised by `std`, a rectifier squared; a buffer named as a result is."""

    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(20, 16) / 4)
            self.qkv, self.up, self.down, self.head = (
                nn.Linear(16, 48),
                nn.Linear(16, 24),
                nn.Linear(24, 16),
                nn.Linear(16, 5),
            )
            self.gain, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
            self.register_buffer("mean", torch.full((16,), 0.1))

        def forward(self, ids):
            x = self.table[ids] - self.mean
            q, k, v = (one.view(*ids.shape, 2, 8).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
            q, k = (nn.functional.normalize(one, dim=-1) for one in (q, k))
            seen = torch.ones(8, 8, dtype=torch.bool).tril().triu(-2)
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=4.0)
            x = x + y.transpose(1, 2).flatten(2)
            unit = self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.shift
            return self.head(x + self.down(nn.functional.relu(self.up(unit)).square()))

    return ByHand()


SEQUENCES = {
    "by hand": (TOKENS, "", lambda torch: _by_hand(torch.nn, torch)),
    **{
        f"unflattened {how}": (FEATURES, "", lambda torch, how=how: _unflattened(torch.nn, torch, how))
        for how in ("generator", "samples")
    },
    "rows with a class": (ROWS, "", lambda torch: _rows(torch.nn, torch)),
    "a number each": (TOKENS, "mse", lambda torch: _scalar(torch.nn, torch)),
    **{
        f"vision {how}": (IMAGE, "", lambda torch, how=how: _arranged(torch.nn, torch, how))
        for how in ("arranged", "unfolded")
    },
    **{
        f"masked {how}": (MASKED, "", lambda torch, how=how: _masked(torch.nn, torch, how))
        for how in ("padding", "turned")
    },
    **{
        f"called again {how}": (takes, "", lambda torch, how=how: _repeated(torch.nn, torch, how))
        for how, takes in (("steps", FEATURES), ("twins", FEATURES), ("images", IMAGE), ("layers", TOKENS))
    },
    **{f"kept {how}": (MASKED, "", lambda torch, how=how: _kept(torch.nn, torch, how)) for how in ("mean", "filled")},
    **{
        f"pairs {how}": (TOKENS, "", lambda torch, how=how: _pairs(torch.nn, torch, how)) for how in ("real", "complex")
    },
    **{
        f"letters {how}": (TOKENS, "", lambda torch, how=how: _letters(torch.nn, torch, how)) for how in ("one", "some")
    },
}
"""By name: what it takes, its loss if that is no cross-entropy, and what makes it."""

"""Small modules of PyTorch of kinds that people train: for tests.

`TRAINED` are exported and train as PyTorch trains them; `REFUSED` are not, and why is said.
"""

from __future__ import annotations

from tests.harness.train.torch_scores import SCORES
from tests.harness.train.torch_sequences import FEATURES, IMAGE, MASKED, ROWS, SEQUENCES, SOUND, TOKENS
from tests.harness.train.torch_turned import TURNED

__all__ = ["MASKED", "REFUSED", "TOKENS", "TRAINED", "made"]

BENDS = {
    **{name: {} for name in ("ReLU6", "LeakyReLU", "ELU", "Softplus", "Mish", "Hardswish", "Hardsigmoid", "Sigmoid")},
    **{name: {} for name in ("SiLU", "GELU", "Tanh", "CELU", "SELU", "Softsign", "Hardtanh", "Softshrink")},
}
"""Functions of a number."""


def _regression(nn):
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))


def _plain(nn):
    return nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(64, 16), nn.Dropout(0.0), nn.GELU(), nn.Linear(16, 5))


def _mobile(nn):
    def block(given, outputs, stride):
        apart = nn.Conv2d(given, given, 3, stride, 1, groups=given, bias=False)
        return (
            apart,
            nn.BatchNorm2d(given),
            nn.ReLU6(),
            nn.Conv2d(given, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    first = nn.Conv2d(1, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.Hardswish()
    return nn.Sequential(
        *first, *block(4, 8, 2), *block(8, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


def _residual(nn):
    class Block(nn.Module):
        def __init__(self, given, outputs, stride):
            super().__init__()
            self.a, self.b = nn.Conv2d(given, outputs, 3, stride, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
            self.n, self.m = nn.GroupNorm(2, outputs), nn.GroupNorm(2, outputs)
            short = nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(given, outputs, 1, bias=False))
            self.short = short if stride > 1 else nn.Identity()

        def forward(self, x):
            return nn.functional.relu(self.m(self.b(nn.functional.relu(self.n(self.a(x))))) + self.short(x))

    first = nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), Block(4, 4, 1), Block(4, 8, 2)
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(1), nn.Linear(8, 5))


def _squeezed(nn, torch):
    class Fire(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.a, self.b = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1), nn.Conv2d(2, 4, 3, padding=1)

        def forward(self, x):
            x = nn.functional.relu(self.q(x))
            return torch.cat([nn.functional.relu(self.a(x)), nn.functional.relu(self.b(x))], 1)

    first = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, Fire(), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _dense(nn, torch):
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Conv2d(2 + 2 * k, 2, 3, padding=1) for k in range(3)])

        def forward(self, x):
            for layer in self.layers:
                x = torch.cat([x, layer(nn.functional.relu(x))], 1)
            return x

    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), Dense(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 5))


def _autoencoder(nn):
    down, up = nn.Conv2d(1, 4, 3, 2, 1), nn.ConvTranspose2d(4, 4, 2, 2)
    return nn.Sequential(down, nn.ReLU(), up, nn.LeakyReLU(0.1), nn.Conv2d(4, 1, 3, padding=1))


def _mixer(nn):
    class Residual(nn.Module):
        def __init__(self, *inner):
            super().__init__()
            self.inner = nn.Sequential(*inner)

        def forward(self, x):
            return x + self.inner(x)

    block = Residual(nn.Conv2d(8, 8, 3, groups=8, padding="same"), nn.GELU(), nn.GroupNorm(1, 8))
    first = nn.Conv2d(1, 8, 2, 2), nn.GELU(), nn.InstanceNorm2d(8, affine=True)
    return nn.Sequential(
        *first, block, nn.Conv2d(8, 8, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


def _hourglass(nn, torch, how):
    class Hourglass(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.deep, self.last = (
                nn.Conv2d(1, 4, 3, padding=1),
                nn.Conv2d(4, 4, 3, padding=1),
                nn.Conv2d(8, 3, 3, padding=1),
            )
            self.up = nn.Upsample(scale_factor=2, mode="nearest")

        def forward(self, x):
            a = nn.functional.relu(self.down(x))
            b = nn.functional.relu(self.deep(nn.functional.max_pool2d(a, 2)))
            b = self.up(b) if how == "scale" else nn.functional.interpolate(b, size=a.shape[2:])
            return self.last(torch.cat([b, a], 1))

    return Hourglass()


def _excited(nn, how):
    class Excited(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()), nn.Linear(8, 5)
            if how == "convolved":
                inner = nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Sigmoid()
            else:
                inner = nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8), nn.Hardsigmoid()
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), *inner)

        def forward(self, x):
            x = self.first(x)
            gate = self.gate(x)
            x = x * (gate if how == "convolved" else gate.view(len(x), 8, 1, 1).expand_as(x))
            return self.head(x.mean((2, 3)))

    return Excited()


def _beside(nn, torch):
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.c, self.b = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(16, 5)

        def forward(self, x):
            return self.b(torch.cat([nn.functional.relu(self.a(x)), torch.tanh(self.c(x))], -1))

    return Beside()


def _gated(nn, torch, function):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 32), nn.Linear(16, 5)

        def forward(self, x):
            one, other = self.a(x).chunk(2, -1)
            return self.b(one * getattr(nn.functional, function)(other))

    return Gated()


def _encoder(nn, torch, how):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places, self.kinds = nn.Embedding(20, 16), nn.Embedding(8, 16), nn.Embedding(2, 16)
            form = {"batch_first": True, "norm_first": how != "last", "activation": "gelu"}
            layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, **form)
            self.layers, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(16)
            self.head = nn.Linear(16, 5)

        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(8)) + self.kinds(torch.zeros(8, dtype=torch.long))
            x = self.layers(x)
            if how == "before":
                return self.head(self.norm(x.mean(1)))
            if how == "pooled":
                return self.head(nn.functional.adaptive_avg_pool1d(self.norm(x).transpose(1, 2), 1).squeeze(-1))
            return self.head(self.norm(x).mean(dim=1, keepdim=True).squeeze(1))

    return Encoder()


def _heads(nn, first):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.mix = nn.Embedding(20, 16), nn.MultiheadAttention(16, 4, batch_first=first)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

        def forward(self, ids):
            x = self.tokens(ids) if first else self.tokens(ids).transpose(0, 1)
            y = self.head(self.norm(x + self.mix(x, x, x, need_weights=False)[0]))
            return y if first else y.transpose(0, 1)

    return Heads()


def _part_turned(nn, torch, base, turned):
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.qkv, self.out, self.head = (
                nn.Embedding(20, 16),
                nn.Linear(16, 48),
                nn.Linear(16, 16),
                nn.Linear(16, 5),
            )
            rates = float(base) ** (-torch.arange(0, turned, 2) / turned)
            every = torch.outer(torch.arange(8.0), rates)
            both = torch.cat([every, every], -1)
            self.register_buffer("cos", both.cos(), persistent=False)
            self.register_buffer("sin", both.sin(), persistent=False)

        def turn(self, x):
            own, rest = x[..., :turned], x[..., turned:]
            a, b = own.chunk(2, -1)
            return torch.cat([own * self.cos + torch.cat([-b, a], -1) * self.sin, rest], -1)

        def forward(self, ids):
            x = self.tokens(ids)
            q, k, v = (one.view(*ids.shape, 2, 8).transpose(1, 2) for one in self.qkv(x).split(16, -1))
            y = nn.functional.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
            return self.head(x + self.out(y.transpose(1, 2).reshape(*ids.shape, 16)))

    return Turned()


def _frozen(nn):
    found = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5))
    found[:2].requires_grad_(False)
    return found


def _windows(nn):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, (2, 1), (1, 0), dilation=(1, 2), bias=False),
        nn.ReLU(),
        nn.ZeroPad2d((1, 0, 0, 1)),
        nn.Conv2d(4, 4, (2, 3)),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


def _wavenet(nn, torch):
    class Residual(nn.Module):
        def __init__(self, channels, apart):
            super().__init__()
            form = {"dilation": apart}
            self.a, self.b = nn.Conv1d(channels, channels, 2, **form), nn.Conv1d(channels, channels, 2, **form)
            self.out, self.apart = nn.Conv1d(channels, channels, 1), apart

        def forward(self, x):
            y = nn.functional.pad(x, (self.apart, 0))
            return x + self.out(torch.tanh(self.a(y)) * torch.sigmoid(self.b(y)))

    layers = Residual(6, 1), Residual(6, 2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 5)
    return nn.Sequential(nn.Conv1d(2, 6, 1), *layers)


def _causal(nn):
    class Causal(nn.Module):
        def __init__(self, given, outputs, apart):
            super().__init__()
            self.inner, self.more = nn.Conv1d(given, outputs, 3, padding=2 * apart, dilation=apart), 2 * apart

        def forward(self, x):
            return nn.functional.relu(self.inner(x)[:, :, : -self.more])

    first = nn.BatchNorm1d(6), nn.MaxPool1d(2)
    return nn.Sequential(Causal(2, 6, 1), *first, Causal(6, 6, 2), nn.Flatten(), nn.Linear(36, 5))


def _sound(nn):
    down = nn.Conv1d(2, 6, 3, 2, 1), nn.GroupNorm(2, 6), nn.GELU(), nn.Upsample(scale_factor=2)
    up = nn.ConvTranspose1d(6, 4, 3, 1, 1), nn.InstanceNorm1d(4, affine=True), nn.AvgPool1d(2)
    return nn.Sequential(*down, *up, nn.ConvTranspose1d(4, 2, 3, 2, 1, 1))


def _convnext(nn, torch):
    class Norm(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

        def forward(self, x):
            apart = x - x.mean(1, keepdim=True)
            x = apart / torch.sqrt(apart.pow(2).mean(1, keepdim=True) + 1e-6)
            return self.weight[:, None, None] * x + self.bias[:, None, None]

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.apart = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
            self.norm, self.gamma = nn.LayerNorm(channels, 1e-6), nn.Parameter(torch.full((channels,), 0.5))
            self.up, self.down = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)

        def forward(self, x):
            y = self.norm(self.apart(x).permute(0, 2, 3, 1))
            y = self.gamma * self.down(nn.functional.gelu(self.up(y)))
            return x + y.permute(0, 3, 1, 2)

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean((-2, -1))

    first = nn.Conv2d(1, 8, 2, 2), Norm(8), Block(8), Norm(8), nn.Conv2d(8, 8, 2, 2), Block(8)
    return nn.Sequential(*first, Mean(), nn.LayerNorm(8, 1e-6), nn.Linear(8, 5))


TRAINED = {
    "regression": (FEATURES, "mse", lambda torch: _regression(torch.nn)),
    "plain": (IMAGE, "", lambda torch: _plain(torch.nn)),
    **{
        f"bent {name}": (FEATURES, "", lambda torch, name=name: _bent(torch.nn, name))
        for name in (*BENDS, "LeakyReLU 0.1", "LeakyReLU 0.2", "LeakyReLU 0.3", "Softplus 2", "PReLU")
    },
    **{
        f"image bent {name}": (IMAGE, "", lambda torch, name=name: _image_bent(torch.nn, name))
        for name in ("ReLU6", "Hardswish", "Mish", "PReLU 4")
    },
    "mobile": (IMAGE, "", lambda torch: _mobile(torch.nn)),
    "residual": (IMAGE, "", lambda torch: _residual(torch.nn)),
    "squeezed": (IMAGE, "", lambda torch: _squeezed(torch.nn, torch)),
    "dense": (IMAGE, "", lambda torch: _dense(torch.nn, torch)),
    "autoencoder": (IMAGE, "mse", lambda torch: _autoencoder(torch.nn)),
    "mixer": (IMAGE, "", lambda torch: _mixer(torch.nn)),
    **{f"excited {how}": (IMAGE, "", lambda torch, how=how: _excited(torch.nn, how)) for how in ("convolved", "flat")},
    **{
        f"hourglass {how}": (IMAGE, "", lambda torch, how=how: _hourglass(torch.nn, torch, how))
        for how in ("scale", "size")
    },
    **{
        f"scaled {how}": (FEATURES, "", lambda torch, how=how: _scaled(torch.nn, torch, how))
        for how in ("features", "all")
    },
    **{f"vision {how}": (IMAGE, "", lambda torch, how=how: _vision(torch.nn, torch, how)) for how in ("class", "mean")},
    **{f"waves {how}": (TOKENS, "", lambda torch, how=how: _waved(torch.nn, torch, how)) for how in ("kept", "made")},
    **{
        f"padded {how}": (TOKENS, "", lambda torch, how=how: _padded(torch.nn, torch, how))
        for how in ("bits", "numbers")
    },
    **SEQUENCES,
    **SCORES,
    **TURNED,
    "head norms": (TOKENS, "", lambda torch: _head_norms(torch.nn, torch)),
    "pooled last": (IMAGE, "", lambda torch: _pooled_last(torch.nn)),
    "by neighbours": (IMAGE, "", lambda torch: _by_neighbours(torch.nn, torch)),
    "by instance": (IMAGE, "", lambda torch: _by_instance(torch.nn)),
    "known norms": (IMAGE, "", lambda torch: _known_norms(torch.nn, torch)),
    "without factors": (FEATURES, "", lambda torch: _without_factors(torch.nn)),
    "scored": (TOKENS, "", lambda torch: _scored(torch.nn, torch)),
    "without shifts": (TOKENS, "", lambda torch: _without_shifts(torch.nn)),
    "convnext": (IMAGE, "", lambda torch: _convnext(torch.nn, torch)),
    "frozen": (FEATURES, "", lambda torch: _frozen(torch.nn)),
    "windows": (IMAGE, "", lambda torch: _windows(torch.nn)),
    "wavenet": (SOUND, "", lambda torch: _wavenet(torch.nn, torch)),
    "causal": (SOUND, "", lambda torch: _causal(torch.nn)),
    "sound": (SOUND, "mse", lambda torch: _sound(torch.nn)),
    **{
        f"u-net {mode}": (IMAGE, "", lambda torch, mode=mode: _unet(torch.nn, torch, scale_factor=2, mode=mode))
        for mode in ("bilinear", "bicubic")
    },
    "u-net corners": (
        IMAGE,
        "",
        lambda torch: _unet(torch.nn, torch, size=(8, 8), mode="bilinear", align_corners=True),
    ),
    "attended": (IMAGE, "", lambda torch: _attended(torch.nn, torch)),
    "shuffled": (IMAGE, "", lambda torch: _shuffled(torch.nn, torch)),
    "in windows": (IMAGE, "mse", lambda torch: _in_windows(torch.nn, torch)),
    "largest": (SOUND, "", lambda torch: _largest(torch.nn, torch)),
    "means": (IMAGE, "", lambda torch: _means(torch.nn)),
    "beside": (FEATURES, "", lambda torch: _beside(torch.nn, torch)),
    **{
        f"gated {name}": (FEATURES, "", lambda torch, name=name: _gated(torch.nn, torch, name))
        for name in ("silu", "sigmoid", "gelu")
    },
    **{
        f"encoder {how}": (TOKENS, "", lambda torch, how=how: _encoder(torch.nn, torch, how))
        for how in ("mean", "before", "pooled", "last")
    },
    "heads": (TOKENS, "", lambda torch: _heads(torch.nn, True)),
    "heads tokens first": (TOKENS, "", lambda torch: _heads(torch.nn, False)),
    "turned in part": (TOKENS, "", lambda torch: _part_turned(torch.nn, torch, 10_000, 4)),
    "turned slowly": (TOKENS, "", lambda torch: _part_turned(torch.nn, torch, 500_000, 8)),
    "turned fast": (TOKENS, "", lambda torch: _part_turned(torch.nn, torch, 100, 8)),
}
"""By name: what it takes, its loss if that is no cross-entropy, and what makes it."""


def _bent(nn, name):
    name, *share = name.split()
    return nn.Sequential(nn.Linear(6, 16), getattr(nn, name)(*map(float, share)), nn.Linear(16, 5))


def _image_bent(nn, name):
    name, *share = name.split()
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), getattr(nn, name)(*map(int, share)), nn.Flatten(), nn.Linear(256, 5)
    )


def _scaled(nn, torch, how):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 5)
            self.gamma = nn.Parameter(torch.full((16,) if how == "features" else (), 0.3))

        def forward(self, x):
            x = nn.functional.relu(self.a(x))
            return 30 * torch.tanh(self.c(x + self.gamma * torch.tanh(self.b(x)) - 0.1 * x) / 60)

    return Scaled()


def _scored(nn, torch):
    class Scored(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.qkv, self.head = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 5)

        def forward(self, ids):
            x = self.tokens(ids)
            q, k, v = (one.view(*ids.shape, 2, 8).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
            return self.head(x + y.transpose(1, 2).flatten(2))

    return Scored()


def _vision(nn, torch, how):
    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.norm, self.head = nn.Conv2d(1, 16, 4, 4), nn.LayerNorm(16), nn.Linear(16, 5)
            self.token = nn.Parameter(torch.randn(1, 1, 16) / 9) if how == "class" else None
            self.place = nn.Parameter(torch.randn(1, 4 + (how == "class"), 16) / 9)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)

        def forward(self, x):
            x = self.cut(x).flatten(2).transpose(1, 2)
            if how == "class":
                x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
            x = self.norm(self.block(x + self.place))
            return self.head(x[:, 0] if how == "class" else x.mean(1))

    return Vision()


def _padded(nn, torch, how):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(20, 16, padding_idx=0), nn.Embedding(8, 16)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(8))
            mask = (1 - (ids != 0).float()) * -10_000.0 if how == "numbers" else ids.eq(0)
            return self.head(self.block(x, src_key_padding_mask=mask)[:, 0])

    return Padded()


def _head_norms(nn, torch):
    class HeadNorms(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(20, 16), nn.Linear(16, 5)
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
            self.first, self.norm_q, self.norm_k = nn.RMSNorm(16, 1e-5), nn.RMSNorm(8, 1e-5), nn.RMSNorm(8, 1e-5)

        def forward(self, ids):
            x = self.tokens(ids)
            h = self.first(x)
            q, k = self.norm_q(self.q(h).view(*ids.shape, 2, 8)), self.norm_k(self.k(h).view(*ids.shape, 1, 8))
            q, k, v = (one.transpose(1, 2) for one in (q, k, self.v(h).view(*ids.shape, 1, 8)))
            k, v = (one.expand(-1, 2, -1, -1) for one in (k, v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.head(x + y.transpose(1, 2).reshape(*ids.shape, 16))

    return HeadNorms()


def _waved(nn, torch, how):
    class Waved(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.qkv, self.head = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 5)
            nn.init.normal_(self.tokens.weight, std=0.1)
            waves = torch.sin(torch.arange(8 * 16.0).reshape(1, 8, 16))
            self.register_buffer("waves", waves, persistent=how == "kept")

        def forward(self, ids):
            x = self.tokens(ids) * 16**0.5 + self.waves[:, : ids.shape[1]]
            q, k, v = (one.reshape(*ids.shape, 2, 8) for one in self.qkv(x).chunk(3, -1))
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5
            seen = torch.triu(torch.ones(8, 8, dtype=torch.bool), 1)
            shares = scores.masked_fill(seen, float("-inf")).softmax(-1)
            return self.head(x + torch.einsum("bhqk,bkhd->bqhd", shares, v).flatten(2))

    return Waved()


def _pooled_last(nn):
    """Means of images that lie with their channels last, which are taken by strides: the end of a ConvNeXt."""

    class Last(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    begin = nn.Conv2d(1, 6, 2, 2), Last(6, eps=1e-6), nn.Conv2d(6, 6, 3, padding=1, groups=6)
    return nn.Sequential(*begin, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


def _by_neighbours(nn, torch):
    """A gate of channels that is convolved along them (efficient channel attention)."""

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.conv = nn.AdaptiveAvgPool2d(1), nn.Conv1d(1, 1, 3, padding=1, bias=False)

        def forward(self, x):
            y = self.conv(self.pool(x).squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
            return x * torch.sigmoid(y).expand_as(x)

    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), Gate(), nn.Flatten(), nn.Linear(384, 5))


def _by_instance(nn):
    norms = nn.InstanceNorm2d(4), nn.GroupNorm(2, 4, 1e-3, affine=False), nn.BatchNorm2d(4, 0.1, affine=False)
    norms = *norms, nn.LayerNorm([4, 8, 8])
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *norms, nn.ReLU(), nn.Flatten(), nn.Linear(256, 5))


def _known_norms(nn, torch):
    """Batches are normalised with known statistics; factors and shifts are trained, or stay, or there are none."""

    class Known(nn.BatchNorm2d):
        def train(self, mode=True):
            return super().train(False)

    norms = Known(4), Known(4, 1e-3), Known(4, affine=False), nn.BatchNorm2d(4)
    norms[1].requires_grad_(False)
    for norm in norms:
        norm.running_mean.normal_(0, 0.1), norm.running_var.uniform_(0.5, 1.5)
    with torch.no_grad():
        norms[1].weight.uniform_(0.5, 1.5), norms[1].bias.normal_(0, 0.1)
    first, *others = norms
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), first, nn.ReLU(), *others, nn.Flatten(), nn.Linear(256, 5))


def _without_factors(nn):
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16, elementwise_affine=False), nn.ReLU(), nn.Linear(16, 5))


def _without_shifts(nn):
    norms = nn.LayerNorm(16, bias=False), nn.LayerNorm(16, 0.1, bias=False)
    return nn.Sequential(
        nn.Embedding(20, 16), norms[0], nn.Linear(16, 16, bias=False), nn.GELU(), norms[1], nn.Linear(16, 5)
    )


def _unet(nn, torch, **how):
    """Two levels, the lower one enlarged by `nn.Upsample`."""

    class Level(nn.Sequential):
        def __init__(self, given, outputs):
            norm = nn.BatchNorm2d(outputs)
            super().__init__(nn.Conv2d(given, outputs, 3, padding=1, bias=False), norm, nn.ReLU(inplace=True))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.inner, self.end = Level(1, 4), Level(4, 6), nn.Conv2d(4, 3, 1)
            self.pool, self.up, self.last = nn.MaxPool2d(2), nn.Upsample(**how), Level(10, 4)

        def forward(self, x):
            x = self.down(x)
            return self.end(self.last(torch.cat([x, self.up(self.inner(self.pool(x)))], 1)))

    return UNet()


def _upsampled(nn, **how):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Upsample(**how), nn.Flatten(), nn.Linear(196, 5))


def _means(nn):
    """Means of windows that count their padding, do not, or leave the image."""
    pools = nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(2, 1, 1), nn.AvgPool2d(2, 2, ceil_mode=True)
    return nn.Sequential(nn.Conv2d(1, 4, 3), *pools, nn.Flatten(), nn.Linear(16, 5))


def _shuffled(nn, torch):
    """Channels in two halves, one of which is convolved, and shuffled behind it: a unit of ShuffleNet V2."""

    class Unit(nn.Module):
        def __init__(self):
            super().__init__()
            apart = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(4)
            self.branch = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), *apart, nn.Conv2d(4, 4, 1), nn.ReLU())
            self.shuffle = nn.ChannelShuffle(2)

        def forward(self, x):
            a, b = x.chunk(2, 1)
            return self.shuffle(torch.cat([a, self.branch(b)], 1))

    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), Unit(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def _in_windows(nn, torch):
    """Focus layers and pixels that are shuffled: super-resolution on images of half the sides."""

    class Focus(nn.Module):
        def forward(self, x):
            return torch.cat([x[..., i::2, j::2] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))], 1)

    inner = nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), nn.PixelUnshuffle(2), nn.Conv2d(24, 16, 1)
    return nn.Sequential(Focus(), *inner, nn.PixelShuffle(2), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.PixelShuffle(2))


def _largest(nn, torch):
    """Largest numbers over time, of three convolutions: a TextCNN on features of words; and a gate of each pixel."""

    class Largest(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Conv1d(4, 4, k) for k in (2, 3, 4))
            self.first, self.gate, self.head = nn.Conv1d(2, 4, 3), nn.Conv1d(1, 1, 3, padding=1), nn.Linear(16, 5)

        def forward(self, x):
            x = self.first(x)
            x = x * torch.sigmoid(self.gate(x.mean(1, keepdim=True)))
            found = [one(x).amax(2) for one in self.parts]
            return self.head(torch.cat([*found, nn.functional.adaptive_max_pool1d(x, 1).squeeze(2)], 1))

    return Largest()


def _attended(nn, torch):
    """Images less their means over their deviations; gates of channels, which share a product, and of pixels: CBAM."""

    class Attended(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("middle", torch.full((1, 1, 1), 0.4))
            self.first = nn.Sequential(nn.Conv2d(1, 4, 3, 2, bias=False), nn.BatchNorm2d(4), nn.ReLU())
            self.pixels, self.head = nn.Conv2d(2, 1, 3, padding=1), nn.Linear(4, 5)
            self.mlp = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4))

        def forward(self, x):
            x = self.first((x - self.middle) / torch.tensor([0.5])[:, None, None])
            gate = torch.sigmoid(self.mlp(x.mean((2, 3))) + self.mlp(x.amax((2, 3))))
            x = x * gate[:, :, None, None]
            both = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
            return self.head((x * torch.sigmoid(self.pixels(both))).mean((2, 3)))

    return Attended()


REFUSED = {
    "odd bend": (FEATURES, lambda torch: _bent(torch.nn, "Hardshrink"), "Where.*none of relu"),
    "upsampled": (
        IMAGE,
        lambda torch: _upsampled(torch.nn, scale_factor=1.3, mode="bilinear"),
        "Resize.*7 x 7 in a way that is none of",
    ),
}
"""By name: what it takes, what makes it, and what is said."""


def made(torch, takes, module):
    """Return (module, what it is called with) of a row of the tables."""
    torch.manual_seed(0)
    shapes = {FEATURES: (16, 6), IMAGE: (8, 1, 8, 8), SOUND: (8, 2, 12), ROWS: (4, 8, 6)}
    x = torch.randint(0, 20, (4, 8)) if takes in (TOKENS, MASKED) else torch.randn(*shapes[takes])
    if takes in (TOKENS, MASKED):
        x[:, 0] = 1  # there is one that is no padding
    return module(torch).train(), (x, (x != 0).long()) if takes == MASKED else (x,)

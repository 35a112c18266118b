"""Small modules of PyTorch whose attention is of other kinds: scores by place, heads that are normalised or shared."""

from __future__ import annotations

from tests.harness.train.torch_sequences import TOKENS

__all__ = ["SCORES"]


def _model(torch, block, layers=2):
    """Return an embedding, blocks that are given what the model holds, and the next token."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.blocks = nn.Embedding(20, 16), nn.ModuleList(block(nn) for _ in range(layers))
            self.head = nn.Linear(16, 20)
            self.table = nn.Embedding(9, 4) if self.blocks[0].relative else None

        def forward(self, ids):
            x = self.tokens(ids)
            for one in self.blocks:
                x = x + one(x, self.table)
            return self.head(x)

    return Model()


def _block(torch, how):
    """Return what makes a block of attention, written by hand."""

    def made(nn):
        class Block(nn.Module):
            relative = how in ("buckets", "pairs")

            def __init__(self):
                super().__init__()
                shared = 4 if how == "shared" else 16
                self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 16)
                self.parts = [16, shared, shared]
                self.qkv = nn.Linear(16, sum(self.parts))
                self.qn, self.kn = (nn.LayerNorm(4) if how == "normed" else nn.Identity() for _ in range(2))
                tokens = torch.arange(8)
                away = tokens - tokens[:, None]
                row, column = ((tokens[:, None] // 4 - tokens // 4), (tokens[:, None] % 4 - tokens % 4))
                buckets = away.clamp(-4, 4) + 4 if how == "buckets" else (row + 1) * 3 + column.clamp(-1, 1) + 1
                self.register_buffer("index", buckets, persistent=False)
                slopes = torch.tensor([2.0 ** -(2 * k + 2) for k in range(4)])[:, None, None]
                self.register_buffer("slopes", slopes * tokens, persistent=False)
                self.register_buffer("before", torch.ones(8, 8).tril().bool(), persistent=False)

            def forward(self, x, table):
                parts = self.qkv(self.norm(x)).split(self.parts, -1)
                q, k, v = (one.unflatten(-1, (-1, 4)).transpose(1, 2) for one in parts)
                scores = self.qn(q) @ self.kn(k).transpose(-2, -1) / 2
                if self.relative:
                    scores = scores + table(self.index).permute(2, 0, 1)
                elif how == "slopes":
                    scores = (scores + self.slopes).masked_fill(~self.before, -1e9)
                return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

        return Block()

    return made


def _letters(torch):
    nn = torch.nn

    class Letters(nn.Module):
        """Parameters have axes of heads and features."""

        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
            self.qkv = nn.Parameter(torch.randn(3, 16, 4, 4) / 4)
            self.out = nn.Parameter(torch.randn(4, 4, 16) / 4)

        def forward(self, ids):
            x = self.tokens(ids)
            q, k, v = (torch.einsum("btm,mhd->bhtd", x, one) for one in self.qkv)
            shares = (torch.einsum("bhqd,bhkd->bhqk", q, k) / 2).softmax(-1)
            mixed = torch.einsum("bhqk,bhkd->bqhd", shares, v)
            return self.head(x + torch.einsum("bqhd,hdm->bqm", mixed, self.out))

    return Letters()


SCORES = {
    f"scores of {how}": (TOKENS, "", lambda torch, how=how: _model(torch, _block(torch, how)))
    for how in ("buckets", "pairs", "slopes", "shared", "normed")
} | {"scores of letters": (TOKENS, "", _letters)}
"""By name: what it takes, its loss, and what makes it."""

"""Networks as people write them with PyTorch, small: for tests that have it."""

from __future__ import annotations

__all__ = ["network"]


def separable(nn, below, above, stride):
    """Return a depthwise convolution and one of single pixels."""
    return nn.Sequential(
        nn.Conv2d(below, below, 3, stride, 1, groups=below),
        nn.InstanceNorm2d(below, affine=True),
        nn.SiLU(),
        nn.Conv2d(below, above, 1),
        nn.GroupNorm(1, above),
        nn.GELU(approximate="tanh"),
    )


def unet(torch, pixels=False):
    """Return a small U-Net: down twice, up twice, with what was before; logits of each pixel, or their means."""
    nn = torch.nn

    def twice(below, above):
        first = nn.Conv2d(below, above, 3, padding=1, bias=False), nn.BatchNorm2d(above), nn.ReLU()
        return nn.Sequential(*first, nn.Conv2d(above, above, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.begin, self.down, self.bottom = twice(1, 4), twice(4, 6), twice(6, 8)
            self.up1, self.join1 = nn.ConvTranspose2d(8, 6, 2, 2), twice(12, 6)
            self.up2, self.join2 = nn.ConvTranspose2d(6, 4, 2, 2), twice(8, 4)
            self.end, self.pool = nn.Conv2d(4, 10, 1), nn.MaxPool2d(2)

        def forward(self, x):
            a = self.begin(x)
            b = self.down(self.pool(a))
            y = self.up1(self.bottom(self.pool(b)))
            y = self.up2(self.join1(torch.cat([b, y], dim=1)))
            y = self.end(self.join2(torch.cat([y, a], dim=1)))
            return y if pixels else y.mean((2, 3))

    return UNet()


def normal_block(torch):
    """Return the block of a residual network as it was published: with batch normalisation."""
    nn = torch.nn

    class Normal(nn.Module):
        def __init__(self, below, above, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(below, above, 3, stride, 1, bias=False), nn.BatchNorm2d(above)
            self.conv2, self.bn2 = nn.Conv2d(above, above, 3, 1, 1, bias=False), nn.BatchNorm2d(above, momentum=0.3)
            down = nn.Conv2d(below, above, 1, stride, bias=False), nn.BatchNorm2d(above)
            self.downsample = nn.Sequential(*down) if stride > 1 else None

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

    return Normal


def enlarging(nn):
    """Return a network that makes images smaller, then larger than they were."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 3, 2, 2, bias=False),
        nn.BatchNorm2d(3),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(48, 10),
    )


def stem(nn, block):
    """Return a residual network that begins as those of large images do, and pools with padding."""
    begin = nn.Conv2d(1, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    blocks = block(4, 4, 1), block(4, 8, 2)
    return nn.Sequential(*begin, *blocks, nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(8, 10))


def gated_network(torch):
    """Return a residual network of features with a gate."""
    nn = torch.nn

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Linear(64, 16), nn.LayerNorm(16)
            self.up, self.gate, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            x = self.embed(x.flatten(1))
            y = self.norm(x)
            return self.head(x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)))

    return Gated


def network(torch, name):
    """Return a module that takes images of one channel and 8 x 8 pixels and gives ten logits."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, below, above, stride):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(below, above, 3, stride, 1, bias=False), nn.GroupNorm(2, above)
            self.conv2, self.norm2 = nn.Conv2d(above, above, 3, 1, 1, bias=False), nn.GroupNorm(2, above)
            down = nn.Conv2d(below, above, 1, stride, bias=False), nn.GroupNorm(2, above)
            self.down = nn.Sequential(*down) if stride > 1 else nn.Identity()

        def forward(self, x):
            y = torch.relu(self.norm1(self.conv1(x)))
            return torch.relu(self.norm2(self.conv2(y)) + self.down(x))

    Normal = normal_block(torch)

    Gated = gated_network(torch)
    made = {
        "lenet": lambda: nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 12),
            nn.ReLU(),
            nn.Linear(12, 10),
        ),
        "residual": lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, 1, 1),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            Block(4, 4, 1),
            Block(4, 8, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ),
        "resnet": lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, 1, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            Normal(4, 4, 1),
            Normal(4, 8, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ),
        "stem": lambda: stem(nn, Normal),
        "unet": lambda: unet(torch),
        "segments": lambda: unet(torch, pixels=True),
        "enlarging": lambda: enlarging(nn),
        "features": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10), nn.BatchNorm1d(10)
        ),
        "depthwise": lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            separable(nn, 4, 6, 1),
            separable(nn, 6, 8, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ),
        "gated": Gated,
    }
    return made[name]()

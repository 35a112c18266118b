"""Networks that are no chains of layers: operations of a file, or a preset's, become the nodes of a graph.

======  ==============================================================================================================
preset  what it is
======  ==============================================================================================================
gpt     pre-normalised transformer: a product embeds the samples; blocks of attention and two products with GELU (tanh
        form) between them, each behind a normalisation and added to what came in; a last normalisation and product
bert    the same with normalisations behind the sums, and tokens that see those behind them too
llama   as gpt, without biases, normalised without a mean, places turned into queries and keys instead of embedded, a
        product with SiLU as the gate of another; heads of queries may share those of keys and values
resnet  residual network of images: a convolution, stages of blocks of two convolutions each, all normalised over
        batches, the mean of each channel and a product; each stage but the first begins with a stride of two
======  ==============================================================================================================

Sources: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2); the hub's library
transformers (LLaMA); K. He et al., "Deep residual learning for image recognition", 2015 (section 4.2). Weights of a
preset are drawn with a deviation of 1 / sqrt(features), those of its embedding with 0.3, which learned faster than
0.05 or 1 on the text of ``wse train chars``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fabric.networks.graph.attention import BY_DISTANCE, BY_PAIR, biases_of, of_slopes
from fabric.networks.graph.dropout import drops_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node, as_size
from fabric.networks.graph.resample import METHODS
from fabric.networks.graph.rotary import BASE
from fabric.networks.graph.table import LOSSES, OPERATIONS
from fabric.networks.graph.tensors import INPUT
from fabric.networks.graph.windows import Window, window_of
from wse_core.errors import ConfigError
from wse_core.formats import Half
from wse_core.schema import suggestion

if TYPE_CHECKING:
    from harness.train.tables import NodeConfig

__all__ = [
    "NODE_OPERATIONS",
    "PLACED",
    "PRESETS",
    "SIDES",
    "SIZES",
    "enlarged",
    "graph_of",
    "preset_nodes",
    "window_at",
]

NODE_OPERATIONS = tuple(name for name, row in OPERATIONS.items() if "plain" not in row.refused and name not in LOSSES)
"""A node of a file has one of these operations; the loss comes by itself."""
NORMS = tuple(name for name, row in OPERATIONS.items() if row.normalises)
"""These have factors of their own, and may have an epsilon."""
SIDES = ("stride_width", "padding_width", "padding_below", "padding_right", "dilation", "dilation_width")
"""Sizes of windows that follow from others where a node does not say them."""
WINDOW = ("kernel", "kernel_width", "stride", "padding", *(side for side in SIDES if "dilation" not in side))
"""Windows without gaps have these keys."""
OWNERS = {
    **dict.fromkeys(("outputs", "bias", "density", "deviation"), ("linear", "convolution", "transposed")),
    **dict.fromkeys(
        ("stride", "stride_width", "padding", "padding_width", "padding_below", "padding_right"),
        ("convolution", "transposed", "maxpool", "avgpool", "resample"),
    ),
    **dict.fromkeys(("dilation", "dilation_width"), ("convolution", "transposed")),
    **dict.fromkeys(
        ("kernel", "kernel_width"), ("convolution", "transposed", "maxpool", "avgpool", "upsample", "resample")
    ),
    **dict.fromkeys(("output_padding", "output_padding_width"), ("transposed",)),
    "groups": ("convolution", "transposed", "groupnorm", "headrms"),
    "momentum": ("batchnorm",),
    "epsilon": NORMS,
    "heads": ("attention", "rotary"),
    "kv_heads": ("attention",),
    "causal": ("attention",),
    "scaled": ("attention",),
    "window": ("attention",),
    "slopes": ("attention",),
    "biases": ("attention",),
    "factor": ("multiple",),
    **dict.fromkeys(("ratio", "together"), ("dropout",)),
    **dict.fromkeys(("method", "sides", "rows", "columns"), ("resample",)),
    "fixed_outputs": ("linear",),
    **dict.fromkeys(
        ("fixed", "shares"), ("linear", "convolution", "transposed", "shift", "scale", "attention", *NORMS)
    ),
    "shared": ("scale", "headrms", "groupnorm"),
    "each": ("shift", "scale"),
    "base": ("rotary",),
    "turned": ("rotary",),
}
"""Keys of a node belong to these operations."""
PLACED = ("gpt", "bert")
"""These presets are told places in a sequence by the samples."""
EMBEDDING = 0.3
"""The weights of a preset's embedding are drawn with this deviation."""


def graph_of(
    inputs: int,
    nodes: Sequence[NodeConfig],
    sequence: int,
    dtype: Half = "f16",
    some: bool = False,
    image: Sequence[int] = (),
    pixels: bool = False,
    loss: str = "cross_entropy",
) -> Network:
    """Return the network of operations.

    Parameters
    ----------
    inputs : int
        Features of a sample.
    nodes : sequence of NodeConfig
    sequence : int
        Tokens that attention sees together.
    dtype : {"f16", "cb16"}
    some : bool
        Tokens may be without a label.
    image : sequence of int, optional
        Channels, rows and columns of a sample.
    pixels : bool
        Each pixel of the result has a label.
    loss : str
        One of `fabric.networks.graph.table.LOSSES`.

    Raises
    ------
    ConfigError
        Names that are not there, keys that an operation does not have, sizes that do not fit.
    """
    names, rows, before = {INPUT: INPUT}, {INPUT: inputs}, INPUT
    images = {INPUT: tuple(image)}  # channels, rows and columns; () is no image
    found: list[Node] = []
    normed = {f"{node.name}.norm" for node in nodes if node.op in NORMS}
    for number, node in enumerate(nodes):
        where = f"network.nodes[{number}]"
        _check(node, where)
        if node.name in normed and node.op in (*OWNERS["outputs"], "scale"):
            what = f"{node.name}.weight is a parameter of {node.name.removesuffix('.norm')!r} too"
            raise ConfigError(what, where=f"{where}.name", hint="another name")
        for name in node.inputs:
            if name not in names:
                hint = suggestion(name, names)
                raise ConfigError(f"there is no {name!r} before {node.name!r}", where=f"{where}.inputs", hint=hint)
        if node.name in names or node.name.startswith(f"{INPUT}."):
            raise ConfigError(f"two operations are called {node.name!r}", where=f"{where}.name")
        given = node.inputs or (before,)
        sizes = _sizes(node, given[0], rows[given[0]], images[given[0]], sequence, where)
        if node.epsilon is not None:
            sizes["epsilon"] = as_size(node.epsilon)
        if node.op == "dropout":
            sizes["number"] = len(drops_of(found))
        names[node.name] = f"{node.name}.{node.op}"
        found.append(Node(names[node.name], node.op, tuple(names[name] for name in given), sizes))
        before, images[node.name] = node.name, () if node.op == "linear" else images[given[0]]
        rows[node.name] = node.outputs or rows[given[0]] if node.op == "linear" else rows[given[0]]
        if node.op == "concat":
            images[node.name] = _side_by_side([images[name] for name in given])
            rows[node.name] = sum(rows[name] for name in given)
        if node.op in OWNERS["kernel"]:
            found_image = _windowed(found[-1], rows[given[0]], where)
            images[node.name], rows[node.name] = found_image, math.prod(found_image)
        if node.image:
            images[node.name] = _as_image(node, rows[node.name], images[node.name], where)
        if node.op == "transposed" and node.bias is not False:
            found.append(Node(f"{node.name}.shift", "shift", (names[node.name],), _sides(images[node.name])))
            names[node.name] = found[-1].name
    found.append(_loss(loss, names[before], some, images[before] if pixels else None, before))
    try:
        network = Network(tuple(found), inputs, dtype)
        network.operations()  # nothing is left over
    except ConfigError as error:
        error.where = "network.nodes"
        raise
    return network


def _as_image(node: NodeConfig, features: int, image: tuple[int, ...], where: str) -> tuple[int, ...]:
    """Return the sizes of the image as which the features that a node gives are seen."""
    what = "gives an image already" if image else f"gives {features} features" * (math.prod(node.image) != features)
    if what or len(node.image) != 3 or min(node.image) < 1:
        what = f"{node.name} {what}" if what else "an image has three sizes"
        raise ConfigError(what, where=f"{where}.image", value=node.image, hint="channels, rows and columns")
    return tuple(node.image)


def _sizes(
    node: NodeConfig, given: str, features: int, image: tuple[int, ...], sequence: int, where: str
) -> dict[str, int]:
    """Return what an operation has to know of what it is given, so many features or an image."""
    if node.op == "linear":
        return {"inputs": features, "outputs": node.outputs or 0, "bias": int(node.bias is not False)}
    if node.op == "multiple":
        return {"factor": as_size(1.0 if node.factor is None else node.factor)}
    if node.op == "dropout":
        return {"ratio": as_size(node.ratio or 0.0), "together": node.together or 1}
    if node.op == "headrms":
        return _sides((features, 1, 1)) | {"groups": node.groups or 1}
    if node.op in ("batchnorm", "channelnorm", "shift", "scale") and not node.each:
        return _sides(image or (features, 1, 1))  # a feature is a channel of one pixel
    if node.op in (*OWNERS["kernel"], "groupnorm"):
        return _image_sizes(node, image, given, features, where)
    if node.op in OWNERS["heads"]:
        causal = {"causal": int(node.causal is not False)} if node.op in OWNERS["causal"] else {}
        fewer = {"kv_heads": node.kv_heads} if node.kv_heads not in (None, node.heads) else {}
        turn = {"base": node.base} if node.base not in (None, BASE) else {}
        turn |= {"turned": node.turned} if node.turned is not None else {}
        heads, plain = node.heads or 1, (None, features // (node.heads or 1))
        turn |= {"scaled": node.scaled} if node.scaled not in plain else {}
        turn |= {"window": node.window} if node.window is not None else {}
        turn |= of_slopes(node.slopes)
        sizes = {"heads": heads, "sequence": sequence, **causal, **fewer, **turn}
        return sizes | _biases(node, sizes, where)
    if node.each:
        return _sides((features, 1, 1))
    return {"sequence": sequence} if node.op == "tokenmean" else {}


def _biases(node: NodeConfig, sizes: dict[str, int], where: str) -> dict[str, int]:
    """Return the size that says how numbers that are added to scores are learned; none, if none are."""
    if not node.biases:
        if node.op == "attention" and (node.fixed or node.shares):
            key = "fixed" if node.fixed else "shares"
            raise ConfigError(f"{node.name} has no biases", where=f"{where}.{key}", hint="biases = [...]")
        return {}
    by = {"biases": BY_DISTANCE}
    counts = [biases_of(Node(node.name, node.op, (), sizes | {"biases": kind})) for kind in (BY_DISTANCE, BY_PAIR)]
    distances, pairs = (one.numbers for one in counts if one is not None)
    if len(node.biases) not in (distances, pairs) or min(node.biases) < 0:
        what = f"{len(node.biases)} biases for {distances} distances, or {pairs} pairs, of tokens"
        raise ConfigError(what, where=f"{where}.biases", hint="a number from 0 on for each")
    return by if len(node.biases) == distances else {"biases": BY_PAIR}


def _loss(op: str, given: str, some: bool, image: tuple[int, ...] | None, before: str) -> Node:
    """Return the loss behind an operation, of samples, or of the pixels of an image."""
    sizes = {"some": 1} if some else {}
    if image is not None:
        if not image:
            what = f"{before} gives features, and pixels have the labels"
            raise ConfigError(what, where="data.labels", hint='"class", or a convolution at the end')
        sizes |= {"height": image[1], "width": image[2]}
    return Node("loss", op, (given,), sizes if op == "cross_entropy" else {})


def _sides(image: tuple[int, ...]) -> dict[str, int]:
    """Return the sizes of an image by name."""
    return dict(zip(("channels", "height", "width"), image, strict=True))


def _side_by_side(images: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sizes of the image that others make whose channels lie one behind the other; () if they make none."""
    sides = {image[1:] for image in images}
    return (sum(image[0] for image in images), *sides.pop()) if len(sides) == 1 and all(images) else ()


def _image_sizes(node: NodeConfig, image: tuple[int, ...], given: str, features: int, where: str) -> dict[str, int]:
    """Return the sizes of an operation on images."""
    if not image and node.op in ("upsample", "groupnorm"):
        image = (features, 1, 1)  # a feature is a channel of one pixel
    if not image:
        raise ConfigError(
            f"{node.op} takes images, and {given} gives features",
            where=where,
            hint="network.image = [channels, rows, columns]" if given == INPUT else "linear gives no images",
        )
    sizes = _sides(image)
    if node.op == "groupnorm":
        return sizes | {"groups": node.groups or 0}
    if node.op == "resample" and node.method == "pick":
        named = [(f"{side} {k}", n) for side in ("row", "column") for k, n in enumerate(getattr(node, f"{side}s"))]
        sides = {"out_height": len(node.rows), "out_width": len(node.columns), "method": METHODS.index("pick")}
        return sizes | sides | dict(named)
    if node.op == "resample" and node.method != "mean":
        return sizes | dict(
            zip(("out_height", "out_width"), node.sides, strict=True), method=METHODS.index(node.method)
        )
    height = node.kernel or (image[1] if node.op == "avgpool" else 0)
    width = node.kernel_width or node.kernel or (image[2] if node.op == "avgpool" else 0)
    sizes |= {"kernel_height": height, "kernel_width": width}
    sizes |= {key: side for key in SIDES if (side := getattr(node, key)) is not None}
    if node.op == "transposed":
        sizes |= {"groups": node.groups or 1, "stride": node.stride or 1, "padding": node.padding or 0}
        rows, columns = node.output_padding or 0, node.output_padding_width
        ends = rows, rows if columns is None else columns
        larger = enlarged(sizes | {"kernel": height}, image[1:], ends)
        sizes |= dict(zip(("height", "width"), larger, strict=True))
        return sizes | {"channels": node.outputs or 0, "outputs": image[0], "bias": 0}
    if node.op == "upsample":  # windows side by side; where there is one alone, its columns may be another number
        sizes |= {"height": image[1] * height, "width": image[2] * width, "stride": height}
        return sizes | ({"stride_width": width} if height != width else {})
    if node.op != "convolution":
        sizes |= {"padding": node.padding} if node.padding else {}
        own = {"stride_width": width} if node.stride is None and height != width else {}
        sizes |= {"stride": node.stride or max(height, 1)} | own
        return sizes | (_mean_of(sizes) if node.op == "resample" else {})
    more = {"outputs": node.outputs or 0, "groups": node.groups or 1, "bias": int(node.bias is not False)}
    return sizes | more | {"stride": node.stride or 1, "padding": node.padding or 0}


def _mean_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return what a mean over windows has to know besides their sizes."""
    image = [sizes[name] for name in ("channels", "height", "width")]
    window = window_of(Node("", "", (), sizes), math.prod(image))
    return {"method": METHODS.index("mean"), "out_height": window.out_height, "out_width": window.out_width}


def window_at(image: Sequence[int], keys: Mapping[str, Any]) -> Window:
    """Return the window over an image that keys of a node say; `ConfigError` if it does not fit."""
    sizes = _sides(tuple(image)) | {"stride": 1, "kernel_height": keys["kernel"], "kernel_width": keys["kernel_width"]}
    sizes |= {key: keys[key] for key in ("stride", "padding", *SIDES) if key in keys}
    try:
        return window_of(Node("", "", (), sizes), math.prod(image))
    except ConfigError as error:
        raise ConfigError(error.what.removeprefix(": "), where="network.nodes") from None


def enlarged(keys: Mapping[str, Any], given: Sequence[int], more: Sequence[int]) -> list[int]:
    """Return rows and columns of what a transposed convolution of so many makes: those that its windows lie over."""
    window = window_at((1, *[10**9] * 2), keys)
    every = zip(given, window.strides, window.reach, window.before, window.behind, more, strict=True)
    return [(n - 1) * stride + reach - before - behind + ends for n, stride, reach, before, behind, ends in every]


def _windowed(node: Node, given: int, where: str) -> tuple[int, ...]:
    """Return channels, rows and columns of the result of an operation on images."""
    try:
        if node.op in ("transposed", "upsample"):
            OPERATIONS[node.op].features(node, given)
            return tuple(node.size(name) for name in ("channels", "height", "width"))
        if node.op == "resample":
            OPERATIONS[node.op].features(node, given)
            return tuple(node.size(name) for name in ("channels", "out_height", "out_width"))
        window = window_of(node, given)
    except ConfigError as error:
        error.where = where
        raise
    channels = node.size("outputs") if node.op == "convolution" else window.channels
    return channels, window.out_height, window.out_width


def _check(node: NodeConfig, where: str) -> None:
    """Refuse keys that an operation does not have, or lacks."""
    for key, owner in OWNERS.items():
        if getattr(node, key) not in (None, (), "") and node.op not in owner:
            raise ConfigError(f"{node.op} has no {key}", where=f"{where}.{key}", hint=f"op = {owner[0]!r}")
    if not node.name or not node.name.isprintable() or " " in node.name:
        raise ConfigError(f"{node.name!r} is no name", where=f"{where}.name", hint="letters, digits, dots")
    if node.op == "linear" and max(node.fixed_outputs, default=0) >= (node.outputs or 1):
        what = f"feature {max(node.fixed_outputs)} of {node.outputs}"
        raise ConfigError(what, where=f"{where}.fixed_outputs", value=node.fixed_outputs)
    if node.op == "linear" and node.outputs is None:
        raise ConfigError("a product needs a number of features", where=f"{where}.outputs")
    if node.op in ("convolution", "transposed") and node.outputs is None:
        raise ConfigError("a convolution needs a number of channels", where=f"{where}.outputs")
    strides = node.stride or 1, node.stride_width or node.stride or 1
    along = node.output_padding if node.output_padding_width is None else node.output_padding_width
    if (node.output_padding or 0) >= strides[0] or (along or 0) >= strides[1]:
        hint = "output_padding below stride"
        raise ConfigError("rows of pixels that no window reaches", where=f"{where}.output_padding", hint=hint)
    if node.op == "resample":
        _check_resample(node, where)
    if node.op in ("convolution", "transposed", "maxpool", "upsample") and node.kernel is None:
        raise ConfigError(f"{node.op} needs a window", where=f"{where}.kernel", hint="kernel = 3")
    if node.op in ("groupnorm", "headrms") and node.groups is None:
        raise ConfigError(f"{node.op} needs a number of groups", where=f"{where}.groups")
    if node.density == 0:
        raise ConfigError("nothing is left at a density of 0", where=f"{where}.density", value=0)


def _check_resample(node: NodeConfig, where: str) -> None:
    """Refuse images of other sides of which it is not said how they are made, or which sides they have."""
    if node.method is None:
        raise ConfigError("resample needs a method", where=f"{where}.method", hint=", ".join(METHODS))
    windowed = [key for key in WINDOW if getattr(node, key) is not None]
    needs = {"mean": (), "pick": ("rows", "columns")}.get(node.method, ("sides",))
    more = [key for key in ("sides", "rows", "columns") if getattr(node, key) and key not in needs]
    if windowed and node.method != "mean":
        more.append(windowed[0])
    if more:
        raise ConfigError(f"{node.method} has no {more[0]}", where=f"{where}.{more[0]}")
    if node.method == "mean" and node.kernel is None:
        raise ConfigError("a mean needs a window", where=f"{where}.kernel", hint="kernel = 3")
    if needs == ("sides",) and (len(node.sides) != 2 or min(node.sides) < 1):
        raise ConfigError("resample needs rows and columns", where=f"{where}.sides", hint="sides = [16, 16]")
    for key in needs if node.method == "pick" else ():
        if min(getattr(node, key), default=-2) < -1:
            raise ConfigError(f"which {key} are picked", where=f"{where}.{key}", hint=f"{key} = [0, 1]; -1 for zeros")


def _gpt(hidden: int, blocks: int, heads: int, between: int, classes: int) -> list[dict[str, Any]]:
    """Return the nodes of a transformer that sees what came before."""
    found, at = [_drawn("embed", hidden, EMBEDDING, bias=False)], "embed"
    for number in range(1, blocks + 1):
        b = f"block{number}"
        found += [{"name": f"{b}.ln1", "op": "norm", "inputs": [at]}]
        found += [*_attended(b, f"{b}.ln1", at, hidden, heads, True), {"name": f"{b}.ln2", "op": "norm"}]
        found += _fed(b, f"{b}.ln2", f"{b}.add1", hidden, between)
        at = f"{b}.add2"
    return [*found, {"name": "ln", "op": "norm"}, _drawn("head", classes, 1 / math.sqrt(hidden), bias=False)]


def _bert(hidden: int, blocks: int, heads: int, between: int, classes: int) -> list[dict[str, Any]]:
    """Return the nodes of a transformer whose tokens see all others."""
    found, at = [_drawn("embed", hidden, EMBEDDING, bias=False), {"name": "ln", "op": "norm"}], "ln"
    for number in range(1, blocks + 1):
        b = f"block{number}"
        found += [*_attended(b, at, at, hidden, heads, False), {"name": f"{b}.ln1", "op": "norm"}]
        found += [*_fed(b, f"{b}.ln1", f"{b}.ln1", hidden, between), {"name": f"{b}.ln2", "op": "norm"}]
        at = f"{b}.ln2"
    return [*found, _drawn("head", classes, 1 / math.sqrt(hidden))]


def _drawn(name: str, outputs: int, deviation: float, **more: Any) -> dict[str, Any]:
    """Return a product whose weights are drawn with a deviation."""
    return {"name": name, "op": "linear", "outputs": outputs, "deviation": deviation, **more}


def _attended(b: str, x: str, before: str, hidden: int, heads: int, causal: bool) -> list[dict[str, Any]]:
    """Return attention of a block over `x`, added to what came `before`."""
    spread = 1 / math.sqrt(hidden)
    mixed = {"inputs": [f"{b}.{name}" for name in "qkv"], "heads": heads, "causal": causal}
    return [
        *(_drawn(f"{b}.{name}", hidden, spread, inputs=[x]) for name in "qkv"),
        {"name": f"{b}.mix", "op": "attention", **mixed},
        _drawn(f"{b}.out", hidden, spread),
        {"name": f"{b}.add1", "op": "add", "inputs": [before, f"{b}.out"]},
    ]


def _fed(b: str, x: str, before: str, hidden: int, between: int) -> list[dict[str, Any]]:
    """Return the two products of a block over `x`, added to what came `before`."""
    return [
        _drawn(f"{b}.up", between, 1 / math.sqrt(hidden), inputs=[x]),
        {"name": f"{b}.gelu", "op": "gelu"},
        _drawn(f"{b}.down", hidden, 1 / math.sqrt(between)),
        {"name": f"{b}.add2", "op": "add", "inputs": [before, f"{b}.down"]},
    ]


def _llama(hidden: int, blocks: int, heads: int, shared: int, between: int, classes: int) -> list[dict[str, Any]]:
    """Return the nodes of a transformer with turned places and gates, and `shared` heads of keys and values."""
    spread, fewer = 1 / math.sqrt(hidden), {"kv_heads": shared} if shared != heads else {}
    of_shared = hidden // heads * shared

    def linear(name: str, outputs: int, deviation: float = spread, **more: Any) -> dict[str, Any]:
        return _drawn(name, outputs, deviation, bias=False, **more)

    found, at = [linear("embed", hidden, EMBEDDING)], "embed"
    for number in range(1, blocks + 1):
        b = f"block{number}"
        found += [
            {"name": f"{b}.rms1", "op": "rms", "inputs": [at]},
            linear(f"{b}.q", hidden, inputs=[f"{b}.rms1"]),
            *(linear(f"{b}.{name}", of_shared, inputs=[f"{b}.rms1"]) for name in "kv"),
            *(
                {"name": f"{b}.{name}.turned", "op": "rotary", "inputs": [f"{b}.{name}"], "heads": count}
                for name, count in (("q", heads), ("k", shared))
            ),
            {
                "name": f"{b}.mix",
                "op": "attention",
                "inputs": [f"{b}.q.turned", f"{b}.k.turned", f"{b}.v"],
                "heads": heads,
                **fewer,
            },
            linear(f"{b}.o", hidden),
            {"name": f"{b}.add1", "op": "add", "inputs": [at, f"{b}.o"]},
            {"name": f"{b}.rms2", "op": "rms"},
            linear(f"{b}.gate", between),
            {"name": f"{b}.silu", "op": "silu"},
            linear(f"{b}.up", between, inputs=[f"{b}.rms2"]),
            {"name": f"{b}.mul", "op": "mul", "inputs": [f"{b}.silu", f"{b}.up"]},
            linear(f"{b}.down", hidden, 1 / math.sqrt(between)),
            {"name": f"{b}.add2", "op": "add", "inputs": [f"{b}.add1", f"{b}.down"]},
        ]
        at = f"{b}.add2"
    return [*found, {"name": "rms", "op": "rms"}, linear("head", classes)]


def _resnet(embedding: int, sizes: Sequence[int], depths: Sequence[int], classes: int) -> list[dict[str, Any]]:
    """Return the nodes of a residual network of images: stages of blocks, all but the first on half the sides."""
    found: list[dict[str, Any]] = []

    def normed(name: str, x: str, outputs: int, kernel: int, stride: int = 1) -> str:
        window = {"kernel": kernel, "stride": stride, "padding": kernel // 2, "bias": False}
        found.append({"name": name, "op": "convolution", "inputs": [x], "outputs": outputs, **window})
        found.append({"name": f"{name}.bn", "op": "batchnorm"})
        return f"{name}.bn"

    def bent(name: str, x: str) -> str:
        found.append({"name": name, "op": "relu", "inputs": [x]})
        return name

    at, channels = bent("stem.relu", normed("stem", INPUT, embedding, 3)), embedding
    for stage, (size, depth) in enumerate(zip(sizes, depths, strict=True), 1):
        for number in range(1, depth + 1):
            b, stride = f"stage{stage}.block{number}", 2 if stage > 1 and number == 1 else 1
            inner = bent(f"{b}.relu1", normed(f"{b}.conv1", at, size, 3, stride))
            inner = normed(f"{b}.conv2", inner, size, 3)
            past = normed(f"{b}.shortcut", at, size, 1, stride) if stride > 1 or size != channels else at
            found.append({"name": f"{b}.add", "op": "add", "inputs": [past, inner]})
            at, channels = bent(f"{b}.relu2", f"{b}.add"), size
    return [*found, {"name": "pool", "op": "avgpool"}, {"name": "head", "op": "linear", "outputs": classes}]


TRANSFORMER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
LLAMA = (*TRANSFORMER[:3], "num_key_value_heads", *TRANSFORMER[3:])
RESNET = ("embedding_size", "hidden_sizes", "depths", "vocab_size")
PRESETS: dict[str, tuple[Callable[..., list[dict[str, Any]]], tuple[str, ...]]] = {
    "gpt": (_gpt, TRANSFORMER),
    "bert": (_bert, TRANSFORMER),
    "llama": (_llama, LLAMA),
    "resnet": (_resnet, RESNET),
}
"""A preset has a function of sizes, which have these keys."""
SIZES = tuple(dict.fromkeys((*LLAMA, *RESNET)))
"""The presets have these keys."""


def preset_nodes(network: dict[str, Any], classes: int | None, where: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the nodes of the preset that a table ``[network]`` names.

    Parameters
    ----------
    network : dict
        As the file has it.
    classes : int or None
        Of the data, if they say it.
    where : callable
        Gives the place of a key in the file.

    Raises
    ------
    ConfigError
        A size that is missing or no number, one of another preset, layers beside a preset.
    """
    name = network["preset"]
    build, keys = PRESETS[name]
    for key in ("layers", "nodes", "file"):
        if network.get(key):
            raise ConfigError("a preset says what there is", where=where(f"network.{key}"), hint="either, not both")
    for key in SIZES:
        if network.get(key) is not None and key not in keys:
            raise ConfigError(f"the preset {name} has no {key}", where=where(f"network.{key}"), hint=", ".join(keys))
    if keys is RESNET and not network.get("image"):
        raise ConfigError(f"the preset {name} takes images", where=where("network.image"), hint="image = [1, 8, 8]")
    sizes: dict[str, Any] = {}
    for key in keys:
        given = network.get(key)
        if given is None and key == "intermediate_size":
            given = 4 * sizes["hidden_size"]
        if given is None and key == "num_key_value_heads":
            given = sizes["num_attention_heads"]
        if given is None and key == "embedding_size" and network.get("hidden_sizes"):
            given = network["hidden_sizes"][0]
        if given is None and key == "vocab_size":
            given = classes
        many = key in ("hidden_sizes", "depths")
        if not (_counts(given) if many else _counts([given])):
            raise ConfigError(f"the preset {name} needs {key}", where=where(f"network.{key}"), value=given)
        sizes[key] = given
    if keys is RESNET and len(sizes["depths"]) != len(sizes["hidden_sizes"]):
        what = f"{len(sizes['hidden_sizes'])} hidden_sizes and {len(sizes['depths'])} depths"
        raise ConfigError(what, where=where("network.depths"), hint="a depth for each size")
    return build(*sizes.values())


def _counts(given: Any) -> bool:
    """Return whether something is a list of whole numbers from 1 on."""
    return (
        isinstance(given, list | tuple)
        and len(given) > 0
        and all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in given)
    )

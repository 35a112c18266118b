"""ONNX files of transformers as exporters write them, in many forms, from nodes alone."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["SequenceFile", "transformer"]

S, D, HEADS, VOCABULARY = 6, 8, 2, 11
BEFORE = np.arange(S)[:, None] - np.arange(S)
MASKS = {"window": (BEFORE >= 0) & (BEFORE < 3), "near": abs(BEFORE) < 2, "blocks": np.kron(np.eye(3), np.ones((2, 2)))}
MASKS = {name: mask.astype(bool) for name, mask in MASKS.items()}
"""Tokens see only those of these."""
SLOPES = np.array([0.5, 0.125])[:, None, None]
ADDED = {"alibi": np.where(BEFORE >= 0, -SLOPES * BEFORE, -np.inf), "far": -SLOPES * abs(BEFORE)}
ADDED |= {"keys": np.where(BEFORE >= 0, SLOPES * np.arange(S), -np.inf), "uneven": -SLOPES * BEFORE**2}
"""By head, this is added to scores."""
BUCKETS = np.minimum(abs(BEFORE), 2) + (BEFORE > 1)
"""Distances that share a number; the last of five numbers is none of any."""


class SequenceFile:
    """Nodes and parameters of a file, one after the other."""

    def __init__(self, seed):
        self.rng, self.nodes, self.given, self.count = np.random.default_rng(seed), [], {}, 0

    def op(self, kind, *inputs, outputs=1, **attributes):
        """Append a node; return the name of its result."""
        self.count += 1
        names = [f"t{self.count}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, f"{kind}_{self.count}", **attributes))
        return names[0] if outputs == 1 else names

    def parameter(self, name, *shape, around=0.0):
        """Append a parameter; return its name."""
        spread = 0.3 if around else 1 / np.sqrt(shape[-1])
        self.given[name] = (around + spread * self.rng.standard_normal(shape)).astype(np.float32)
        return name

    def constant(self, values, dtype=np.float32):
        """Append a constant; return its name."""
        array = np.asarray(values, dtype)
        self.count += 1
        name = f"c{self.count}"
        tensor = numpy_helper.from_array(array, name)
        self.nodes.append(helper.make_node("Constant", [], [name], name, value=tensor))
        return name

    def shape(self, x, *sizes):
        return self.op("Reshape", x, self.constant(sizes, np.int64))

    def linear(self, x, name, outputs, inputs, form="matmul", bias=True):
        """Append a product in one of the forms of exporters."""
        if form == "conv1d":  # weights the other way round
            weight = self.parameter(f"{name}.weight", inputs, outputs)
        else:
            weight = self.parameter(f"{name}.weight", outputs, inputs)
            weight = self.op("Transpose", weight, perm=[1, 0])
        y = self.op("MatMul", x, weight)
        return self.op("Add", y, self.parameter(f"{name}.bias", outputs)) if bias else y

    def write(self, path, result, axes=3, features=0, opset=23, masks=()):
        """Write the file; `masks` are the types of inputs that have a number for each token."""
        tokens = TensorProto.FLOAT if features else TensorProto.INT64
        shape = ["n", S, *([features] if features else [])]
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [result], ["y"], "end")],
            "g",
            [
                helper.make_tensor_value_info("x", tokens, shape),
                *(helper.make_tensor_value_info(f"mask{k}", kind, ["n", S]) for k, kind in enumerate(masks)),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"d{k}" for k in range(axes)])],
            [numpy_helper.from_array(array, name) for name, array in self.given.items()],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)


def _embedded(f, form):
    """Append look-ups of tokens and places."""
    if form.get("features"):
        x = f.linear("x", "embed", D, form["features"], bias=form["bias"])
        if form["places"] == "learned":
            x = f.op("Add", f.parameter("place", 1, S, D), x)
        return x
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    if form["places"] == "learned":
        where = f.constant(np.arange(S) + form.get("offset", 0), np.int64)
        x = f.op("Add", x, f.op("Gather", f.parameter("wpe.weight", S + form.get("spare", 0), D), where))
    if form.get("kinds"):
        kind = f.op("Expand", f.op("CastLike", f.constant([[1]], np.int64), "x"), f.constant([1, S], np.int64))
        x = f.op("Add", f.op("Gather", f.parameter("kind.weight", 2, D), kind), x)
    return x


def _normed(f, x, name, form):
    if form["norm"] == "layer":
        names = f.parameter(f"{name}.weight", D, around=1.0), f.parameter(f"{name}.bias", D)
        return f.op("LayerNormalization", x, *names, axis=-1, epsilon=form.get("epsilon", 1e-5))
    square = f.op("Pow", x, f.constant(2.0)) if form["norm"] == "rms pow" else f.op("Mul", x, x)
    mean = f.op("ReduceMean", square, f.constant([-1], np.int64), keepdims=1)
    root = f.op("Sqrt", f.op("Add", mean, f.constant(form.get("epsilon", 1e-5))))
    unit = f.op("Mul", x, f.op("Reciprocal", root)) if form["norm"] == "rms pow" else f.op("Div", x, root)
    return f.op("Mul", f.parameter(f"{name}.weight", D, around=1.0), unit)


def _rotated(f, x, form):
    """Append the turning of pairs of x, (n, heads, tokens, features)."""
    e = D // form.get("heads", HEADS)
    angles = np.outer(np.arange(S), form.get("base", 10_000.0) ** (-np.arange(0, e, 2) / e))
    whole = np.concatenate([angles, angles], 1)
    if form["places"] == "rotary halves":
        a, b = f.op("Split", x, f.constant([e // 2, e // 2], np.int64), outputs=2, axis=-1)
        cos, sin = f.constant(np.cos(angles)), f.constant(np.sin(angles))
        first = f.op("Sub", f.op("Mul", a, cos), f.op("Mul", b, sin))
        second = f.op("Add", f.op("Mul", a, sin), f.op("Mul", b, cos))
        return f.op("Concat", first, second, axis=3)
    if form["places"] == "rotary pairs":  # of neighbours
        a, b = (f.op("Gather", x, f.constant(range(k, e, 2), np.int64), axis=3) for k in (0, 1))
        cos, sin = f.constant(np.cos(angles)), f.constant(np.sin(angles))
        parts = [
            f.op("Sub", f.op("Mul", a, cos), f.op("Mul", b, sin)),
            f.op("Add", f.op("Mul", a, sin), f.op("Mul", b, cos)),
        ]
        apart = (f.op("Unsqueeze", part, f.constant([4], np.int64)) for part in parts)
        return f.shape(f.op("Concat", *apart, axis=4), -1, form.get("heads", HEADS), S, e)
    begin, middle, end = (f.constant([k], np.int64) for k in (0, e // 2, 99))
    axis = f.constant([3], np.int64)
    a, b = f.op("Slice", x, begin, middle, axis), f.op("Slice", x, middle, end, axis)
    swapped = f.op("Concat", f.op("Neg", b), a, axis=-1)
    return f.op("Add", f.op("Mul", x, f.constant(np.cos(whole))), f.op("Mul", swapped, f.constant(np.sin(whole))))


def _by_head(f, x, name, form):
    """Append queries, keys and values, each (n, heads, tokens, features of a head)."""
    e, heads = D // HEADS, [-1, S, HEADS, D // HEADS]
    if "shared" in form:
        return _shared(f, x, name, form)
    if form["joined"] == "no":
        found = [f.shape(f.linear(x, f"{name}.{one}", D, D), *heads) for one in "qkv"]
        return [f.op("Transpose", one, perm=[0, 2, 1, 3]) for one in found]
    if form["joined"] == "letters":
        own = [f.parameter(f"{name}.{one}", HEADS, D, e) for one in "qk"]
        return [
            *(f.op("Einsum", x, one, equation="btm,hmd->bhtd") for one in own),
            f.op("Einsum", f.parameter(f"{name}.v", D, HEADS, e), x, equation="mhd,btm->bhtd"),
        ]
    if form["joined"] == "letters of one":  # parts of one parameter
        whole = f.parameter(f"{name}.qkv", 3, D, HEADS, e)
        parts = [f.op("Gather", whole, f.constant(k, np.int64), axis=0) for k in range(3)]
        return [f.op("Einsum", x, one, equation="btm,mhd->bhtd") for one in parts]
    whole = f.linear(x, f"{name}.qkv", 3 * D, D, "conv1d" if form["joined"] == "conv1d" else "matmul")
    if form["joined"] == "by head":  # queries, keys and values of a head side by side
        view = f.op("Transpose", f.shape(whole, -1, S, HEADS, 3 * e), perm=[0, 2, 1, 3])
        return f.op("Split", view, f.constant([e, e, e], np.int64), outputs=3, axis=3)
    if form["joined"] == "axis":
        view = f.op("Transpose", f.shape(whole, -1, S, 3, HEADS, e), perm=[2, 0, 3, 1, 4])
        return [f.op("Gather", view, f.constant(k, np.int64), axis=0) for k in range(3)]
    parts = f.op("SplitToSequence", whole, f.constant(D, np.int64), axis=2, keepdims=1)
    found = [f.op("SequenceAt", parts, f.constant(k, np.int64)) for k in range(3)]
    return [f.op("Transpose", f.shape(one, -1, S, HEADS, e), perm=[0, 2, 1, 3]) for one in found]


def _shared(f, x, name, form):
    """Append queries, keys and values of fewer heads; keys are turned before they are repeated."""
    heads, shared = form["heads"], form["shared"]
    e, group = D // heads, heads // shared
    found = [
        f.shape(f.linear(x, f"{name}.{one}", n * e, D), -1, S, n, e)
        for one, n in {"q": heads, "k": shared, "v": shared}.items()
    ]
    q, k, v = (f.op("Transpose", one, perm=[0, 2, 1, 3]) for one in found)
    if form["places"].startswith("rotary"):
        q, k = _rotated(f, q, form), _rotated(f, k, form)
    return [q, *(_repeated(f, one, shared, group, e, form["repeated"]) for one in (k, v))]


def _repeated(f, x, shared, group, e, how):
    if how == "alone":  # the product repeats it
        return x
    if how == "gather":
        return f.op("Gather", x, f.constant(np.repeat(np.arange(shared), group), np.int64), axis=1)
    if how == "in turns":  # head after head, and all once more
        return f.op("Tile", x, f.constant([1, group, 1, 1], np.int64))
    if how == "unevenly":
        return f.op("Gather", x, f.constant([0, *[shared - 1] * (shared * group - 1)], np.int64), axis=1)
    apart = f.op("Unsqueeze", x, f.constant([2], np.int64))
    if how == "expand":
        apart = f.op("Expand", apart, f.constant([1, shared, group, S, e], np.int64))
    else:
        apart = f.op("Concat", *[apart] * group, axis=2)
    return f.shape(apart, -1, shared * group, S, e)


def _normed_heads(f, x, name, e, op):
    """Append a normalisation of each head, of numbers that all of them share."""
    more = [f.parameter(f"{name}.bias", e)] if op == "LayerNormalization" else []
    return f.op(op, x, f.parameter(f"{name}.weight", e, around=1.0), *more, axis=-1, epsilon=0.01)


def _attended(f, x, name, form):
    """Append attention."""
    e = D // form.get("heads", HEADS)
    q, k, v = _by_head(f, x, name, form)
    if "normed" in form:
        q, k = (_normed_heads(f, one, f"{name}.{called}", e, form["normed"]) for one, called in ((q, "qn"), (k, "kn")))
    if form["places"].startswith("rotary") and "shared" not in form:
        q, k = _rotated(f, q, form), _rotated(f, k, form)
    if form["attention"] != "steps":
        return _whole(f, q, k, v, name, form)
    scale = form.get("scale", 1 / np.sqrt(e))
    turned = f.op("Transpose", k, perm=[0, 1, 3, 2])
    if form["scaled"] == "both":
        q, turned = (f.op("Mul", one, f.constant(np.sqrt(scale))) for one in (q, turned))
    elif form["scaled"] == "queries":
        q = f.op("Mul", f.constant(scale), q)
    scores = f.op("MatMul", q, turned)
    if form["scaled"] == "scores":
        scores = f.op("Div", scores, f.constant(1 / scale))
    seen = np.tri(S, dtype=bool)
    if form["mask"] == "add":
        scores = f.op("Add", scores, f.constant(np.where(seen, 0, -3.4028235e38)[None, None]))
    elif form["mask"] == "where":
        scores = f.op("Where", f.constant(seen[None, None], bool), scores, f.constant(-np.inf))
    elif form["mask"] == "filled":
        scores = f.op("Where", f.constant(~seen, bool), f.constant(-1e9), scores)
    elif form["mask"] in ADDED:
        scores = f.op("Add", scores, f.constant(ADDED[form["mask"]]))
    elif form["mask"] in ("pairs", "hidden pairs"):
        scores = f.op("Add", scores, f.parameter(f"{name}.table", HEADS, S, S))
    elif form["mask"] == "one table":
        scores = f.op("Add", scores, f.parameter(f"{name}.table", S, S))
    elif form["mask"] in ("buckets", "buckets before", "hidden buckets"):
        table = f.op("Gather", f.parameter(f"{name}.table", 5, HEADS), f.constant(BUCKETS, np.int64))
        table = f.op("Transpose", table, perm=[2, 0, 1])
        if form["mask"] == "hidden buckets":
            table = f.op("Add", table, f.constant(np.where(seen, 0, -1e9)))
        scores = f.op("Add", scores, table)
    elif form["mask"] in MASKS:
        scores = f.op("Where", f.constant(MASKS[form["mask"]], bool), scores, f.constant(-np.inf))
    if form["mask"] in ("buckets before", "hidden pairs"):
        scores = f.op("Where", f.constant(seen, bool), scores, f.constant(-np.inf))
    shares = f.op("Softmax", scores, axis=-1)
    if form.get("safe"):
        shares = f.op("Where", f.op("IsNaN", shares), f.constant(0.0), shares)
    y = f.op("Transpose", f.op("MatMul", shares, v), perm=[0, 2, 1, 3])
    return f.linear(f.shape(y, -1, S, D), f"{name}.out", D, D)


def _whole(f, q, k, v, name, form):
    """Append attention as one node."""
    scale = {} if form["scaled"] == "scores" else {"scale": form.get("scale", 1 / np.sqrt(D // HEADS))}
    seen, masks = np.tri(S, dtype=bool), []
    if form["mask"] == "add":
        masks = [f.constant(np.where(seen, 0, -np.inf)[None, None])]
    elif form["mask"] == "where":
        masks = [f.constant(seen, bool)]
    elif form["mask"] in ADDED:
        masks = [f.constant(ADDED[form["mask"]][None])]
    elif form["mask"] in MASKS:
        masks = [f.constant(MASKS[form["mask"]], bool)]
    scale |= {"is_causal": 1} if form["mask"] == "filled" else {}
    if form["attention"] == "node":
        y = f.op("Transpose", f.op("Attention", q, k, v, *masks, **scale), perm=[0, 2, 1, 3])
        return f.linear(f.shape(y, -1, S, D), f"{name}.out", D, D)
    flat = [f.shape(f.op("Transpose", one, perm=[0, 2, 1, 3]), -1, S, D) for one in (q, k, v)]
    y = f.op("Attention", *flat, *masks, q_num_heads=HEADS, kv_num_heads=HEADS, **scale)
    return f.linear(y, f"{name}.out", D, D)


def _bent(f, x, form):
    """Append a function in one of the forms of exporters."""
    if form["function"] == "gelu":
        return f.op("Gelu", x, approximate="tanh")
    if form["function"] == "gelu_erf":
        return f.op("Gelu", x)
    if form["function"] == "gelu_erf steps":
        share = f.op("Add", f.op("Erf", f.op("Div", x, f.constant(np.sqrt(2)))), f.constant(1.0))
        return f.op("Mul", f.op("Mul", x, share), f.constant(0.5))
    if form["function"] == "tanh":
        return f.op("Tanh", x)
    if form["function"] == "silu":
        return f.op("Mul", x, f.op("Sigmoid", x))
    if form["function"] == "relu":
        return f.op("Relu", x)
    cube = f.op("Pow", x, f.constant(3.0))  # GELU step by step
    inner = f.op("Mul", f.op("Add", x, f.op("Mul", cube, f.constant(0.044715))), f.constant(np.sqrt(2 / np.pi)))
    return f.op("Mul", f.op("Mul", x, f.constant(0.5)), f.op("Add", f.op("Tanh", inner), f.constant(1.0)))


def _fed(f, x, name, form):
    """Append the products between the sums."""
    if form["gate"] == "no":
        return f.linear(_bent(f, f.linear(x, f"{name}.up", 12, D), form), f"{name}.down", D, 12)
    if form["gate"] == "joined":
        gate, up = f.op("Split", f.linear(x, f"{name}.both", 24, D), outputs=2, axis=-1, num_outputs=2)
    else:
        gate, up = f.linear(x, f"{name}.gate", 12, D, bias=False), f.linear(x, f"{name}.up", 12, D)
    return f.linear(f.op("Mul", _bent(f, gate, form), up), f"{name}.down", D, 12)


def transformer(path, form, classes=5, seed=0):
    """Write a transformer of one block; return its parameters."""
    f = SequenceFile(seed)
    x = _embedded(f, form)
    if form.get("turned"):  # tokens first, as multi-head attention of PyTorch has them
        x = f.op("Transpose", f.op("Transpose", x, perm=[1, 0, 2]), perm=[1, 0, 2])
    x = f.op("Add", x, _attended(f, _normed(f, x, "ln1", form), "att", form))
    x = f.op("Add", _fed(f, _normed(f, x, "ln2", form), "mlp", form), x)
    if form["result"] == "first":
        x = f.op("Gather", x, f.constant(0, np.int64), axis=1)
    if form["result"] == "last":
        x = f.op("Gather", x, f.constant(-1, np.int64), axis=1)
    if form["result"] == "mean":
        x = f.op("ReduceMean", x, f.constant([1], np.int64), keepdims=0)
    if form["result"] == "sum":
        x = f.op("Div", f.op("ReduceSum", x, f.constant([-2], np.int64), keepdims=1), f.constant(float(S)))
        x = f.op("Squeeze", x, f.constant([1], np.int64))
    if form["result"] == "pooled":
        x = f.op("GlobalAveragePool", f.op("Transpose", x, perm=[0, 2, 1]))
        x = f.op("Squeeze", x, f.constant([2], np.int64))
    x = _normed(f, x, "ln", form)
    if form.get("tied"):
        y = f.op("Add", f.op("MatMul", x, f.op("Transpose", "wte.weight", perm=[1, 0])), f.parameter("b", VOCABULARY))
    else:
        y = f.linear(x, "head", classes, D, bias=False)
    if form["result"] == "rows":
        y = f.shape(y, -1, classes)
    f.write(path, y, 3 if form["result"] == "all" else 2, form.get("features", 0))
    return f.given

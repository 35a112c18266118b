"""The decoder written one number at a time from its formulas, in f64 and without numpy's products: slow and plain."""

from __future__ import annotations

import math


def _product(matrix, x, bias=None):
    out = [sum(float(w) * v for w, v in zip(row, x, strict=True)) for row in matrix]
    return out if bias is None else [a + float(b) for a, b in zip(out, bias, strict=True)]


def _layer_norm(x, weights, name, decoder):
    mean = sum(x) / len(x) if decoder.centred else 0.0
    out = _norm([v - mean for v in x], weights[f"{name}.weight"], decoder.epsilon)
    return [v + float(b) for v, b in zip(out, weights[f"{name}.bias"], strict=True)] if decoder.norm_bias else out


def _norm(x, weight, epsilon):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + epsilon)
    return [float(w) * v * scale for w, v in zip(weight, x, strict=True)]


def turn(decoder, i, local=False):
    """Return the radians by which pair i turns per position, by the formulas of the models' makers."""
    if local:
        return decoder.local_base ** (-2 * i / (decoder.rotary or decoder.head_size))
    size, scaling = decoder.rotary or decoder.head_size, decoder.scaling
    if 2 * i >= size:
        return 0.0
    free = decoder.rope_base ** (-2 * i / size)
    if scaling is None:
        return free
    if scaling.kind == "linear":
        return free / scaling.factor
    if scaling.kind == "yarn":
        pair = [
            size * math.log(scaling.original / (times * 2 * math.pi)) / (2 * math.log(decoder.rope_base))
            for times in (scaling.high, scaling.low)
        ]
        low, high = max(math.floor(pair[0]), 0), min(math.ceil(pair[1]), size - 1)
        ramp = min(max((i - low) / (high - low if high != low else 0.001), 0), 1)
        return ramp * free / scaling.factor + (1 - ramp) * free
    wavelength = 2 * math.pi / free
    if wavelength < scaling.original / scaling.high:
        return free
    if wavelength > scaling.original / scaling.low:
        return free / scaling.factor
    smooth = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
    return (1 - smooth) * free / scaling.factor + smooth * free


def _turned(head, position, decoder, local):
    half = len(head) // 2
    out = [0.0] * len(head)
    for i in range(half):
        turns = 2 * i < (decoder.rotary or decoder.head_size)
        angle = position * turn(decoder, i, local) if turns else 0.0
        length = decoder.scaling.amplitude if turns and not local and decoder.scaling is not None else 1.0
        out[i] = length * (head[i] * math.cos(angle) - head[i + half] * math.sin(angle))
        out[i + half] = length * (head[i + half] * math.cos(angle) + head[i] * math.sin(angle))
    return out


def _gelu(g):
    return 0.5 * g * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))


def _gelu_erf(g):
    return 0.5 * g * (1 + math.erf(g / math.sqrt(2)))


def _silu(g):
    return g / (1 + math.exp(-g))


def _capped(values, cap):
    return values if cap is None else [cap * math.tanh(v / cap) for v in values]


def _cut(values, size):
    return [values[k : k + size] for k in range(0, len(values), size)]


def scalar_logits(decoder, weights, ids):
    """Return the logits behind the last token of a text that is read from its beginning."""
    e, rows = decoder.head_size, []
    active = {"silu": _silu, "gelu": _gelu, "gelu_erf": _gelu_erf, "relu": lambda g: max(g, 0.0)}[decoder.activation]
    xs = [[float(v) for v in weights["model.embed_tokens.weight"][token]] for token in ids]
    if decoder.learned:
        table = weights["model.embed_positions.weight"]
        xs = [[a + float(b) for a, b in zip(x, row, strict=True)] for x, row in zip(xs, table, strict=False)]
    for number in range(decoder.layers):
        part = f"model.layers.{number}."

        def project(y, name, part=part):
            bias = weights.get(f"{part}self_attn.{name}.bias")
            return _product(weights[f"{part}self_attn.{name}.weight"], y, bias)

        def inner(y, name, part=part):
            return _product(weights[f"{part}mlp.{name}.weight"], y, weights.get(f"{part}mlp.{name}.bias"))

        def turned(head, position, number=number):
            kind = decoder.kind(number)
            return _turned(head, position, decoder, kind.local) if kind.turns else head

        def normalised(head, name, part=part):
            weight = weights[f"{part}self_attn.{name}.weight"] if decoder.head_norms else None
            return head if weight is None else _norm(head, weight, decoder.epsilon)

        def projected(y, name, part=part):
            out = project(y, f"{name}_proj")
            if decoder.projection_norms:
                out = _norm(out, weights[f"{part}self_attn.{name}_norm.weight"], decoder.epsilon)
            return _cut(out, e)

        def norm(y, there, *names, part=part):
            name = names[decoder.norms == "both" and len(names) - 1]
            return _layer_norm(y, weights, f"{part}{name}", decoder) if there else y

        keys, values, rows = [], [], []
        for position, x in enumerate(xs):
            before, behind = decoder.norms != "behind", decoder.norms in ("behind", "both")
            y = norm(x, before, "input_layernorm")
            queries = [turned(normalised(h, "q_norm"), position) for h in projected(y, "q")]
            own = projected(y, "k")
            keys.append([turned(normalised(h, "k_norm"), position) for h in own])
            values.append(_cut(project(y, "v_proj"), e))
            joined = []
            for j, q in enumerate(queries):
                shared = j // (decoder.heads // decoder.kv_heads)
                scores = [sum(a * b for a, b in zip(q, k[shared], strict=True)) / math.sqrt(e) for k in keys]
                scores = _capped(scores, decoder.score_cap)
                first = max(0, position + 1 - (decoder.kind(number).window or position + 1))
                weight = [math.exp(s - max(scores[first:])) if at >= first else 0.0 for at, s in enumerate(scores)]
                for i in range(e):
                    mixed = sum(w * v[shared][i] for w, v in zip(weight, values, strict=True))
                    joined.append(mixed / sum(weight))
            more = norm(project(joined, "o_proj"), behind, "post_attention_layernorm")
            begun, x = x, [a + b for a, b in zip(x, more, strict=True)]
            z = norm(begun if decoder.norms == "beside" else x, before, "post_attention_layernorm",
                     "pre_feedforward_layernorm") if decoder.norms != "shared" else y  # fmt: skip
            up = inner(z, "up_proj")
            gate = inner(z, "gate_proj") if decoder.gated else up
            joined = [active(g) * (u if decoder.gated else 1) for g, u in zip(gate, up, strict=True)]
            down = norm(inner(joined, "down_proj"), behind, "post_feedforward_layernorm")
            rows.append([a + b for a, b in zip(x, down, strict=True)])
        xs = rows
    y = _layer_norm(xs[-1], weights, "model.norm", decoder)
    head, bias = "model.embed_tokens.weight" if decoder.tied else "lm_head.weight", weights.get("lm_head.bias")
    logits = _product(weights[head], y, bias if decoder.head_bias else None)
    return _capped(logits, decoder.logit_cap)

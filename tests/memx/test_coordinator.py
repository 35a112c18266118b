"""The coordinator's script: what a column takes was sent before, and every word is one that can be counted by hand."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pytest

from fabric.networks.streamed.commands import HOMES, POINTERS, given_out, word
from tests.fabric.networks import Case

NAMES = {int(word(number)) >> 16: name for name, number in given_out(HOMES).items()}
NETWORKS = [
    {"features": [7, 5, 3], "width": 3},
    {"features": [6, 8, 5, 4], "width": 4, "activation": "gelu", "norm": True},
    {"features": [9, 6, 4], "width": 2, "density": 0.4, "bias": False},
    {"features": [5, 4], "width": 1, "activation": "none", "norm": True},
]


def told(case, kind):
    """Return, per column, what the stream says in order: names of commands, and None for a weight."""
    return [
        [NAMES[int(word) >> 16] if control else None for word, control in zip(words, is_control, strict=True)]
        for words, is_control in case.coordinator.streams(kind)
    ]


def obey(columns):
    """Run the commands of all columns, each waiting for what it takes; return what is left on the way, in all."""
    count = len(columns)
    sums = [deque() for _ in range(count)]  # what has come from the column before
    rows = [deque() for _ in range(count)]  # rows of output gradients, and joined sums, from whichever column sent them
    todo = [deque(name for name in column if name) for column in columns]
    sends = ("begin", "pass", "pass_max")
    takes = ("pass", "pass_max", "land", "join_max", "join_add")
    moved = True
    while moved:
        moved = False
        for k in range(count):
            while todo[k]:
                name = todo[k][0]
                if name in takes and count > 1:
                    if not sums[k]:
                        break
                    sums[k].popleft()
                elif name in ("from_west", "from_east", "take"):
                    if not rows[k] or (rows[k][0] < k) != (name == "from_west"):
                        break
                    rows[k].popleft()
                if name in sends and count > 1:
                    sums[(k + 1) % count].append(name)
                elif name in ("send", "join_max", "join_add"):
                    for other in range(count):
                        if other != k:
                            rows[other].append(k)
                todo[k].popleft()
                moved = True
    return sum(map(len, [*todo, *sums, *rows]))


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: "-".join(map(str, network["features"])))
@pytest.mark.parametrize("kind", ["test", "train"])
def test_what_is_taken_was_sent(network, kind):
    """Column after column obeys without waiting for ever, and nothing that was sent stays on the way."""
    columns = told(Case(**network), kind)
    assert obey(columns) == 0
    if kind == "train" and len(columns) > 1:
        late = [column.copy() for column in columns]
        late[0].remove("take")  # a check that sees a missing word
        assert obey(late) > 0


@pytest.mark.parametrize("network", NETWORKS[:3:2], ids=lambda network: "-".join(map(str, network["features"])))
def test_words_of_each_layer_are_counted(network):
    """Of an iteration without normalisation: products, rows, loss, gradients."""
    case, width = Case(**network), network["width"]
    layers, matrices = case.network.layers, case.matrices
    want = Counter()
    for level, (layer, matrix) in enumerate(zip(layers, matrices, strict=True), 1):
        products = [(layer.outputs, matrix.pattern.count)]
        if level > 1:  # the way back: no gradient of a constant input, none of the samples
            products.append((layer.inputs, int((matrix.pattern.indices < layer.inputs).sum())))
            want["slope"] += layer.inputs
        for rows, weights in products:
            want.update({None: weights, "begin": rows, "pass": rows * (width - 2), "land": rows})
        want.update({"relu": layer.outputs if layer.activation == "relu" else 0})
        want.update({"ask": matrix.gradient_pattern.count, "send": layer.outputs})
    classes = layers[-1].outputs
    want.update(dict.fromkeys(("max_row", "exp_row", "delta_row"), classes))
    want.update(dict.fromkeys(("floor", "peak", "share", "scale", "loss"), width))
    joined = {"join_max": 1, "join_add": 1, "begin": 2, "pass": width - 2, "pass_max": width - 2}
    want.update({"log": 1, "take": 2 * (width - 1)} | (joined if width > 1 else {}))
    columns = told(case, "train")
    found = Counter(name for column in columns for name in column)
    taken = found.pop("from_west", 0) + found.pop("from_east", 0)
    assert taken == (width - 1) * sum(layer.outputs for layer in layers)
    pointers = sum(found.pop(name, 0) for name in POINTERS)
    assert pointers % width == 0  # all columns set theirs alike
    assert found == +want
    script = case.coordinator.script("train")
    assert script.n_words == sum(want.values()) + taken + pointers
    assert script.longest == max(map(len, columns))
    asked = [matrix.gradient_pattern.count for matrix in matrices]
    assert sorted(np.concatenate(script.places)) == list(range(sum(asked) + width))


def test_a_script_is_written_again_only_for_another_pattern():
    case = Case([7, 5, 3], width=3)
    first = case.coordinator.script("train")
    case.matrices[0].dense[:] *= 2
    case.matrices[0].refresh()
    assert case.coordinator.script("train") is first
    changed = [
        int(((a != b) & ~control).sum())
        for (a, control), (b, _) in zip(
            case.coordinator.streams("train", 2.0), case.coordinator.streams("train", 1.0), strict=True
        )
    ]
    assert changed == [0, 0, 0]  # a loss scale is a command's data
    kept = case.matrices[0].pattern
    case.matrices[0].set_pattern(type(kept).of_mask(np.eye(*kept.shape, dtype=bool)))
    assert case.coordinator.script("train") is not first
    assert case.coordinator.script("train").n_words < first.n_words


@pytest.mark.parametrize("kind", ["train", "test"])
@pytest.mark.parametrize("network", NETWORKS)
def test_one_order_of_sending_holds_the_streams_of_all_columns(network, kind):
    """Every column's words stand in it in their order, and whoever obeys it word by word never waits."""
    case = Case(**network)
    script, columns = case.coordinator.script(kind), told(case, kind)
    assert sorted(script.sequence.tolist()) == list(range(script.n_words))
    sender = script.sender[script.sequence]
    for column in range(script.columns):
        assert np.all(np.diff(script.sequence[sender == column]) == 1)
    names = np.array([name or "" for column in columns for name in column])[script.sequence]
    so_far, count = [[] for _ in columns], len(columns)
    for column, name in zip(sender.tolist(), names.tolist(), strict=True):
        so_far[column].append(name)
        taken = ("pass", "pass_max", "land", "join_max", "join_add")
        if count > 1 and name in taken:  # its sending stands before it
            given = ("begin", "pass", "pass_max")
            sent, took = (
                sum(n in names for n in so_far[k]) for k, names in (((column - 1) % count, given), (column, taken))
            )
            assert sent >= took
        elif name == "take":
            joined = sum(n in ("join_max", "join_add") for n in so_far[-1])
            assert joined >= sum(n == "take" for n in so_far[column])
        elif name in ("from_west", "from_east"):
            rows = [sum(n == "send" for n in part) for part in so_far]
            assert sum(rows) > 0


def test_every_value_and_every_number_knows_its_word():
    case = Case([7, 5, 3], width=3)
    script = case.coordinator.script("train")
    words = np.concatenate([payload for payload, _ in case.coordinator.streams("train")])
    values = np.concatenate([parameter.values for parameter in case.coordinator.parameters])
    carried = (script.sources >= 0) & (script.sources < len(values))
    assert np.array_equal(words[carried] & 0xFFFF, values[script.sources[carried]])
    assert np.bincount(script.sources[carried], minlength=len(values)).min() >= 1  # all are sent
    places = np.concatenate(script.places)
    assert sorted(places.tolist()) == list(range(int(script.offsets[-1]) + 3))  # and a loss per column
    asked = script.asking >= 0
    assert np.array_equal(asked, places < script.offsets[-1])
    assert {NAMES[int(word) >> 16] for word in words[script.asking[asked]]} == {"ask"}
    order = np.argsort(script.sequence)[script.asking[script.back][asked[script.back]]]
    assert np.all(np.diff(order) > 0)  # numbers come back in the order of asking


@pytest.mark.parametrize("form", ["pairs", "both"])
def test_a_dense_row_sends_no_index_and_asks_once(form):
    """Every value in one half of a word, forward and (but for layer 1 and biases) backward; a request per row."""
    case = Case([7, 5, 3], width=3, form=form)
    script = case.coordinator.script("train")
    words = np.concatenate([payload for payload, _ in case.coordinator.streams("train")])
    values = np.concatenate([parameter.values for parameter in case.coordinator.parameters])
    times = np.zeros(len(values), int)
    for shift, carried in ((0, script.sources), (16, script.seconds)):
        mine = (carried >= 0) & (carried < len(values))
        assert np.array_equal(words[mine] >> np.uint32(shift) & np.uint32(0xFFFF), values[carried[mine]])
        times += np.bincount(carried[mine], minlength=len(values))
    assert times.tolist() == [1] * 40 + [2, 2, 2, 2, 2, 1] * 3  # layer 2 goes back, its biases do not
    asked = script.asking >= 0
    names = {NAMES[int(word) >> 16] for word in words[script.asking[asked]]}
    assert names == {"send", "from_west", "from_east"}
    assert "ask" not in {name for column in told(case, "train") for name in column}
    assert len(set(script.asking[asked].tolist())) == 3 * (5 + 3)  # columns x rows
    order = np.argsort(script.sequence)[script.asking[script.back][asked[script.back]]]
    assert np.all(np.diff(order) >= 0)
    case.matrices[1].gradient_pattern = type(case.matrices[1].pattern).of_mask(np.eye(3, 6, dtype=bool))
    case.coordinator.script("train")
    assert "ask" in {name for column in told(case, "train") for name in column}  # a mask with gaps asks place by place


def test_bytes_of_a_dense_network_are_those_of_its_values():
    """Requirement WS-11: two bytes a weight and pass; commands add less than a tenth to rows of a hundred features."""
    sent = {}
    for form in ("steps", "pairs"):
        case = Case([784, 64, 10], width=8, form=form)
        sent[form] = 4 * case.coordinator.script("train").n_words
    wanted = 2 * (784 * 64 + 2 * 64 * 10)
    assert 1 < sent["pairs"] / wanted < 1.1
    assert sent["steps"] / wanted > 3.5

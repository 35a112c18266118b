"""A mesh that has some layers at a time gives the bits of one that has all of them, and loads what it says it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.inference.chunks import pieces_of
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import admit, head_parts, layers_that_fit, needed_words
from fabric.networks.inference.groups import LayerGroups
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.reloading import ReloadedMesh, ReloadLink, reckoned
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES
from fabric.networks.inference.tiles import embedding_rows
from tests.examples import examples, few
from tests.fabric.networks.inference.machines import CHANGES, machine_of
from tests.fabric.networks.inference.small_models import CLASSIC, PLAIN, decoders, have_room, random_weights
from wse_core.errors import ConfigError, PlanError
from wse_core.formats import Arithmetic
from wse_core.params import machine

SMALL = Decoder(24, 3, 4, 2, 8, 20, 17, 64, 1e-5)
TINY = Decoder(8, 3, 2, 1, 4, 6, 7, 64, 1e-5)
"""For the plain-Python machine."""
EXPERTS = Decoder(22, 2, 4, 2, 4, 9, 17, 64, 1e-5, experts=6, chosen=2, renormalised=True)


def placed(decoder, width, height, tokens, policy="shift", dtype="f16"):
    room = tokens if policy == "concat" else -(-tokens // height)
    return DecoderPlacement(decoder, width, height, room, dtype)


def run(built, weights, passes, backend=None):
    """Let the tokens of each pass through all groups; return (the mesh, what the oracle is in, what came).

    What came of each pass: the likeliest token, all logits, cycles of each step in each group, words that were loaded.
    Groups are compared with their oracles, bit by bit.
    """
    mesh, half, position = ReloadedMesh(backend), Arithmetic.of(built.machine, built.place.dtype), 0
    kept, found = [None] * len(built.groups), []
    for tokens in passes:
        before, cycles = mesh.words.copy(), []
        rows = [embedding_rows(built.place, built.machine, weights, t, position + k) for k, t in enumerate(tokens)]
        states = [half.decode(each).astype(np.float32).view(np.uint32) for each in rows]
        for number, group in enumerate(built.groups):
            tables = group.tables(weights)
            oracle = Oracle(group.decode, {}, tables)
            mesh.load(group.decode if position else built.readers[number], tables, kept[number])
            oracle.take_over(mesh.cache(), position)
            size = 1 if position else built.size
            pieces = [states[k : k + size] for k in range(0, len(states), size)]
            came = [mesh.take(piece, not position + k) for k, piece in enumerate(pieces)]
            wanted = [oracle.through(oracle.handed(x)) for x in states]
            states = [x for each in came for x in each.states]
            assert all(map(np.array_equal, states, wanted))
            assert oracle.has(mesh.cache())
            cycles.append([each.cycles for each in came])
            if len(found) < len(passes) - 1:
                kept[number] = mesh.leave()
        position += len(tokens)
        logits, best = [], (-np.inf, 0)
        for head in built.heads:
            tables = head.tables(weights)
            mesh.load(head.decode, tables)
            came, _ = mesh.answer(states[-1], position - 1)
            oracle = Oracle(head.decode, {}, tables)
            token, bits = oracle.answer(oracle.handed(states[-1]))
            assert token == came.token
            assert np.array_equal(bits, came.logits)
            logits.append(came.logits)
            if head.decode.answers:
                best = max(best, (came.logits.view(np.float32)[token], -head.first - token))
            cycles.append(came.cycles)
        found.append((-best[1], np.concatenate(logits), cycles, mesh.words - before))
    return mesh, found


def resident(built, weights, passes):
    """Return (token, logits) behind each pass, of a mesh that has all layers."""
    whole = ResidentDecoder(Decode(built.machine, built.place, built.policy), weights)
    found = []
    for tokens in passes:
        for token in tokens:
            step = whole.step(token)
        found.append((step.token, step.logits))
    return found


def compare(built, weights, passes):
    """Hold what comes of groups against the mesh that has all layers."""
    mesh, found = run(built, weights, passes)
    for (token, logits, *_), (wanted, bits) in zip(found, resident(built, weights, passes), strict=True):
        assert token == wanted
        assert np.array_equal(logits, bits)
    return mesh, found


def check_words(built, found):
    """Words of each pass are those that are reckoned before."""
    assert [words for *_, words in found] == reckoned(built, len(found))


@examples(12)
@given(
    decoder=decoders(layers=4),
    experts=st.sampled_from([0, 0, 4]),
    width=st.integers(1, 6),
    height=st.integers(1, 5),
    each=st.integers(1, 4),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "cb16"]),
    preset=st.sampled_from(["wse2", "wse3"]),
    prompt=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_bits_are_those_of_all_layers(decoder, experts, width, height, each, policy, dtype, preset, prompt, seed):
    """Any decoder, mesh and number of layers at a time: tokens, logits and words; groups have their oracles' bits."""
    if experts:
        norms = "before" if decoder.parallel else decoder.norms
        decoder = replace(decoder, experts=experts, chosen=2, ffn_bias=False, norms=norms)
    tokens = prompt + 2
    place = placed(decoder, width, height, tokens, policy, dtype)
    assume(have_room(needed_words(place)))
    built = LayerGroups(machine(preset), place, tokens, min(each, decoder.layers), policy)
    fed = [(seed + 3 * n * n) % decoder.vocabulary for n in range(tokens)]
    passes = [fed[:prompt], *([token] for token in fed[prompt:])]
    _, found = compare(built, random_weights(decoder, seed), passes)
    check_words(built, found)


@pytest.mark.parametrize("decoder", [*CLASSIC[:4], EXPERTS])
def test_families(decoder):
    """Older models, and experts: a layer at a time."""
    built = LayerGroups(machine(), placed(decoder, 3, 2, 4), 4, 1)
    _, found = compare(built, random_weights(decoder), [[1, 2, 3], [4]])
    check_words(built, found)


@examples(10)
@given(
    decoder=decoders(layers=3),
    experts=st.sampled_from([0, 0, 4]),
    width=st.integers(1, 6),
    height=st.integers(1, 5),
    each=st.integers(1, 3),
    policy=st.sampled_from(["round", "concat"]),
    dtype=st.sampled_from(["f16", "cb16"]),
    size=st.integers(2, 5),
    length=st.integers(2, 7),
    seed=st.integers(0, 99),
)
def test_prompts_in_pieces(decoder, experts, width, height, each, policy, dtype, size, length, seed):
    """Several tokens of a prompt pass a group together: bits are those of one by one, cycles those of the price."""
    if experts:
        norms = "before" if decoder.parallel else decoder.norms
        decoder = replace(decoder, experts=experts, chosen=2, ffn_bias=False, norms=norms)
    tokens, size = length + 2, min(size, length)
    place = placed(decoder, width, height, tokens, policy, dtype)
    assume(have_room(needed_words(replace(place, batch=1, ahead=size))))
    built = LayerGroups(machine(), place, tokens, min(each, decoder.layers), policy, pieces=(length, size))
    fed = [(seed + 3 * n * n) % decoder.vocabulary for n in range(tokens)]
    _, found = compare(built, random_weights(decoder, seed), [fed[:length], [fed[length]], [fed[length + 1]]])
    check_words(built, found)
    for reader, own in zip(built.readers, found[0][2], strict=False):
        assert own == pytest.approx(StepCycles(reader).steps(pieces_of(length, size)).tolist(), rel=0.01, abs=3)


def test_groups_have_layers_of_their_own():
    """Groups with a window, without, with local positions and without, beyond the window; programs are reused."""
    near, far = LayerKind(window=3, local=True), LayerKind()
    decoder = replace(SMALL, layers=5, different=(near, near, far, far, near), local_base=50.0, norms="both")
    built = LayerGroups(machine(), placed(decoder, 4, 3, 7), 7, 2)
    windows = [group.decode.place.decoder.window for group in built.groups]
    assert windows == [3, None, 3]
    compare(built, random_weights(decoder), [[1, 2, 3, 4, 5], [6], [7]])
    alike = LayerGroups(machine(), placed(SMALL, 4, 3, 7), 7, 1)
    assert len({group.decode for group in alike.groups}) == 1
    assert [group.first for group in alike.groups] == [0, 1, 2]


@pytest.mark.parametrize("biased", [False, True])
def test_an_output_matrix_in_parts(biased):
    """Rows that do not fit at a time: the largest logit of all parts, the lowest token where several are equal."""
    decoder = Decoder(24, 2, 2, 1, 4, 6, 601, 64, 1e-5, tied=not biased, logit_cap=3.0, **(PLAIN if biased else {}))
    decoder = replace(decoder, head_bias=biased)
    small = machine("wse2", {"mem.words": 6500})
    place = placed(decoder, 2, 2, 4)
    assert layers_that_fit(place, small) == 2 - biased
    parts = head_parts(place, small)
    assert len(parts) > 1
    with pytest.raises(PlanError, match="or --layers-at-a-time"):
        admit(place, small, 4, "shift")
    weights = random_weights(decoder)
    head = "model.embed_tokens.weight" if decoder.tied else "lm_head.weight"
    weights[head] = weights[head].copy()
    weights[head][400:] = weights[head][100:301]  # logits that are equal lie in two parts
    if biased:
        weights["lm_head.bias"][400:] = weights["lm_head.bias"][100:301]
    wide = machine()
    built = LayerGroups(small, place, 4)
    assert [head.first for head in built.heads] == [first for first, _ in parts]
    _, found = run(built, weights, [[1, 2, 3], [4]])
    whole = resident(LayerGroups(wide, place, 4), weights, [[1, 2, 3], [4]])
    for (token, logits, *_), (wanted, bits) in zip(found, whole, strict=True):
        assert token == wanted
        assert np.array_equal(logits, bits)
    check_words(built, found)


def test_only_some_tokens_are_answered():
    """Tokens without a text are not answered, whatever their logits are; logits are there of all."""
    decoder, small = replace(SMALL, vocabulary=601), machine("wse2", {"mem.words": 6500})
    weights, place = random_weights(decoder), placed(decoder, 2, 2, 4)
    built = LayerGroups(small, place, 4, answers=3)
    assert [head.decode.answers for head in built.heads] == [3, *[0] * (len(built.heads) - 1)]
    assert len(built.heads) > 1
    (_, ((token, logits, *_),)), (_, ((other, bits, *_),)) = (
        run(each, weights, [[1]]) for each in (built, LayerGroups(small, place, 4))
    )
    assert token < 3 <= other
    assert np.array_equal(logits, bits)


def test_both_engines_give_the_same():
    """The plain-Python machine gives the same bits, cycles and words."""
    weights = random_weights(TINY)
    built = LayerGroups(machine(), placed(TINY, 2, 1, 3), 3, 2)
    (_, one), (_, two) = (run(built, weights, [[1, 2], [3]], backend) for backend in ("compiled", "reference"))
    for mine, other in zip(one, two, strict=True):
        assert np.array_equal(mine[1], other[1])
        assert mine[2:] == other[2:]


@pytest.mark.parametrize("name", few(CHANGES, 3))
@pytest.mark.parametrize(("width", "height", "each"), few([(4, 3, 2), (1, 2, 1), (8, 5, 1), (3, 1, 3)], 2))
def test_cycles_are_those_of_the_price(name, width, height, each):
    """Each group and part, each token: within 1 % or 3 cycles of the engine."""
    machine, tokens = machine_of(name), 7
    built = LayerGroups(machine, placed(SMALL, width, height, tokens), tokens, each)
    _, found = run(built, random_weights(SMALL), [[1, 2, 3, 4, 5, 6], [7]])
    for first, (_, _, cycles, _) in zip((0, 6), found, strict=True):
        for group, own in zip(built.groups, cycles, strict=False):
            wanted = StepCycles(group.decode).steps(range(first, first + len(own)))
            assert own == pytest.approx(wanted.tolist(), rel=0.01, abs=3)
        for head, own in zip(built.heads, cycles[len(built.groups) :], strict=True):
            assert own == pytest.approx(StepCycles(head.decode).step(0), rel=0.01, abs=3)


def test_the_price_of_experts():
    """A group of layers with experts is within 1 % of the engine too."""
    built = LayerGroups(machine(), placed(EXPERTS, 4, 3, 4), 4, 1)
    _, ((*_, cycles, _),) = run(built, random_weights(EXPERTS), [[1, 2, 3, 4]])
    for group, own in zip(built.groups, cycles, strict=False):
        assert own == pytest.approx(StepCycles(group.decode).steps(range(4)).tolist(), rel=0.01)


@examples(8)
@given(decoder=decoders(layers=3), width=st.integers(1, 6), height=st.integers(1, 5), each=st.integers(1, 3))
def test_programs_take_what_is_reckoned(decoder, width, height, each):
    """What a PE needs is at least what the programs of groups and parts take of it."""
    place = placed(decoder, width, height, 5)
    assume(have_room(needed_words(place)))
    built = LayerGroups(machine(), place, 5, min(each, decoder.layers))
    for part in (*built.groups, *built.heads):
        needed = needed_words(part.decode.place)
        for image in part.decode.layout().build().programs:
            assert 2 * len(image.code) <= needed["code"]
            assert image.footprint <= sum(needed.values())


def test_the_link():
    """Words of 16 bits over a link of so many bytes per second."""
    link = ReloadLink(machine("wse2", {"stream.rate": 10**9, "clock.ghz": 0.5}))
    assert link.seconds(500) == pytest.approx(1e-6)
    assert link.cycles(500) == 500
    assert link.cycles(501) == 501


def test_what_is_refused():
    """More layers at a time than there are; a layer, or a row of the output matrix, that no PE has room for."""
    for each in (4, -1):
        with pytest.raises(ConfigError, match=f"{each} of 3 layers at a time"):
            LayerGroups(machine(), placed(SMALL, 2, 2, 4), 4, each)
    wide = Decoder(64, 2, 4, 2, 16, 3000, 40, 64, 1e-5)
    with pytest.raises(PlanError, match="the layer does not fit into 2 x 2 PEs.*smallest mesh"):
        LayerGroups(machine(), placed(wide, 2, 2, 4), 4)
    with pytest.raises(PlanError, match="the group of 3 layers does not fit"):
        LayerGroups(machine("wse2", {"mem.words": 5700}), placed(SMALL, 1, 1, 4), 4, 3)
    deep = Decoder(20000, 1, 1, 1, 2, 1, 40, 64, 1e-5)
    with pytest.raises(PlanError, match="does not fit"):
        LayerGroups(machine(), placed(deep, 1, 1, 4), 4)

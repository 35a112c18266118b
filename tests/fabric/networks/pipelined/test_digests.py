"""Programs, routes, cycles, numbers and weights of random pipelined networks are those that were written down once.

`networks.json` holds digests by the seed of a network: a change of form leaves them alone.  A change of behaviour is
declared, and then ``python -m tests.fabric.networks.pipelined.test_digests`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.examples import seeds
from tests.fabric.networks.digests import digest, held, of_layout
from tests.fabric.networks.pipelined.drawn import drawn

FILE = Path(__file__).with_name("networks.json")
COUNT = 16


def recorded(seed):
    """Return the digests of a network: its layout, and two runs of some minibatches with updates."""
    case = drawn(seed)
    found = {"programs": of_layout(case.pipeline.layout)}
    cycles, numbers = [], []
    for count in (5, 3):
        run = case.wafer.run(*case.samples(count), case.constants(count))
        cycles.append((run.cycles, run.loss_times.tolist(), run.asked.tolist()))
        numbers += [run.losses.view(np.uint32), run.logits]
    run = case.wafer.run(case.samples(2)[0])
    cycles.append(run.cycles)
    numbers += [run.logits, case.wafer.occupancy()]
    state = [part for table in case.wafer.state() for part in table.values()]
    found |= {"cycles": digest(cycles), "numbers": digest(*numbers)}
    found["weights"] = digest(*(part.view(np.uint32) for part in [*case.wafer.weights(), *state]))
    return found


@pytest.mark.parametrize("seed", seeds(COUNT))
def test_a_network_is_what_it_was(seed):
    found = {str(seed): recorded(seed)}
    assert found == held(FILE, found)


if __name__ == "__main__":
    FILE.write_text(json.dumps({str(seed): recorded(seed) for seed in range(COUNT)}, indent=1) + "\n")

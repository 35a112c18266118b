"""Why the planner and the layer-level model give different times for one run by weight streaming.

The planner counts: operations at the full rate of all cores, bytes of weights at the full rate of the link
(`harness.plan.approaches.streaming_run`).  The layer-level model (`swarm.cluster`) follows what the programs of the PEs
do.  Both read the numbers of one machine; the planner's rate of operations is the published one (``plan.*``), the
model's that of the PEs that programs see, at the clock of the vendor's scripts.  `levels` asks both and puts the
reasons for the difference in figures.
"""

from __future__ import annotations

from typing import Any

from harness.plan.approaches import operations
from harness.plan.layers import layers_of
from harness.plan.models import TransformerSizes
from harness.plan.strategies import STEPS
from harness.plan.units import DAY
from swarm.cluster.cluster import Cluster
from swarm.cluster.mixing import beyond
from swarm.cluster.shapes import Mesh
from swarm.cluster.timeline import iteration
from swarm.timing import Links
from wse_core.params import Machine

__all__ = ["levels", "paragraph"]


def levels(model: TransformerSizes, numbers: Machine, planned: dict[str, Any]) -> dict[str, Any]:
    """Return the run of a plan by the layer-level model, and what makes the difference.

    Parameters
    ----------
    model : TransformerSizes
    numbers : Machine
    planned : dict
        What `harness.plan.approaches.streaming_run` returned.
    """
    mesh, systems = Mesh(numbers), planned["systems"]
    at_once = int(planned["samples"]) * model.sequence * systems
    links = Links.of(numbers)
    tokens = model.tokens or STEPS * model.critical_batch * model.sequence
    layers = layers_of(model)
    timeline = iteration(layers, at_once, Cluster(systems, mesh))
    passes = tokens / at_once
    lanes = numbers.lanes("fmachs")
    counted = numbers["plan.cores"], numbers["plan.core_operations"], numbers["plan.core_ghz"]
    seen = mesh.width * mesh.height, 2 * lanes, numbers["clock.ghz"]
    ideal = planned["compute"] * (counted[0] * counted[1] * counted[2]) / (seen[0] * seen[1] * seen[2])
    matrices = 6 * sum(layer.dense_weights for layer in layers if not layer.lookup) * tokens
    return {
        "seconds": timeline.seconds * passes,
        "compute": timeline.busy["compute"] * passes,
        "traffic": max(timeline.busy["stream"], timeline.busy["receive"]) * passes,
        "limit": timeline.bottleneck,
        "planned_seconds": planned["seconds"],
        "planned_compute": planned["compute"],
        "planned_traffic": planned["traffic"],
        "planned_cores": counted,
        "pes": seen,
        "compute_at_full_rate_of_pes": ideal * matrices / operations(model),
        "bytes_out_per_pass": timeline.bytes_out,
        "bytes_back_per_pass": timeline.bytes_back,
        "beyond": beyond(layers, at_once // systems, mesh),
        "systems": systems,
        "planes": links.planes,
        "tree_nodes": links.nodes(systems),
        "tree_seconds": links.one_way(systems),
    }


def paragraph(found: dict[str, Any]) -> str:
    """Return in words why both differ."""

    def days(key: str) -> str:
        return f"{found[key] / DAY:,.3g} days"

    (cores, each, clock), (pes, lanes, hertz) = found["planned_cores"], found["pes"]
    text = (
        f"The layer-level model says {days('seconds')} for what is planned with {days('planned_seconds')}.  The plan "
        f"counts {each:g} operations a cycle on {cores:,} cores at {clock:g} GHz, published figures: "
        f"{days('planned_compute')} of compute.  Programs see {pes:,} PEs at {hertz:g} GHz, each with {lanes} "
        f"operations a cycle in multiply-adds of 16 bits: {days('compute_at_full_rate_of_pes')} if they did nothing "
        f"else.  They "
        f"take {days('compute')}: a pair of weights starts a task, rows are summed round the ring of columns, and a "
        f"gradient takes a conversion, a product and a sum of 32 bits.  Weights and gradients alone keep the link busy "
        f"for {days('planned_traffic')} by the plan, and for {days('traffic')} with all commands "
        f"({found['bytes_out_per_pass'] / 1e9:,.4g} GB out and {found['bytes_back_per_pass'] / 1e9:,.4g} GB back a "
        f"pass), behind the compute.  Trees of {found['tree_nodes']:,} nodes on {found['planes']} planes tie "
        f"{found['systems']:,} systems to the memory service, {found['tree_seconds'] * 1e6:.3g} us one way."
    )
    if not found["beyond"]:
        return text
    return f"{text}  Of the attention that is priced no cycle-level program does this: {found['beyond']}."

"""Counters and results of this package have units and meanings, which stand here by name.

A run file says of each number what it is; whoever adds one need not, if its name stands here.  The unit ``1`` is that
of shares, ratios and counts of nothing in particular; texts, truth values and structures have none.
"""

from __future__ import annotations

import re

from wse_core.counters import MOVED

__all__ = ["COUNTERS", "RESULTS", "of_counter", "of_result"]

COUNTERS = {
    "busy": ("cycles", "issuing or calculating"),
    "idle": ("cycles", "nothing to do"),
    "stall_pipe": ("cycles", "waiting for the pipeline"),
    "stall_conflict": ("cycles", "lost to bank conflicts"),
    "stall_resource": ("cycles", "waiting for a DSR or a microthread"),
    "stall_input": ("cycles", "waiting for wavelets"),
    "stall_output": ("cycles", "waiting for room to send"),
    "stall_fifo": ("cycles", "waiting for a FIFO"),
    "instructions": ("instructions", "instructions issued by the main thread"),
    "steps": ("steps", "steps of vector operations"),
    "elements": ("elements", "elements of vector operations"),
    "macs": ("multiply-adds", "multiply-adds of vector operations"),
    "tasks": ("tasks", "tasks started"),
    "sent": ("wavelets", "wavelets that the CE put into output queues"),
    "received": ("wavelets", "wavelets that the CE took from input queues"),
}
"""Each counter has a unit and a meaning by its name; it counts per PE and window."""

RESULTS = {
    # any run
    "cycles": ("cycles", "the interval that the job measures; of a recorded block, up to the last thing that happened"),
    "run_cycles": ("cycles", "the whole run, with the start of tasks and the storing of time stamps"),
    "wavelet_hops": ("wavelets", "wavelets moved by routers, once per router"),
    "macs": ("multiply-adds", "multiply-adds done"),
    "energy": ("J", "energy of the run: of all PEs of the fabric, by modelled numbers"),
    "energy_communication": ("J", "of it wavelets that routers moved"),
    "energy_memory": ("J", "of it words of SRAM read and written by operations"),
    "energy_arithmetic": ("J", "of it additions and products"),
    "energy_instructions": ("J", "of it instructions issued by main threads"),
    "energy_standing": ("J", "of it cycles of PEs that are powered, at work or not"),
    "average_power": ("W", "that energy over the time of the run, at the clock of the machine"),
    "pes_used": ("PEs", "PEs with a program"),
    "utilisation": ("1", "busy cycles per PE with a program and cycle of the run"),
    "mac_utilisation": ("1", "multiply-adds done, of those that the lanes of all PEs could do in the run"),
    "host_seconds": ("s", "time of the host for the job"),
    "run_seconds": ("s", "time of the host for the simulation alone"),
    "run_cpu_seconds": ("s", "CPU time of the simulation, all threads together"),
    "verify_seconds": ("s", "time of the host for the check of the result"),
    "total_seconds": ("s", "time of the host for everything"),
    "host_bands": ("bands", "bands of rows with clocks of their own in which the host simulated, at most"),
    "host_threads": ("threads", "threads of the host that simulated, at most"),
    "host_ranks": ("ranks", "processes of the host that simulated, each some of the rows"),
    "peak_rss_bytes": ("B", "most memory of the host's process"),
    "hops_per_second": ("wavelets/s", "speed of the simulation: wavelet hops per second of the host"),
    "pe_cycles_per_second": ("cycles/s", "speed of the simulation: cycles of all PEs per second of the host"),
    "seed": ("", "seed of the run"),
    "preset": ("", "machine that the run started from"),
    "job": ("", "what ran"),
    "dtype": ("", "format of the numbers"),
    "files": ("", "files that the run wrote"),
    # checks
    "verified": ("", "whether the result is right, by the bits or within the derived bound"),
    "verify": ("", "how much of the result was checked"),
    "compared_fraction": ("1", "share of the result that was compared"),
    "bit_exact": ("", "whether the result has the bits of the reference in the machine's order"),
    "within_bound": ("", "whether the result is within the derived bound of NumPy"),
    "max_abs_error": ("1", "largest difference to NumPy in float64"),
    "max_bound": ("1", "largest bound that is derived for that difference"),
    "error_bound": ("1", "largest bound that is derived for the difference to NumPy"),
    "n_results": ("1", "numbers of the result that were compared"),
    "n_bounded": ("1", "numbers of the result for which a bound is derived"),
    # kernels
    "kernel": ("", "name of the kernel"),
    "params": ("", "parameters of the kernel"),
    "expected_cycles": ("cycles", "what the closed form of the kernel's page says"),
    "cycle_error": ("1", "cycles / expected cycles - 1"),
    "lower_bound": ("cycles", "no algorithm on this machine needs fewer"),
    "lower_bound_share": ("1", "lower bound / cycles: 1 cannot be improved on"),
    "bottleneck_share": ("1", "share of the run that the bottleneck takes"),
    "bottleneck_at": ("", "PE or link that is the bottleneck"),
    "bound_reason": ("", "why the closed form is a bound"),
    "expected_hops": ("wavelets", "wavelet hops by the formula of the kernel's page"),
    "expected_macs": ("multiply-adds", "multiply-adds by the formula of the kernel's page"),
    "useful_macs": ("multiply-adds", "multiply-adds that the problem needs, without padding"),
    "published_form": ("cycles", "what the published cost model says"),
    "model_cycles": ("cycles", "what the published cost model says of the chosen algorithm"),
    "algorithms": ("cycles", "what the cost models say of each algorithm"),
    "additions": ("additions", "additions done"),
    "critical_additions": ("additions", "additions one after the other on the longest way"),
    "multiplications": ("multiplications", "multiplications done"),
    "cycles_per_stage": ("cycles", "cycles from a stage of the chain to the next"),
    "cycles_per_hop": ("cycles", "cycles per hop"),
    "cycles_per_step": ("cycles", "cycles per step of time"),
    "cycles_per_weight": ("cycles", "cycles per streamed weight"),
    "layer_cycles": ("cycles", "cycles of each layer"),
    "compute_cycles": ("cycles", "cycles of the local products"),
    "steps": ("steps", "steps of the algorithm"),
    "align_cycles": ("cycles", "cycles of bringing tiles to where they start"),
    "words_per_pe": ("words", "16-bit words of memory that a PE needs at most"),
    "colors_per_pe": ("colors", "colors that a router uses at most"),
    "communication_cycles": ("cycles", "cycles of the communication"),
    "product_cycles": ("cycles", "cycles of the product"),
    "conflict_cycles": ("cycles", "cycles lost to bank conflicts"),
    "expected_compute_cycles": ("cycles", "cycles of the local products by their formula"),
    "lanes_per_step": ("elements", "elements of a step"),
    "colors": ("colors", "colors that the kernel uses"),
    "depth": ("1", "depth of the tree"),
    "groups": ("1", "groups of PEs that work side by side"),
    "tile": ("elements", "shape of the tile of a PE"),
    "nonzeros": ("entries", "entries of the matrix that are not zero"),
    "most_entries": ("entries", "entries of the PE that has most"),
    "weights_sent": ("weights", "weights that were streamed"),
    "commands": ("commands", "commands that were streamed"),
    "asked": ("entries", "gradients that were asked for"),
    "bytes_back": ("B", "bytes of gradients that left"),
    # arrays of kernels
    "total": ("1", "the sums"),
    "x": ("1", "the vector that was sent"),
    "y": ("1", "the vector of results"),
    "c": ("1", "the product"),
    "u": ("1", "the field after the last step"),
    "all": ("1", "what every PE gathered"),
    "result": ("1", "elements of the result"),
    "gradients": ("1", "gradients that left"),
    "arrivals": ("cycles", "when each wavelet arrived"),
    # training
    "name": ("", "name of the configuration"),
    "features": ("features", "inputs, then outputs of each layer"),
    "wafers": ("wafers", "wafers of the cluster"),
    "mesh": ("PEs", "columns and rows of PEs of each wafer"),
    "column_groups": ("groups", "groups of columns, each with all features of other samples"),
    "batch": ("samples", "samples of an iteration over all wafers"),
    "density": ("1", "share of weights that are active"),
    "train_samples": ("samples", "samples to train on"),
    "test_samples": ("samples", "samples to test with"),
    "iterations": ("iterations", "iterations of the whole run"),
    "done": ("iterations", "iterations done"),
    "from_iteration": ("iterations", "iteration after which this part began"),
    "skipped": ("iterations", "iterations whose gradients were not finite: the loss scale was lowered"),
    "loss": ("1", "mean loss of the last iteration"),
    "accuracy": ("1", "share of samples that were classified rightly"),
    "test_accuracy": ("1", "share of the test samples that were classified rightly"),
    "test_loss": ("1", "mean loss of the test samples, taken by the host from their logits"),
    "simulated_seconds": ("s", "time of the modelled system"),
    "samples_per_simulated_second": ("samples/s", "samples per second of the modelled system"),
    "iterations_per_second": ("iterations/s", "iterations per second of the host"),
    "checkpoint": ("", "last checkpoint"),
    "reference": ("", "whether NumPy took the place of the wafers"),
    "compared_iterations": ("iterations", "iterations that were compared with NumPy"),
    "weight_distance_to_numpy": ("1", "distance of the weights to those of plain NumPy"),
    "loss_distance_to_numpy": ("1", "distance of the loss to that of plain NumPy"),
    "words_per_iteration": ("wavelets", "wavelets of weights and commands per iteration"),
    "curve_iteration": ("iterations", "iteration of each point of the curves"),
    "curve_loss": ("1", "mean loss of each iteration"),
    "curve_accuracy": ("1", "share of the samples of each iteration that were classified rightly"),
    "test_cycles": ("cycles", "cycles in which held-out samples were classified"),
    "lost_cycles": ("cycles", "cycles in which wafers waited for words, or for room for gradients"),
    "bottleneck": ("", "what limits the run; of a training, the change that would save most of what wafers wait"),
    "curve_boundary": ("cycles", "cycles of each iteration in which wafers waited"),
    "curve_cycles": ("cycles", "cycles from each iteration to the next"),
    # digits
    "digits": ("digits", "digits that were classified"),
    "accuracy_held_out": ("1", "share of the digits that the fit has not seen that were classified rightly"),
    "accuracy_numpy": ("1", "share of digits that NumPy in float64 classified rightly"),
    "same_class_as_numpy": ("digits", "digits of which NumPy says the same"),
    "pes": ("PEs", "columns and rows of PEs"),
    "passes": ("passes", "passes over the wafer"),
    "wafer_seconds": ("s", "time of the modelled wafer"),
    "scores": ("1", "score of each class for each digit"),
    "predicted": ("1", "class with the highest score"),
    "labels": ("1", "class of each digit"),
    "weights": ("1", "weights of the classifier"),
    "held_out": ("", "which digits the fit has not seen"),
}
"""Each result has a unit and a meaning by its name."""

LINK = re.compile(rf"{MOVED}(\d+)")


OF_TRAINING = {
    "would_save_": ("1", "share of an iteration that this change of the ways would have saved"),
    "stages_": ("cycles", "of all iterations of training, in a phase of the wafers' work"),
    "traffic_bytes_": (
        "bytes",
        "of all iterations of training, on the link of the memory service; samples: on all links",
    ),
    "column_utilisation_": ("", "share of the cycles in which the PEs of a column of the first wafer were at work"),
    "numbers_": ("", "modelled number of memory service or tree, as `wse doctor --assumptions` lists it"),
}
"""Results of `wse train` have meanings by how their names begin."""


def of_counter(name: str) -> tuple[str, str]:
    """Return unit and meaning of a counter, empty texts if its name is not known."""
    link = LINK.fullmatch(name)
    if link:
        return "wavelets", f"wavelets of color {link[1]} that left the queue of each input port of the router"
    return COUNTERS.get(name, ("", ""))


def of_result(name: str) -> tuple[str, str]:
    """Return unit and meaning of a result, empty texts if its name is not known."""
    found = next((meaning for start, meaning in OF_TRAINING.items() if name.startswith(start)), ("", ""))
    return RESULTS.get(name, found)

"""Compilers of single versions of the SDK refuse some of what is read here: the union of all of them.

A program that is meant for one version (`Options.sdk`) gets a warning at each place that the vendor's compiler of that
version would refuse, as far as release notes and pages say; what they do not say is not in the table.  Nothing else
follows from the version: the program means the same.
"""

from __future__ import annotations

from fabric.csl.diagnostics import Report, Span

__all__ = ["VERSIONS", "Dialect"]

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4", "2.10")
"""These versions of the SDK are told apart."""

SINCE = {
    "@get_ut_id": "1.1", "@set_control_task_table": "1.1", "@queue_flush": "1.2", "@set_empty_queue_handler": "1.2",
    "@fp16": "1.4", "@load_to_dsr_xdsr": "2.10", "circbuf_dsd": "2.10", "anyopaque": "2.10", "cb16": "1.4",
    "bf16": "1.4", "inline fn": "1.3", "a label": "1.3", "a packed struct": "2.10", "a union": "2.10",
    "a param without a type": "2.10", "an implicit conversion to a wider type": "2.10",
    "an anonymous struct for a named one": "2.10", "the field priority of a fabric DSD": "1.4",
    "the simd mode simd_off": "2.10", "the simd mode simd_max": "2.10", "an integer of this width": "2.10",
    "the program for WSE-3": "1.1", "the base_address of a DSD": "1.3",
}  # fmt: skip
"""Features of the language came with these versions of the SDK."""
UNTIL = {
    "@concat_structs": "1.4", "comptime_struct": "1.4", "@get_color_id": "1.1",
    "a fabric input whose queue is not initialized": "1.4", "a color that no router has": "1.2",
    "the number of a queue for the queue": "0.9", "a color for the id of a local task": "0.9",
    "an argument of init": "0.6", "a number for a flag": "0.5",
}  # fmt: skip
"""Features of the language were last in these versions of the SDK."""
INSTEAD = {
    "@concat_structs": "one struct, field by field", "comptime_struct": "a param without a type",
    "a param without a type": ": comptime_struct", "an implicit conversion to a wider type": "@as(...)",
    "a fabric input whose queue is not initialized": "@initialize_queue(queue, .{ .color = ... })",
    "the number of a queue for the queue": "@get_input_queue(n), @get_output_queue(n)",
    "a color for the id of a local task": "@get_local_task_id(n)", "a number for a flag": "true or false",
}  # fmt: skip


class Dialect:
    """A `Dialect` adds warnings of what one version of the vendor's compiler refuses.

    Parameters
    ----------
    sdk : str
        One of `VERSIONS`, or the empty string: nothing is warned of.
    report : Report
    """

    def __init__(self, sdk: str, report: Report) -> None:
        self._at = VERSIONS.index(sdk) if sdk else -1
        self._sdk, self._report = sdk, report
        self._said: set[tuple[str, str, int]] = set()

    def use(self, feature: str, span: Span) -> None:
        """Warn if the version does not have a feature; our own library may use all."""
        if self._at < 0 or span.source.name.startswith("<"):
            return
        if feature in SINCE and VERSIONS.index(SINCE[feature]) > self._at:
            what = f"SDK {self._sdk} refuses this: {feature} came with {SINCE[feature]}"
        elif feature in UNTIL and (UNTIL[feature] not in VERSIONS or VERSIONS.index(UNTIL[feature]) < self._at):
            what = f"SDK {self._sdk} refuses this: {feature} is there up to {UNTIL[feature]}"
        else:
            return
        key = feature, span.source.name, span.start
        if key not in self._said:
            self._said.add(key)
            self._report.warn(what, span, INSTEAD.get(feature))

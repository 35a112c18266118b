"""Queues and descriptors are made for wavelets that arrive from, or leave for, the fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabric.asm import descriptors
from fabric.asm.operands import Dsd, Queue
from fabric.asm.unit import Unit

__all__ = ["Ports"]


class Ports:
    """A `Ports` has the queues and fabric descriptors of one program."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    # --- queues -------------------------------------------------------------------------------------------------------

    def input_queue(self, q: int, color: int) -> Queue:
        """Bind input queue `q` to `color` and return the `Queue`; the same pair again gives the same one.

        Raises
        ------
        ProgramError
            Queue or color does not exist, or one of the two is bound to another.
        """
        return self.unit.queue("input", q, color)

    def output_queue(self, q: int, color: int) -> Queue:
        """Bind output queue `q` to `color` and return the `Queue`; errors as `input_queue`."""
        return self.unit.queue("output", q, color)

    def _find_queue(self, kind: str, source: Queue | int) -> Queue:
        if isinstance(source, Queue):
            if self.unit.queues[source.kind].get(source.id) is not source:
                raise self.unit.error(f"{source} belongs to another program")
            if source.kind != kind:
                raise self.unit.error(f"an {source.kind} queue given where an {kind} queue belongs")
            return source
        for queue in self.unit.queues[kind].values():
            if queue.color == source:
                return queue
        raise self.unit.error(
            f"no {kind} queue is bound to color {source!r}",
            hint=f"p.{kind}_queue(q, {source!r}) first; a plain number is a color, a queue is the object "
            "that this call returns",
        )

    # --- descriptors --------------------------------------------------------------------------------------------------

    def fabin(
        self,
        source: Queue | int,
        extent: int,
        packed: bool | None = None,
        on_control: Mapping[str, Any] | None = None,
        dtype: str | None = None,
        simd: str | None = None,
    ) -> Dsd:
        """Describe wavelets arriving from the fabric.

        Parameters
        ----------
        source : Queue or int
            Input queue, or the color that an input queue is bound to.
        extent : int
            Elements; `ENDLESS` for an operation that never ends.
        packed : bool, optional
            Two 16-bit elements per wavelet; default True for 16-bit types (the vendor's simd_32).
        on_control : dict, optional
            What a control wavelet does: keys ``terminate`` (bool), ``activate`` and ``unblock`` (a task; the same one
            if both are given).
        dtype : str, optional
            Element type; default: that of the operation.
        simd : str, optional
            The vendor's name of a packing, ``simd_32``.
        """
        queue = self._find_queue("input", source)
        return descriptors.fabin(self.unit, queue, extent, packed, on_control, dtype, simd)

    def fabout(
        self,
        target: Queue | int,
        extent: int,
        packed: bool | None = None,
        control: bool = False,
        advance_switch: bool = False,
        zero: bool = False,
        index: int | None = None,
        dtype: str | None = None,
        simd: str | None = None,
        control_transform: bool = False,
    ) -> Dsd:
        """Describe wavelets leaving for the fabric.

        Parameters
        ----------
        target : Queue or int
            Output queue, or the color that an output queue is bound to.
        extent : int
            Elements.
        packed : bool, optional
            Two 16-bit elements per wavelet; default True for 16-bit types unless `index` or `control` is given.
        control : bool
            Each wavelet is a control wavelet (payloads: `fabric.asm.control`).
        advance_switch : bool
            The switch of the PE's own router moves on behind the last element.
        zero : bool
            Each element of the memory source is set to zero once sent.
        index : int, optional
            Upper half of each wavelet, for unpacked 16-bit elements.
        dtype, simd
            As in `fabin`.
        """
        queue = self._find_queue("output", target)
        return descriptors.fabout(
            self.unit, queue, extent, packed, control, advance_switch, zero, index, dtype, simd, control_transform
        )

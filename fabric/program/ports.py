"""Queues and the descriptors of wavelets that arrive from, or leave for, the fabric."""

from __future__ import annotations

import numpy as np

from fabric.asm.operands import Dsd, Queue, extent_of
from fabric.asm.values import WORDS
from wse_core import image as im

__all__ = ["Ports"]


class Ports:
    """Part of `fabric.program.program.Program`: queues and fabric descriptors."""

    # --- queues -------------------------------------------------------------------------------------------------------

    def input_queue(self, q, color):
        """Bind input queue `q` to `color` and return the `Queue`; the same pair again gives the same one.

        Raises
        ------
        ProgramError
            Queue or color does not exist, or one of the two is bound to another.
        """
        return self._queue("input", q, color)

    def output_queue(self, q, color):
        """Bind output queue `q` to `color` and return the `Queue`; errors as `input_queue`."""
        return self._queue("output", q, color)

    def _queue(self, kind, q, color):
        self._changing()
        depths = self.machine["queue.in_depth" if kind == "input" else "queue.out_depth"]
        exist = [i for i, depth in enumerate(depths) if depth]
        if q not in exist:
            raise self._error(
                f"{kind} queue {q!r} does not exist on {self.machine.preset}", hint=f"queues {exist[0]} .. {exist[-1]}"
            )
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.machine["router.colors"]:
            needed = int(color) + 1 if isinstance(color, (int, np.integer)) else None
            raise self._error(
                f"color {color!r} of {kind} queue {q} is not routable",
                limit="routes",
                needed=needed,
                available=self.machine["router.colors"],
                hint=f"colors 0 .. {self.machine['router.colors'] - 1}",
            )
        bound = self._queues[kind]
        if q in bound and bound[q].color == color:
            return bound[q]
        if q in bound:
            raise self._error(f"{kind} queue {q} is bound twice, to colors {bound[q].color} and {color}")
        for other in bound.values():
            if other.color == color:
                raise self._error(f"color {color} is bound to two {kind} queues, {other.id} and {q}")
        bound[q] = Queue(kind, q, int(color))
        return bound[q]

    def _find_queue(self, kind, source):
        if isinstance(source, Queue):
            if self._queues[source.kind].get(source.id) is not source:
                raise self._error(f"{source} belongs to another program")
            if source.kind != kind:
                raise self._error(f"an {source.kind} queue given where an {kind} queue belongs")
            return source
        for queue in self._queues[kind].values():
            if queue.color == source:
                return queue
        raise self._error(
            f"no {kind} queue is bound to color {source!r}",
            hint=f"p.{kind}_queue(q, {source!r}) first; a plain number is a color, a queue is the object "
            "that this call returns",
        )

    # --- descriptors --------------------------------------------------------------------------------------------------

    def fabin(self, source, extent, packed=None, on_control=None, dtype=None, simd=None):
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
        packed = self._simd(simd, packed)
        on_control = dict(on_control or {})
        actions, bits = set(), 0
        if on_control.pop("terminate", False):
            bits |= im.ON_TERMINATE
        for key, bit in (("activate", im.ON_ACTIVATE), ("unblock", im.ON_UNBLOCK)):
            if (task := on_control.pop(key, None)) is not None:
                bits |= bit
                actions.add(task)
        if on_control:
            raise self._error(
                f"on_control: unknown key {next(iter(on_control))!r}", hint="terminate, activate, unblock"
            )
        if len(actions) > 1:
            raise self._error(
                "on_control: activate and unblock name different tasks", hint="a descriptor has room for one task"
            )
        return Dsd(
            "fabin",
            self._fabric_type(dtype),
            (extent_of(extent, "extent of fabin"),),
            queue=queue,
            packed=packed,
            on_control=(bits,),
            control_task=next(iter(actions), None),
        )

    def fabout(
        self,
        target,
        extent,
        packed=None,
        control=False,
        advance_switch=False,
        zero=False,
        index=None,
        dtype=None,
        simd=None,
        control_transform=False,
    ):
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
            A control wavelet that advances switches follows the last element.
        zero : bool
            Each element of the memory source is set to zero once sent.
        index : int, optional
            Upper half of each wavelet, for unpacked 16-bit elements.
        dtype, simd
            As in `fabin`.
        """
        queue = self._find_queue("output", target)
        if control_transform:
            raise self._unsupported("control_transform")
        packed = self._simd(simd, packed)
        if index is not None:
            if packed:
                raise self._error("index has no place in packed wavelets", hint="packed=False")
            if not 0 <= index <= 0xFFFF:
                raise self._error(f"index {index} of fabout does not fit 16 bits")
            packed = False
        if control and packed is None:
            packed = False
        flags = (
            im.F_CONTROL * bool(control)
            | im.F_ADVANCE * bool(advance_switch)
            | im.F_ZERO * bool(zero)
            | im.F_INDEX * (index is not None)
        )
        return Dsd(
            "fabout",
            self._fabric_type(dtype),
            (extent_of(extent, "extent of fabout"),),
            queue=queue,
            packed=packed,
            flags=flags,
            index=index,
        )

    def _fabric_type(self, dtype):
        dtype = self.half if dtype == "half" else dtype
        if dtype is not None and (dtype not in WORDS or (dtype in ("f16", "cb16") and dtype != self.half)):
            raise self._error(f"unknown element type {dtype!r} in a program whose 16-bit float is {self.half}")
        return dtype

    def _simd(self, simd, packed):
        if simd is None:
            return packed
        if simd in ("simd_64", "simd_32_or_64"):
            raise self._unsupported("simd_64", simd)
        if simd != "simd_32":
            raise self._error(f"unknown packing {simd!r}", hint="simd_32, or packed=False")
        return True

"""Variables in SRAM and the descriptors of walks over them."""

from __future__ import annotations

import math

import numpy as np

from fabric.asm.operands import Address, Dsd, Var, extent_of
from fabric.asm.values import WORDS, encode_array
from wse_core import image as im
from wse_core.image import ENDLESS

__all__ = ["Memory"]


class Memory:
    """Part of `fabric.program.program.Program`: variables and memory descriptors."""

    # --- variables ----------------------------------------------------------------------------------------------------

    def array(self, name, count, dtype, init=None, align=None, bank=None):
        """Declare a variable of `count` elements.

        Parameters
        ----------
        name : str
            Symbol; the host reads and writes by it.
        count : int
        dtype : str
            ``f16``, ``cb16``, ``f32``, ``i16``, ``u16``, ``i32``, ``u32``, or ``half`` for the program's 16-bit float.
        init : array_like, optional
            Initial values, fewer than `count` leaves zeros; see `encode_array`.
        align : int, optional
            The address is a multiple of this many words; default 2 for 32-bit types, else 1.
        bank : int, optional
            The address modulo the number of banks; two sources whose banks agree modulo 4 conflict (docs/machine.md).

        Returns
        -------
        Var

        Raises
        ------
        ProgramError
            Name taken, unknown type, impossible alignment, initial values that do not fit.
        """
        return self._variable(name, count, dtype, init, align, bank)

    def scalar(self, name, dtype, init=None, bank=None):
        """Declare a variable of one element; see `array`."""
        return self._variable(name, 1, dtype, init, None, bank)

    def param(self, name, dtype, default=0, count=1):
        """Declare a parameter: a variable that `Layout.set_param` sets per PE before the run.

        Parameters
        ----------
        name, dtype : str
        default : number or array_like
            Value where the layout sets none.
        count : int
            Elements, 1 for a scalar.
        """
        return self._variable(name, count, dtype, default, None, None)

    def _variable(self, name, count, dtype, init, align, bank):
        self._changing()
        dtype = self.half if dtype == "half" else dtype
        if name in self._vars:
            raise self._error("a variable of this name exists already", symbol=name)
        if dtype not in WORDS:
            raise self._error(f"unknown element type {dtype!r}", symbol=name, hint=", ".join([*WORDS, "half"]))
        if dtype in ("f16", "cb16") and dtype != self.half:
            raise self._error(
                f"{dtype} in a program whose 16-bit float is {self.half}",
                symbol=name,
                hint=f"Program(..., half={dtype!r}); a PE has one 16-bit float format at a time",
            )
        if not isinstance(count, (int, np.integer)) or count < 1:
            raise self._error(f"{count!r} is not a number of elements", symbol=name)
        align = align or WORDS[dtype]
        banks = self.machine["mem.banks"]
        if align % WORDS[dtype]:
            raise self._error(f"alignment {align} does not fit {dtype}, which needs even addresses", symbol=name)
        if bank is not None:
            if not 0 <= bank < banks:
                raise self._error(f"bank {bank} is outside 0 .. {banks - 1}", symbol=name)
            if bank % math.gcd(align, banks):
                raise self._error(f"no address is a multiple of {align} and {bank} modulo {banks}", symbol=name)
        words = None
        if init is not None:
            words = encode_array(init, dtype, self.machine["num.cb16_bias"], f"initial value of {name!r}").ravel()
            if len(words) > count * WORDS[dtype]:
                raise self._error(f"{len(words) // WORDS[dtype]} initial values for {count} elements", symbol=name)
        self._vars[name] = var = Var(self, name, int(count), dtype, align, bank, words)
        return var

    # --- descriptors --------------------------------------------------------------------------------------------------

    def mem1d(self, var, extent=None, stride=1, offset=0, save=False, index=False, dtype=None, check=True):
        """Describe a one-dimensional walk over a variable.

        Parameters
        ----------
        var : Var
        extent : int, optional
            Elements; default all from `offset` on in steps of `stride`, for stride 0 as many as the operation has.
        stride, offset : int
            Elements; the stride is a signed byte.
        save : bool
            The DSR keeps the advanced base after an operation (save_address); needs an explicit DSR.
        index : bool
            The index half of each wavelet of the source is added to the word address (wavelet_index_offset).
        dtype : str, optional
            Another element type of the same size, or one of half the size (a view); extent, stride and offset count
            elements of the view.
        check : bool
            Refuse walks that leave the variable.
        """
        dtype = self._view(var, dtype, smaller=True)
        per = WORDS[dtype]
        if not -128 <= stride <= 127:
            raise self._error(
                f"stride {stride} of a one-dimensional descriptor is outside -128 .. 127",
                symbol=var.name,
                hint="p.mem4d takes strides of 16 bits",
            )
        if extent is None and stride:
            room = var.words // per - offset if stride > 0 else offset + 1
            extent = max(0, -(-room // abs(stride)))
        if extent is not None:
            extent = extent_of(extent, f"extent of {var.name!r}")
            if check and not index and extent not in (0, ENDLESS):
                self._inside(var, offset, offset + (extent - 1) * stride, count=var.words // per)
        flags = im.F_SAVE * bool(save) | im.F_INDEX * bool(index)
        return Dsd(
            "mem1d", dtype, None if extent is None else (extent,), (stride,), Address(var, offset * per), flags=flags
        )

    def mem4d(self, var, extents, strides=None, offset=0, dtype=None, check=True):
        """Describe a walk in up to four dimensions, outermost first.

        Parameters
        ----------
        var : Var
        extents : sequence of int
        strides : sequence of int, optional
            Elements per dimension; default row-major and dense.  At most three may differ from 1.
        offset : int
            First element.
        dtype, check
            As in `mem1d`.
        """
        dtype = self._view(var, dtype)
        extents = tuple(extent_of(n, f"extent of {var.name!r}") for n in extents)
        if not 1 <= len(extents) <= 4:
            raise self._error(f"{len(extents)} dimensions; a descriptor has one to four", symbol=var.name)
        if strides is None:
            strides = [math.prod(extents[k + 1 :]) for k in range(len(extents))]
        strides = tuple(int(s) for s in strides)
        if len(strides) != len(extents):
            raise self._error(f"{len(extents)} extents but {len(strides)} strides", symbol=var.name)
        if sum(s != 1 for s in strides) > 3:
            raise self._error(
                f"strides {strides}: at most three may differ from 1",
                symbol=var.name,
                hint="the machine has three stride registers",
            )
        if any(not -32768 <= s <= 32767 for s in strides):
            raise self._error(f"strides {strides} do not fit 16 bits", symbol=var.name)
        if check and 0 not in extents:
            ends = [(n - 1) * s for n, s in zip(extents, strides, strict=True)]
            self._inside(var, offset + sum(min(e, 0) for e in ends), offset + sum(max(e, 0) for e in ends))
        return Dsd("mem4d", dtype, extents, strides, Address(var, offset * var.words_per_element))

    def circular(self, var, extent=None, start=0, save=False, dtype=None, length=None):
        """Describe a circular buffer over the first `length` elements of `var` (default all), from `start` on."""
        dtype = self._view(var, dtype)
        length = var.count if length is None else extent_of(length, f"length of {var.name!r}")
        if not 0 < length <= var.count:
            raise self._error(f"length {length} is outside 1 .. {var.count}", symbol=var.name)
        if not 0 <= start < length:
            raise self._error(f"start {start} is outside 0 .. {length - 1}", symbol=var.name)
        extent = length if extent is None else extent_of(extent, f"extent of {var.name!r}")
        return Dsd(
            "circular", dtype, (extent,), (1,), Address(var), index=start, length=length, flags=im.F_SAVE * bool(save)
        )

    def fifo(self, var, extent=None, activate_push=None, activate_pop=None, terminate=False):
        """Allocate a FIFO with `var` as its storage.

        Parameters
        ----------
        var : Var
        extent : int, optional
            Elements of an operation that takes its length from this operand; default: from the others.
        activate_push, activate_pop : task, optional
            Local task to activate whenever a step pushes to, or pops from, the FIFO.
        terminate : bool
            Full or empty ends an operation instead of suspending it.
        """
        self._changing()
        number = self._fifos
        if number >= self.machine["dsr.xdsr"]:
            raise self._error(f"more than {self.machine['dsr.xdsr']} FIFOs", symbol=var.name)
        self._fifos += 1
        extent = None if extent is None else (extent_of(extent, f"extent of {var.name!r}"),)
        return Dsd(
            "fifo",
            self._view(var, None),
            extent,
            (1,),
            Address(var),
            length=var.count,
            fifo=number,
            flags=im.F_TERMINATE * bool(terminate),
            push_task=activate_push,
            pop_task=activate_pop,
        )

    def _inside(self, var, *elements, count=None):
        count = var.count if count is None else count
        for element in elements:
            if not 0 <= element < count:
                raise self._error(
                    f"the descriptor reaches element {element}, outside 0 .. {count - 1}",
                    symbol=var.name,
                    hint="check=False if the DSR will be moved before it is used",
                )

    def _view(self, var, dtype, smaller=False):
        if not isinstance(var, Var):
            raise self._error(f"{var!r} is not a variable of this program")
        if var._program is not self:
            raise self._error(f"the variable belongs to program {var._program.name!r}", symbol=var.name)
        dtype = self.half if dtype == "half" else dtype or var.dtype
        if dtype not in WORDS or not (
            WORDS[dtype] == var.words_per_element or (smaller and WORDS[dtype] < var.words_per_element)
        ):
            raise self._error(f"{dtype!r} is not a type of the size of {var.dtype}", symbol=var.name)
        if dtype in ("f16", "cb16") and dtype != self.half:
            raise self._error(f"{dtype} in a program whose 16-bit float is {self.half}", symbol=var.name)
        return dtype

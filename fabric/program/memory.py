"""Variables lie in SRAM, and descriptors say how operations walk over them."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from fabric.asm import descriptors
from fabric.asm.operands import Dsd, Task, Var
from fabric.asm.unit import Unit

__all__ = ["ProgramMemory"]


class ProgramMemory:
    """A `ProgramMemory` has the variables and memory descriptors of one program."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    # --- variables ----------------------------------------------------------------------------------------------------

    def array(
        self,
        name: str,
        count: int,
        dtype: str,
        init: ArrayLike | None = None,
        align: int | None = None,
        bank: int | None = None,
    ) -> Var:
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
        return self.unit.variable(name, count, dtype, init, align, bank)

    def scalar(self, name: str, dtype: str, init: ArrayLike | None = None, bank: int | None = None) -> Var:
        """Declare a variable of one element; see `array`."""
        return self.unit.variable(name, 1, dtype, init, None, bank)

    def param(self, name: str, dtype: str, default: ArrayLike = 0, count: int = 1) -> Var:
        """Declare a parameter: a variable that `Layout.set_param` sets per PE before the run.

        Parameters
        ----------
        name, dtype : str
        default : number or array_like
            Value where the layout sets none.
        count : int
            Elements, 1 for a scalar.
        """
        return self.unit.variable(name, count, dtype, default)

    # --- descriptors --------------------------------------------------------------------------------------------------

    def mem1d(
        self,
        var: Var,
        extent: int | None = None,
        stride: int = 1,
        offset: int = 0,
        save: bool = False,
        index: bool = False,
        dtype: str | None = None,
        check: bool = True,
    ) -> Dsd:
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
        return descriptors.mem1d(self.unit, var, extent, stride, offset, save, index, dtype, check)

    def mem4d(
        self,
        var: Var,
        extents: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
        dtype: str | None = None,
        check: bool = True,
    ) -> Dsd:
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
        return descriptors.mem4d(self.unit, var, extents, strides, offset, dtype, check)

    def circular(
        self,
        var: Var,
        extent: int | None = None,
        start: int = 0,
        save: bool = False,
        dtype: str | None = None,
        length: int | None = None,
    ) -> Dsd:
        """Describe a circular buffer over the first `length` elements of `var` (default all), from `start` on."""
        return descriptors.circular(self.unit, var, extent, start, save, dtype, length)

    def fifo(
        self,
        var: Var,
        extent: int | None = None,
        activate_push: Task | str | int | None = None,
        activate_pop: Task | str | int | None = None,
        terminate: bool = False,
    ) -> Dsd:
        """Allocate a FIFO with `var` as its storage.

        Parameters
        ----------
        var : Var
        extent : int, optional
            Elements of an operation that takes its length from this operand; default: from the others.
        activate_push, activate_pop : task, optional
            Local task to activate when a step pushes to, or pops from, the FIFO what another operation had to wait for.
        terminate : bool
            Full or empty ends an operation instead of suspending it.
        """
        return descriptors.fifo(self.unit, var, extent, activate_push, activate_pop, terminate)

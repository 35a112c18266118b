"""A request to end the process is an exception here, so that unwinding the stack removes what is half-written."""

from __future__ import annotations

__all__ = ["Terminated"]


class Terminated(BaseException):
    """This is a signal that asked the process to end.

    Attributes
    ----------
    number : int
        Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
